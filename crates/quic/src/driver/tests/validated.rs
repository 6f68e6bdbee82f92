//! Tests of a server's actions that need the last validated address, after a forged packet has
//! changed the remote address.

use std::net::UdpSocket;
use std::task::{Context, Poll, Waker};

use equic_transport::{Event, Received};

use super::*;
use crate::bottleneck::Turn;

/// Returns a socket's task with one connection. Its client has the address of `idle.peers`.
async fn one() -> Idle {
    Idle::new(1, 1 << 20, 0).await
}

/// Delivers the client's packets to the server, as if they came from this address.
fn deliver(idle: &mut Idle, from: SocketAddr) {
    let now = idle.driver.socket.now();
    let mut buffer = vec![0; 2048];
    let mut state = idle.connections[0].lock();
    while let Some(sent) = idle.clients[0].poll_transmit(now, &mut buffer) {
        let arrival = DatagramMeta { remote: from, local: None, ecn: EcnCodepoint::NotEct };
        state.connection.handle_datagram(now, arrival, &mut buffer[..sent.size]);
    }
}

/// Delivers a datagram of the server to the client.
fn answer(idle: &mut Idle, datagram: &mut [u8]) {
    let now = idle.driver.socket.now();
    let remote = idle.driver.socket.lock().udp.local_addr();
    let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    idle.clients[0].handle_datagram(now, arrival, datagram);
}

/// The client writes about a thousand bytes. Their packet gives the server three times this credit
/// before the address is validated.
fn speak(client: &mut Connection) {
    let id = client.open(Direction::Unidirectional).unwrap();
    assert_eq!(client.streams().write(id, &[7; 1000]).unwrap(), 1000);
}

#[tokio::test]
async fn address_validated_waits_for_the_answer_from_the_new_address() {
    let mut idle = one().await;
    let home = idle.peers.local_addr().unwrap();
    let new = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let poll = |idle: &Idle| {
        let cx = Context::from_waker(Waker::noop());
        idle.connections[0].lock().poll_validated(Some(home), &cx)
    };
    assert!(poll(&idle).is_pending());
    assert_eq!(idle.connections[0].lock().connection.validated_address(), Some(home));
    // One packet arrives from another address.
    speak(&mut idle.clients[0]);
    deliver(&mut idle, new);
    assert_eq!(idle.connections[0].lock().connection.remote_address(), new);
    assert!(poll(&idle).is_pending(), "one packet validates nothing");
    // The client really is at the new address, and answers.
    let now = idle.driver.socket.now();
    let mut buffer = vec![0; 2048];
    loop {
        let sent = idle.connections[0].lock().connection.poll_transmit(now, &mut buffer);
        let Some(sent) = sent else { break };
        answer(&mut idle, &mut buffer[..sent.size]);
    }
    deliver(&mut idle, new);
    assert!(matches!(poll(&idle), Poll::Ready(Ok(address)) if address == new));
}

/// The token of a NEW_TOKEN frame is for the validated address, not for a forged one.
#[tokio::test]
async fn token_of_a_new_token_frame_is_for_the_validated_address() {
    let mut idle = one().await;
    let home = idle.peers.local_addr().unwrap();
    let forged = UdpSocket::bind("127.0.0.2:0").unwrap();
    forged.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let elsewhere = forged.local_addr().unwrap();
    let transport = Arc::new(TransportConfig::default());
    let tls = Arc::clone(&idle.tls.1);
    let server = ServerConfig::new(tls).with_transport(Arc::clone(&transport));
    let config = EndpointConfig::new(&crate::default_provider().unwrap()).unwrap();
    let socket = Arc::clone(&idle.driver.socket);
    socket.lock().endpoint = Endpoint::new(config, Some(Arc::new(server)), [8; 32]);
    speak(&mut idle.clients[0]);
    deliver(&mut idle, elsewhere);
    let conn = Arc::clone(&idle.connections[0]);
    let mut state = conn.lock();
    assert_eq!(state.connection.remote_address(), elsewhere);
    state.token_due = true;
    conn.wake_driver(&mut state);
    drop(state);
    while idle.work() {}
    // The test reads the packets at the forged address, and delivers them to the client.
    let mut buffer = vec![0; 2048];
    let token = loop {
        let (size, _) = forged.recv_from(&mut buffer).unwrap();
        answer(&mut idle, &mut buffer[..size]);
        let mut events = std::iter::from_fn(|| idle.clients[0].poll_event());
        let token = events.find_map(|event| match event {
            Event::NewToken(token) => Some(token),
            _ => None,
        });
        if let Some(token) = token {
            break token;
        }
    };
    for (from, validated) in [(elsewhere, false), (home, true)] {
        let now = socket.now();
        let config = ClientConfig::new(Arc::clone(&idle.tls.0)).with_transport(transport.clone());
        let server = socket.lock().udp.local_addr();
        let name = NAME.try_into().unwrap();
        let mut client = Connection::connect(now, &config, name, server, [9; 32]).unwrap();
        assert!(client.set_token(token.clone()));
        let sent = client.poll_transmit(now, &mut buffer).unwrap();
        let arrival = DatagramMeta { remote: from, local: None, ecn: EcnCodepoint::NotEct };
        let mut response = Vec::new();
        let mut inner = socket.lock();
        let received =
            inner.endpoint.handle_datagram(now, arrival, &buffer[..sent.size], &mut response);
        let Received::Incoming(incoming) = received else { panic!("not an attempt") };
        assert_eq!(incoming.is_validated(), validated, "from {from}");
        inner.endpoint.ignore(incoming);
    }
}

/// Forty connections to one address share a window. A connection with a forged source address takes
/// none of their turns.
#[tokio::test]
async fn bottleneck_group_is_joined_at_a_validated_address_only() {
    let idle = Idle::new(40, 12_000, 1000).await;
    let socket = Arc::clone(&idle.driver.socket);
    let peer = idle.peers.local_addr().unwrap();
    let now = socket.now();
    let transport = Arc::new(TransportConfig::default());
    let server = socket.lock().udp.local_addr();
    let config = ClientConfig::new(Arc::clone(&idle.tls.0)).with_transport(transport.clone());
    let name = NAME.try_into().unwrap();
    let client = Connection::connect(now, &config, name, server, [1; 32]).unwrap();
    let (to, from) = (client.original_dcid(), client.local_ids().next().unwrap());
    let tls = Arc::clone(&idle.tls.1);
    let config = ServerConfig::new(tls).with_transport(transport);
    let version = KnownVersion::V1;
    let claimed = Connection::accept_from(now, &config, version, to, from, peer, [2; 32]).unwrap();
    assert_eq!(claimed.validated_address(), None);
    let conn = socket.add(&mut socket.lock(), Handle(40), claimed);
    let (_, proved) = idle.connection(41, peer, 12_000, 1000);
    let other = socket.add(&mut socket.lock(), Handle(41), proved);
    let mut inner = socket.lock();
    let mut turn = |conn: &Arc<SharedConnection>| begin(&mut inner, &mut conn.lock(), now, true);
    assert!(turn(&conn) == Turn::Alone);
    assert!(turn(&other) != Turn::Alone, "the group shares a window");
}
