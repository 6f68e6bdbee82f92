//! Builds Ethernet frames for tests. A frame is well-formed, unless a test sets a field to a wrong
//! value.

use std::net::{IpAddr, SocketAddr};

/// EtherType of a VLAN tag (IEEE 802.1Q).
pub const TPID_8021Q: u16 = 0x8100;
/// EtherType of an outer VLAN tag (IEEE 802.1ad).
pub const TPID_8021AD: u16 = 0x88a8;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Link-layer address of the server.
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Number of the header Hop-by-Hop Options.
pub const HOP_BY_HOP: u8 = 0;
/// Number of the Routing header.
pub const ROUTING: u8 = 43;
/// Number of the Fragment header.
pub const FRAGMENT: u8 = 44;
/// Number of the Authentication header.
pub const AUTHENTICATION: u8 = 51;
/// Number of the header Destination Options.
pub const DESTINATION_OPTIONS: u8 = 60;
/// Number of the Mobility header.
pub const MOBILITY: u8 = 135;

/// An IPv6 extension header, described by its number and its Header Extension Length field. The
/// Fragment header has no such field.
#[derive(Clone, Debug)]
pub enum Extension {
    /// Any header except the Fragment header.
    Plain {
        /// Number of the header.
        number: u8,
        /// The header's field Header Extension Length.
        length_field: u8,
    },
    /// A Fragment header.
    Fragment {
        /// Identification of the packet.
        identification: u32,
        /// Offset of the fragment, in units of 8 bytes.
        offset_units: u16,
        /// True if more fragments follow.
        more: bool,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct FragmentFields {
    identification: u16,
    offset_units: u16,
    more: bool,
}

/// Builds a frame. The addresses select IPv4 or IPv6.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
    macs: [[u8; 6]; 2],
    vlans: Vec<u16>,
    ethertype: Option<u16>,
    version: Option<u8>,
    header_words: Option<u8>,
    ip_options: Vec<u8>,
    protocol: u8,
    v4_fragment: FragmentFields,
    extensions: Vec<Extension>,
    no_udp_header: bool,
    udp_len: Option<u16>,
    ip_len: Option<u16>,
    payload: Vec<u8>,
    padding: usize,
    cut: Option<usize>,
}

/// Returns a UDP packet with this payload.
#[must_use]
pub fn udp(src: &str, dst: &str, payload: Vec<u8>) -> Packet {
    udp_between(src.parse().unwrap(), dst.parse().unwrap(), payload)
}

/// Returns a UDP packet with this payload.
#[must_use]
pub fn udp_between(src: SocketAddr, dst: SocketAddr, payload: Vec<u8>) -> Packet {
    Packet {
        src,
        dst,
        macs: [SERVER_MAC, CLIENT_MAC],
        vlans: Vec::new(),
        ethertype: None,
        version: None,
        header_words: None,
        ip_options: Vec::new(),
        protocol: UDP,
        v4_fragment: FragmentFields::default(),
        extensions: Vec::new(),
        no_udp_header: false,
        udp_len: None,
        ip_len: None,
        payload,
        padding: 0,
        cut: None,
    }
}

impl Packet {
    /// Replaces the link-layer destination, which is the server's by default.
    #[must_use]
    pub fn with_destination_mac(mut self, mac: [u8; 6]) -> Self {
        self.macs[0] = mac;
        self
    }

    /// Replaces the link-layer source, which is the client's by default.
    #[must_use]
    pub fn with_source_mac(mut self, mac: [u8; 6]) -> Self {
        self.macs[1] = mac;
        self
    }

    /// Adds a VLAN tag inside the existing ones.
    #[must_use]
    pub fn vlan(mut self, tpid: u16) -> Self {
        self.vlans.push(tpid);
        self
    }

    /// Sets the last EtherType of the frame, independently of its content.
    #[must_use]
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        self.ethertype = Some(ethertype);
        self
    }

    /// Sets the version field of the IP header, independently of the real version.
    #[must_use]
    pub fn version(mut self, version: u8) -> Self {
        self.version = Some(version);
        self
    }

    /// Sets the header length field of the IPv4 header, independently of the real length.
    #[must_use]
    pub fn header_words(mut self, words: u8) -> Self {
        self.header_words = Some(words);
        self
    }

    /// Adds `words` * 4 bytes of IPv4 options (No-Operation).
    #[must_use]
    pub fn ip_options(mut self, words: usize) -> Self {
        self.ip_options = vec![1; words * 4];
        self
    }

    /// Sets the IPv4 Protocol field, or the Next Header field of the last IPv6 header.
    #[must_use]
    pub fn protocol(mut self, protocol: u8) -> Self {
        self.protocol = protocol;
        self
    }

    /// Adds `count` extension headers with this number and length field.
    #[must_use]
    pub fn extension(mut self, number: u8, length_field: u8, count: usize) -> Self {
        let header = Extension::Plain { number, length_field };
        self.extensions.extend(std::iter::repeat_n(header, count));
        self
    }

