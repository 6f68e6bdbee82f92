//! The test cases: arguments of client and server, network, and files. Names, abbreviations and
//! conditions are those of the QUIC Interop Runner, except for `multipath`, which the runner does
//! not have.

use std::time::Duration;

use equic_net::{Chance, Link, Queue};
use equic_netns::relay::{Rebind, RebindTo};

use crate::registry::Role;

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;
const MS: Duration = Duration::from_millis(1);

/// A test case of the QUIC Interop Runner, or `multipath`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`description` says what each is")]
pub enum Case {
    Handshake,
    Transfer,
    LongRtt,
    ChaCha20,
    Multiplexing,
    Retry,
    Resumption,
    ZeroRtt,
    Http3,
    KeyUpdate,
    Ecn,
    AmplificationLimit,
    HandshakeLoss,
    TransferLoss,
    HandshakeCorruption,
    TransferCorruption,
    Ipv6,
    V2,
    VersionNegotiation,
    RebindPort,
    RebindAddr,
    ConnectionMigration,
    Multipath,
}

/// Amount of data that each case transfers, and the rate of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Size {
    /// The amounts of the QUIC Interop Runner: 10 Mb/s, megabytes, 50 connections.
    Runner,
    /// Smaller amounts: 40 Mb/s, a fifth of the bytes, 10 connections.
    #[default]
    Small,
}

/// The files, links and times of a test case.
#[derive(Clone, Debug)]
pub struct CasePlan {
    /// Size of each served file, in bytes.
    pub files: Vec<usize>,
    /// Length of each file's name in characters.
    pub name_len: usize,
    /// Parameters of the link from the client to the server.
    pub to_server: Link,
    /// Parameters of the link from the server to the client.
    pub to_client: Link,
    /// Changes of the client's address that the network makes without the client's knowledge.
    /// `None` if the client keeps its address.
    pub rebind: Option<Rebind>,
    /// Time limit for the client.
    pub timeout: Duration,
}

impl Case {
    /// All cases, in the order of the result matrix.
    pub const ALL: [Case; 23] = [
        Case::Handshake,
        Case::Transfer,
        Case::LongRtt,
        Case::ChaCha20,
        Case::Multiplexing,
        Case::Retry,
        Case::Resumption,
        Case::ZeroRtt,
        Case::Http3,
        Case::KeyUpdate,
        Case::Ecn,
        Case::AmplificationLimit,
        Case::HandshakeLoss,
        Case::TransferLoss,
        Case::HandshakeCorruption,
        Case::TransferCorruption,
        Case::Ipv6,
        Case::V2,
        Case::VersionNegotiation,
        Case::RebindPort,
        Case::RebindAddr,
        Case::ConnectionMigration,
        Case::Multipath,
    ];

    /// Returns the case with this name.
    pub fn named(name: &str) -> Option<Case> {
        Case::ALL.into_iter().find(|case| case.name() == name)
    }

