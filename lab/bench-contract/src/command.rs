//! Parses the command line of a measured program.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{Knobs, unsupported};

/// The role of this process, with its command line.
#[derive(Clone, Debug)]
pub enum Role {
    /// A server.
    Server(Server),
    /// A client.
    Client(Client),
}

/// A server's command line.
#[derive(Clone, Debug)]
pub struct Server {
    /// Address that the server listens on.
    pub listen: SocketAddr,
    /// File with the server's certificate chain, PEM.
    pub cert: PathBuf,
    /// File with the private key of the certificate, PEM.
    pub key: PathBuf,
    /// Settings that differ from the defaults.
    pub knobs: Knobs,
    /// File to which TLS secrets are appended. `None` if they are not written.
    pub keylog: Option<PathBuf>,
    /// Folder of qlog files. `None` if they are not written.
    pub qlog: Option<PathBuf>,
}

/// A client's command line.
#[derive(Clone, Debug)]
pub struct Client {
    /// Address of the server.
    pub connect: SocketAddr,
    /// Server name that the client expects in the server's certificate.
    pub name: String,
    /// File with the certificate of the authority that signed the server's certificate, PEM.
    pub ca: PathBuf,
    /// Protocol that the client speaks.
    pub protocol: Protocol,
    /// Workload of the client.
    pub work: Work,
    /// Settings that differ from the defaults.
    pub knobs: Knobs,
    /// File to which TLS secrets are appended. `None` if they are not written.
    pub keylog: Option<PathBuf>,
    /// Folder of qlog files. `None` if they are not written.
    pub qlog: Option<PathBuf>,
}

/// Protocol of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// draft-banks-quic-performance.
    Perf,
    /// HTTP/3.
    H3,
    /// The same requests and responses as `Perf`, over TLS and TCP.
    PerfTcp,
    /// The same requests and responses as `Perf`, over TCP without TLS. The server uses
    /// sendfile(2).
    Sendfile,
}

/// A client's workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Downloads this number of bytes in total, on all streams of all connections.
    Download {
        /// Number of bytes that all connections together download.
        bytes: u64,
        /// Number of streams of each connection.
        streams: u64,
        /// Number of connections open at once.
        connections: u64,
    },
    /// Uploads bytes to the server, on one stream.
    Upload {
        /// Number of bytes to upload.
        bytes: u64,
    },
    /// Opens and closes connections for some time, a fixed number of them at once.
    Handshakes {
        /// Duration of the workload.
        time: Duration,
        /// Number of concurrent connections.
        parallel: usize,
        /// True if connections are resumed with session tickets.
        resume: bool,
    },
    /// Sends requests for `GET /1k` on one connection for some time, a fixed number of them at
    /// once.
    Requests {
        /// Duration of the workload.
        time: Duration,
        /// Number of concurrent requests.
        parallel: usize,
    },
    /// Opens connections one after the other, and waits for the first byte on each.
    FirstByte {
        /// Duration of the workload, during which connections are opened.
        time: Duration,
    },
    /// Runs small exchanges one after the other on one connection, first without and then during a
    /// bulk download.
    Loaded {
        /// Duration of each of the two phases.
        time: Duration,
    },
    /// Opens idle connections and keeps them open.
    Hold {
        /// Number of idle connections to open.
        count: usize,
    },
}

/// Parses the command line of this process. An unknown option is treated as an unsupported one.
/// `speaks` are the protocols of the program, with its default first.
pub fn read(speaks: &[Protocol]) -> Result<Role> {
    parse(std::env::args().skip(1), speaks)
}

/// Parses a command line that is given as words.
pub fn parse(words: impl IntoIterator<Item = String>, speaks: &[Protocol]) -> Result<Role> {
    let mut words = words.into_iter();
    let role = words.next().context("the first argument must be `server` or `client`")?;
    let mut options = Options::default();
    while let Some(word) = words.next() {
        if word == "--resume" {
            options.resume = true;
            continue;
        }
        if !word.starts_with("--") {
            bail!("{word} is not an option: options begin with --");
        }
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        options.take(&word, &value).with_context(|| format!("{word} {value}"))?;
    }
    match &*role {
        "server" => Ok(Role::Server(Server {
            listen: options.address.context("--listen is missing")?,
            cert: options.cert.context("--cert is missing")?,
            key: options.key.context("--key is missing")?,
            knobs: options.knobs,
            keylog: options.keylog,
            qlog: options.qlog,
        })),
        "client" => {
            let work = options.work()?;
            let protocol = options.protocol(work, speaks)?;
            Ok(Role::Client(Client {
                connect: options.address.context("--connect is missing")?,
                name: options.name.context("--name is missing")?,
                ca: options.ca.context("--ca is missing")?,
                protocol,
                work,
                knobs: options.knobs,
                keylog: options.keylog,
                qlog: options.qlog,
            }))
        }
        other => bail!("the first argument is {other}, but must be `server` or `client`"),
    }
}

#[derive(Default)]
struct Options {
    address: Option<SocketAddr>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    name: Option<String>,
    protocol: Option<Protocol>,
    download: Option<u64>,
    upload: Option<u64>,
    handshakes: Option<Duration>,
    requests: Option<Duration>,
    first_byte: Option<Duration>,
    loaded: Option<Duration>,
    hold: Option<usize>,
    streams: Option<u64>,
    connections: Option<u64>,
    parallel: Option<usize>,
    resume: bool,
    knobs: Knobs,
    keylog: Option<PathBuf>,
    qlog: Option<PathBuf>,
}