    /// Makes the packet a fragment: sets the IPv4 fields, or adds an IPv6 Fragment header after the
    /// existing headers. If the offset is not 0, the payload has no UDP header.
    #[must_use]
    pub fn fragment(mut self, identification: u32, offset_units: u16, more: bool) -> Self {
        if self.src.is_ipv4() {
            let identification = identification as u16;
            self.v4_fragment = FragmentFields { identification, offset_units, more };
        } else {
            let header = Extension::Fragment { identification, offset_units, more };
            self.extensions.push(header);
        }
        self.no_udp_header |= offset_units != 0;
        self
    }

    /// Sets the length field of the UDP header, independently of the real length.
    #[must_use]
    pub fn udp_len(mut self, len: u16) -> Self {
        self.udp_len = Some(len);
        self
    }

    /// Sets the IPv4 Total Length or the IPv6 Payload Length, independently of the real length.
    #[must_use]
    pub fn ip_len(mut self, len: u16) -> Self {
        self.ip_len = Some(len);
        self
    }

    /// Adds `n` bytes of padding after the packet.
    #[must_use]
    pub fn padding(mut self, n: usize) -> Self {
        self.padding = n;
        self
    }

    /// Truncates the frame to its first `n` bytes.
    #[must_use]
    pub fn cut(mut self, n: usize) -> Self {
        self.cut = Some(n);
        self
    }

    /// Returns the payload of the packet.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Replaces the payload.
    #[must_use]
    pub fn with_payload(self, payload: Vec<u8>) -> Self {
        Packet { payload, ..self }
    }

    /// Builds the frame.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let mut frame = self.macs.concat();
        for tpid in &self.vlans {
            frame.extend(tpid.to_be_bytes());
            frame.extend([0, 7]);
        }
        let ethertype = if self.src.is_ipv4() { 0x0800 } else { 0x86dd };
        frame.extend(self.ethertype.unwrap_or(ethertype).to_be_bytes());
        let body = self.build_udp();
        match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.push_ipv4(&mut frame, src.octets(), dst.octets(), body.len());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                self.push_ipv6(&mut frame, src.octets(), dst.octets(), body.len());
            }
            _ => panic!("source and destination of two families"),
        }
        frame.extend(body);
        // The padding byte 0x55 is a valid first byte of a packet with a short header. So padding
        // that is parsed by mistake is accepted as a packet, and the test fails.
        frame.extend(std::iter::repeat_n(0x55, self.padding));
        frame.truncate(self.cut.unwrap_or(usize::MAX));
        frame
    }

    fn build_udp(&self) -> Vec<u8> {
        let mut body = Vec::new();
        if !self.no_udp_header {
            body.extend(self.src.port().to_be_bytes());
            body.extend(self.dst.port().to_be_bytes());
            let len = self.udp_len.unwrap_or((self.payload.len() + 8) as u16);
            body.extend(len.to_be_bytes());
            body.extend([0, 0]);
        }
        body.extend(&self.payload);
        body
    }

    fn push_ipv4(&self, frame: &mut Vec<u8>, src: [u8; 4], dst: [u8; 4], body: usize) {
        let header = 20 + self.ip_options.len();
        let words = self.header_words.unwrap_or((header / 4) as u8);
        frame.extend([self.version.unwrap_or(4) << 4 | words & 0x0f, 0]);
        frame.extend(self.ip_len.unwrap_or((header + body) as u16).to_be_bytes());
        let f = &self.v4_fragment;
        frame.extend(f.identification.to_be_bytes());
        frame.extend((u16::from(f.more) << 13 | f.offset_units & 0x1fff).to_be_bytes());
        frame.extend([64, self.protocol, 0, 0]);
        frame.extend(src);
        frame.extend(dst);
        frame.extend(&self.ip_options);
    }

    fn push_ipv6(&self, frame: &mut Vec<u8>, src: [u8; 16], dst: [u8; 16], body: usize) {
        let number = |extension: &Extension| match extension {
            Extension::Plain { number, .. } => *number,
            Extension::Fragment { .. } => FRAGMENT,
        };
        let mut headers = Vec::new();
        for (i, extension) in self.extensions.iter().enumerate() {
            let next = self.extensions.get(i + 1).map_or(self.protocol, number);
            match extension {
                Extension::Plain { number, length_field } => {
                    let units = usize::from(*length_field);
                    let len =
                        if *number == AUTHENTICATION { (units + 2) * 4 } else { (units + 1) * 8 };
                    let start = headers.len();
                    headers.extend([next, *length_field]);
                    headers.resize(start + len, 0);
                }
                Extension::Fragment { identification, offset_units, more } => {
                    headers.extend([next, 0]);
                    headers.extend((offset_units << 3 | u16::from(*more)).to_be_bytes());
                    headers.extend(identification.to_be_bytes());
                }
            }
        }
        frame.extend([self.version.unwrap_or(6) << 4, 0, 0, 0]);
        frame.extend(self.ip_len.unwrap_or((headers.len() + body) as u16).to_be_bytes());
        frame.extend([self.extensions.first().map_or(self.protocol, number), 64]);
        frame.extend(src);
        frame.extend(dst);
        frame.extend(headers);
    }
}
