//! Loads the XDP program from an object file: opens and checks the file, sets the values that must
//! be set before loading, and loads the program.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use libbpf_rs::{MapCore, Object, ObjectBuilder, OpenObject};

use crate::abi;
use crate::config::{Config, buckets_for};
use crate::error::{Error, Result, no_descriptor, system_error};
use crate::maps::{AUDIT, Maps, NAMES, NOTES, REPORT, check_version, known_name};
use crate::sys;
use crate::sys::ids;
use crate::sys::log::{self, listen};
use crate::sys::map::{create_mappable_array, map_info};

/// Holds the bytes of the object file with the alignment that the ELF parser needs.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static EMBEDDED: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/gateway.bpf.o")));

/// Returns the compiled XDP program that belongs to this library.
pub fn embedded_object() -> &'static [u8] {
    &EMBEDDED.0
}

/// Source of the XDP program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ObjectSource {
    /// The object that is embedded in this library.
    #[default]
    Embedded,
    /// Path of an object file that the build wrote.
    Path(PathBuf),
    /// The content of an object file.
    Bytes(Vec<u8>),
}

impl ObjectSource {
    fn name(&self) -> String {
        match self {
            ObjectSource::Embedded => "the embedded object".to_owned(),
            ObjectSource::Path(path) => format!("`{}`", path.display()),
            ObjectSource::Bytes(_) => "the object".to_owned(),
        }
    }

    fn read(&self) -> Result<Vec<u8>> {
        match self {
            ObjectSource::Embedded => Ok(embedded_object().to_vec()),
            ObjectSource::Bytes(bytes) => Ok(bytes.clone()),
            ObjectSource::Path(path) => crate::file::read_regular(path, LARGEST)
                .map_err(|error| self.bad(format!("the file cannot be read ({error})"))),
        }
    }

    fn bad(&self, why: impl Into<String>) -> Error {
        Error::BadObject { object: self.name(), why: why.into() }
    }
}

/// Maximum size of an object file in bytes. The object that the build writes is many times smaller.
const LARGEST: u64 = 64 << 20;
/// Maximum number of descriptors that are open at a time during loading. Each map needs two
/// (libbpf's and this library's). Others are needed for the XDP program, its BTF, and libbpf's
/// feature probes.
const DESCRIPTORS: usize = 2 * (NAMES.len() + 3) + 24;

/// Map sizes and constants of the XDP program, which cannot change after the program is loaded.
#[derive(Debug, Clone)]
pub(crate) struct LoadPlan {
    pub(crate) load: abi::equic_load,
    pub(crate) listeners: u32,
    pub(crate) acl_entries: u32,
    pub(crate) sources: u32,
    pub(crate) handshakes: u32,
}

impl LoadPlan {
    pub(crate) fn of(config: &Config, seed: u64) -> LoadPlan {
        debug_assert!(buckets_for(config.gateway.ledger_sources).is_power_of_two());
        let mut load = config.gateway.to_load(seed, config.ban.as_ref());
        if sys::driver::programs_read_memory() {
            load.flags |= abi::EQUIC_LOAD_READS_KERNEL as u8;
        }
        LoadPlan {
            load,
            listeners: config.listeners().count().max(64) as u32,
            acl_entries: config.gateway.acl_entries,
            sources: config.gateway.sources,
            handshakes: config.gateway.handshakes,
        }
    }

    fn max_entries(&self, map: &str) -> Option<u32> {
        Some(match map {
            "listeners" => self.listeners,
            "acl4" | "acl6" => self.acl_entries,
            "sources" => self.sources,
            "handshakes" => self.handshakes,
            _ => return None,
        })
    }
}

/// A loaded XDP program and its maps. These descriptors keep both in the kernel.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) program: OwnedFd,
    pub(crate) id: u32,
    pub(crate) maps: Maps,
}

/// The maps of a running program, by name. Another program can reuse them.
pub(crate) type Kept = [(String, OwnedFd)];

/// Loads the XDP program without attaching it, and creates its maps.
pub(crate) fn load(source: &ObjectSource, plan: &LoadPlan) -> Result<Loaded> {
    load_over(source, plan, &[])
}

