//! Types of configuration values, such as modes and prefixes. Each can be parsed from text and is
//! printed in the same form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::abi;
use crate::quantity::QuantityError;

fn wrong(text: &str, expected: &str) -> QuantityError {
    QuantityError { text: text.to_owned(), expected: expected.to_owned() }
}

/// Defines an enum whose values have the same names in text, TOML and JSON.
macro_rules! named {
    ($type:ident, $expected:literal, $($variant:ident = $name:literal),+) => {
        impl $type {
            /// Names of all values in the configuration.
            #[allow(dead_code, reason = "only the schema uses those of some types")]
            pub(crate) const NAMES: &[&str] = &[$($name),+];

            /// Returns the value's name in the configuration.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }
        }

        impl FromStr for $type {
            type Err = QuantityError;

            fn from_str(text: &str) -> Result<$type, QuantityError> {
                match text.trim() {
                    $($name => Ok($type::$variant),)+
                    other => Err(wrong(other, $expected)),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        text_serde!($type);
    };
}

/// Defines the numbers that stand for the values of an enum in the XDP program's structures.
macro_rules! numbered {
    ($type:ident, $($variant:ident = $number:expr),+) => {
        impl $type {
            /// Returns the number that the XDP program stores.
            pub(crate) fn code(self) -> u8 {
                match self { $($type::$variant => $number as u8),+ }
            }

            /// Returns the value with this number, or the default if no value has it.
            pub(crate) fn of_code(code: u8) -> $type {
                $(if u32::from(code) == $number {
                    return $type::$variant;
                })+
                $type::default()
            }
        }
    };
}

macro_rules! text_serde {
    ($type:ident) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

/// Mode in which the XDP program is attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Uses native mode. If the driver does not support it, uses generic mode and reports that in a
    /// notice.
    #[default]
    Auto,
    /// The XDP program runs in the driver, before the kernel allocates memory for the packet. Fails
    /// if the driver does not support this.
    Native,
    /// The XDP program runs after the driver. Works with every driver, but costs more per packet.
    Generic,
}

named!(
    Mode,
    "a mode: `auto`, `native` or `generic`",
    Auto = "auto",
    Native = "native",
    Generic = "generic"
);

/// Treatment of a source that has as many connections as its quota allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// Drops packets that would open one more connection. All other packets pass.
    #[default]
    New,
    /// Drops every packet of a source that has more connections than its quota.
    Strict,
    /// Like `new`, but handshakes in progress count, too. For servers that cannot close surplus
    /// connections.
    Underway,
}

named!(
    Policy,
    "a policy: `new`, `underway` or `strict`",
    New = "new",
    Strict = "strict",
    Underway = "underway"
);

numbered!(
    Policy,
    New = abi::EQUIC_POLICY_NEW,
    Strict = abi::EQUIC_POLICY_STRICT,
    Underway = abi::EQUIC_POLICY_UNDERWAY
);

/// Condition under which clients must validate their address with the token of a Retry packet
/// before they open a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Retry {
    /// Never. The server may still send Retry packets itself.
    #[default]
    Never,
    /// Always. The gateway sends Retry packets in the server's name, and the server accepts the
    /// gateway's tokens.
    Always,
    /// Only while connections are opened faster than `retry_above`.
    Adaptive,
}

named!(
    Retry,
    "`never`, `always` or `adaptive`",
    Never = "never",
    Always = "always",
    Adaptive = "adaptive"
);

numbered!(
    Retry,
    Never = abi::EQUIC_RETRY_NEVER,
    Always = abi::EQUIC_RETRY_ALWAYS,
    Adaptive = abi::EQUIC_RETRY_ADAPTIVE
);

/// The QUIC versions that a service accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Versions {
    /// Version 1 (RFC 9000) and version 2 (RFC 9369).
    #[default]
    Both,
    /// Version 1 only.
    V1,
    /// Version 2 only.
    V2,
}

named!(Versions, "`1`, `2` or `1,2`", Both = "1,2", V1 = "1", V2 = "2");

numbered!(
    Versions,
    Both = abi::EQUIC_VERSIONS_1_AND_2,
    V1 = abi::EQUIC_VERSIONS_1,
    V2 = abi::EQUIC_VERSIONS_2
);

/// Treatment of the IP fragments of a datagram to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fragments {
    /// The first fragment is judged like a whole packet, and later fragments pass.
    #[default]
    Pass,
    /// The first fragment is judged, and later fragments get the same verdict.
    Follow,
    /// All fragments are dropped.
    Drop,
}

named!(
    Fragments,
    "a fragment policy: `pass`, `follow` or `drop`",
    Pass = "pass",
    Follow = "follow",
    Drop = "drop"
);

numbered!(
    Fragments,
    Pass = abi::EQUIC_FRAGMENTS_PASS,
    Follow = abi::EQUIC_FRAGMENTS_FOLLOW,
    Drop = abi::EQUIC_FRAGMENTS_DROP
);

/// Proof of its address that a source must have given before its refusals count towards a ban. The
/// source address of a packet can be forged. A client that completes a handshake has proved that it
/// receives packets at its address (RFC 9000 s.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Proof {
    /// The source must hold a connection that a server has counted. The reasons `quota` and
    /// `quota_strict` imply this.
    #[default]
    Connection,
    /// No proof is needed. Only for networks in which source addresses cannot be forged.
    None,
}

named!(
    Proof,
    "a proof: write `connection`, or `none` on a network where source addresses cannot be forged",
    Connection = "connection",
    None = "none"
);

