//! Runs the real XDP program with BPF_PROG_TEST_RUN and a clock that the test sets.

use super::script::{LEDGERS, Step, ring};
use super::subject::{Report, Seen, SourceReport, Subject};
use equic_gateway::abi;
use equic_gateway::reason::Reason;
use equic_gateway_model::{
    AclAction, Arrival, Config, Counter, FragmentPolicy, Listener, Override, Own, QuotaPolicy,
    Rate, RetryPolicy, Service, SourceKey, TakenVersions, address_bytes,
};
use libbpf_rs::libbpf_sys;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, ProgramInput};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

const XDP_ABORTED: u32 = 0;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
/// Size of the output buffer in bytes, larger than any frame of the tests.
const LONGEST: usize = 70_000;
/// Number of buckets in the hash table of a ledger. It is small, so that several sources share a
/// bucket and some must use their second bucket.
const LEDGER_BUCKETS: u32 = 8;
pub(crate) const LEDGER_SEED: u64 = 0x0123_4567_89ab_cdef;
/// Number of services in the tests. The counters of all further services must stay zero.
pub(crate) const SERVICES: usize = 4;

/// Settings that are fixed when the program is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Load {
    pub v4_prefix_len: u8,
    pub v6_prefix_len: u8,
    pub drop_deep_headers: bool,
    pub on_loopback: bool,
}

impl From<&Config> for Load {
    fn from(config: &Config) -> Self {
        Load {
            v4_prefix_len: config.v4_prefix_len,
            v6_prefix_len: config.v6_prefix_len,
            drop_deep_headers: config.drop_deep_headers,
            on_loopback: config.on_loopback,
        }
    }
}

/// The loaded program.
pub(crate) struct Loaded {
    object: Object,
    maps: HashMap<String, MapHandle>,
    ledgers: Vec<MapHandle>,
    control: abi::equic_control,
    shared_control: Mapped<abi::equic_control>,
    shared_explain: Mapped<abi::equic_explain>,
    explained: u32,
    out: Vec<u8>,
}

/// A section of the program's global data, mapped into this process. System calls for a look-up and
/// an update would take longer than processing a packet.
pub(crate) struct Mapped<T> {
    at: *mut T,
}

impl<T: abi::Pod> Mapped<T> {
    fn of(section: &MapHandle) -> Mapped<T> {
        let (fd, access) = (section.as_fd().as_raw_fd(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no memory in use.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), size_of::<T>(), access, libc::MAP_SHARED, fd, 0)
        };
        assert_ne!(at, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Mapped { at: at.cast() }
    }

    /// Returns a pointer that is valid as long as this lives.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.at
    }

    fn read(&self) -> T {
        // SAFETY: the memory is mapped as long as this value lives, and every bit pattern is valid
        // for a Pod type.
        unsafe { self.at.read_volatile() }
    }

    fn write(&self, value: T) {
        // SAFETY: the same holds as for `read`.
        unsafe { self.at.write_volatile(value) };
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: `of` created the mapping with this size, and nothing borrows from it.
        unsafe { libc::munmap(self.at.cast(), size_of::<T>()) };
    }
}

// SAFETY: this value owns the mapping, which is valid in every thread.
unsafe impl<T: Send> Send for Mapped<T> {}

/// Runs scripts on the XDP program. The program is loaded once for each `Load`.
#[derive(Default)]
pub(crate) struct Program {
    loaded: HashMap<Load, Loaded>,
    current: Option<Load>,
    config: Config,
}

impl Program {
    pub(crate) fn loaded(&mut self) -> &mut Loaded {
        self.loaded.get_mut(&self.current.expect("reset comes first")).unwrap()
    }
}

/// Returns the bytes of a value, in the form that the kernel expects.
fn bytes_of<T: abi::Pod>(value: &T) -> &[u8] {
    // SAFETY: a Pod type is `repr(C)` without padding, and the slice lives as long as the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Returns the value that the kernel's bytes encode.
fn from_bytes<T: abi::Pod>(bytes: &[u8]) -> T {
    assert!(bytes.len() >= size_of::<T>(), "{} bytes are too few", bytes.len());
    // SAFETY: the bytes are long enough, and every bit pattern is valid for a Pod type.
    unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
}

fn v4_mask(prefix_len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0)
}

fn v6_mask(prefix_len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0)
}