    /// Returns the case's name.
    pub const fn name(self) -> &'static str {
        self.words().0
    }

    /// Returns the abbreviation of the case in the result matrix.
    pub const fn abbreviation(self) -> &'static str {
        self.words().1
    }

    /// Returns a description of the feature that the case tests.
    pub const fn description(self) -> &'static str {
        self.words().2
    }

    const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Case::Handshake => {
                ("handshake", "H", "A handshake, then the download of one small file.")
            }
            Case::Transfer => (
                "transfer",
                "DC",
                "Concurrent downloads that exceed the initial flow control limits.",
            ),
            Case::LongRtt => ("longrtt", "LR", "A handshake with a round-trip time of 1.5 s."),
            Case::ChaCha20 => ("chacha20", "C20", "The client offers only ChaCha20-Poly1305."),
            Case::Multiplexing => (
                "multiplexing",
                "M",
                "Downloads on more streams than the server permits initially.",
            ),
            Case::Retry => {
                ("retry", "S", "The server sends a Retry, and the client uses its token.")
            }
            Case::Resumption => {
                ("resumption", "R", "The second connection resumes the TLS session of the first.")
            }
            Case::ZeroRtt => {
                ("zerortt", "Z", "The second connection sends its requests in 0-RTT packets.")
            }
            Case::Http3 => ("http3", "3", "Downloads over HTTP/3."),
            Case::KeyUpdate => ("keyupdate", "U", "Both sides use both key phases."),
            Case::Ecn => ("ecn", "E", "Both sides mark packets with ECN and count the marks."),
            Case::AmplificationLimit => (
                "amplificationlimit",
                "A",
                "The server sends a long certificate, without exceeding 3 times the received bytes.",
            ),
            Case::HandshakeLoss => {
                ("handshakeloss", "L1", "Handshakes with 30 % loss in each direction.")
            }
            Case::TransferLoss => {
                ("transferloss", "L2", "A transfer with 2 % loss in each direction.")
            }
            Case::HandshakeCorruption => {
                ("handshakecorruption", "C1", "Handshakes with 30 % of packets corrupted.")
            }
            Case::TransferCorruption => {
                ("transfercorruption", "C2", "A transfer with 2 % of packets corrupted.")
            }
            Case::Ipv6 => ("ipv6", "6", "A transfer over IPv6."),
            Case::V2 => ("v2", "V2", "Compatible version negotiation from version 1 to 2."),
            Case::VersionNegotiation => (
                "versionnegotiation",
                "V",
                "An unknown version causes a Version Negotiation packet.",
            ),
            Case::RebindPort => {
                ("rebind-port", "BP", "The client's port changes during the transfer.")
            }
            Case::RebindAddr => {
                ("rebind-addr", "BA", "The client's address changes during the transfer.")
            }
            Case::ConnectionMigration => {
                ("connectionmigration", "CM", "The client migrates, with a new connection ID.")
            }
            Case::Multipath => {
                ("multipath", "MP", "A transfer over two paths at once (RFC 10069).")
            }
        }
    }

    /// Returns the value of the environment variable TESTCASE. For a client of
    /// `connectionmigration`, the QUIC Interop Runner sets `transfer`, but this function returns
    /// the name of the case. A client that does not support the case can then say so, and a client
    /// without support for preferred addresses may change its own address.
    pub const fn testcase(self, role: Role) -> &'static str {
        match (self, role) {
            (Case::LongRtt, _) => "handshake",
            (Case::KeyUpdate, Role::Server)
            | (
                Case::Multiplexing
                | Case::AmplificationLimit
                | Case::TransferLoss
                | Case::TransferCorruption
                | Case::Ipv6
                | Case::RebindPort
                | Case::RebindAddr,
                _,
            ) => "transfer",
            (Case::HandshakeLoss | Case::HandshakeCorruption, _) => "multiconnect",
            _ => self.name(),
        }
    }

    /// Returns true if the check of the case needs packets that can only be decrypted with a key
    /// log.
    pub const fn needs_keys(self) -> bool {
        matches!(
            self,
            Case::Multiplexing
                | Case::Resumption
                | Case::KeyUpdate
                | Case::Ecn
                | Case::AmplificationLimit
                | Case::RebindPort
                | Case::RebindAddr
                | Case::ConnectionMigration
                | Case::Multipath
        )
    }

    /// Returns true if the case needs a long server certificate: one that does not fit into what a
    /// server may send before it has validated the client's address.
    pub const fn long_certificate(self) -> bool {
        matches!(self, Case::AmplificationLimit)
    }

    /// Returns true if a browser can run the case by loading a page.
    pub const fn for_browsers(self) -> bool {
        matches!(self, Case::Http3)
    }

    /// Returns the number of connections that the client must open.
    pub const fn handshakes(self, size: Size) -> usize {
        match (self, size) {
            (Case::HandshakeLoss | Case::HandshakeCorruption, Size::Runner) => 50,
            (Case::HandshakeLoss | Case::HandshakeCorruption, Size::Small) => 10,
            (Case::Resumption | Case::ZeroRtt, _) => 2,
            _ => 1,
        }
    }

    /// Returns the files, links and times of the case.
    pub fn plan(self, size: Size) -> CasePlan {
        let link = self.link(size);
        let mut plan = CasePlan {
            files: self.files(size),
            name_len: if self == Case::ZeroRtt { 250 } else { 12 },
            to_server: link.clone(),
            to_client: link,
            rebind: self.rebind(size),
            timeout: Duration::from_secs(60),
        };
        match self {
            Case::AmplificationLimit => plan.to_server.drop_list = (2..=7).collect(),
            Case::HandshakeLoss | Case::HandshakeCorruption => {
                plan.timeout = Duration::from_secs(if size == Size::Runner { 300 } else { 120 });
            }
            _ => {}
        }
        plan
    }

    fn link(self, size: Size) -> Link {
        let rate = match size {
            Size::Runner => 10_000_000,
            Size::Small => 40_000_000,
        };
        let percent = |percent| Chance { percent, burst: 3 };
        let queue = Queue::Packets(match size {
            Size::Runner => 25,
            // The faster link has a longer queue, so that the maximum queueing delay is the same.
            Size::Small => 100,
        });
        let mut link = Link { delay: 15 * MS, rate: Some(rate), queue, ..Link::default() };
        match self {
            Case::LongRtt => link.delay = 750 * MS,
            Case::HandshakeLoss => link.drop = percent(30.0),
            Case::TransferLoss => link.drop = percent(2.0),
            Case::HandshakeCorruption => link.corrupt = percent(30.0),
            Case::TransferCorruption => link.corrupt = percent(2.0),
            _ => {}
        }
        link
    }

    fn files(self, size: Size) -> Vec<usize> {
        let (whole, part) = match size {
            Size::Runner => (1, 1),
            Size::Small => (1, 5),
        };
        let scaled = |bytes: usize| bytes * whole / part;
        match self {
            Case::Handshake | Case::LongRtt | Case::V2 => vec![KB],
            Case::Transfer => vec![scaled(2 * MB), scaled(3 * MB), scaled(5 * MB)],
            Case::ChaCha20 | Case::KeyUpdate => vec![scaled(3 * MB)],
            Case::Multiplexing if size == Size::Runner => vec![32; 1999],
            Case::Multiplexing => vec![32; 1200],
            Case::Retry => vec![10 * KB],
            Case::Resumption | Case::Ipv6 => vec![5 * KB, 10 * KB],
            Case::ZeroRtt => vec![32; 40],
            Case::Http3 => vec![5 * KB, 10 * KB, 500 * KB],
            Case::Ecn => vec![100 * KB],
            Case::AmplificationLimit => vec![5 * KB],
            Case::HandshakeLoss | Case::HandshakeCorruption => vec![KB; self.handshakes(size)],
            Case::TransferLoss | Case::TransferCorruption => vec![scaled(2 * MB)],
            Case::RebindPort | Case::RebindAddr => vec![scaled(10 * MB)],
            Case::ConnectionMigration => vec![2 * MB],
            Case::Multipath => vec![5 * MB],
            Case::VersionNegotiation => Vec::new(),
        }
    }

    fn rebind(self, size: Size) -> Option<Rebind> {
        let to = match self {
            Case::RebindPort => RebindTo::Port,
            Case::RebindAddr => RebindTo::Address,
            _ => return None,
        };
        Some(match size {
            Size::Runner => Rebind { first: 1000 * MS, every: Some(5000 * MS), to },
            Size::Small => Rebind { first: 150 * MS, every: Some(500 * MS), to },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_and_letters_are_unique() {
        for (index, case) in Case::ALL.into_iter().enumerate() {
            assert_eq!(Case::named(case.name()), Some(case));
            let others = Case::ALL.iter().skip(index + 1);
            assert!(others.clone().all(|other| other.abbreviation() != case.abbreviation()));
        }
        assert_eq!(Case::named("nonsense"), None);
    }

    #[test]
    fn case_has_the_testcase_value_of_the_runner() {
        assert_eq!(Case::HandshakeLoss.testcase(Role::Client), "multiconnect");
        assert_eq!(Case::KeyUpdate.testcase(Role::Server), "transfer");
        assert_eq!(Case::KeyUpdate.testcase(Role::Client), "keyupdate");
        assert_eq!(Case::RebindAddr.testcase(Role::Server), "transfer");
        assert_eq!(Case::Http3.testcase(Role::Server), "http3");
    }

    /// docs/interop.md must list the values of TESTCASE, and the cases that need a key log, for
    /// authors of endpoints.
    #[test]
    fn case_testcase_values_are_documented() {
        let docs = include_str!("../../../docs/interop.md");
        let mut rows: Vec<((&str, &str), Vec<&str>)> = Vec::new();
        for case in Case::ALL {
            let told = (case.testcase(Role::Client), case.testcase(Role::Server));
            if told == (case.name(), case.name()) {
                continue;
            }
            match rows.iter_mut().find(|(known, _)| *known == told) {
                Some((_, cases)) => cases.push(case.name()),
                None => rows.push((told, vec![case.name()])),
            }
        }
        assert_eq!(rows.len(), 4);
        for ((client, server), cases) in rows {
            let row = format!("\n| {} | `{client}` | `{server}` |\n", cases.join(", "));
            assert!(docs.contains(&row), "docs/interop.md lacks {row}");
        }
        let with_keys = Case::ALL.into_iter().filter(|case| case.needs_keys()).count();
        assert!(with_keys == 9 && docs.contains("nine cases cannot be checked without a key log"));
    }
}
