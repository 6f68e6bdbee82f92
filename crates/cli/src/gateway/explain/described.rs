//! Builds the packet that the flags of `equic gateway explain` describe.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::Args;
use equic_gateway::{Config, Listen};
use equic_token::{KeyRing, RetryToken};
use equic_wire::ConnectionId;

use super::frame::{Fragment, Frame};
use super::quic::{Hex, Kind, Packet, Version, connection_id};
use crate::failure::{Failure, Result};
use crate::values::ip_address;

/// Fields that are not given have the values that a client of the first service would send.
#[derive(Args)]
#[command(next_help_heading = "The packet")]
pub(super) struct Described {
    /// Source address
    #[arg(long, value_name = "ADDR", value_parser = ip_address)]
    src: Option<IpAddr>,
    /// Destination address [default: an address of the service]
    #[arg(long, value_name = "ADDR", value_parser = ip_address)]
    dst: Option<IpAddr>,
    /// Source port
    #[arg(long, value_name = "PORT")]
    sport: Option<u16>,
    /// Destination port [default: the port of the service]
    #[arg(long, value_name = "PORT")]
    dport: Option<u16>,
    /// QUIC version: 1, 2, or a number such as 0xff00001d
    #[arg(long, value_name = "VERSION")]
    quic_version: Option<Version>,
    /// Destination Connection ID
    #[arg(long, value_name = "HEX", value_parser = connection_id)]
    dcid: Option<Hex>,
    /// Source Connection ID
    #[arg(long, value_name = "HEX", value_parser = connection_id)]
    scid: Option<Hex>,
    /// Length of the token in an Initial or Retry, in bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=60_000))]
    token: Option<u16>,
    /// Length of the UDP payload, in bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=65_000))]
    size: Option<u16>,
    /// VLAN tags, the outer one first
    #[arg(long, value_name = "ID", num_args = 1..=4, value_parser = clap::value_parser!(u16).range(..=4095))]
    vlan: Vec<u16>,
    /// Judge only this IP fragment of the packet. The later fragment is judged as if the first had
    /// arrived
    #[arg(long, value_enum)]
    fragment: Option<Fragment>,
    /// Assume that the source holds this number of additional connections
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    connections: Option<u32>,
}

/// The type of the packet. Without a flag, it is an Initial.
#[derive(Args)]
#[group(multiple = false)]
#[command(next_help_heading = "Packet type")]
pub(super) struct KindArgs {
    /// Initial packet that opens a connection (the default)
    #[arg(long)]
    initial: bool,
    /// Handshake packet
    #[arg(long)]
    handshake: bool,
    /// 0-RTT packet
    #[arg(long = "0rtt")]
    zero_rtt: bool,
    /// Short header: a packet of an established connection
    #[arg(long)]
    short: bool,
    /// Version Negotiation packet
    #[arg(long)]
    version_negotiation: bool,
    /// Retry packet
    #[arg(long)]
    retry: bool,
}

impl KindArgs {
    /// Returns the type of packet that was chosen.
    pub(super) fn kind(&self) -> Kind {
        let chosen = [
            (self.handshake, Kind::Handshake),
            (self.zero_rtt, Kind::ZeroRtt),
            (self.short, Kind::Short),
            (self.version_negotiation, Kind::VersionNegotiation),
            (self.retry, Kind::Retry),
        ];
        chosen.into_iter().find(|(given, _)| *given).map_or(Kind::Initial, |(_, kind)| kind)
    }
}

/// Default source addresses, from the documentation prefixes (RFC 5737, RFC 3849), which no host
/// has.
const SOMEBODY: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// Source Connection ID of the Retry packet that the client of [`Described::frames_with_token`] has
/// received.
const RETRY_ID: [u8; 8] = [0xa5; 8];

impl Described {
    /// Returns the frames to pass to the program, in order.
    pub(super) fn frames(&self, kind: Kind, config: &Config) -> Result<Vec<Vec<u8>>> {
        self.frames_of(&self.packet(kind), config)
    }

