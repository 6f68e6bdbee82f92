//! Listens on a UDP port, and prints the QUIC packets in each received datagram, as far as they can
//! be parsed without keys. The example does not answer.
//!
//!     cargo run -p equic-wire --example listen -- 127.0.0.1:4433
//!
//! and then, in another terminal, any QUIC client: `equic get https://localhost:4433/`.

use std::net::UdpSocket;

use equic_wire::packet::{Datagram, LongKind, Packet, PacketError, ParseOptions};

/// Describes a packet in one line.
fn describe(packet: &Result<Packet<'_>, PacketError>) -> String {
    match packet {
        Ok(Packet::Long(long)) => {
            let (dcid, scid, bytes) = (long.dcid(), long.scid(), long.bytes().len());
            let version = equic_wire::Version::from(long.version());
            let ids = format!("version {version}, to {dcid}, from {scid}, {bytes} bytes");
            match long.kind() {
                LongKind::Initial { token: [] } => format!("Initial, {ids}"),
                LongKind::Initial { token } => {
                    format!("Initial, {ids}, token of {} bytes", token.len())
                }
                LongKind::ZeroRtt => format!("0-RTT, {ids}"),
                LongKind::Handshake => format!("Handshake, {ids}"),
            }
        }
        Ok(Packet::Short(short)) => {
            format!("1-RTT or stateless reset, {} bytes", short.bytes().len())
        }
        Ok(Packet::Retry(_)) => "Retry".to_owned(),
        Ok(Packet::VersionNegotiation(answer)) => {
            format!("Version Negotiation: {:?}", answer.versions())
        }
        Ok(Packet::UnknownVersion(header)) => format!("version {}", header.version),
        Err(error) => format!("no packet: {error}"),
    }
}

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4433".to_owned());
    let socket = UdpSocket::bind(&address)?;
    println!("listening on {}", socket.local_addr()?);
    let mut buffer = [0; 65_535];
    loop {
        let (len, peer) = socket.recv_from(&mut buffer)?;
        // This program has issued no connection IDs to the clients, so the parser assumes that
        // short headers have an empty ID.
        let datagram = Datagram::new(&buffer[..len], ParseOptions::default());
        for packet in datagram {
            println!("{peer}: {}", describe(&packet));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_negotiation_is_described() {
        let packet = [0x80, 0, 0, 0, 0, 1, 0xaa, 1, 0xbb, 0, 0, 0, 1];
        let mut packets = Datagram::new(&packet, ParseOptions::default());
        let described = describe(&packets.next().unwrap());
        assert!(described.starts_with("Version Negotiation: [") && packets.next().is_none());
    }
}
