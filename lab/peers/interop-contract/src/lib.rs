//! The QUIC Interop Runner's contract for endpoints: the environment, the requests, and HTTP/0.9 in
//! the runner's form (ALPN `hq-interop`).
//!
//! WWW, DOWNLOADS, CERTS and PORT replace the fixed /www, /downloads, /certs and 443 of the
//! runner's containers.

#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// ALPN of HTTP/0.9.
pub const HQ: &[u8] = b"hq-interop";
/// ALPN of HTTP/3.
pub const H3: &[u8] = b"h3";
/// Maximum length of a request that a server reads, in bytes.
pub const MAX_REQUEST: usize = 4096;
/// Exit status of an endpoint that does not support the test case.
pub const UNSUPPORTED: i32 = 127;

/// Settings that an endpoint gets from its environment.
#[derive(Clone, Debug)]
pub struct Contract {
    pub server: bool,
    pub testcase: String,
    pub requests: Vec<Request>,
    pub www: PathBuf,
    pub downloads: PathBuf,
    pub certs: PathBuf,
    pub port: u16,
    pub keylog: Option<PathBuf>,
    /// Preferred address of the server (RFC 9000 s.9.6). `None` if the server has none.
    pub preferred: Option<SocketAddr>,
}

/// A URL to fetch.
#[derive(Clone, Debug)]
pub struct Request {
    pub url: String,
    /// Host and port, as written in the URL.
    pub authority: String,
    /// Host without the brackets of an IPv6 address.
    pub host: String,
    pub address: SocketAddr,
    /// Path of the URL, with the leading slash.
    pub path: String,
}

impl Contract {
    /// Reads the contract from the environment.
    pub fn read() -> Result<Contract> {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let folder = |name, default: &str| PathBuf::from(var(name).unwrap_or(default.to_owned()));
        let server = match var("ROLE").as_deref() {
            Some("server") => true,
            Some("client") => false,
            other => bail!("ROLE is {other:?}, but must be client or server"),
        };
        let requests = var("REQUESTS").unwrap_or_default();
        let requests = if server { Vec::new() } else { Request::parse_all(&requests)? };
        Ok(Contract {
            server,
            testcase: var("TESTCASE").context("TESTCASE is not set")?,
            requests,
            www: folder("WWW", "/www"),
            downloads: folder("DOWNLOADS", "/downloads"),
            certs: folder("CERTS", "/certs"),
            port: var("PORT")
                .map_or(Ok(443), |port| port.parse())
                .context("PORT is not a port number")?,
            keylog: var("SSLKEYLOGFILE").map(PathBuf::from),
            preferred: var("PREFERRED_ADDRESS").map(|at| at.parse()).transpose()?,
        })
    }

    /// Ends the process with status 127 unless the list of this role contains the test case.
    pub fn require(&self, client: &[&str], server: &[&str]) {
        let done = if self.server { server } else { client };
        if !done.contains(&self.testcase.as_str()) {
            std::process::exit(UNSUPPORTED);
        }
    }

    /// Returns true if the test case has this name.
    pub fn is(&self, testcase: &str) -> bool {
        self.testcase == testcase
    }

    /// Returns the ALPN of the test case.
    pub fn alpn(&self) -> &'static [u8] {
        if self.is("http3") { H3 } else { HQ }
    }

    /// Returns the first request. Its server is also that of all other requests.
    pub fn first(&self) -> Result<&Request> {
        self.requests.first().context("REQUESTS is empty")
    }

    /// Returns the path of a file in the folder of certificates.
    pub fn cert(&self, name: &str) -> PathBuf {
        self.certs.join(name)
    }

    /// Reads the file that a path requests. Fails if it is not below the served folder.
    pub fn file(&self, path: &str) -> Result<Vec<u8>> {
        let path = Path::new(path.trim_start_matches('/'));
        if path.components().any(|part| !matches!(part, Component::Normal(_))) {
            bail!("the path {} is not below the served folder", path.display());
        }
        std::fs::read(self.www.join(path)).with_context(|| path.display().to_string())
    }

    /// Stores the response to a request in the folder of downloads.
    pub fn store(&self, request: &Request, content: &[u8]) -> Result<()> {
        let name = request.path.rsplit('/').next().unwrap_or_default();
        if name.is_empty() {
            bail!("{} has no file name", request.url);
        }
        std::fs::write(self.downloads.join(name), content).with_context(|| request.url.clone())
    }
}

impl Request {
    /// Returns the request as it is written to a stream in HTTP/0.9.
    pub fn hq(&self) -> Vec<u8> {
        format!("GET {}\r\n", self.path).into_bytes()
    }

    fn parse_all(urls: &str) -> Result<Vec<Request>> {
        let mut known: Vec<(String, SocketAddr)> = Vec::new();
        let mut requests = Vec::new();
        for url in urls.split_whitespace() {
            let rest = url
                .strip_prefix("https://")
                .with_context(|| format!("{url} is not an https URL"))?;
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let address = match known.iter().find(|(name, _)| name == authority) {
                Some((_, address)) => *address,
                None => resolve(authority)?,
            };
            known.push((authority.to_owned(), address));
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            requests.push(Request {
                url: url.to_owned(),
                authority: authority.to_owned(),
                host: host.trim_matches(['[', ']']).to_owned(),
                address,
                path: format!("/{path}"),
            });
        }
        Ok(requests)
    }
}

fn resolve(authority: &str) -> Result<SocketAddr> {
    let resolved = authority.to_socket_addrs().or_else(|_| (authority, 443).to_socket_addrs());
    let mut resolved = resolved.with_context(|| format!("cannot resolve {authority}"))?;
    resolved.next().with_context(|| format!("{authority} has no address"))
}

/// Parses an HTTP/0.9 request, and returns its path.
pub fn hq_path(request: &[u8]) -> Result<&str> {
    let line = std::str::from_utf8(request)?.lines().next().context("the request is empty")?;
    line.strip_prefix("GET ").map(str::trim).context("the request is not a GET request")
}

/// Returns the unspecified address of the same family, with port 0.
pub fn any(other: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match other {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, 0)
}
