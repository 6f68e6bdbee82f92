//! `equic-lab interop-endpoint`: eQUIC's endpoint for the QUIC Interop Runner. It implements the
//! interface that the runner expects of an endpoint.
//!
//! The runner passes all settings in environment variables: ROLE, TESTCASE, REQUESTS,
//! SERVER_PARAMS, CLIENT_PARAMS, SSLKEYLOGFILE, QLOGDIR. WWW, DOWNLOADS, CERTS and PORT override
//! the defaults /www, /downloads, /certs and 443. PREFERRED_ADDRESS is the preferred address that
//! the server offers. [`client`] and [`server`] run the test cases; [`tls`] creates their
//! configurations.

mod client;
mod server;
mod tls;

use std::fs;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};

use equic_plugin::exchange::ExchangeConfig;
use equic_quic::QlogFolder;

use crate::exchange;
use crate::failure::{Failure, Result};
use crate::quic::{flushed, qlog_folder};
use crate::signals::runtime;

/// Maximum length in bytes of a request that a server reads.
const MAX_REQUEST: usize = 4096;

/// Test cases that client and server support. If only the server or the network does something
/// special (migration of the server, packet loss), the client's test case is `transfer`.
const BOTH: [&str; 12] = [
    "handshake",
    "transfer",
    "retry",
    "resumption",
    "zerortt",
    "multiconnect",
    "http3",
    "ecn",
    "v2",
    "chacha20",
    "versionnegotiation",
    "multipath",
];
const CLIENT: [&str; 2] = ["keyupdate", "connectionmigration"];
const SERVER: [&str; 1] = ["connectionmigration"];

/// Run as an endpoint of the QUIC Interop Runner, as ROLE, TESTCASE, REQUESTS and other variables
/// say. Exit code 127: the test case is not supported.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Exchange plugins with peers that support this. Accept plugins of any author if they only
    /// observe, tune, or use their own frames
    #[arg(long)]
    plugins: bool,
    /// With --plugins: plugin (.qplug) to offer to the peer
    #[arg(long, value_name = "FILE", requires = "plugins")]
    push: Vec<PathBuf>,
}

/// Settings from the environment variables of the runner.
struct Contract {
    testcase: String,
    requests: Vec<Request>,
    www: PathBuf,
    downloads: PathBuf,
    certs: PathBuf,
    port: u16,
    /// The preferred address that the server offers, or `None` to offer none.
    preferred: Option<SocketAddr>,
    qlog: Option<QlogFolder>,
    /// Configuration of the plugin exchange, or `None` if it is disabled.
    exchange: Option<ExchangeConfig>,
}

/// A URL to fetch.
#[derive(Clone)]
struct Request {
    url: String,
    host: String,
    address: SocketAddr,
    path: String,
}

pub(crate) fn run(args: &Args) -> Result {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let folder = |name: &str, usual: &str| PathBuf::from(var(name).unwrap_or(usual.to_owned()));
    let server = match var("ROLE").as_deref() {
        Some("server") => true,
        Some("client") => false,
        _ => return Err(Failure::usage("ROLE must be client or server")),
    };
    let testcase = var("TESTCASE").ok_or_else(|| Failure::usage("TESTCASE is not set"))?;
    let more = if server { &SERVER[..] } else { &CLIENT[..] };
    if !BOTH.iter().chain(more).any(|known| *known == testcase) {
        return Err(Failure::Unsupported(testcase));
    }
    let port = var("PORT").map_or(Ok(443), |port| port.parse());
    let preferred = var("PREFERRED_ADDRESS").map(|address| address.parse()).transpose();
    let contract = Contract {
        testcase,
        requests: if server {
            Vec::new()
        } else {
            Request::parse_all(&var("REQUESTS").unwrap_or_default())?
        },
        www: folder("WWW", "/www"),
        downloads: folder("DOWNLOADS", "/downloads"),
        certs: folder("CERTS", "/certs"),
        port: port.map_err(|_| Failure::usage("PORT is not a port number"))?,
        preferred: preferred.map_err(|_| Failure::usage("PREFERRED_ADDRESS is not an address"))?,
        qlog: var("QLOGDIR").map(|folder| qlog(Path::new(&folder))).transpose()?,
        exchange: args.plugins.then(|| exchange::open_to_all(&args.push)).transpose()?,
    };
    let _flush = flushed(contract.qlog.as_ref(), None);
    runtime(None)?.block_on(async {
        if server { server::serve(contract).await } else { client::fetch(&contract).await }
    })
}

/// Opens the folder for qlog files. Creates it if necessary, because the runner may name one that
/// does not exist.
fn qlog(folder: &Path) -> Result<QlogFolder> {
    fs::create_dir_all(folder).map_err(|error| {
        Failure::because(format_args!("cannot make the folder {}", folder.display()), error)
    })?;
    qlog_folder(folder)
}

impl Contract {
    fn is(&self, testcase: &str) -> bool {
        self.testcase == testcase
    }

    /// Returns the ALPN protocol of the test case: HTTP/0.9, except for `http3`.
    fn alpn(&self) -> &'static [u8] {
        if self.is("http3") { b"h3" } else { b"hq-interop" }
    }

    /// Reads the file with this path in the served directory.
    fn file(&self, path: &str) -> Result<Vec<u8>> {
        let path = Path::new(path.trim_start_matches('/'));
        if path.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(Failure::new(format!(
                "refused a request for {}: the path must not contain `.` or `..`",
                path.display()
            )));
        }
        fs::read(self.www.join(path)).map_err(|error| Failure::because(path.display(), error))
    }

    /// Stores the content that was received for a request as a file.
    fn store(&self, request: &Request, content: &[u8]) -> Result {
        let name = request.path.rsplit('/').next().unwrap_or_default();
        if name.is_empty() {
            return Err(Failure::new(format!("{} has no file name", request.url)));
        }
        let path = self.downloads.join(name);
        fs::write(&path, content).map_err(|error| Failure::because(path.display(), error))
    }
}

impl Request {
    fn parse_all(urls: &str) -> Result<Vec<Request>> {
        let mut requests: Vec<Request> = Vec::new();
        for url in urls.split_whitespace() {
            let rest = url.strip_prefix("https://");
            let rest = rest.ok_or_else(|| Failure::usage(format!("{url} is not an https URL")))?;
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let known = requests.iter().find(|known| known.authority() == authority);
            let address = match known {
                Some(known) => known.address,
                None => resolve(authority)?,
            };
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            let host = host.trim_matches(['[', ']']).to_owned();
            requests.push(Request { url: url.to_owned(), host, address, path: format!("/{path}") });
        }
        Ok(requests)
    }

    fn authority(&self) -> &str {
        self.url.trim_start_matches("https://").split('/').next().unwrap_or_default()
    }
}

fn resolve(authority: &str) -> Result<SocketAddr> {
    use std::net::ToSocketAddrs as _;
    let found = authority.to_socket_addrs().or_else(|_| (authority, 443).to_socket_addrs());
    let mut found = found
        .map_err(|error| Failure::because(format_args!("cannot resolve {authority}"), error))?;
    found.next().ok_or_else(|| Failure::new(format!("{authority} has no address")))
}
