//! Congestion controllers of TCP, which need more than a [`Controller`] of QUIC.

use super::coupled::Coupled;
use super::{
    Algorithm, Bbr, Controller, ControllerFactory, Cubic, GoogleQuic, Increase, NewReno, Siblings,
};
use crate::Timestamp;

/// A [`Controller`] that a TCP transport can also use. QUIC makes no calls to this trait.
pub trait TcpController: Controller {
    /// Called when TCP's retransmission timer has expired (RFC 5681 s.3.1, RFC 6298 s.5), so that
    /// all packets in flight may be lost. If it turns out that they arrived,
    /// [`Controller::on_spurious_loss`] follows. The default treats it as persistent congestion.
    fn on_retransmission_timeout(&mut self, now: Timestamp) {
        self.on_persistent_congestion(now);
    }
}

/// Creates the congestion controllers of TCP connections.
pub trait TcpControllerFactory: ControllerFactory {
    /// Creates a controller for a TCP connection, with the arguments of
    /// [`ControllerFactory::start`]. It must follow the rules for TCP, because RFC 5681 is stricter
    /// than RFC 9002 in some cases.
    fn start_tcp(&self, datagram: u16, seed: u64) -> Box<dyn TcpController>;
}

impl TcpControllerFactory for Algorithm {
    fn start_tcp(&self, datagram: u16, seed: u64) -> Box<dyn TcpController> {
        match self {
            Algorithm::NewReno => Box::new(NewReno::for_tcp(datagram)),
            Algorithm::Cubic => Box::new(Cubic::new(datagram)),
            Algorithm::Bbr => Box::new(Bbr::new(datagram, seed)),
            // A TCP connection has one path, so the path is the only one in its group.
            Algorithm::Lia => Box::new(alone(datagram, Increase::Lia)),
            Algorithm::Olia => Box::new(alone(datagram, Increase::Olia)),
        }
    }
}

/// Returns the controller of a path that shares no window with other paths.
fn alone(datagram: u16, increase: Increase) -> Coupled {
    Siblings::new(increase).start_path(datagram)
}

impl TcpControllerFactory for GoogleQuic {
    fn start_tcp(&self, datagram: u16, _seed: u64) -> Box<dyn TcpController> {
        Box::new(self.start_path(datagram))
    }
}

impl TcpController for Bbr {}
