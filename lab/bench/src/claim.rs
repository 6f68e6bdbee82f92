//! Detects another benchmark run on this machine, because two concurrent runs disturb each other.
//!
//! A run listens at an abstract Unix socket address. The kernel frees the address when the process
//! ends, for whatever reason. A run that finds the address in use connects to it, so that both runs
//! can warn their users. Such addresses belong to a network namespace, so runs in containers do not
//! see each other.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use nix::sys::socket::{getsockopt, sockopt};

/// Abstract socket address at which a run listens, without the leading zero byte.
const NAME: &str = "equic-bench-run";

/// A run's claim of this machine. Dropping it releases the machine.
#[derive(Debug)]
pub struct Claim {
    listener: Option<UnixListener>,
    other: Option<u32>,
}

impl Claim {
    /// Claims the machine. This never fails: if another run was first, [`Claim::other`] returns its
    /// process.
    #[must_use]
    pub fn take() -> Claim {
        Claim::named(NAME)
    }

    fn named(name: &str) -> Claim {
        let Ok(address) = SocketAddr::from_abstract_name(name) else {
            return Claim { listener: None, other: None };
        };
        let listen = || -> io::Result<UnixListener> {
            let listener = UnixListener::bind_addr(&address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        match listen() {
            Ok(listener) => Claim { listener: Some(listener), other: None },
            Err(_) => {
                let other = UnixStream::connect_addr(&address).ok();
                Claim { listener: None, other: other.and_then(|stream| peer(&stream)) }
            }
        }
    }

    /// Returns the process ID of a run that started earlier.
    #[must_use]
    pub fn other(&self) -> Option<u32> {
        self.other
    }

    /// Returns the process ID of a run that started since the last call.
    #[must_use]
    pub fn joined(&self) -> Option<u32> {
        let (stream, _) = self.listener.as_ref()?.accept().ok()?;
        peer(&stream)
    }
}

fn peer(stream: &UnixStream) -> Option<u32> {
    let credentials = getsockopt(stream, sockopt::PeerCredentials).ok()?;
    u32::try_from(credentials.pid()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_of_a_second_run_is_seen_by_both_runs() {
        let name = format!("equic-bench-test-{}", std::process::id());
        let first = Claim::named(&name);
        assert_eq!((first.other(), first.joined()), (None, None));
        let second = Claim::named(&name);
        let own = Some(std::process::id());
        assert_eq!((second.other(), second.joined()), (own, None));
        assert_eq!((first.joined(), first.joined()), (own, None));
        drop((first, second));
        assert_eq!(Claim::named(&name).other(), None);
    }
}
