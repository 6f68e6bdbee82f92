//! The kernel's TCP on the hosts of a lab: sockets with options, and statistics of connections.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt,
};

use crate::{LabError, Namespace};

/// Settings of a TCP socket.
#[derive(Clone, Debug, Default)]
pub struct TcpSettings {
    /// Name of the congestion control in the kernel, such as `cubic`, or `None` for the kernel's
    /// default.
    pub congestion: Option<String>,
    /// Maximum segment size in bytes, including options, or `None` to derive it from the
    /// interface's MTU.
    pub mss: Option<u16>,
    /// True to pace segments, independently of the congestion control.
    pub pacing: bool,
}

impl Namespace {
    /// Creates a TCP socket for `tokio::net::TcpSocket::from_std_stream`. It is bound and
    /// non-blocking, but not yet connected.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if the address does not belong to the host, or if the kernel
    /// lacks the congestion control.
    pub fn tcp_socket(
        &self,
        address: SocketAddr,
        settings: &TcpSettings,
    ) -> Result<TcpStream, LabError> {
        Ok(self.bound(address, settings)?.into())
    }

    /// Creates a listening, non-blocking TCP socket, for `tokio::net::TcpListener::from_std`.
    ///
    /// # Errors
    /// Fails as [`Namespace::tcp_socket`] does.
    pub fn tcp_listener(
        &self,
        address: SocketAddr,
        settings: &TcpSettings,
    ) -> Result<TcpListener, LabError> {
        let socket = self.bound(address, settings)?;
        listen(&socket, Backlog::MAXALLOWABLE)
            .map_err(|error| LabError::system(format!("listen at {address}"), error))?;
        Ok(socket.into())
    }

    fn bound(&self, address: SocketAddr, settings: &TcpSettings) -> Result<OwnedFd, LabError> {
        self.run(|| open(address, settings))?.map_err(|(what, error)| {
            LabError::system(format!("{what} of a TCP socket in {}", self.name), error)
        })
    }
}

/// Returns whether the kernel has this congestion control. The kernel may load a module for it.
///
/// # Errors
/// Fails with [`LabError::System`] if no socket can be created.
pub fn knows_congestion(name: &str) -> Result<bool, LabError> {
    let failed = |error| LabError::system("make a TCP socket", error);
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    let set = setsockopt(&socket.map_err(failed)?, sockopt::TcpCongestion, &name.into());
    Ok(set.is_ok())
}

fn open(address: SocketAddr, settings: &TcpSettings) -> Result<OwnedFd, (String, io::Error)> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: nix::Error| (what, error.into())
    };
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket =
        socket(family, SockType::Stream, flags, None).map_err(failed("make the descriptor"))?;
    if let Some(name) = &settings.congestion {
        setsockopt(&socket, sockopt::TcpCongestion, &name.into())
            .map_err(failed(&format!("set the congestion control {name}")))?;
    }
    if let Some(mss) = settings.mss {
        setsockopt(&socket, sockopt::TcpMaxSeg, &mss.into())
            .map_err(failed("set the segment size"))?;
    }
    if settings.pacing {
        pace(&socket).map_err(|error| ("set the pacing".to_owned(), error))?;
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))
        .map_err(failed(&format!("bind the address {address}")))?;
    Ok(socket)
}

/// Enables pacing. The kernel paces sockets that have a rate limit, so this sets one that is never
/// reached (socket(7), SO_MAX_PACING_RATE).
fn pace(socket: &OwnedFd) -> io::Result<()> {
    let most: u64 = u64::MAX - 1;
    // SAFETY: the option's value lives during the call, and its size is correct.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const most).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The kernel's statistics of a connection (tcp(7), TCP_INFO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Number of segments sent, including retransmissions and acknowledgements.
    pub segments_sent: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// Duplicates reported by the receiver (DSACK, RFC 2883), that is, unnecessary retransmissions.
    /// `None` if the kernel does not report them.
    pub spurious: Option<u64>,
    /// Number of times that the retransmission timer expired. `None` if the kernel does not report
    /// it (before Linux 6.7).
    pub timeouts: Option<u64>,
    /// Minimum round-trip time, or `None` if none has been measured yet.
    pub min_rtt: Option<Duration>,
}

impl TcpInfo {
    /// Reads the statistics of a socket.
    ///
    /// # Errors
    /// Returns the system's error if it is not a TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<TcpInfo> {
        let mut bytes = [0; 512];
        let mut length = bytes.len() as libc::socklen_t;
        // SAFETY: the buffer lives during the call, which receives its size and stores the length
        // used.
        let done = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        let length = usize::try_from(length).unwrap_or(0).min(bytes.len());
        Ok(TcpInfo::read(&bytes[..length]))
    }

    /// Parses `struct tcp_info` (linux/tcp.h), which is longer in newer kernels.
    fn read(info: &[u8]) -> TcpInfo {
        const TOTAL_RETRANS: usize = 100;
        const SEGS_OUT: usize = 136;
        const MIN_RTT: usize = 148;
        const DSACK_DUPS: usize = 216;
        const TOTAL_RTO: usize = 240;
        let word = |at: usize| {
            let bytes = info.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_ne_bytes(bytes))
        };
        let half = |at: usize| {
            let bytes = info.get(at..at + 2)?.try_into().ok()?;
            Some(u16::from_ne_bytes(bytes))
        };
        let min_rtt = word(MIN_RTT).filter(|micros| *micros > 0 && *micros < u32::MAX);
        TcpInfo {
            segments_sent: word(SEGS_OUT).unwrap_or(0).into(),
            retransmitted: word(TOTAL_RETRANS).unwrap_or(0).into(),
            spurious: word(DSACK_DUPS).map(u64::from),
            timeouts: half(TOTAL_RTO).map(u64::from),
            min_rtt: min_rtt.map(|micros| Duration::from_micros(micros.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_info_that_an_old_kernel_lacks_is_none() {
        let mut info = [0; 248];
        for (at, value) in [(100, 3u32), (136, 70), (148, 20_000), (216, 1), (240, 2)] {
            info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let min_rtt = Some(Duration::from_millis(20));
        let known = TcpInfo {
            segments_sent: 70,
            retransmitted: 3,
            spurious: Some(1),
            timeouts: Some(2),
            min_rtt,
        };
        assert_eq!(TcpInfo::read(&info), known);
        assert_eq!(TcpInfo::read(&info[..240]), TcpInfo { timeouts: None, ..known });
        assert_eq!(TcpInfo::read(&info[..104]).retransmitted, 3);
    }
}
