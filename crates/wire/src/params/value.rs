//! Values of transport parameters that have limits (RFC 9000 s.18.2, RFC 9368 s.3).

use super::ParameterErrorKind;
use crate::cursor::{BufferFull, Reader, Sink, UnexpectedEnd};
use crate::packet::Versions;
use crate::{ConnectionId, ResetToken, VarInt, Version};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use core::time::Duration;

/// The largest UDP payload that an endpoint accepts, in bytes. It is at least 1200.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaxUdpPayloadSize(VarInt);

/// Exponent of ACK Delay fields, at most 20. The receiver multiplies the value of such a field by 2
/// to the power of this exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AckDelayExponent(u8);

/// Maximum time for which an endpoint delays an acknowledgement. It is less than 2^14 milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaxAckDelay(u16);

/// Maximum number of the peer's connection IDs that an endpoint stores. It is at least 2.
// RFC 9000 s.18.2 #7 #8
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActiveConnectionIdLimit(VarInt);

impl MaxUdpPayloadSize {
    /// Creates a size. Returns `None` if `bytes` is less than 1200.
    pub fn new(bytes: VarInt) -> Option<Self> {
        (bytes.get() >= 1200).then_some(MaxUdpPayloadSize(bytes))
    }

    /// Size in bytes.
    pub const fn get(self) -> VarInt {
        self.0
    }
}

impl Default for MaxUdpPayloadSize {
    /// Returns 65527, the largest possible UDP payload.
    fn default() -> Self {
        MaxUdpPayloadSize(VarInt::from_u32(65527))
    }
}

impl AckDelayExponent {
    /// Creates an exponent. Returns `None` if it exceeds 20.
    pub fn new(exponent: u8) -> Option<Self> {
        (exponent <= 20).then_some(AckDelayExponent(exponent))
    }

    /// The exponent.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for AckDelayExponent {
    /// Returns 3.
    fn default() -> Self {
        AckDelayExponent(3)
    }
}

impl MaxAckDelay {
    /// Creates a delay. Returns `None` if `ms` is 2^14 or more.
    pub fn from_millis(ms: u16) -> Option<Self> {
        (ms < 1 << 14).then_some(MaxAckDelay(ms))
    }

    /// Delay in milliseconds.
    pub const fn as_millis(self) -> u16 {
        self.0
    }

    /// Delay as a duration.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }
}

impl Default for MaxAckDelay {
    /// Returns 25 milliseconds.
    fn default() -> Self {
        MaxAckDelay(25)
    }
}

impl ActiveConnectionIdLimit {
    /// Creates a limit. Returns `None` if it is less than 2.
    pub fn new(limit: VarInt) -> Option<Self> {
        (limit.get() >= 2).then_some(ActiveConnectionIdLimit(limit))
    }

    /// The number.
    pub const fn get(self) -> VarInt {
        self.0
    }
}

impl Default for ActiveConnectionIdLimit {
    /// Returns 2.
    fn default() -> Self {
        ActiveConnectionIdLimit(VarInt::from_u32(2))
    }
}

/// The addresses at which a server prefers to be reached, and the connection ID to use there (RFC
/// 9000 s.9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreferredAddress {
    ipv4: Option<SocketAddrV4>,
    ipv6: Option<SocketAddrV6>,
    connection_id: ConnectionId,
    reset_token: ResetToken,
}

impl PreferredAddress {
    /// Creates a preferred address. Returns `None` if the connection ID is empty. The address
    /// 0.0.0.0:0 or \[::\]:0 means that the server has no address of that family. The flow label
    /// and the scope ID of an IPv6 address are not sent.
    pub fn new(
        ipv4: Option<SocketAddrV4>,
        ipv6: Option<SocketAddrV6>,
        connection_id: ConnectionId,
        reset_token: ResetToken,
    ) -> Option<Self> {
        let ipv4 = ipv4.filter(|addr| !(addr.ip().is_unspecified() && addr.port() == 0));
        let ipv6 = ipv6
            .filter(|addr| !(addr.ip().is_unspecified() && addr.port() == 0))
            .map(|addr| SocketAddrV6::new(*addr.ip(), addr.port(), 0, 0));
        let legal = !connection_id.is_empty();
        legal.then_some(PreferredAddress { ipv4, ipv6, connection_id, reset_token })
    }