impl Loaded {
    fn new(options: &Load) -> Loaded {
        // The callback for libbpf's messages is global. The output stays readable because only one
        // program is loaded at a time.
        static LOADING: Mutex<()> = Mutex::new(());
        let _guard = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = ObjectBuilder::default()
            .open_memory(equic_gateway::embedded_object())
            .expect("open the object");
        let v6 = v6_mask(options.v6_prefix_len).to_be_bytes();
        let load = abi::equic_load {
            seed: LEDGER_SEED,
            v6_mask: [
                u64::from_ne_bytes(v6[..8].try_into().unwrap()),
                u64::from_ne_bytes(v6[8..].try_into().unwrap()),
            ],
            v4_mask: u32::from_ne_bytes(v4_mask(options.v4_prefix_len).to_be_bytes()),
            ledger_mask: LEDGER_BUCKETS - 1,
            test_clock: 1,
            explain: 1,
            drop_deep_headers: options.drop_deep_headers.into(),
            flags: u8::from(options.on_loopback) * abi::EQUIC_LOAD_LOOPBACK as u8,
            ..Default::default()
        };
        let ledger = new_ledger();
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name.ends_with(".rodata") {
                let value = map.initial_value_mut().expect(".rodata has a value");
                assert_eq!(value.len(), size_of::<abi::equic_load>(), "only `load` in .rodata");
                value.copy_from_slice(bytes_of(&load));
            } else if name == "ledgers" {
                map.set_inner_map_fd(ledger.as_fd()).expect("the ledger as inner map");
            }
        }
        let object = open.load().expect("load the program");
        let maps: HashMap<String, MapHandle> = object
            .maps()
            .map(|map| {
                let name = map.name().to_string_lossy().into_owned();
                (name, MapHandle::try_from(&map).expect("a handle of the map"))
            })
            .collect();
        let mut ledgers = vec![ledger];
        ledgers.resize_with(LEDGERS, new_ledger);
        let section = |name: &str| {
            let suffix = format!(".data.{name}");
            let found = maps.iter().find(|(name, _)| name.ends_with(&suffix));
            found.unwrap_or_else(|| panic!("no section {suffix} in the program")).1
        };
        let shared_control = Mapped::of(section("control"));
        let shared_explain = Mapped::of(section("explain"));
        let control = shared_control.read();
        let loaded = Loaded {
            object,
            maps,
            ledgers,
            control,
            shared_control,
            shared_explain,
            explained: 0,
            out: Vec::new(),
        };
        for (i, ledger) in loaded.ledgers.iter().enumerate() {
            let fd = ledger.as_fd().as_raw_fd() as u32;
            let slot = i as u32;
            let put =
                loaded.map("ledgers").update(&slot.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY);
            put.expect("put a ledger into its slot");
        }
        loaded
    }

    pub(crate) fn map(&self, name: &str) -> &MapHandle {
        self.maps.get(name).unwrap_or_else(|| panic!("no map {name} in the program"))
    }

    /// Returns a file descriptor of the program, which several threads can use.
    pub(crate) fn program_fd(&mut self) -> OwnedFd {
        let program = self.object.progs_mut().next().expect("the object has a program");
        program.as_fd().try_clone_to_owned().expect("a descriptor more")
    }

    /// Maps the control data, which contain the clock.
    pub(crate) fn mapped_control(&self) -> Mapped<abi::equic_control> {
        Mapped::of(self.data("control"))
    }

    /// Maps the buckets for the rates of services.
    pub(crate) fn mapped_rates(&self) -> Mapped<abi::equic_service_rates> {
        Mapped::of(self.data("rates"))
    }

    fn data(&self, section: &str) -> &MapHandle {
        let suffix = format!(".data.{section}");
        let found = self.maps.iter().find(|(name, _)| name.ends_with(&suffix));
        found.unwrap_or_else(|| panic!("no section {suffix} in the program")).1
    }

    fn write_data(&self, section: &str, value: &[u8]) {
        self.data(section).update(&[0; 4], value, MapFlags::ANY).expect("write a section");
    }

    fn clear(&self, name: &str) {
        let map = self.map(name);
        for key in map.keys().collect::<Vec<_>>() {
            map.delete(&key).expect("delete an entry");
        }
    }

    fn reset(&mut self, config: &Config) {
        for name in ["listeners", "acl4", "acl6", "sources", "prefixes", "handshakes", "fragments"]
        {
            self.clear(name);
        }
        self.clear_counters();
        let zero = [0; size_of::<abi::equic_ledger_bucket>()];
        for ledger in &self.ledgers {
            for element in 0..=LEDGER_BUCKETS {
                ledger.update(&element.to_ne_bytes(), &zero, MapFlags::ANY).unwrap();
            }
        }
        self.control.owner_mask = (1 << LEDGERS) - 1;
        self.control.members = Default::default();
        self.own(None);
        self.control.gone = 0;
        self.control.dead = Default::default();
        self.control.lease_ns = config.lease_ns;
        self.control.older_ids_until_ns = config.older_ids_until_ns;
        self.control.acl_used = 0;
        self.control.dry_run = config.dry_run.into();
        self.shared_control.write(self.control);
        self.write_data("rates", bytes_of(&abi::equic_service_rates::default()));
        for service in 0..SERVICES as u32 {
            let zero = [0; size_of::<abi::equic_strangers>()];
            self.map("strangers").update(&service.to_ne_bytes(), &zero, MapFlags::ANY).unwrap();
        }
        self.write_data("ring", &*ring().to_bytes());
        self.write_services(&config.services);
        self.write_listeners(&config.listeners);
    }

    /// Writes wildcard listeners into the table of ports, and all other listeners into the map of
    /// listeners.
    fn write_listeners(&self, listeners: &[(Listener, usize)]) {
        let mut table = vec![0; size_of::<abi::equic_ports>()];
        for (listener, number) in listeners {
            let family_at = if listener.addr.is_ipv4() { 0 } else { 1 << 16 };
            let entry = &mut table[family_at + usize::from(listener.port)];
            if listener.addr.is_unspecified() {
                *entry |= u8::try_from(number + 1).unwrap();
                continue;
            }
            *entry |= abi::EQUIC_PORT_EXACT as u8;
            let key = abi::equic_listener {
                addr: address_bytes(listener.addr),
                port: listener.port.to_be(),
                family: if listener.addr.is_ipv4() { 4 } else { 6 },
                reserved: 0,
            };
            let number = u32::try_from(*number).unwrap().to_ne_bytes();
            self.map("listeners").update(bytes_of(&key), &number, MapFlags::ANY).unwrap();
        }
        self.map("ports").update(&[0; 4], &table, MapFlags::ANY).unwrap();
    }

    fn write_services(&self, services: &[Service]) {
        let size = size_of::<abi::equic_service>();
        let mut value = vec![0; size * abi::EQUIC_MAX_SERVICES as usize];
        for (chunk, service) in value.chunks_mut(size).zip(services) {
            chunk.copy_from_slice(bytes_of(&service_abi(service)));
        }
        self.write_data("services", &value);
        self.write_overrides(services);
    }

    /// Writes the limits for prefixes. Each override takes one element of the array, from index 1
    /// on, and one entry in the trie of its address family.
    fn write_overrides(&self, services: &[Service]) {
        self.clear("overrides4");
        self.clear("overrides6");
        let size = size_of::<abi::equic_override>();
        let mut value = vec![0; size * abi::EQUIC_OVERRIDES as usize];
        let all = services
            .iter()
            .zip(0u32..)
            .flat_map(|(service, number)| service.overrides.iter().map(move |own| (number, own)));
        for ((service, own), index) in all.zip(1u32..) {
            let element = override_abi(service, own);
            value[index as usize * size..][..size].copy_from_slice(bytes_of(&element));
            let (name, key) = match own.addr {
                IpAddr::V4(addr) => {
                    let addr = (addr.to_bits() & v4_mask(own.prefix_len)).to_be_bytes();
                    let prefixlen = 32 + u32::from(own.prefix_len);
                    let key = abi::equic_override4_key { prefixlen, service, addr };
                    ("overrides4", bytes_of(&key).to_vec())
                }
                IpAddr::V6(addr) => {
                    let addr = (addr.to_bits() & v6_mask(own.prefix_len)).to_be_bytes();
                    let prefixlen = 32 + u32::from(own.prefix_len);
                    let key = abi::equic_override6_key { prefixlen, service, addr };
                    ("overrides6", bytes_of(&key).to_vec())
                }
            };
            self.map(name).update(&key, &index.to_ne_bytes(), MapFlags::ANY).unwrap();
        }
        self.write_data("own", &value);
    }

    fn counter_keys() -> impl Iterator<Item = u32> {
        let of_services = SERVICES as u32 * abi::EQUIC_REASONS_MAX;
        (0..of_services).chain(abi::EQUIC_TALLY_BASE..abi::EQUIC_COUNTERS)
    }

    fn clear_counters(&self) {
        let cpus = libbpf_rs::num_possible_cpus().unwrap();
        let zeros = vec![vec![0; size_of::<abi::equic_counter>()]; cpus];
        for key in Self::counter_keys() {
            let map = self.map("counters");
            map.update_percpu(&key.to_ne_bytes(), &zeros, MapFlags::ANY).unwrap();
        }
    }

    fn counter(&self, key: u32) -> Counter {
        let values = self.map("counters").lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY);
        let mut sum = Counter::default();
        for value in values.unwrap().expect("an array has every element") {
            let counter: abi::equic_counter = from_bytes(&value);
            sum.packets += counter.packets;
            sum.bytes += counter.bytes;
            sum.dropped += counter.dropped;
        }
        sum
    }

    pub(crate) fn tally(&self, tally: u32) -> u64 {
        self.counter(abi::EQUIC_TALLY_BASE + tally).packets
    }

    /// Sets the form in which the next packet arrives.
    fn set_arrival(&self, arrival: Arrival) {
        let mut explain = self.shared_explain.read();
        explain.interface = 0;
        if arrival.no_ethernet {
            explain.interface |= abi::EQUIC_INTERFACE_NO_ETHERNET as u16;
        }
        if arrival.segment > 0 {
            explain.interface |= abi::EQUIC_INTERFACE_GENERIC as u16;
        }
        explain.segment = u16::try_from(arrival.segment).expect("a UDP length");
        self.shared_explain.write(explain);
    }

    /// Runs the program on a frame.
    pub(crate) fn run(&mut self, frame: &[u8], now: u64) -> Seen {
        self.control.clock_ns = now;
        self.shared_control.write(self.control);
        let program = self.object.progs_mut().next().expect("the object has a program");
        self.out.resize(LONGEST, 0);
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut self.out),
            ..Default::default()
        };
        let output = program.test_run(input).expect("BPF_PROG_TEST_RUN");
        let (action, left) = (output.return_value, output.data.unwrap_or_default());
        assert_ne!(action, XDP_ABORTED, "XDP_ABORTED\n{}", super::script::hexdump(frame));
        assert!(matches!(action, XDP_DROP | XDP_PASS | XDP_TX), "action {action}");
        let answer = (action == XDP_TX).then(|| left.to_vec());
        if let Some(answer) = &answer {
            assert!(answer.len() <= frame.len(), "more comes back than came");
        } else {
            assert!(left == frame, "a packet that is not answered is changed");
        }
        let explain = self.shared_explain.read();
        let judged = explain.packets != self.explained;
        self.explained = explain.packets;
        let dropped = action != XDP_PASS;
        if judged {
            assert_eq!(dropped, explain.dropped != 0, "explain contradicts the action");
        }
        let verdict = judged.then(|| (explain.service as usize, reason(explain.reason)));
        Seen { dropped, answer, verdict }
    }

    fn list(&mut self, addr: IpAddr, prefix_len: u8, entry: Option<abi::equic_acl_entry>) {
        let (name, key) = match addr {
            IpAddr::V4(addr) => {
                let addr = (addr.to_bits() & v4_mask(prefix_len)).to_be_bytes();
                let key = abi::equic_acl4_key { prefixlen: prefix_len.into(), addr };
                ("acl4", bytes_of(&key).to_vec())
            }
            IpAddr::V6(addr) => {
                let addr = (addr.to_bits() & v6_mask(prefix_len)).to_be_bytes();
                let key = abi::equic_acl6_key { prefixlen: prefix_len.into(), addr };
                ("acl6", bytes_of(&key).to_vec())
            }
        };
        if let Some(entry) = entry {
            self.map(name).update(&key, bytes_of(&entry), MapFlags::ANY).unwrap();
            self.control.acl_used |= if addr.is_ipv4() { 1 } else { 2 };
        } else {
            // The entry may not exist, so an error is ignored. The model does the same.
            let _ = self.map(name).delete(&key);
        }
    }

    fn own(&mut self, own: Option<&Own>) {
        self.clear("local_addrs");
        self.clear("local_macs");
        let known = own.cloned().unwrap_or_default();
        self.control.local_until_ns = if own.is_some() { u64::MAX } else { 0 };
        self.control.transit = known.transit.into();
        let kinds = [
            (&known.addrs, abi::EQUIC_LOCAL_HOST),
            (&known.broadcasts, abi::EQUIC_LOCAL_BROADCAST),
        ];
        for (addr, kind) in kinds.iter().flat_map(|(all, kind)| all.iter().map(|a| (*a, *kind))) {
            let key = abi::equic_local_key {
                prefixlen: 32 + 128,
                family: if addr.is_ipv4() { 4 } else { 6 },
                addr: address_bytes(addr),
            };
            let value: u32 = kind;
            let map = self.map("local_addrs");
            map.update(bytes_of(&key), &value.to_ne_bytes(), MapFlags::ANY).unwrap();
        }
        for [a, b, c, d, e, f] in known.macs {
            let (key, value) = ([a, b, c, d, e, f, 0, 0], 1u32.to_ne_bytes());
            self.map("local_macs").update(&key, &value, MapFlags::ANY).unwrap();
        }
    }

    fn heartbeat(&self, number: usize, now: u64) {
        let header = abi::equic_ledger_header {
            magic: abi::EQUIC_ABI_MAGIC,
            version: abi::EQUIC_ABI_VERSION,
            buckets: LEDGER_BUCKETS,
            heartbeat_ns: now,
            ..Default::default()
        };
        let ledger = &self.ledgers[number];
        ledger.update(&[0; 4], bytes_of(&header), MapFlags::ANY).unwrap();
    }

    /// Writes the connection count of a source into its slot of a ledger (policy.md section 6).
    fn write_count(&self, number: usize, source: &SourceKey, count: u32) {
        let (tag, mut buckets) = place(source);
        // A source may be in either of its two buckets, so some sources use the second one here.
        if tag & 2 != 0 {
            buckets.reverse();
        }
        let ledger = &self.ledgers[number];
        let read = |bucket: u32| -> abi::equic_ledger_bucket {
            let value = ledger.lookup(&(bucket + 1).to_ne_bytes(), MapFlags::ANY).unwrap();
            from_bytes(&value.unwrap())
        };
        let write = |bucket: u32, value: &abi::equic_ledger_bucket| {
            let key = (bucket + 1).to_ne_bytes();
            ledger.update(&key, bytes_of(value), MapFlags::ANY).unwrap();
        };
        self.plant_twins(source, tag, buckets, &read, &write);
        let slot = abi::equic_ledger_slot { addr: source.addr, group: source.scope, opened: 0 };
        let find = |wanted: &dyn Fn(u64, &abi::equic_ledger_slot) -> bool| {
            buckets.iter().find_map(|bucket| {
                let value = read(*bucket);
                let index =
                    value.meta.iter().zip(&value.slot).position(|(meta, slot)| wanted(*meta, slot));
                Some((*bucket, index?))
            })
        };
        let is_source = |meta, there: &abi::equic_ledger_slot| {
            meta >> 32 == u64::from(tag) && (there.addr, there.group) == (slot.addr, slot.group)
        };
        let Some((bucket, index)) = find(&is_source).or_else(|| find(&|meta, _| meta == 0)) else {
            panic!("the test's ledger is full: fewer sources, or more buckets");
        };
        let mut value = read(bucket);
        // The field `opened` belongs to a cell and not to the source in this slot, so it is not
        // changed.
        let opened = value.slot[index].opened;
        (value.meta[index], value.slot[index]) = if count == 0 {
            Default::default()
        } else {
            (u64::from(tag) << 32 | u64::from(count), slot)
        };
        value.slot[index].opened = opened;
        write(bucket, &value);
    }

    /// Increases the number of opened connections in the counter cell of a source (policy.md
    /// section 7).
    fn write_opened(&self, number: usize, source: &SourceKey, more: u32) {
        let (bucket, cell) = cell_of(source);
        let (ledger, key) = (&self.ledgers[number], (bucket + 1).to_ne_bytes());
        let value = ledger.lookup(&key, MapFlags::ANY).unwrap();
        let mut value: abi::equic_ledger_bucket = from_bytes(&value.unwrap());
        let opened = &mut value.slot[cell].opened;
        *opened = opened.wrapping_add(more);
        ledger.update(&key, bytes_of(&value), MapFlags::ANY).unwrap();
    }

    /// Stores other sources in the first slots of this source's buckets, if these slots are free.
    /// They have many connections and the same tag as this source, and differ only in the group or
    /// the address. So the test fails if the program does not compare the whole key.
    fn plant_twins(
        &self,
        source: &SourceKey,
        tag: u32,
        buckets: [u32; 2],
        read: &dyn Fn(u32) -> abi::equic_ledger_bucket,
        write: &dyn Fn(u32, &abi::equic_ledger_bucket),
    ) {
        let mut addr = source.addr;
        addr[15] ^= 0x80;
        let twins = [(source.addr, source.scope + 77), (addr, source.scope)];
        for (bucket, (addr, group)) in buckets.into_iter().zip(twins) {
            let mut value = read(bucket);
            if value.meta[0] == 0 {
                value.meta[0] = u64::from(tag) << 32 | 1_000;
                let opened = value.slot[0].opened;
                value.slot[0] = abi::equic_ledger_slot { addr, group, opened };
                write(bucket, &value);
            }
        }
    }
}

