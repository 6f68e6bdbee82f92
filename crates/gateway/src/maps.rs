//! The BPF maps of one gateway, with their types. They come from a newly loaded object, or are
//! opened by their IDs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::abi;
use crate::error::{Error, Result};
use crate::overrides::Overrides;
use crate::services::Services;
use crate::sys::ids;
use crate::sys::map::{Map, PerCpuArray, first_value, map_info};
use crate::sys::region::Shared;

/// All maps that the XDP program and user space share.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) load: abi::equic_load,
    pub(crate) control: Arc<Shared<abi::equic_control>>,
    pub(crate) control_map: OwnedFd,
    pub(crate) services: Arc<Shared<Services>>,
    pub(crate) services_map: OwnedFd,
    /// Limits for the sources in some prefixes. `overrides.rs` writes them.
    pub(crate) overrides: Arc<Shared<Overrides>>,
    pub(crate) overrides_map: OwnedFd,
    pub(crate) overrides4: Map<abi::equic_override4_key, u32>,
    pub(crate) overrides6: Map<abi::equic_override6_key, u32>,
    pub(crate) rates: Shared<abi::equic_service_rates>,
    /// The key ring. It is a secret and must never be printed.
    pub(crate) ring: Arc<Shared<abi::equic_ring>>,
    pub(crate) explain: Shared<abi::equic_explain>,
    pub(crate) ports: Shared<abi::equic_ports>,
    pub(crate) listeners: Map<abi::equic_listener, u32>,
    pub(crate) acl4: Map<abi::equic_acl4_key, abi::equic_acl_entry>,
    pub(crate) acl6: Map<abi::equic_acl6_key, abi::equic_acl_entry>,
    pub(crate) sources: Map<abi::equic_source, abi::equic_source_state>,
    pub(crate) prefixes: Map<abi::equic_prefix, u64>,
    pub(crate) handshakes: Map<abi::equic_handshake_key, abi::equic_handshake>,
    /// Addresses of this host. `local.rs` writes them.
    pub(crate) local_addrs: Map<abi::equic_local_key, u32>,
    pub(crate) local_macs: Map<u64, u32>,
    /// Flags that say how the XDP program is attached, by interface index.
    pub(crate) interfaces: Map<u32, u32>,
    pub(crate) counters: PerCpuArray<abi::equic_counter>,
    pub(crate) events: OwnedFd,
    pub(crate) capture: Shared<abi::equic_capture>,
    pub(crate) captured: OwnedFd,
    pub(crate) ledgers: OwnedFd,
    /// Report of the process that manages the gateway. The XDP program does not use this map: see
    /// `equic_report` in `abi.h`.
    pub(crate) report: Option<Shared<abi::equic_report>>,
    /// Notes that processes leave for each other. The XDP program does not use this map: see
    /// `equic_notes` in `abi.h`.
    pub(crate) notes: Option<Shared<abi::equic_notes>>,
    pub(crate) notes_map: Option<OwnedFd>,
    /// Changes by other processes. The XDP program does not use this map: see `equic_audit` in
    /// `abi.h`.
    pub(crate) audit: Option<Shared<abi::equic_audit>>,
}

/// Name of the map with the report of the managing process.
pub(crate) const REPORT: &str = "equic_report";
/// Name of the map with notes that processes leave for each other.
pub(crate) const NOTES: &str = "equic_notes";
/// Name of the map with changes by other processes.
pub(crate) const AUDIT: &str = "equic_audit";

/// Names of the maps that user space needs. In the kernel, the name of `.rodata` begins with the
/// object's name.
pub(crate) const NAMES: [&str; 24] = [
    ".data.control",
    ".data.services",
    ".data.own",
    ".data.rates",
    ".data.ring",
    ".data.explain",
    ".data.capture",
    ".rodata",
    "ports",
    "listeners",
    "acl4",
    "acl6",
    "overrides4",
    "overrides6",
    "sources",
    "prefixes",
    "handshakes",
    "local_addrs",
    "local_macs",
    "interfaces",
    "counters",
    "events",
    "captured",
    "ledgers",
];

/// Returns the entry of [`NAMES`] for the name of a map in the kernel or in an object.
pub(crate) fn known_name(name: &str) -> Option<&'static str> {
    if name.ends_with(".rodata") {
        return Some(".rodata");
    }
    if let Some(bound) = [REPORT, NOTES, AUDIT].into_iter().find(|bound| *bound == name) {
        return Some(bound);
    }
    // The kernel truncates names of maps to 15 characters.
    NAMES.into_iter().find(|known| *known == name || (name.len() == 15 && known.starts_with(name)))
}

