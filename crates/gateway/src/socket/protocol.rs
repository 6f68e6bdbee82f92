//! Messages on the gateway's socket: one request of a server and one answer of the gateway. Each is
//! one message of a `SOCK_SEQPACKET` socket, in the machine's byte order. The first three words are
//! the same in every version of the protocol.

use std::net::SocketAddr;

use crate::abi;
use crate::config::{address_bytes, c_name, from_c_name};
use crate::key_ring::{KeyUse, TokenCheck};
use crate::ledger::source::Source;
use crate::prefix::ip_of;

/// Version of the protocol that servers and the gateway speak on the socket.
pub(crate) const PROTOCOL: u32 = 4;
/// Length of a server's request in bytes.
pub(crate) const REQUEST: usize = 96;
/// Length of the gateway's answer in bytes.
pub(crate) const ANSWER: usize = 256;
/// Number of descriptors that are sent with [`Status::Joined`]: ledger, control data, services,
/// overrides, IPv4 list, IPv6 list. The descriptor of the key ring follows them for servers that
/// request it and may have it.
pub(crate) const DESCRIPTORS: usize = 6;

/// A server's request for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// ID of the server's existing ledger if it lost its connection to the gateway, otherwise 0.
    pub(crate) ledger: u32,
    /// Name of the server in `status`.
    pub(crate) name: String,
    /// What the server does with keys.
    pub(crate) keys: KeyUse,
    /// The address at which the server listens, if it wants to know which service has this address.
    pub(crate) listens: Option<SocketAddr>,
}

/// Flag of a server that makes its connection IDs with the gateway's keys. The lower bits of the
/// same field say how the server checks tokens.
const ISSUES_IDS: u32 = 4;

/// Marks a message as a [`CountQuery`]. It is in the field in which a [`Request`] has its key
/// flags.
const COUNT_QUERY: u32 = 16;

/// A server's query for the number of connections that a source holds with the gateway's other
/// servers. The answer is [`Status::Kept`], with the number in the field of the ledger's ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountQuery {
    /// ID of the server's own ledger, whose connections are not counted.
    pub(crate) ledger: u32,
    pub(crate) source: Source,
}

/// Status of the gateway's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Status {
    /// The gateway made a new ledger. The descriptors are sent with the answer.
    Joined = 0,
    /// The ledger in the request is still in its slot. The key ring is sent with the answer to
    /// servers that may have it.
    Kept = 1,
    /// The gateway refused the request, and would refuse it again.
    Refused = 2,
    /// The gateway refused the request, but the same request may succeed later.
    Busy = 3,
}

/// Answer of the gateway to a request.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// ID of the server's ledger.
    pub(crate) ledger: u32,
    /// Index of the service that has the address in the request, or `None` if no service has it.
    pub(crate) service: Option<u32>,
    /// Values with which the XDP program was loaded.
    pub(crate) load: abi::equic_load,
    /// Reason for a refusal. Empty for other answers.
    pub(crate) message: String,
}

/// Reason that a message on the socket cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    /// The bytes are not a message of this protocol.
    Foreign,
    /// The message is of another version of the protocol, or of the shared memory.
    Version { protocol: u32, abi: u32 },
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|w| w.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// Appends the words with which every message begins.
fn head(bytes: &mut Vec<u8>) {
    for word in [abi::EQUIC_ABI_MAGIC, PROTOCOL, abi::EQUIC_ABI_VERSION] {
        bytes.extend(word.to_ne_bytes());
    }
}

fn check(bytes: &[u8], length: usize) -> Result<(), Bad> {
    if bytes.len() < 12 || word(bytes, 0) != abi::EQUIC_ABI_MAGIC {
        return Err(Bad::Foreign);
    }
    let (protocol, abi) = (word(bytes, 4), word(bytes, 8));
    if (protocol, abi) != (PROTOCOL, abi::EQUIC_ABI_VERSION) {
        return Err(Bad::Version { protocol, abi });
    }
    if bytes.len() == length { Ok(()) } else { Err(Bad::Foreign) }
}