/// Returns the source to which an address belongs: the prefix of the address in a quota group.
fn source_key(load: &Load, addr: IpAddr, group: u32) -> SourceKey {
    let of_v4 = !u128::from(u32::MAX) | u128::from(v4_mask(load.v4_prefix_len));
    let mask = match addr {
        IpAddr::V4(_) => of_v4,
        IpAddr::V6(addr) => match addr.to_bits() {
            // The following prefixes are 64:ff9b::/96, 64:ff9b:1::/48 and fe80::/64.
            bits if bits >> 32 == 0x0064_ff9b << 64 => of_v4,
            bits if bits >> 80 == 0x0064_ff9b_0001 || bits >> 64 == 0xfe80 << 48 => u128::MAX,
            _ => v6_mask(load.v6_prefix_len),
        },
    };
    let addr = (u128::from_be_bytes(address_bytes(addr)) & mask).to_be_bytes();
    SourceKey { addr, scope: group }
}

fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

/// Returns the keyed hash of a source, which is an address prefix in a quota group or in a service
/// (policy.md section 6).
fn hash_of(source: &SourceKey) -> u64 {
    let word = |at: usize| u64::from_le_bytes(source.addr[at..at + 8].try_into().unwrap());
    let keyed = LEDGER_SEED ^ u64::from(source.scope).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let inner = if word(0) == 0 { keyed } else { mix(keyed ^ word(0)) };
    mix(inner ^ word(8))
}

