//! Typed access to the operating system. Only this module makes raw `bpf(2)` calls, maps memory,
//! and reads /proc.
//!
//! * `map.rs`: BPF maps with Rust types for keys and values;
//! * `region.rs`: memory shared with the kernel or other processes;
//! * `memory.rs`: memory that other processes can only read;
//! * `ring.rs`: reading a BPF ring buffer without consuming records;
//! * `ids.rs`: programs, links and maps of the whole system, by their IDs;
//! * `netlink.rs`: addresses, routes and interfaces of the network namespace;
//! * `driver.rs`: properties of the packets that a program sees on an interface;
//! * `unix.rs`: Unix sockets, and descriptors sent over them;
//! * `pin.rs`: pins in a BPF file system;
//! * `signals.rs`: threads that receive no signals;
//! * `log.rs`: messages of libbpf and the verifier during a call;
//! * `link.rs`: network interfaces, queried through rtnetlink;
//! * this file: the clock of the XDP program, capabilities, namespaces, processes.

pub(crate) mod driver;
pub(crate) mod ids;
pub(crate) mod link;
pub(crate) mod log;
pub(crate) mod map;
pub(crate) mod memory;
pub(crate) mod netlink;
pub(crate) mod pin;
pub(crate) mod region;
pub(crate) mod ring;
pub(crate) mod signals;
pub(crate) mod unix;

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use equic_token::host;
pub use link::NetworkInterface;

use crate::error::{Error, Result, no_descriptor, similar};

/// Returns the time in nanoseconds of the host's `CLOCK_MONOTONIC`, the clock of the XDP program.
pub(crate) fn monotonic_ns() -> u64 {
    u64::try_from(host::monotonic().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the capabilities that a gateway needs but this process lacks.
pub(crate) fn lacking_capabilities() -> Vec<&'static str> {
    const NEEDED: [(u32, &str); 4] =
        [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];
    let effective = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    let Some(effective) = effective else { return Vec::new() };
    let has = |bit: u32| effective >> bit & 1 == 1;
    // CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON.
    NEEDED
        .iter()
        .filter(|(bit, _)| !(has(*bit) || (*bit > 21 && has(21))))
        .map(|(_, name)| *name)
        .collect()
}

/// Returns the release of the running kernel as `uname -r` prints it, and the first two numbers of
/// the release.
pub(crate) fn kernel() -> (String, (u32, u32)) {
    let release =
        fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (release, version)
}

/// Returns the index of the interface in this network namespace with this name or alternative name.
pub(crate) fn interface_index(name: &str) -> Result<u32> {
    match NetworkInterface::by_name(name) {
        Ok(Some(link)) => Ok(link.index),
        Ok(None) => {
            let similar = similar_interfaces(name);
            Err(Error::NoSuchInterface { name: name.to_owned(), similar })
        }
        Err(error) => Err(Error::system(format!("finding the interface `{name}`"), error)),
    }
}

/// Returns the name of the interface with this index, if it is in this network namespace.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that this call requires.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: on success, the buffer has a NUL-terminated string.
    Some(unsafe { CStr::from_ptr(found) }.to_string_lossy().into_owned())
}

fn similar_interfaces(name: &str) -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the call returns null, or a list that ends with an entry without a name.
    let list = unsafe { libc::if_nameindex() };
    let mut at = list;
    // SAFETY: `at` is inside the list, whose names are NUL-terminated, until the last entry.
    while !list.is_null() && unsafe { !(*at).if_name.is_null() } {
        // SAFETY: `at` is inside the list, and this is not the last entry, so its name is
        // NUL-terminated.
        names.push(unsafe { CStr::from_ptr((*at).if_name) }.to_string_lossy().into_owned());
        // SAFETY: this was not the last entry, so the next one is inside the list.
        at = unsafe { at.add(1) };
    }
    if !list.is_null() {
        // SAFETY: the list came from `if_nameindex` and is not used again.
        unsafe { libc::if_freenameindex(list) };
    }
    similar(name, names.iter().map(String::as_str))
}

/// Returns the start time of a process in clock ticks since boot. Together with the pid, it
/// identifies the process uniquely. Returns `None` if this pid namespace has no such process, or if
/// the process is a zombie.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    if pid == 0 {
        return None;
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any characters, so the fields begin after the last
    // parenthesis.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok().map(host::start_ticks)
}

/// Returns true if the process with this pid and start time is running. Also returns true if /proc
/// cannot be read because no descriptor is free. Otherwise a live process might be treated as dead.
pub(crate) fn alive(pid: u32, ticks: u64) -> bool {
    let unread = || {
        let stat = fs::File::open(format!("/proc/{pid}/stat"));
        pid != 0 && stat.is_err_and(|error| no_descriptor(&error))
    };
    start_ticks(pid).map_or_else(unread, |started| started == ticks)
}

/// Fails if this process cannot open at least `count` more files.
pub(crate) fn reserve_descriptors(count: usize) -> io::Result<()> {
    let first = match fs::File::open("/dev/null") {
        Err(error) if no_descriptor(&error) => return Err(error),
        // Without /dev/null, the number of free descriptors cannot be checked.
        Err(_) => return Ok(()),
        Ok(first) => first,
    };
    let rest: io::Result<Vec<fs::File>> = (1..count).map(|_| first.try_clone()).collect();
    rest.map(drop)
}