impl Options {
    fn take(&mut self, word: &str, value: &str) -> Result<()> {
        let seconds = || anyhow::Ok(Duration::try_from_secs_f64(value.parse()?)?);
        match word {
            "--listen" | "--connect" => self.address = Some(value.parse()?),
            "--cert" => self.cert = Some(value.into()),
            "--key" => self.key = Some(value.into()),
            "--ca" => self.ca = Some(value.into()),
            "--name" => self.name = Some(value.into()),
            "--protocol" => {
                self.protocol = Some(match value {
                    "perf" => Protocol::Perf,
                    "h3" => Protocol::H3,
                    "perf-tcp" => Protocol::PerfTcp,
                    "sendfile" => Protocol::Sendfile,
                    _ => unsupported(value),
                });
            }
            "--download" => self.download = Some(value.parse()?),
            "--upload" => self.upload = Some(value.parse()?),
            "--handshakes" => self.handshakes = Some(seconds()?),
            "--requests" => self.requests = Some(seconds()?),
            "--ttfb" => self.first_byte = Some(seconds()?),
            "--loaded" => self.loaded = Some(seconds()?),
            "--hold" => self.hold = Some(value.parse()?),
            "--streams" => self.streams = Some(value.parse()?),
            "--connections" => self.connections = Some(value.parse()?),
            "--parallel" => self.parallel = Some(value.parse()?),
            "--keylog" => self.keylog = Some(value.into()),
            "--qlog" => self.qlog = Some(value.into()),
            _ if self.knobs.take(word, value)? => {}
            _ => unsupported(word),
        }
        Ok(())
    }

    fn work(&self) -> Result<Work> {
        let parallel = self.parallel.unwrap_or(1).max(1);
        let streams = self.streams.unwrap_or(1).max(1);
        let connections = self.connections.unwrap_or(1).max(1);
        let chosen = [
            self.download.map(|bytes| Work::Download { bytes, streams, connections }),
            self.upload.map(|bytes| Work::Upload { bytes }),
            self.handshakes.map(|time| Work::Handshakes { time, parallel, resume: self.resume }),
            self.requests.map(|time| Work::Requests { time, parallel }),
            self.first_byte.map(|time| Work::FirstByte { time }),
            self.loaded.map(|time| Work::Loaded { time }),
            self.hold.map(|count| Work::Hold { count }),
        ];
        match chosen.into_iter().flatten().collect::<Vec<_>>()[..] {
            [work] => Ok(work),
            _ => bail!(
                "give exactly one of --download, --upload, --handshakes, --requests, --ttfb, --loaded and --hold"
            ),
        }
    }

    /// Returns the protocol for a workload. Requests need HTTP/3, and HTTP/3 supports only requests
    /// and downloads.
    fn protocol(&self, work: Work, speaks: &[Protocol]) -> Result<Protocol> {
        let requests = matches!(work, Work::Requests { .. });
        let usual = if requests {
            Protocol::H3
        } else {
            *speaks.first().context("the program supports no protocol")?
        };
        let protocol = self.protocol.unwrap_or(usual);
        if !speaks.contains(&protocol) {
            unsupported(if requests { "requests" } else { "this protocol" });
        }
        ensure!(!requests || protocol == Protocol::H3, "--requests needs --protocol h3");
        if protocol == Protocol::H3 && !requests && !matches!(work, Work::Download { .. }) {
            unsupported("the requested workload over HTTP/3");
        }
        Ok(protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cipher, Congestion};

    fn client(words: &str) -> Result<Client> {
        let common = "client --connect 127.0.0.1:4433 --name a --ca b";
        let words = format!("{common} {words}");
        match parse(words.split_whitespace().map(str::to_owned), &[Protocol::Perf, Protocol::H3])? {
            Role::Client(client) => Ok(client),
            Role::Server(_) => bail!("a server"),
        }
    }

    #[test]
    fn command_reads_work_and_protocol() {
        let two = client("--download 10 --connections 2").unwrap();
        assert_eq!(two.work, Work::Download { bytes: 10, streams: 1, connections: 2 });
        assert_eq!(two.protocol, Protocol::Perf);
        let web = client("--protocol h3 --download 10 --streams 3").unwrap();
        assert_eq!(web.protocol, Protocol::H3);
        assert_eq!(client("--requests 1").unwrap().protocol, Protocol::H3);
        assert!(client("--requests 1 --protocol perf").is_err());
        assert!(client("--download 1 --upload 1").is_err());
        assert!(client("").is_err());
        assert!(client("--download").is_err());
        assert!(client("--ttfb -1").is_err());
        let loaded = client("--loaded 0.5").unwrap();
        assert_eq!(loaded.work, Work::Loaded { time: Duration::from_millis(500) });
        assert_eq!(loaded.protocol, Protocol::Perf);
        assert!(client("--loaded x").is_err());
        assert!(client("--loaded 1 --ttfb 1").is_err());
    }

    #[test]
    fn command_knobs_have_defaults() {
        let usual = client("--hold 1").unwrap().knobs;
        assert_eq!((usual.receive_buffer(), usual.payload(), usual.gso), (4 << 20, 1452, None));
        let words =
            "--hold 1 --rcvbuf 106496 --gso off --congestion bbr --mtu 1200 --cipher chacha20";
        let turned = client(words).unwrap().knobs;
        assert_eq!((turned.receive_buffer(), turned.send_buffer()), (106_496, 4 << 20));
        assert_eq!((turned.gso, turned.payload()), (Some(false), 1200));
        assert_eq!((turned.congestion(), turned.cipher()), (Congestion::Bbr, Cipher::ChaCha20));
        assert!(client("--hold 1 --gso maybe").is_err());
    }
}