/// Returns the tag of a source and the indices of its two buckets (policy.md section 6).
fn place(source: &SourceKey) -> (u32, [u32; 2]) {
    let hash = hash_of(source);
    let tag = (hash >> 32) as u32 | 1;
    let mask = LEDGER_BUCKETS - 1;
    let first = hash as u32 & mask;
    let second = (first ^ mix(tag.into()) as u32) & mask;
    (tag, [first, if second == first { first ^ 1 } else { second }])
}

/// Returns the first bucket of a source, and the index of the source's counter cell in that bucket
/// (policy.md section 7).
fn cell_of(source: &SourceKey) -> (u32, usize) {
    let (tag, [first, _]) = place(source);
    (first, (tag >> 1 & 7) as usize)
}

/// Maps all sources that share a counter cell to one of these sources.
pub(crate) fn cell(source: &SourceKey) -> SourceKey {
    let (bucket, cell) = cell_of(source);
    SourceKey { addr: [0; 16], scope: bucket * 8 + cell as u32 }
}

/// Maps all unknown sources that share buckets to one of these sources (policy.md section 11).
pub(crate) fn stranger(source: &SourceKey) -> SourceKey {
    let mut addr = [0; 16];
    addr[0] = hash_of(source) as u8;
    SourceKey { addr, ..*source }
}