impl Maps {
    /// Opens all maps. `get` returns a map by its name. `what` names the program in errors.
    pub(crate) fn new(
        what: &str,
        program: u32,
        mut get: impl FnMut(&str) -> io::Result<Option<OwnedFd>>,
    ) -> Result<Maps> {
        let foreign = |why: String| Error::ForeignProgram { program, why };
        let mut get = |name: &str| {
            get(name).map_err(|error| Error::system(format!("opening the map `{name}`"), error))
        };
        let (report, notes_map, audit) = (get(REPORT)?, get(NOTES)?, get(AUDIT)?);
        let mut take = |name: &str| {
            get(name)?.ok_or_else(|| foreign(format!("the program has no map `{name}`")))
        };
        let wrong = |name: &'static str| {
            move |error: io::Error| match error.kind() {
                io::ErrorKind::InvalidData => {
                    foreign(format!("the program's map `{name}` has {error}"))
                }
                _ => Error::system(format!("opening the map `{name}`"), error),
            }
        };
        let control = take(".data.control")?;
        check_version(
            what,
            program,
            &first_value(control.as_fd()).map_err(wrong(".data.control"))?,
        )?;
        let rodata = take(".rodata")?;
        let services = take(".data.services")?;
        let overrides = take(".data.own")?;
        let ring = take(".data.ring")?;
        Ok(Maps {
            load: load_of(&rodata).map_err(wrong(".rodata"))?,
            control: Arc::new(shared(&control).map_err(wrong(".data.control"))?),
            control_map: control,
            services: Arc::new(shared(&services).map_err(wrong(".data.services"))?),
            services_map: services,
            overrides: Arc::new(shared(&overrides).map_err(wrong(".data.own"))?),
            overrides_map: overrides,
            overrides4: Map::new(take("overrides4")?).map_err(wrong("overrides4"))?,
            overrides6: Map::new(take("overrides6")?).map_err(wrong("overrides6"))?,
            rates: shared(&take(".data.rates")?).map_err(wrong(".data.rates"))?,
            ring: Arc::new(shared(&ring).map_err(wrong(".data.ring"))?),
            explain: shared(&take(".data.explain")?).map_err(wrong(".data.explain"))?,
            ports: shared(&take("ports")?).map_err(wrong("ports"))?,
            listeners: Map::new(take("listeners")?).map_err(wrong("listeners"))?,
            acl4: Map::new(take("acl4")?).map_err(wrong("acl4"))?,
            acl6: Map::new(take("acl6")?).map_err(wrong("acl6"))?,
            sources: Map::new(take("sources")?).map_err(wrong("sources"))?,
            prefixes: Map::new(take("prefixes")?).map_err(wrong("prefixes"))?,
            handshakes: Map::new(take("handshakes")?).map_err(wrong("handshakes"))?,
            local_addrs: Map::new(take("local_addrs")?).map_err(wrong("local_addrs"))?,
            local_macs: Map::new(take("local_macs")?).map_err(wrong("local_macs"))?,
            interfaces: Map::new(take("interfaces")?).map_err(wrong("interfaces"))?,
            counters: PerCpuArray::new(take("counters")?).map_err(wrong("counters"))?,
            events: take("events")?,
            capture: shared(&take(".data.capture")?).map_err(wrong(".data.capture"))?,
            captured: take("captured")?,
            ledgers: take("ledgers")?,
            audit: audit.map(|fd| shared(&fd)).transpose().map_err(wrong(AUDIT))?,
            report: report.map(|fd| shared(&fd)).transpose().map_err(wrong(REPORT))?,
            notes: notes_map.as_ref().map(shared).transpose().map_err(wrong(NOTES))?,
            notes_map,
        })
    }

    /// Opens the maps of a loaded program by the IDs that the kernel lists for it. `what` names the
    /// program in errors.
    pub(crate) fn of_program(what: &str, program: &ids::Program) -> Result<Maps> {
        let mut found = maps_of(program)?;
        Maps::new(what, program.id, |wanted| {
            let index = found.iter().position(|(name, _)| known_name(name) == Some(wanted));
            Ok(index.map(|index| found.swap_remove(index).1))
        })
    }

    /// Returns another descriptor of the map `ledgers`.
    pub(crate) fn ledgers(&self) -> io::Result<Map<u32, u32>> {
        Map::new(self.ledgers.try_clone()?)
    }
}

/// Returns every map of a program, each with its name in the kernel.
pub(crate) fn maps_of(program: &ids::Program) -> Result<Vec<(String, OwnedFd)>> {
    let mut found = Vec::new();
    for id in &program.maps {
        let failed =
            |error| Error::system(format!("opening map {id} of program {}", program.id), error);
        let Some(fd) = ids::map_by_id(*id).map_err(failed)? else { continue };
        let info = map_info(fd.as_fd()).map_err(failed)?;
        found.push((crate::config::from_c_name(&info.name), fd));
    }
    Ok(found)
}

/// Checks magic and version, which are the first fields in every version of `struct equic_control`.
pub(crate) fn check_version(what: &str, program: u32, control: &[u8]) -> Result<()> {
    let word = |at: usize| Some(u32::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?));
    match (word(0), word(4)) {
        (Some(abi::EQUIC_ABI_MAGIC), Some(abi::EQUIC_ABI_VERSION)) => Ok(()),
        (Some(abi::EQUIC_ABI_MAGIC), Some(found)) => Err(Error::AbiVersion {
            what: what.to_owned(),
            found,
            expected: abi::EQUIC_ABI_VERSION,
        }),
        _ => Err(Error::ForeignProgram {
            program,
            why: "the program's control data has no magic number".to_owned(),
        }),
    }
}

fn shared<T: abi::Pod>(fd: &OwnedFd) -> io::Result<Shared<T>> {
    let size = map_info(fd.as_fd())?.value_size as usize;
    if size != size_of::<T>() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("values of the unexpected size of {size} bytes"),
        ));
    }
    Shared::of_map(fd.as_fd(), true)
}

/// Reads `load`, the only variable of the XDP program in `.rodata`.
fn load_of(rodata: &OwnedFd) -> io::Result<abi::equic_load> {
    let bytes = first_value(rodata.as_fd())?;
    if bytes.len() != size_of::<abi::equic_load>().next_multiple_of(8) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("values of the unexpected size of {} bytes", bytes.len()),
        ));
    }
    // SAFETY: `bytes` has the size of `equic_load`, and every bit pattern is a valid `equic_load`.
    Ok(unsafe { bytes.as_ptr().cast::<abi::equic_load>().read_unaligned() })
}
