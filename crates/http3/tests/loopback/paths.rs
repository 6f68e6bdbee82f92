//! Tests of connections with several paths: the cost of paths, and a path that the server closes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use equic_http3::{Client, ClientConfig, Hooks, PathAddresses, ServerConfig, Trust};
use equic_quic::operation::{AttachPoint, Call, Field, Hook, HookContext, HookError, Operation};
use equic_quic::{
    Connection, Endpoint, EndpointConfig, NewConnection, PathId, TransportConfig,
    TransportErrorCode,
};
use rustls::pki_types::PrivateKeyDer;
use tokio::time::timeout;

use crate::common::{PATIENCE, get, loopback, start, until};

const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The cost of each path of a connection, by path ID, as a hook has last read it.
type Costs = Arc<Mutex<BTreeMap<u64, u64>>>;

/// A hook that reads the costs each time a path is chosen.
struct Reader(Costs);

impl Hook for Reader {
    fn before(&mut self, host: &mut HookContext<'_>, _: &Call<'_>) -> Result<(), HookError> {
        let mut read = self.0.lock().unwrap();
        read.clear();
        let mut next = host.get_of(Field::NextPath, 0);
        while let Some(path) = next.filter(|path| *path != u64::MAX) {
            read.insert(path, host.get_of(Field::PathCost, path).unwrap());
            next = host.get_of(Field::NextPath, path + 1);
        }
        Ok(())
    }
}

fn reader(costs: &Costs) -> Option<Hooks> {
    let costs = Arc::clone(costs);
    Some(Hooks::new(move |new: &mut NewConnection<'_>| {
        let reader = Box::new(Reader(Arc::clone(&costs)));
        new.attach(
            reader,
            &[AttachPoint { after: false, ..AttachPoint::observe(Operation::SelectPath) }],
        )
        .unwrap();
    }))
}

fn addresses(costs: &[(IpAddr, u32)]) -> PathAddresses {
    PathAddresses {
        wanted: vec![SECOND],
        costs: costs.iter().copied().collect(),
        ..PathAddresses::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_cost_is_read_by_plugins() {
    let (ours, theirs) = (Costs::default(), Costs::default());
    let cost = |address: IpAddr| if address == SECOND { 9 } else { 4 };
    let server = start(ServerConfig {
        max_paths: 2,
        path_cost: Some(Arc::new(cost)),
        hooks: reader(&theirs),
        ..ServerConfig::new(loopback())
    });
    let config =
        ClientConfig { max_paths: 2, hooks: reader(&ours), ..server.client_config(loopback()) };
    let client = Client::new(config).unwrap();
    client.set_paths(addresses(&[(SECOND, 7)]));
    let connection = client.connect(&server.url("/")).await.unwrap();
    until("two paths", || connection.paths().iter().filter(|path| path.validated).count() == 2)
        .await;
    let both = |costs: &Costs, first, second| {
        *costs.lock().unwrap() == BTreeMap::from([(0, first), (1, second)])
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    // The hooks read the costs when something is sent.
    while !both(&ours, 0, 7) || !both(&theirs, 4, 9) {
        assert!(tokio::time::Instant::now() < deadline, "{ours:?} {theirs:?}");
        get(&connection, "/bytes/10000").await;
    }
}

/// Starts a QUIC server. The test accepts its connections itself.
fn raw_server() -> (Endpoint, SocketAddr) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let transport = TransportConfig::default().with_max_paths(2);
    let config = equic_quic::ServerConfig::with_single_cert(vec![made.cert.der().clone()], key);
    let config = config.unwrap().with_alpn(&[b"h3"]).with_transport(transport);
    let sockets = Endpoint::bind(loopback(), 1, None).unwrap();
    let settings = EndpointConfig::with_default_provider().unwrap();
    let server = Endpoint::new(settings, Some(config), sockets).unwrap();
    let address = server.local_addr().unwrap();
    (server, address)
}

async fn has(connection: &Connection, id: u32) {
    let id = PathId::new(id);
    until("a path", || connection.paths().iter().any(|path| path.id == id && path.validated)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_that_the_server_closes_is_opened_again() {
    let (server, address) = raw_server();
    let config = ClientConfig {
        max_paths: 2,
        trust: Trust::Insecure,
        bind: Some(loopback()),
        ..ClientConfig::default()
    };
    let client = Client::new(config).unwrap();
    client.set_paths(addresses(&[]));
    let accepting = async {
        let connection = server.accept().await.unwrap().await.unwrap();
        has(&connection, 1).await;
        let why = TransportErrorCode::APPLICATION_ABANDON_PATH;
        connection.close_path(PathId::new(1), why).unwrap();
        has(&connection, 2).await;
        connection
    };
    let url = format!("https://{address}/");
    let connecting = client.connect(&url);
    let (accepted, connected) = timeout(PATIENCE, async { tokio::join!(accepting, connecting) })
        .await
        .expect("the path is there again");
    drop((accepted, connected.unwrap()));
}