/// Appends a text as a field of `N` bytes, with a terminating NUL.
fn text<const N: usize>(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(c_name::<N>(text).map(|c| c as u8));
}

fn read_text(bytes: &[u8]) -> String {
    let name: Vec<std::ffi::c_char> = bytes.iter().map(|b| *b as std::ffi::c_char).collect();
    from_c_name(&name).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl Request {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(REQUEST);
        head(&mut bytes);
        bytes.extend(self.ledger.to_ne_bytes());
        text::<32>(&mut bytes, &self.name);
        let tokens = match self.keys.tokens {
            TokenCheck::None => 0,
            TokenCheck::GatewayKeys => 1,
            TokenCheck::OwnKeys => 2,
        };
        let ids = if self.keys.ids { ISSUES_IDS } else { 0 };
        bytes.extend((tokens | ids).to_ne_bytes());
        let port = self.listens.map_or(0, |address| address.port());
        bytes.extend(u32::from(port).to_ne_bytes());
        bytes.extend(self.listens.map_or([0; 16], |address| address_bytes(address.ip())));
        bytes.resize(REQUEST, 0);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Request, Bad> {
        check(bytes, REQUEST)?;
        let flags = word(bytes, 48);
        let tokens = match flags & !ISSUES_IDS {
            0 => TokenCheck::None,
            1 => TokenCheck::GatewayKeys,
            2 => TokenCheck::OwnKeys,
            _ => return Err(Bad::Foreign),
        };
        let keys = KeyUse { tokens, ids: flags & ISSUES_IDS != 0 };
        let port = u16::try_from(word(bytes, 52)).map_err(|_| Bad::Foreign)?;
        let address: [u8; 16] = std::array::from_fn(|index| bytes[56 + index]);
        let listens = (port != 0).then(|| SocketAddr::new(ip_of(address), port));
        let name = read_text(&bytes[16..48]);
        Ok(Request { ledger: word(bytes, 12), name, keys, listens })
    }
}

impl CountQuery {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(REQUEST);
        head(&mut bytes);
        bytes.extend(self.ledger.to_ne_bytes());
        bytes.extend(self.source.addr());
        bytes.extend(self.source.group.to_ne_bytes());
        bytes.resize(48, 0);
        bytes.extend(COUNT_QUERY.to_ne_bytes());
        bytes.resize(REQUEST, 0);
        bytes
    }

    /// Parses a [`CountQuery`]. Returns `None` for any other message.
    pub(crate) fn parse(bytes: &[u8]) -> Option<CountQuery> {
        check(bytes, REQUEST).ok().filter(|()| word(bytes, 48) == COUNT_QUERY)?;
        let addr = bytes[16..32].try_into().ok()?;
        let source = Source::of_bytes(addr, word(bytes, 32));
        Some(CountQuery { ledger: word(bytes, 12), source })
    }
}

impl Answer {
    /// Returns an answer that refuses a request.
    pub(crate) fn no(status: Status, message: impl Into<String>) -> Answer {
        let load = abi::equic_load::default();
        Answer { status, ledger: 0, service: None, load, message: message.into() }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ANSWER);
        head(&mut bytes);
        bytes.extend((self.status as u32).to_ne_bytes());
        bytes.extend(self.ledger.to_ne_bytes());
        // The service is encoded as its index plus one, or 0 for no service.
        bytes.extend(self.service.map_or(0, |index| index + 1).to_ne_bytes());
        // SAFETY: the value consists of plain integers without padding (`Pod`), and the slice has
        // its size.
        bytes.extend(unsafe {
            std::slice::from_raw_parts(
                (&raw const self.load).cast::<u8>(),
                size_of::<abi::equic_load>(),
            )
        });
        text::<{ ANSWER - 64 }>(&mut bytes, &self.message);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Answer, Bad> {
        check(bytes, ANSWER)?;
        let status = match word(bytes, 12) {
            0 => Status::Joined,
            1 => Status::Kept,
            2 => Status::Refused,
            3 => Status::Busy,
            _ => return Err(Bad::Foreign),
        };
        // SAFETY: the buffer has 40 bytes from offset 24 on, and every bit pattern is a valid
        // `equic_load`.
        let load = unsafe { bytes[24..64].as_ptr().cast::<abi::equic_load>().read_unaligned() };
        let service = word(bytes, 20).checked_sub(1);
        let message = read_text(&bytes[64..]);
        Ok(Answer { status, ledger: word(bytes, 16), service, load, message })
    }
}

