//! The ways in which a peer can violate the rules of the exchange. Each violation closes the
//! connection with [`PLUGIN_VIOLATION`].

use equic_wire::{TransportErrorCode, VarInt};
use thiserror::Error;

/// Error code of a connection that ends because the peer broke the rules of the exchange.
pub const PLUGIN_VIOLATION: TransportErrorCode = TransportErrorCode(VarInt::from_u32(0x2f50_4c00));

/// A rule of the exchange that the peer broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A frame, or a field in it, is cut off.
    #[error("a frame or parameter of the plugin exchange is truncated")]
    Cut,
    /// The frame type does not belong to the exchange.
    #[error("{0:#x} is not a frame type of the plugin exchange")]
    FrameType(u64),
    /// The plugin ID exceeds the limit on offers.
    #[error("plugin ID {0} exceeds the limit on offers of a connection")]
    PluginId(u64),
    /// The peer sent more exchange frames than any exchange needs.
    #[error("too many frames of the plugin exchange: {0} in a row, or {1} within a second")]
    TooManyFrames(u64, u64),
    /// The offer has more frame types than a plugin may define.
    #[error("an offer allots too many frame types")]
    TooManyTypes,
    /// An OFFER frame carries more bytes than the bundle's preamble has, or more than the
    /// receiver's transport parameter permits.
    #[error("the offer of plugin {0} carries more bytes than permitted")]
    Carried(u64),
    /// The reason of a STATUS frame is not UTF-8, or too long.
    #[error("the reason of a STATUS frame is not UTF-8 or too long")]
    Reason,
    /// A value in the exchange's transport parameter is invalid.
    #[error("the transport parameter of the plugin exchange is invalid: {0}")]
    Parameter(&'static str),
    /// The peer sent a frame of the exchange without declaring the transport parameter.
    #[error("the peer sent a frame of the plugin exchange without its transport parameter")]
    Undeclared,
    /// The peer sent two different offers with the same plugin ID.
    #[error("plugin ID {0} is offered twice with different content")]
    OfferTwice(u64),
    /// A frame refers to a plugin that was never offered.
    #[error("plugin ID {0} was never offered")]
    NotOffered(u64),
    /// The peer sent data beyond the limit that the receiver's WANT frame set.
    #[error("data of plugin {0} exceeds the requested limit")]
    BeyondCredit(u64),
    /// The limit in the peer's WANT frame is larger than the bundle.
    #[error("the requested limit of plugin {0} is larger than its bundle")]
    Credit(u64),
}