    /// Returns the frames of the same Initial after the client has received a Retry packet: with a
    /// valid token of this key ring. Returns `None` if no Retry packet could answer the Initial.
    pub(super) fn frames_with_token(
        &self,
        ring: &KeyRing,
        config: &Config,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let packet = self.packet(Kind::Initial);
        let (src, _) = self.addresses(config)?;
        let id = |bytes: &[u8]| ConnectionId::new(bytes).ok();
        let (Some(original), Some(retry)) = (id(&packet.dcid), id(&RETRY_ID)) else {
            return Ok(None);
        };
        let token = RetryToken::new(src, original, retry, ring.now()).seal(ring);
        let Ok(token) = token else { return Ok(None) };
        let packet = Packet { dcid: RETRY_ID.to_vec(), token: token.to_vec(), ..packet };
        self.frames_of(&packet, config).map(Some)
    }

    fn packet(&self, kind: Kind) -> Packet {
        Packet {
            kind,
            version: self.quic_version.unwrap_or(Version(1)),
            dcid: self.dcid.clone().map_or_else(|| (1..=8).collect(), |hex| hex.0),
            scid: self.scid.clone().map_or_else(|| (9..=16).collect(), |hex| hex.0),
            token: vec![0x70; self.token.unwrap_or(0).into()],
            size: self.size.map(usize::from),
        }
    }

    fn frames_of(&self, packet: &Packet, config: &Config) -> Result<Vec<Vec<u8>>> {
        let (src, dst) = self.addresses(config)?;
        let frame = Frame {
            src: src.ip(),
            dst: dst.ip(),
            sport: src.port(),
            dport: dst.port(),
            vlans: self.vlan.clone(),
        };
        Ok(frame.build(&packet.payload(), self.fragment))
    }

    /// Returns the service, the peer, and how many connections the program must believe that the
    /// peer holds.
    pub(super) fn connections(&self, config: &Config) -> Result<Option<(usize, SocketAddr, u32)>> {
        let Some(count) = self.connections else { return Ok(None) };
        let (src, dst) = self.addresses(config)?;
        let service = service_at(config, dst)
            .ok_or_else(|| Failure::usage(format!("--connections: no service listens on {dst}")))?;
        Ok(Some((service, src, count)))
    }

    fn addresses(&self, config: &Config) -> Result<(SocketAddr, SocketAddr)> {
        let src = self.src.ok_or_else(|| {
            Failure::usage("no packet to judge: describe one with --src ADDR, or use --pcap FILE or --hex BYTES")
        })?;
        // An IPv4-mapped address counts as IPv6 here, because the packet is sent over IPv6.
        let listeners = config.services.iter().flat_map(|service| service.listen.iter());
        let wanted = |addr: &SocketAddr| {
            addr.is_ipv4() == src.is_ipv4()
                && self.dport.is_none_or(|port| addr.port() == port)
                && self.dst.is_none_or(|dst| addr.ip() == dst || addr.ip().is_unspecified())
        };
        let listener = listeners.flat_map(|listen: &Listen| listen.addresses()).find(wanted);
        let any: IpAddr = if src.is_ipv4() { SOMEBODY.0.into() } else { SOMEBODY.1.into() };
        let there = listener.map(|addr| addr.ip()).filter(|ip| !ip.is_unspecified());
        let dst = self.dst.map(|dst| dst.to_canonical()).or(there).unwrap_or(any);
        if dst.is_ipv4() != src.is_ipv4() {
            return Err(Failure::usage(format!(
                "{src} and {dst} belong to different address families: use two IPv4 or two IPv6 addresses"
            )));
        }
        let port = self.dport.or_else(|| listener.map(|addr| addr.port())).ok_or_else(|| {
            Failure::usage(format!(
                "no service listens on an address that {src} can reach: give --dst and --dport"
            ))
        })?;
        Ok((SocketAddr::new(src, self.sport.unwrap_or(50_000)), SocketAddr::new(dst, port)))
    }
}

/// Returns the index of the service that listens on `dst`. A service with the exact address has
/// precedence over one with the unspecified address.
fn service_at(config: &Config, dst: SocketAddr) -> Option<usize> {
    let find = |wanted: SocketAddr| {
        config
            .services
            .iter()
            .position(|service| service.listen.iter().any(|l| l.addresses().any(|a| a == wanted)))
    };
    let any: IpAddr = match dst {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    find(dst).or_else(|| find(SocketAddr::new(any, dst.port())))
}