fn new_ledger() -> MapHandle {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let value_size = size_of::<abi::equic_ledger_bucket>() as u32;
    MapHandle::create(MapType::Array, Some("ledger"), 4, value_size, LEDGER_BUCKETS + 1, &options)
        .expect("create a ledger")
}

fn reason(number: u32) -> Reason {
    Reason::from_number(number).unwrap_or_else(|| panic!("reason {number}"))
}

fn rate_abi(rate: Rate) -> abi::equic_rate {
    abi::equic_rate { cost_ns: rate.cost_ns, burst_ns: rate.burst_ns }
}

/// Converts an override to the form that the program reads. Leaves out fields that the program
/// ignores.
fn override_abi(service: u32, own: &Override) -> abi::equic_override {
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    let rate = |rate: Option<Rate>| rate_abi(rate.unwrap_or(Rate::OFF));
    let sets = bit(own.max_connections.is_some(), abi::EQUIC_OVERRIDE_MAX_CONNECTIONS)
        | bit(own.new_per_source.is_some(), abi::EQUIC_OVERRIDE_NEW)
        | bit(own.packets_per_source.is_some(), abi::EQUIC_OVERRIDE_PACKETS)
        | bit(own.bytes_per_source.is_some(), abi::EQUIC_OVERRIDE_BYTES);
    abi::equic_override {
        service,
        sets: u8::try_from(sets).unwrap(),
        max_connections: own.max_connections.unwrap_or(0),
        new_per_source: rate(own.new_per_source),
        packets_per_source: rate(own.packets_per_source),
        bytes_per_source: rate(own.bytes_per_source),
        ..Default::default()
    }
}