/// Loads the XDP program with existing maps, and creates the missing ones.
pub(crate) fn load_over(source: &ObjectSource, plan: &LoadPlan, kept: &Kept) -> Result<Loaded> {
    let bytes = source.read()?;
    if !bytes.starts_with(b"\x7fELF") {
        return Err(source.bad("the file is not an ELF file"));
    }
    // libbpf does not report that descriptors ran out. It assumes instead that the feature it is
    // probing is missing. So this checks first that enough descriptors are free.
    sys::reserve_descriptors(DESCRIPTORS)
        .map_err(|error| Error::system("opening the maps of the gateway", error))?;
    let (opened, heard) = listen(|| {
        let mut builder = ObjectBuilder::default();
        builder.name("equic")?.open_memory(&bytes)
    });
    let mut opened = opened.map_err(|error| match system_error(&error).filter(no_descriptor) {
        Some(error) => Error::system("reading the XDP program", error),
        None => source.bad(format!("libbpf says: {}", log::last_line(&heard))),
    })?;
    check(source, &opened)?;
    sys::raise_memlock();
    let template = prepare(source, &mut opened, plan)?;
    reuse(source, &mut opened, kept)?;
    let (loaded, heard) = listen(|| opened.load());
    drop(template);
    collect(source, &loaded.map_err(|error| why_not(&error, &heard))?, kept)
}

/// Checks that the object contains the gateway's program, built from this library's version of
/// `abi.h`.
fn check(source: &ObjectSource, object: &OpenObject) -> Result<()> {
    if !object.progs().any(|program| program.name() == OsStr::new(crate::PROGRAM_NAME)) {
        return Err(source.bad(format!("the file has no program `{}`", crate::PROGRAM_NAME)));
    }
    for name in NAMES {
        let map = object.maps().find(|map| map.name().to_str().and_then(known_name) == Some(name));
        let Some(map) = map else {
            return Err(source.bad(format!("the file has no map `{name}`")));
        };
        if name == ".data.control" {
            let control = map.initial_value().unwrap_or_default();
            check_version(&source.name(), 0, control).map_err(|error| match error {
                Error::ForeignProgram { why, .. } => source.bad(why),
                other => other,
            })?;
        }
    }
    Ok(())
}

/// Sets the sizes of maps and the read-only data. The returned descriptor must live until the
/// object is loaded.
fn prepare(source: &ObjectSource, object: &mut OpenObject, plan: &LoadPlan) -> Result<OwnedFd> {
    let failed = |error: io::Error| Error::system("creating the maps of the gateway", error);
    let refused = |error: libbpf_rs::Error| failed(io::Error::other(error));
    let entries = plan.load.ledger_mask + 2;
    let bucket = size_of::<abi::equic_ledger_bucket>();
    let template = create_mappable_array("equic_ledger", bucket, entries).map_err(failed)?;
    for mut map in object.maps_mut() {
        let Some(name) = map.name().to_str().and_then(known_name) else { continue };
        if let Some(entries) = plan.max_entries(name) {
            map.set_max_entries(entries).map_err(refused)?;
        }
        if name == "ledgers" {
            map.set_inner_map_fd(template.as_fd()).map_err(refused)?;
        }
        if name == ".rodata" {
            let value = map.initial_value_mut().unwrap_or_default();
            if value.len() != size_of::<abi::equic_load>() {
                return Err(source.bad(format!(
                    "the file's read-only data has an unexpected size of {} bytes",
                    value.len()
                )));
            }
            // SAFETY: the value has the size of `equic_load`, and consists of plain integers.
            unsafe { value.as_mut_ptr().cast::<abi::equic_load>().write_unaligned(plan.load) };
        }
    }
    Ok(template)
}

/// Makes the object use existing maps, except for the read-only data, which each program has for
/// itself.
fn reuse(source: &ObjectSource, object: &mut OpenObject, kept: &Kept) -> Result<()> {
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        // The kernel truncates names of maps to 15 characters.
        let same = |kept: &str| kept == name || (kept.len() == 15 && name.starts_with(kept));
        let Some((_, fd)) = kept.iter().find(|(kept, _)| same(kept)) else { continue };
        if name.ends_with(".rodata") {
            continue;
        }
        let failed =
            |error| Error::system(format!("reading the description of the map `{name}`"), error);
        let there = map_info(fd.as_fd()).map_err(failed)?;
        let there = [there.type_, there.key_size, there.value_size, there.max_entries];
        let here = [map.map_type() as u32, map.key_size(), map.value_size(), map.max_entries()];
        if there != here {
            return Err(source.bad(format!(
                "the file's map `{name}` (type, key size, value size, entries: {here:?}) differs from the map of the running gateway ({there:?})"
            )));
        }
        map.reuse_fd(fd.as_fd()).map_err(|error| failed(io::Error::other(error)))?;
    }
    Ok(())
}

