//! Creates TUN interfaces on hosts of a lab. This process holds the other side of each interface
//! (Linux, Documentation/networking/tuntap.rst).

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::Settings;
use crate::construct::Ip;
use crate::{LabError, Namespace};

/// Prefix of the names of a host's interfaces. The index of the interface follows.
const NAME: &str = "net";
/// Metric of routes that are used only by sockets that are bound to the interface.
const AVOIDED: u32 = 2_000;
const DEVICE: &str = "/dev/net/tun";
/// Queue length of the interface towards this process, in packets. The simulated network does not
/// count packets that are lost in this queue.
const QUEUE: u32 = 20_000;

/// Index, address and prefixes of an interface of a host.
pub(super) struct Place {
    /// Index of the interface, from 0.
    pub(super) interface: u16,
    pub(super) address: IpAddr,
    /// The prefixes of all interfaces of the host, by the interface's index.
    pub(super) prefixes: Vec<String>,
}

/// Creates an interface of a host, with an address. The host uses the interface to reach the prefix
/// with the same index. Sockets that are bound to the interface can reach the other prefixes, too.
/// The kernel removes the interface when the returned file is closed.
pub(super) fn make(host: &Namespace, place: &Place, settings: &Settings) -> Result<File, LabError> {
    let Place { interface, address, prefixes } = place;
    let name = format!("{NAME}{interface}");
    let file = host.run(|| open(&name))?.map_err(LabError::NoTun)?;
    let own = usize::from(*interface);
    let length = prefixes[own].rsplit('/').next().unwrap_or_default();
    let Settings { mtu, .. } = settings;
    let mut lines = format!("link set {name} mtu {mtu} txqueuelen {QUEUE} up\n");
    let nodad = if address.is_ipv6() { " nodad" } else { "" };
    // Writing to a String cannot fail.
    let _ = writeln!(lines, "address add {address}/{length} dev {name} noprefixroute{nodad}");
    for (number, prefix) in prefixes.iter().enumerate() {
        let _ = write!(lines, "route add {prefix} dev {name} src {address}");
        if number != own {
            let _ = write!(lines, " metric {AVOIDED}");
        }
        if let Some(segments) = settings.initial_window {
            let _ = write!(lines, " initcwnd {segments}");
        }
        if let Some(least) = settings.min_rto {
            let _ = write!(lines, " rto_min {}ms", least.as_millis().max(1));
        }
        lines.push('\n');
    }
    Ip::start(Some(&host.name), &lines)?.finish()?;
    Ok(file)
}

/// Creates an interface with this name in the calling thread's namespace.
fn open(name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = options.open(Path::new(DEVICE))?;
    // SAFETY: zeros are a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request lives during the call and has the type that TUNSETIFF expects.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}