/// Returns the rates for prefixes in the order that `abi.h` defines.
fn prefix_rates(service: &Service) -> [Rate; 6] {
    let rates = &service.new_per_prefix;
    [rates.v4_32, rates.v4_24, rates.v6_64, rates.v6_56, rates.v6_48, rates.v6_32]
}

fn service_abi(service: &Service) -> abi::equic_service {
    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
    abi::equic_service {
        flags: flag(service.enabled, abi::EQUIC_SERVICE_ENABLED)
            | flag(service.dry_run, abi::EQUIC_SERVICE_DRY_RUN)
            | flag(service.require_fixed_bit, abi::EQUIC_SERVICE_REQUIRE_FIXED_BIT)
            | flag(service.refuse_unknown_versions, abi::EQUIC_SERVICE_REFUSE_UNKNOWN_VERSIONS)
            | flag(service.version_negotiation, abi::EQUIC_SERVICE_VERSION_NEGOTIATION)
            | flag(service.also_client, abi::EQUIC_SERVICE_ALSO_CLIENT)
            | flag(service.check_ids, abi::EQUIC_SERVICE_CHECK_IDS)
            | flag(service.stateless_reset, abi::EQUIC_SERVICE_STATELESS_RESET),
        group: service.group,
        max_connections: service.max_connections,
        policy: match service.policy {
            QuotaPolicy::New => abi::EQUIC_POLICY_NEW,
            QuotaPolicy::Strict => abi::EQUIC_POLICY_STRICT,
            QuotaPolicy::Underway => abi::EQUIC_POLICY_UNDERWAY,
        } as u8,
        fragments: match service.fragments {
            FragmentPolicy::Pass => abi::EQUIC_FRAGMENTS_PASS,
            FragmentPolicy::Follow => abi::EQUIC_FRAGMENTS_FOLLOW,
            FragmentPolicy::Drop => abi::EQUIC_FRAGMENTS_DROP,
        } as u8,
        retry: match service.retry {
            RetryPolicy::Never => abi::EQUIC_RETRY_NEVER,
            RetryPolicy::Always => abi::EQUIC_RETRY_ALWAYS,
            RetryPolicy::Adaptive => abi::EQUIC_RETRY_ADAPTIVE,
        } as u8,
        versions: match service.versions {
            TakenVersions::Both => abi::EQUIC_VERSIONS_1_AND_2,
            TakenVersions::V1 => abi::EQUIC_VERSIONS_1,
            TakenVersions::V2 => abi::EQUIC_VERSIONS_2,
        } as u8,
        answers_per_service: rate_abi(service.answers_per_service),
        retry_above: rate_abi(service.retry_above),
        retry_hold_ns: service.retry_hold_ns,
        new_per_source: rate_abi(service.new_per_source),
        new_per_service: rate_abi(service.new_per_service),
        packets_per_source: rate_abi(service.packets_per_source),
        bytes_per_source: rate_abi(service.bytes_per_source),
        packets_per_service: rate_abi(service.packets_per_service),
        unproven_per_service: rate_abi(service.unproven_per_service),
        new_per_prefix: prefix_rates(service).map(rate_abi),
        overrides: service
            .overrides
            .iter()
            .fold(0, |families, own| families | if own.addr.is_ipv4() { 1 } else { 2 }),
        prefix_levels: prefix_rates(service)
            .iter()
            .enumerate()
            .fold(0, |levels, (level, rate)| levels | u32::from(*rate != Rate::OFF) << level),
        handshake_ns: service.handshake_ns,
        name: std::array::from_fn(|at| {
            service.name.as_bytes().get(at).copied().unwrap_or(0).cast_signed()
        }),
    }
}