/// Address and port that a service listens at.
///
/// * `443` is port 443 on all IPv4 and IPv6 addresses. It fits a socket that is bound to `::` and
///   also accepts IPv4.
/// * `192.0.2.1:443` and `[2001:db8::1]:443` are one address each.
/// * `0.0.0.0:443` is any IPv4 address.
/// * `[::]:443` is any IPv6 address, but no IPv4 address.
///
/// An IPv4-mapped IPv6 address means the IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Listen {
    /// The port on all addresses of both families.
    Port(u16),
    /// One address. If it is unspecified, all addresses of its family.
    Addr(SocketAddr),
}

const LISTEN: &str = "a port (`443`) or an address and port (`192.0.2.1:443`, `[2001:db8::1]:443`)";

impl FromStr for Listen {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Listen, QuantityError> {
        let whole = text.trim();
        let listen = if let Ok(port) = whole.parse::<u16>() {
            Listen::Port(port)
        } else {
            let addr: SocketAddr = whole.parse().map_err(|_| wrong(whole, LISTEN))?;
            Listen::Addr(SocketAddr::new(addr.ip().to_canonical(), addr.port()))
        };
        if listen.port() == 0 { Err(wrong(whole, "a port from 1 to 65535")) } else { Ok(listen) }
    }
}

impl Listen {
    /// Returns the UDP port.
    pub fn port(self) -> u16 {
        match self {
            Listen::Port(port) => port,
            Listen::Addr(addr) => addr.port(),
        }
    }

    /// Returns the socket addresses that this value stands for. A bare port stands for two.
    pub fn addresses(self) -> impl Iterator<Item = SocketAddr> {
        let (first, second) = match self {
            Listen::Port(port) => (
                SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
                Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))),
            ),
            Listen::Addr(addr) => (SocketAddr::new(addr.ip().to_canonical(), addr.port()), None),
        };
        std::iter::once(first).chain(second)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Port(port) => write!(f, "{port}"),
            Listen::Addr(addr) => write!(f, "{addr}"),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listen, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Listen;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(LISTEN)
            }

            fn visit_i64<E: de::Error>(self, port: i64) -> Result<Listen, E> {
                self.visit_str(&port.to_string())
            }

            fn visit_u64<E: de::Error>(self, port: u64) -> Result<Listen, E> {
                self.visit_str(&port.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Listen, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// Parses an address or a prefix: `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`. An address is a
/// prefix of full length. An IPv4-mapped IPv6 prefix of /97 or longer becomes the IPv4 prefix.
/// Prefixes from `::/0` to `::/80` mean IPv6 addresses only.
///
/// # Errors
/// Fails if the text is neither an address nor a prefix, or if bits after the prefix length are
/// set. Also fails for a prefix that covers all IPv4-mapped addresses: `::ffff:0:0/96`, or a
/// shorter one that contains it and is longer than /80.
pub fn parse_prefix(text: &str) -> Result<IpNet, QuantityError> {
    let whole = text.trim();
    let net = if let Ok(addr) = whole.parse::<IpAddr>() {
        IpNet::from(addr)
    } else {
        whole.parse::<IpNet>().map_err(|_| {
            wrong(whole, "an address or prefix: write, for example, `192.0.2.7`, `192.0.2.0/24` or `2001:db8::/32`")
        })?
    };
    if net != net.trunc() {
        let expected = format!(
            "a prefix, because bits after the first {} are set: write {} or {}",
            net.prefix_len(),
            net.trunc(),
            net.addr()
        );
        return Err(wrong(whole, &expected));
    }
    check_mapped(net).map_err(|expected| wrong(whole, &expected))?;
    Ok(canonical_prefix(net))
}

/// Fails for an IPv4-mapped prefix that covers all IPv4 addresses. Lists of unrouted addresses
/// contain that prefix, and mean IPv6 packets. If it were read as `0.0.0.0/0`, it would deny or
/// allow every source.
pub(crate) fn check_mapped(net: IpNet) -> Result<(), String> {
    const MAPPED: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0);
    let IpNet::V6(v6) = net else { return Ok(()) };
    if !(81..=96).contains(&v6.prefix_len()) || !v6.contains(&MAPPED) {
        return Ok(());
    }
    Err("a prefix that can be listed, because it covers all IPv4-mapped addresses, from which no packet comes: remove it, or write 0.0.0.0/0 if you mean every IPv4 address"
        .to_owned())
}

/// Converts an IPv4-mapped prefix such as `::ffff:192.0.2.0/120` to `192.0.2.0/24`. Does not
/// convert a prefix that [`check_mapped`] rejects.
pub(crate) fn canonical_prefix(net: IpNet) -> IpNet {
    if let IpNet::V6(v6) = net
        && v6.prefix_len() > 96
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && let Ok(net) = Ipv4Net::new(v4, v6.prefix_len() - 96)
    {
        return IpNet::V4(net);
    }
    net
}

/// Serializes and parses a list of prefixes as text. For `#[serde(with = "prefixes")]`.
pub(super) mod prefixes {
    use super::{Deserialize, Deserializer, IpNet, Serializer, de, parse_prefix};

    pub(crate) fn serialize<S: Serializer>(
        nets: &[IpNet],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(nets.iter().map(ToString::to_string))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<IpNet>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| parse_prefix(text).map_err(de::Error::custom)).collect()
    }
}

/// Serializes and parses a value, or `off`. For `#[serde(with = "or_off")]`.
pub(super) mod or_off {
    use std::fmt::Display;
    use std::str::FromStr;

    use super::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer, T: Display>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_str("off"),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: FromStr>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        match String::deserialize(deserializer)?.trim() {
            "off" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                de::Error::custom(format_args!(
                    "`{text}` is not valid: write an address and port (`127.0.0.1:9433`, `[::1]:9433`), or `off`"
                ))
            }),
        }
    }
}