const _: () = assert!(size_of::<abi::equic_load>() == 40, "the answer has room for it");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_messages_round_trip() {
        let all = [TokenCheck::None, TokenCheck::GatewayKeys, TokenCheck::OwnKeys];
        for keys in
            all.into_iter().flat_map(|tokens| [false, true].map(|ids| KeyUse { tokens, ids }))
        {
            for at in [None, Some("192.0.2.1:443"), Some("[::]:8443")] {
                let listens = at.map(|at| at.parse().expect("an address"));
                let request = Request { ledger: 77, name: "a server".to_owned(), keys, listens };
                assert_eq!(Request::parse(&request.to_bytes()), Ok(request));
            }
        }
        let load = abi::equic_load { seed: 5, ledger_mask: 127, ..abi::equic_load::default() };
        let message = "welcome".to_owned();
        let answer = Answer { status: Status::Joined, ledger: 9, service: Some(0), load, message };
        let bytes = answer.to_bytes();
        assert_eq!(bytes.len(), ANSWER);
        let read = Answer::parse(&bytes).unwrap();
        assert_eq!((read.status, read.ledger, read.load), (Status::Joined, 9, load));
        assert_eq!((read.message.as_str(), read.service), ("welcome", Some(0)));
        assert_eq!(Answer::no(Status::Busy, "").service, None);
        assert_eq!(Answer::no(Status::Busy, "x".repeat(1_000)).to_bytes().len(), ANSWER);
    }

    #[test]
    fn socket_count_query_round_trips_and_is_no_request() {
        let source = Source::of_bytes(std::array::from_fn(|at| at as u8), 63);
        let query = CountQuery { ledger: 7, source };
        let bytes = query.to_bytes();
        assert_eq!(CountQuery::parse(&bytes), Some(query));
        assert_eq!(Request::parse(&bytes), Err(Bad::Foreign));
        for length in 0..REQUEST {
            assert_eq!(CountQuery::parse(&bytes[..length]), None, "{length}");
        }
        let request =
            Request { ledger: 7, name: String::new(), keys: KeyUse::default(), listens: None };
        assert_eq!(CountQuery::parse(&request.to_bytes()), None);
    }

    #[test]
    fn socket_request_that_is_malformed_is_refused() {
        let (name, keys) = ("\u{1b}[2J\u{20ac}".repeat(9), KeyUse::default());
        let good = Request { ledger: 0, name, keys, listens: None }.to_bytes();
        assert!(!Request::parse(&good).unwrap().name.contains('\u{1b}'));
        for length in 0..REQUEST {
            assert_eq!(Request::parse(&good[..length]), Err(Bad::Foreign), "{length}");
        }
        assert_eq!(Request::parse(&[&good[..], &[0]].concat()), Err(Bad::Foreign));
        let mut other = good.clone();
        for flags in [3, 7, 8, 255] {
            other[48] = flags;
            assert_eq!(Request::parse(&other), Err(Bad::Foreign), "{flags}");
        }
        let mut other = good.clone();
        other[52..56].copy_from_slice(&70_000u32.to_ne_bytes());
        assert_eq!(Request::parse(&other), Err(Bad::Foreign), "no port");
        let mut other = good.clone();
        other[8] = 99;
        // The length does not matter, because messages of another version may have another length.
        let version = Bad::Version { protocol: PROTOCOL, abi: 99 };
        assert_eq!(Request::parse(&other), Err(version));
        assert_eq!(Request::parse(&other[..20]), Err(version));
        assert!(Answer::parse(&good).is_err());
    }
}