impl Subject for Program {
    fn reset(&mut self, config: &Config) {
        let load = Load::from(config);
        self.loaded.entry(load).or_insert_with(|| Loaded::new(&load)).reset(config);
        self.current = Some(load);
        self.config = config.clone();
    }

    fn step(&mut self, step: &Step, now: u64) -> Option<Seen> {
        if let Step::Service { number, service } = step {
            self.config.services[*number] = (**service).clone();
            let services = self.config.services.clone();
            self.loaded().write_services(&services);
            return None;
        }
        let load = Load::from(&self.config);
        let loaded = self.loaded();
        match step {
            Step::Packet(frame) => return Some(loaded.run(frame, now)),
            Step::Arrival(packet, arrival) => {
                loaded.set_arrival(*arrival);
                let seen = loaded.run(packet, now);
                loaded.set_arrival(Arrival::default());
                return Some(seen);
            }
            Step::Wait(_) | Step::Service { .. } => {}
            Step::List { addr, prefix_len, entry } => {
                let entry = entry.map(|entry| abi::equic_acl_entry {
                    expires_ns: entry.expires_ns,
                    action: match entry.action {
                        AclAction::Deny => abi::EQUIC_ACL_DENY as u8,
                        AclAction::Allow => abi::EQUIC_ACL_ALLOW as u8,
                    },
                    origin: 0,
                    count: 0,
                    prefixlen: (*prefix_len).into(),
                });
                loaded.list(*addr, *prefix_len, entry);
            }
            Step::Connections { ledger, source, group, count } => {
                loaded.heartbeat(*ledger, now);
                loaded.write_count(*ledger, &source_key(&load, *source, *group), *count);
            }
            Step::Opened { ledger, source, group, more } => {
                loaded.heartbeat(*ledger, now);
                loaded.write_opened(*ledger, &source_key(&load, *source, *group), *more);
            }
            Step::Heartbeat { ledger, ahead } => loaded.heartbeat(*ledger, now + ahead),
            Step::DryRun(dry_run) => loaded.control.dry_run = (*dry_run).into(),
            Step::ForgetHandshakes => loaded.clear("handshakes"),
            Step::Place { ledger, taken, barred } => {
                let bit = 1 << ledger;
                loaded.control.owner_mask &= !bit;
                loaded.control.owner_mask |= if *taken { bit } else { 0 };
                loaded.control.members[*ledger].barred = *barred;
            }
            Step::Own(own) => loaded.own(own.as_ref()),
            Step::Dead { place, groups } => {
                loaded.control.dead[*place] = *groups;
                let dead = loaded.control.dead;
                loaded.control.gone = dead.iter().fold(0, |all, groups| all | groups);
            }
        }
        None
    }

