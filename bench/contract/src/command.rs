//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::unsupported;

/// What this process is.
#[derive(Clone, Debug)]
pub enum Role {
    Server(Server),
    Client(Client),
}

#[derive(Clone, Debug)]
pub struct Server {
    pub listen: SocketAddr,
    /// PEM.
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Client {
    pub connect: SocketAddr,
    /// The server's name, for its certificate.
    pub name: String,
    /// PEM.
    pub ca: PathBuf,
    pub work: Work,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// So many bytes in all, from the server.
    Download { bytes: u64, streams: u64 },
    /// To it.
    Upload { bytes: u64 },
    /// Connections one after the other, so many at a time.
    Handshakes { time: Duration, parallel: usize, resume: bool },
    /// `GET /1k` on one connection, so many at a time.
    Requests { time: Duration, parallel: usize },
    /// Connections that do nothing.
    Hold { count: usize },
}

/// Reads the command line; what is not known is not supported.
pub fn read() -> Result<Role> {
    let mut words = std::env::args().skip(1);
    let role = words.next().context("server or client?")?;
    let mut options = Options::default();
    while let Some(word) = words.next() {
        if word == "--resume" {
            options.resume = true;
            continue;
        }
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        options.take(&word, &value).with_context(|| format!("{word} {value}"))?;
    }
    match &*role {
        "server" => Ok(Role::Server(Server {
            listen: options.address.context("--listen")?,
            cert: options.cert.context("--cert")?,
            key: options.key.context("--key")?,
        })),
        "client" => {
            let work = options.work()?;
            Ok(Role::Client(Client {
                connect: options.address.context("--connect")?,
                name: options.name.context("--name")?,
                ca: options.ca.context("--ca")?,
                work,
            }))
        }
        other => bail!("{other} is neither server nor client"),
    }
}

#[derive(Default)]
struct Options {
    address: Option<SocketAddr>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    name: Option<String>,
    download: Option<u64>,
    upload: Option<u64>,
    handshakes: Option<Duration>,
    requests: Option<Duration>,
    hold: Option<usize>,
    streams: Option<u64>,
    parallel: Option<usize>,
    resume: bool,
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
            "--download" => self.download = Some(value.parse()?),
            "--upload" => self.upload = Some(value.parse()?),
            "--handshakes" => self.handshakes = Some(seconds()?),
            "--requests" => self.requests = Some(seconds()?),
            "--hold" => self.hold = Some(value.parse()?),
            "--streams" => self.streams = Some(value.parse()?),
            "--parallel" => self.parallel = Some(value.parse()?),
            _ => unsupported(),
        }
        Ok(())
    }

    fn work(&self) -> Result<Work> {
        let parallel = self.parallel.unwrap_or(1).max(1);
        let streams = self.streams.unwrap_or(1).max(1);
        let chosen = [
            self.download.map(|bytes| Work::Download { bytes, streams }),
            self.upload.map(|bytes| Work::Upload { bytes }),
            self.handshakes.map(|time| Work::Handshakes { time, parallel, resume: self.resume }),
            self.requests.map(|time| Work::Requests { time, parallel }),
            self.hold.map(|count| Work::Hold { count }),
        ];
        match chosen.into_iter().flatten().collect::<Vec<_>>()[..] {
            [work] => Ok(work),
            _ => bail!("one of --download, --upload, --handshakes, --requests, --hold"),
        }
    }
}
