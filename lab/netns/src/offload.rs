//! Offloads of an interface: work that the interface does in place of the kernel.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use crate::{LabError, Namespace};

/// For each flag: the commands of linux/ethtool.h that read and set it, and its name.
const FLAGS: [(u32, u32, &str); 5] = [
    // The order matters, because the later flags require the earlier ones.
    (0x14, 0x15, "receive checksums"),
    (0x16, 0x17, "transmit checksums"),
    (0x18, 0x19, "scatter-gather"),
    (0x1e, 0x1f, "TCP segmentation"),
    (0x23, 0x24, "generic segmentation"),
];
const GENERIC_RECEIVE: (u32, u32, &str) = (0x2b, 0x2c, "generic receive");

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

impl Namespace {
    /// Enables or disables segmentation, generic receive and checksum offload of the host's
    /// interface.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] without CAP_NET_ADMIN, or if the interface rejects it.
    pub fn set_offloads(&self, on: bool) -> Result<(), LabError> {
        let failed = |what: &str, error| {
            LabError::system(format!("switch {what} of {} in {}", self.ifname, self.name), error)
        };
        let socket = self.udp_socket((std::net::Ipv4Addr::UNSPECIFIED, 0).into())?;
        let flags = FLAGS.iter().chain([&GENERIC_RECEIVE]);
        for &(_, set, what) in flags.clone() {
            flag(&socket, &self.ifname, set, u32::from(on)).map_err(|e| failed(what, e))?;
        }
        // Read the flags back, because an interface may accept a command without changing the flag.
        for &(get, _, what) in flags {
            let now = flag(&socket, &self.ifname, get, 0).map_err(|e| failed(what, e))?;
            if (now != 0) != on {
                return Err(failed(
                    what,
                    io::Error::other(
                        "the interface accepted the command, but did not change the setting",
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Executes an ethtool command on the interface with this name, and returns the command's result.
fn flag(socket: &UdpSocket, interface: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut value = Value { command, data };
    // SAFETY: an ifreq of zeros is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero, so the name is terminated.
    let last = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(last).zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request and the value it points to live during the call, and have the layout that
    // SIOCETHTOOL expects for these commands.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(value.data) }
}