/// Returns true if the process with this pid and start time has ended, with all its threads.
/// Returns false if that is unknown.
pub(crate) fn ended(pid: u32, ticks: u64) -> bool {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) => {
            // ESRCH means that the process ended while its file was being read.
            let gone = [Some(libc::ENOENT), Some(libc::ESRCH)];
            return ticks != 0 && gone.contains(&error.raw_os_error());
        }
    };
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let (Some(state), Some(started)) = (fields.first(), fields.get(19)) else { return false };
    if started.parse().map(host::start_ticks) != Ok(ticks) {
        return ticks != 0;
    }
    // The process's first thread can end before the others.
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map(Iterator::count);
    matches!(*state, "Z" | "X") && threads.is_ok_and(|threads| threads <= 1)
}

/// Returns true if /proc shows the processes of all users. Returns false if /proc is mounted so
/// that it may hide some (`hidepid`).
pub(crate) fn sees_all_processes() -> bool {
    fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| shows_all(&mounts))
}

/// Returns the result of [`sees_all_processes`] for the content of /proc/self/mountinfo. The last
/// mount of /proc applies.
fn shows_all(mounts: &str) -> bool {
    let last = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some("/proc"));
    let options = last.and_then(|line| line.rsplit_once(" - ")).map(|(_, rest)| rest);
    let hides = |option: &str| {
        option.strip_prefix("hidepid=").is_some_and(|how| !matches!(how, "0" | "off"))
    };
    options.is_some_and(|options| !options.split([' ', ',']).any(hides))
}

/// Returns the inode of this process's pid namespace, or 0 if it is unknown.
pub(crate) fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Returns the cookie of this thread's network namespace, or 0 if it is unknown. A cookie is unique
/// until the next boot.
pub(crate) fn network_namespace() -> u64 {
    /// The value is from asm-generic/socket.h. Linux has this option since 5.14.
    const SO_NETNS_COOKIE: i32 = 71;
    // SAFETY: the call takes only numbers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return 0;
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let (mut cookie, mut length) = (0u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: both pointers are valid during the call, and the second one points to the length of
    // the first one's buffer.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if got == 0 { cookie } else { 0 }
}

/// Returns the effective user ID of this process.
pub(crate) fn user_id() -> u32 {
    // SAFETY: the call has no arguments and never fails.
    unsafe { libc::geteuid() }
}

/// Returns the ID of the user who logged in before this process was started. Returns `None` if
/// there was no login, or if the user is unknown.
pub(crate) fn login_id() -> Option<u32> {
    let text = fs::read_to_string("/proc/self/loginuid").ok()?;
    text.trim().parse().ok().filter(|id| *id != u32::MAX)
}

/// Returns the name of this process.
pub(crate) fn process_name() -> String {
    fs::read_to_string("/proc/self/comm").unwrap_or_default().trim().to_owned()
}

/// Raises the limit of locked memory, because kernels before 5.11 charge maps to this limit. Errors
/// are ignored.
pub(crate) fn raise_memlock() {
    let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `all` is a valid rlimit. A failure is harmless.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const all) };
}

/// Returns a random seed for the ledger's hash, so that an attacker cannot choose addresses that
/// share a bucket.
pub(crate) fn random_u64() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is 8 bytes long. The kernel never answers requests under 256 bytes
    // partially.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::Error::last_os_error()) }
}

/// Converts the return value of a libbpf call to a result. A negative value is an `errno`.
pub(crate) fn check(returned: i32) -> io::Result<i32> {
    if returned < 0 { Err(io::Error::from_raw_os_error(-returned)) } else { Ok(returned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_with_a_reused_pid_is_another_one() {
        let me = std::process::id();
        let ticks = start_ticks(me).expect("this process runs");
        assert!(alive(me, ticks));
        assert!(!alive(me, ticks + 1), "another process with a reused pid");
        assert!(!alive(0, 0));
        let mut child = std::process::Command::new("true").spawn().expect("true runs");
        let pid = child.id();
        child.wait().expect("it ends");
        assert_eq!(start_ticks(pid), None);
        assert!(ended(pid, 1) && ended(me, ticks + 1), "another process with a reused pid");
        assert!(!ended(me, ticks));
        assert!(!ended(pid, 0) && !ended(me, 0), "nobody knows when it began");
        assert_ne!(pid_namespace(), 0);
        assert_ne!(network_namespace(), 0);
    }

    #[test]
    fn process_list_can_be_restricted_by_proc_mount_options() {
        let line = |at: &str, options: &str| {
            format!("22 28 0:21 / {at} rw,nosuid - proc proc {options}\n")
        };
        assert!(shows_all(&line("/proc", "rw")) && shows_all(&line("/proc", "rw,hidepid=off")));
        for hidden in ["rw,hidepid=2", "rw,hidepid=invisible,gid=5", "rw,hidepid=ptraceable"] {
            assert!(!shows_all(&line("/proc", hidden)), "{hidden}");
            assert!(!shows_all(&(line("/proc", "rw") + &line("/proc", hidden))), "{hidden}, above");
            assert!(shows_all(&(line("/proc", "rw") + &line("/srv/proc", hidden))), "elsewhere");
        }
        assert!(!shows_all(""), "nothing is known");
    }

    #[test]
    fn interface_index_and_name_agree() {
        let index = interface_index("lo").expect("every namespace has lo");
        assert_eq!(interface_name(index).as_deref(), Some("lo"));
        assert_eq!(interface_name(u32::MAX), None);
        for name in ["nosuchif", "", "a\0b", "a name that is far too long for an interface"] {
            assert!(matches!(interface_index(name), Err(Error::NoSuchInterface { .. })), "{name}");
        }
    }

    #[test]
    fn kernel_version_is_read() {
        let (release, version) = kernel();
        assert!(version > (4, 0), "{release}");
    }
}