    fn report(&mut self) -> Report {
        let report = self.report_contended();
        let contended = self.loaded().tally(abi::EQUIC_TALLY_CONTENDED);
        assert_eq!(contended, 0, "one packet at a time");
        report
    }
}

impl Program {
    /// Returns the report of a program that may have run on several CPUs at the same time.
    pub(crate) fn report_contended(&mut self) -> Report {
        let loaded = self.loaded();
        let mut report = Report::default();
        for service in 0..SERVICES {
            for reason in Reason::all() {
                let key = service as u32 * abi::EQUIC_REASONS_MAX + reason.number();
                let counter = loaded.counter(key);
                if counter != Counter::default() {
                    report.counters.insert((service, reason), counter);
                }
            }
        }
        let sources = loaded.map("sources");
        for key in sources.keys() {
            let value = sources.lookup(&key, MapFlags::ANY).unwrap().expect("nobody deletes it");
            let source: abi::equic_source = from_bytes(&key);
            let state: abi::equic_source_state = from_bytes(&value);
            let key = SourceKey { addr: source.addr, scope: source.service };
            let source = SourceReport {
                packets: state.packets(),
                bytes: state.bytes(),
                drops: state.drops(),
                first_ns: state.first_ns,
                last_ns: state.last_ns,
                last_reason: reason(state.last_reason),
            };
            report.sources.insert(key, source);
        }
        let rates = loaded.mapped_rates().read();
        let adaptive = rates.adaptive.iter().take(SERVICES);
        report.asking = adaptive.map(|state| (state.began, state.until_ns)).collect();
        report.tallies.sources_created = loaded.tally(abi::EQUIC_TALLY_SOURCES_CREATED);
        report.tallies.handshakes_created = loaded.tally(abi::EQUIC_TALLY_HANDSHAKES_CREATED);
        report.tallies.prefixes_created = loaded.tally(abi::EQUIC_TALLY_PREFIXES_CREATED);
        report.tallies.deep_headers = loaded.tally(abi::EQUIC_TALLY_DEEP_HEADERS);
        report
    }
}

/// Runs the program `repeat` times on a frame, and returns the last action. `linear` is the number
/// of bytes in the linear part of the packet buffer. If it is `None`, the kernel chooses.
pub(crate) fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    repeat: u32,
    linear: Option<u32>,
) -> std::io::Result<u32> {
    let context = libbpf_sys::xdp_md { data_end: linear.unwrap_or(0), ..Default::default() };
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: repeat.cast_signed(),
        ..Default::default()
    };
    if linear.is_some() {
        options.ctx_in = (&raw const context).cast();
        options.ctx_size_in = size_of_val(&context) as u32;
    }
    // SAFETY: frame and context live until the call returns, and the options contain their sizes.
    let failed =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if failed == 0 { Ok(options.retval) } else { Err(std::io::Error::from_raw_os_error(-failed)) }
}