    /// The IPv4 address, or `None` if the server offers no IPv4 address.
    pub const fn ipv4(&self) -> Option<SocketAddrV4> {
        self.ipv4
    }

    /// The IPv6 address, or `None` if the server offers no IPv6 address.
    pub const fn ipv6(&self) -> Option<SocketAddrV6> {
        self.ipv6
    }

    /// Connection ID for the preferred address. Its sequence number is 1.
    pub const fn connection_id(&self) -> ConnectionId {
        self.connection_id
    }

    /// The stateless reset token of the connection ID.
    pub const fn reset_token(&self) -> ResetToken {
        self.reset_token
    }

    pub(super) fn read(value: &[u8]) -> Result<Self, ParameterErrorKind> {
        let mut reader = Reader::new(value);
        let length = |_: UnexpectedEnd| ParameterErrorKind::Length;
        let ipv4 = Ipv4Addr::from(*reader.array::<4>().map_err(length)?);
        let ipv4 = SocketAddrV4::new(ipv4, reader.u16().map_err(length)?);
        let ipv6 = Ipv6Addr::from(*reader.array::<16>().map_err(length)?);
        let ipv6 = SocketAddrV6::new(ipv6, reader.u16().map_err(length)?, 0, 0);
        let id_len = reader.u8().map_err(length)?;
        let id = reader.bytes(id_len.into()).map_err(length)?;
        let id = ConnectionId::new(id).map_err(|_| ParameterErrorKind::Value)?;
        let token = ResetToken(*reader.array().map_err(length)?);
        if !reader.is_empty() {
            return Err(ParameterErrorKind::Length);
        }
        PreferredAddress::new(Some(ipv4), Some(ipv6), id, token).ok_or(ParameterErrorKind::Value)
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        let v4 = self.ipv4.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let v6 = self.ipv6.unwrap_or(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
        sink.bytes(&v4.ip().octets())?;
        sink.bytes(&v4.port().to_be_bytes())?;
        sink.bytes(&v6.ip().octets())?;
        sink.bytes(&v6.port().to_be_bytes())?;
        sink.u8(self.connection_id.len_byte())?;
        sink.bytes(self.connection_id.as_bytes())?;
        sink.bytes(&self.reset_token.0)
    }
}

/// The chosen version and the supported versions (RFC 9368 s.3). No version in it is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionInformation<'a> {
    chosen: Version,
    available: Versions<'a>,
}

impl<'a> VersionInformation<'a> {
    /// Creates version information. `available` must be in order of preference. Returns `None` if a
    /// version is zero.
    pub fn new(chosen: Version, available: Versions<'a>) -> Option<Self> {
        // RFC 9368 s.4 #5: a version of zero is an error.
        let legal = chosen != Version::NEGOTIATION && !available.contains(Version::NEGOTIATION);
        legal.then_some(VersionInformation { chosen, available })
    }

    /// The version of the packet that carried this parameter.
    pub const fn chosen(&self) -> Version {
        self.chosen
    }

    /// The supported versions, in the sender's order of preference.
    pub const fn available(&self) -> Versions<'a> {
        self.available
    }

    // RFC 9368 s.4 #3
    pub(super) fn read(value: &'a [u8]) -> Result<Self, ParameterErrorKind> {
        let mut reader = Reader::new(value);
        let chosen = Version(reader.u32().map_err(|_| ParameterErrorKind::Length)?);
        // RFC 9368 s.4 #4
        let available = Versions::new(reader.rest()).ok_or(ParameterErrorKind::Length)?;
        VersionInformation::new(chosen, available).ok_or(ParameterErrorKind::Value)
    }

    pub(super) fn encode(&self, sink: &mut impl Sink) -> Result<(), BufferFull> {
        sink.bytes(&self.chosen.0.to_be_bytes())?;
        sink.bytes(self.available.as_bytes())
    }
}
