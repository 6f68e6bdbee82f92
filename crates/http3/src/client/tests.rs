//! Tests of connection attempts to addresses where nothing listens, and of unsafe requests on
//! connections that begin with early data.

use equic_quic::EarlyData;
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use tokio::time::timeout;

use super::*;
use crate::{IdentitySource, Server, ServerConfig, StatsHandle};

const PATIENCE: Duration = Duration::from_secs(60);

fn closed() -> SocketAddr {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn client() -> Client {
    // Without time limits, an attempt ends only if the network reports an error.
    let config = ClientConfig { trust: Trust::Insecure, ..ClientConfig::default() };
    Client::new(ClientConfig { timeout: None, idle_timeout: Duration::ZERO, ..config }).unwrap()
}

#[tokio::test]
async fn race_tries_the_next_address_if_nothing_listens() {
    let identity = IdentitySource::SelfSigned { names: Vec::new(), directory: None };
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(ServerConfig { identity, ..ServerConfig::new(listen) }).unwrap();
    let open = server.local_addr();
    tokio::spawn(server.run(std::future::pending()));
    let (target, path) = Target::parse("https://localhost/health").unwrap();
    for early in [false, true] {
        let peers = vec![closed(), closed(), open, closed()];
        let connection = client().race(&target, peers, early).await.unwrap();
        assert_eq!(connection.peer(), open);
        assert!(connection.get(&path).await.unwrap().status.is_success());
    }
}

#[tokio::test]
async fn race_goes_on_if_the_first_address_is_silent() {
    let identity = IdentitySource::SelfSigned { names: Vec::new(), directory: None };
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(ServerConfig { identity, ..ServerConfig::new(listen) }).unwrap();
    let open = server.local_addr();
    tokio::spawn(server.run(std::future::pending()));
    let (target, _) = Target::parse("https://localhost/").unwrap();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for early in [false, true] {
        let peers = vec![silent.local_addr().unwrap(), open];
        let client = client();
        let opened = client.race(&target, peers, early);
        // The first address never answers, so the attempt completes only if the client tries the
        // next one.
        let connection = timeout(PATIENCE, opened).await;
        assert_eq!(connection.unwrap().unwrap().peer(), open);
    }
}

#[tokio::test]
async fn race_reports_the_last_error_if_nothing_listens_anywhere() {
    let (target, _) = Target::parse("https://localhost/").unwrap();
    let peers = vec![closed(), closed()];
    let last = peers[1];
    let error = client().race(&target, peers, false).await.err().unwrap();
    assert_eq!(error.failure(), Failure::Error("unreachable"));
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot connect to {last}: nothing listens")), "{text}");
}

/// A hundred requests wait for one connection that never opens. All of them must fail after one
/// timeout, instead of waiting one timeout after another.
#[tokio::test]
async fn timeout_of_requests_that_wait_together_is_shared() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let limit = Some(Duration::from_secs(1));
    let config = ClientConfig { trust: Trust::Insecure, timeout: limit, ..ClientConfig::default() };
    let client = Client::new(config).unwrap();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (client, url) = (client.clone(), url.clone());
        running.spawn(async move { client.get(&url).await.err().map(|error| error.failure()) });
    }
    let all = timeout(PATIENCE, running.join_all()).await.unwrap();
    assert_eq!(all, vec![Some(Failure::Timeout); 100]);
}

/// The method and status of each request that a server has answered, in the order of the responses.
type Log = Arc<Mutex<Vec<(Method, StatusCode)>>>;

fn early_server() -> (SocketAddr, StatsHandle, Log) {
    let identity = IdentitySource::SelfSigned { names: Vec::new(), directory: None };
    let listen = "127.0.0.1:0".parse().unwrap();
    let log = Log::default();
    let kept = Arc::clone(&log);
    let server = Server::bind(ServerConfig {
        identity,
        early_data: true,
        log: Some(Arc::new(move |request| {
            kept.lock().unwrap().push((request.method.clone(), request.status));
        })),
        ..ServerConfig::new(listen)
    })
    .unwrap();
    let (address, stats) = (server.local_addr(), server.stats());
    tokio::spawn(server.run(std::future::pending()));
    (address, stats, log)
}

/// Sends a POST request on this connection. Returns the status, or the reason why the server did
/// not process the request.
async fn post(connection: &Connection, path: &PathAndQuery) -> Result<StatusCode, Unprocessed> {
    match timeout(PATIENCE, connection.request(Method::POST, path)).await.unwrap() {
        Ok(mut response) => {
            response.drain().await.unwrap();
            Ok(response.status)
        }
        Err(ClientError::Unprocessed { why, .. }) => Err(why),
        Err(error) => panic!("{error}"),
    }
}

/// A POST is not idempotent, so it must wait for the handshake, and no server may get it twice.
#[tokio::test]
async fn early_data_that_is_rejected_has_no_post_and_no_server_gets_it_twice() {
    let ((knows, ..), (forgot, stats, log)) = (early_server(), early_server());
    let config = ClientConfig { trust: Trust::Insecure, early_data: true, ..Default::default() };
    let client = Client::new(config).unwrap();
    let (target, path) = Target::parse("https://localhost/health").unwrap();
    let begin = |peer, early| timeout(PATIENCE, client.race(&target, vec![peer], early));
    // Two connections give the client more session tickets than this test needs.
    for _ in 0..2 {
        let first = begin(knows, false).await.unwrap().unwrap();
        assert_eq!(first.get(&path).await.unwrap().status, StatusCode::OK);
    }
    // The second server has the same name but does not know the ticket, so it rejects the early
    // data.
    let early = begin(forgot, true).await.unwrap().unwrap();
    assert_eq!(early.handshake(), Duration::ZERO, "the connection begins with early data");
    let both = tokio::join!(post(&early, &path), post(&early, &path));
    assert_eq!(both, (Err(Unprocessed::EarlyData), Err(Unprocessed::EarlyData)));
    assert_eq!((early.early_data(), early.is_open()), (EarlyData::Rejected, false));
    // The connection stays unusable: a later POST fails, too.
    assert_eq!(post(&early, &path).await, Err(Unprocessed::EarlyData));
    let late = begin(forgot, false).await.unwrap().unwrap();
    assert_eq!(post(&late, &path).await, Ok(StatusCode::METHOD_NOT_ALLOWED));
    assert_eq!(*log.lock().unwrap(), [(Method::POST, StatusCode::METHOD_NOT_ALLOWED)]);
    let stats = stats.snapshot();
    assert_eq!((stats.requests, stats.failed), (1, 0));
}

/// A POST must wait for the handshake. Otherwise the server would answer 425 (Too Early).
#[tokio::test]
async fn early_data_that_is_accepted_has_no_post() {
    let (address, _, log) = early_server();
    let config = ClientConfig { trust: Trust::Insecure, early_data: true, ..Default::default() };
    let client = Client::new(config).unwrap();
    let (target, path) = Target::parse("https://localhost/health").unwrap();
    let begin = |early| timeout(PATIENCE, client.race(&target, vec![address], early));
    let first = begin(false).await.unwrap().unwrap();
    assert_eq!(first.get(&path).await.unwrap().status, StatusCode::OK);
    let early = begin(true).await.unwrap().unwrap();
    assert_eq!(early.handshake(), Duration::ZERO, "the connection begins with early data");
    assert_eq!(post(&early, &path).await, Ok(StatusCode::METHOD_NOT_ALLOWED));
    assert_eq!(early.early_data(), EarlyData::Accepted);
    let posts = log.lock().unwrap().iter().filter(|(method, _)| *method == Method::POST).count();
    assert_eq!(posts, 1);
}