/// Duplicates the descriptors of the loaded program and its maps, because libbpf's object is closed
/// afterwards.
fn collect(source: &ObjectSource, object: &Object, kept: &Kept) -> Result<Loaded> {
    let failed = |error: io::Error| Error::system("duplicating the program's descriptors", error);
    let program = object
        .progs()
        .find(|program| program.name() == OsStr::new(crate::PROGRAM_NAME))
        .ok_or_else(|| source.bad(format!("the file has no program `{}`", crate::PROGRAM_NAME)))?;
    let program = program.as_fd().try_clone_to_owned().map_err(failed)?;
    let id = ids::program_info(program.as_fd()).map_err(failed)?.id;
    let bound_to_program = |map: io::Result<OwnedFd>| {
        map.and_then(|map| ids::bind(program.as_fd(), map.as_fd()).map(|()| map)).map_err(failed)
    };
    let bound = |name: &str, size: usize| bound_to_program(create_mappable_array(name, size, 1));
    // This map counts the entries of the tries, so a program that reuses the tries must reuse this
    // map, too.
    let there = kept.iter().find(|(name, _)| name == NOTES).map(|(_, map)| map.try_clone());
    let mut notes = Some(match there {
        Some(map) => bound_to_program(map)?,
        None => bound(NOTES, size_of::<abi::equic_notes>())?,
    });
    let mut report = Some(bound(REPORT, size_of::<abi::equic_report>())?);
    let mut audit = Some(bound(AUDIT, size_of::<abi::equic_audit>())?);
    let maps = Maps::new(&source.name(), id, |wanted| {
        if wanted == REPORT {
            return Ok(report.take());
        }
        if wanted == NOTES {
            return Ok(notes.take());
        }
        if wanted == AUDIT {
            return Ok(audit.take());
        }
        let named =
            object.maps().find(|map| map.name().to_str().and_then(known_name) == Some(wanted));
        named.map(|map| map.as_fd().try_clone_to_owned()).transpose()
    })?;
    Ok(Loaded { program, id, maps })
}

/// Returns an error that explains why the kernel did not load the XDP program.
fn why_not(error: &libbpf_rs::Error, heard: &str) -> Error {
    if let Some(too_old) = too_old(sys::kernel()) {
        return too_old;
    }
    if let Some(log) = log::verifier_log(heard).filter(|log| !log.is_empty()) {
        return Error::Verifier {
            line: log::last_useful_line(log).to_owned(),
            log: log.to_owned(),
        };
    }
    let denied = error.kind() == libbpf_rs::ErrorKind::PermissionDenied;
    let errno = if let Some(short) = system_error(error).filter(no_descriptor) {
        short
    } else if denied {
        io::Error::from_raw_os_error(libc::EPERM)
    } else {
        io::Error::other(log::last_line(heard).to_owned())
    };
    Error::system("loading the XDP program", errno)
}

/// Returns an error if the kernel is too old for the XDP program, otherwise `None`.
fn too_old((running, version): (String, (u32, u32))) -> Option<Error> {
    let feature = "multi-buffer XDP (`xdp.frags`)";
    (version < (5, 18)).then_some(Error::KernelTooOld { feature, needs: "5.18", running })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_too_old_error_names_release_and_missing_feature() {
        let said = too_old(("5.10.0-30-amd64".to_owned(), (5, 10))).expect("too old").to_string();
        assert_eq!(
            said,
            "this kernel (5.10.0-30-amd64) has no multi-buffer XDP (`xdp.frags`): the gateway needs \
             Linux 5.18 or newer"
        );
        assert!(too_old(("5.17.15".to_owned(), (5, 17))).is_some());
        assert!(too_old(("5.18.0".to_owned(), (5, 18))).is_none());
        assert!(too_old(("6.1.0-56-cloud-amd64".to_owned(), (6, 1))).is_none());
    }
}
