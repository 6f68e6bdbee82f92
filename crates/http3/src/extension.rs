//! Extensions of QUIC that connections use in addition to HTTP/3.

use crate::Hooks;

/// An extension of QUIC. It consists of the transport parameters that announce it, and of the hooks
/// that implement it.
#[derive(Clone, Debug)]
pub struct Extension {
    /// Additional transport parameters, by number
    /// ([`TransportConfig::extra_parameters`](equic_transport::TransportConfig::extra_parameters)).
    pub parameters: Vec<(u64, Vec<u8>)>,
    /// Hooks that are attached to each new connection before its first packet.
    pub hooks: Hooks,
}
