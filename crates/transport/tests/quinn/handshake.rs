//! Tests Retry, resumption and 0-RTT with quinn.

use equic_wire::KnownVersion;

use super::*;

/// Starts a quinn server that requires address validation by a Retry packet, and echoes every
/// stream.
fn retrying_server(identity: &Identity) -> SocketAddr {
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(server_tls(identity)).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    serve(config, |incoming| {
        if incoming.remote_address_validated() {
            return Some(incoming);
        }
        incoming.retry().unwrap();
        None
    })
}

fn serve(
    config: quinn::ServerConfig,
    choose: impl Fn(quinn::Incoming) -> Option<quinn::Incoming> + Send + 'static,
) -> SocketAddr {
    let (address, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let endpoint = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
            address.send(endpoint.local_addr().unwrap()).unwrap();
            while let Some(incoming) = endpoint.accept().await {
                let Some(incoming) = choose(incoming) else { continue };
                tokio::spawn(async move {
                    let connection = incoming.await.unwrap();
                    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                        let data = receive.read_to_end(64 << 20).await.unwrap();
                        send.write_all(&data).await.unwrap();
                        send.finish().unwrap();
                    }
                });
            }
        });
    });
    told.recv().unwrap()
}

fn connect(config: &ClientConfig, remote: SocketAddr, seed: u8) -> Driver {
    let name = ServerName::try_from("equic.test").unwrap();
    let connection =
        Connection::connect(Timestamp::START, config, name, remote, [seed; 32]).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    Driver { socket, connection, start: Instant::now(), closed: None, early: false }
}

fn client_config(tls: rustls::ClientConfig) -> ClientConfig {
    let transport = TransportConfig::default().with_ecn(false);
    ClientConfig::new(Arc::new(tls)).with_transport(Arc::new(transport))
}

/// Sends data on one stream, and checks that the peer returns it.
fn echo(driver: &mut Driver, length: usize) {
    let id = driver.connection.open(Direction::Bidirectional).expect("streams are allowed");
    let mut exchange = Exchange { id, data: body(length), written: 0, back: vec![], ended: false };
    driver.run(|connection| {
        exchange.advance(connection);
        exchange.ended
    });
    assert!(exchange.back == exchange.data);
}

#[test]
fn retry_of_quinn_is_followed() {
    let identity = identity();
    let remote = retrying_server(&identity);
    let mut driver = connect(&client_config(client_tls(&identity)), remote, 1);
    driver.run(|connection| connection.is_connected());
    echo(&mut driver, 100_000);
}

/// quinn supports only version 1, and sends no version_information.
// RFC 9368 s.8 #1
#[test]
fn version_negotiation_packet_of_quinn_is_followed() {
    let identity = identity();
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(server_tls(&identity)).unwrap();
    let remote = serve(quinn::ServerConfig::with_crypto(Arc::new(crypto)), Some);
    let versions = vec![KnownVersion::V2, KnownVersion::V1];
    let transport = TransportConfig::default().with_ecn(false).with_versions(versions);
    let tls = Arc::new(client_tls(&identity));
    let config = ClientConfig::new(tls).with_transport(Arc::new(transport));
    let mut driver = connect(&config, remote, 1);
    assert_eq!(driver.connection.version(), KnownVersion::V2);
    driver.run(|connection| connection.is_connected());
    assert_eq!(driver.connection.version(), KnownVersion::V1);
    echo(&mut driver, 1000);
}

// RFC 9001 s.8.3 #1
#[test]
fn early_data_to_quinns_server() {
    let identity = identity();
    let mut tls = server_tls(&identity);
    tls.max_early_data_size = u32::MAX;
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let remote = serve(quinn::ServerConfig::with_crypto(Arc::new(crypto)), Some);
    let mut tls = client_tls(&identity);
    tls.enable_early_data = true;
    let config = client_config(tls);

    let mut first = connect(&config, remote, 1);
    assert!(!first.connection.is_early());
    first.run(|connection| connection.is_connected());
    // The session ticket arrives after the handshake. When the echoed data has arrived, the ticket
    // has arrived, too.
    echo(&mut first, 1000);

    let mut second = connect(&config, remote, 2);
    assert!(second.connection.is_early() && !second.connection.is_connected());
    // The client opens and writes this stream before it receives anything from the server.
    echo(&mut second, 10_000);
    second.run(|connection| connection.is_connected());
    assert!(second.early, "quinn accepted early data");
}

#[test]
fn early_data_of_quinns_client() {
    let identity = identity();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let remote = socket.local_addr().unwrap();
    let mut tls = server_tls(&identity);
    tls.max_early_data_size = u32::MAX;
    let config = ServerConfig::new(Arc::new(tls))
        .with_transport(Arc::new(TransportConfig::default().with_ecn(false)));
    let mut tls = client_tls(&identity);
    tls.enable_early_data = true;
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let quinn_config = quinn::ClientConfig::new(Arc::new(crypto));
    let client = std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
            let connecting =
                endpoint.connect_with(quinn_config.clone(), remote, "equic.test").unwrap();
            let connection = connecting.await.unwrap();
            exchange(&connection).await;
            connection.close(5u32.into(), b"first");
            endpoint.wait_idle().await;
            let connecting = endpoint.connect_with(quinn_config, remote, "equic.test").unwrap();
            let (connection, accepted) =
                connecting.into_0rtt().expect("the client has a session ticket");
            exchange(&connection).await;
            assert!(accepted.await, "this server accepted early data");
            connection.close(5u32.into(), b"second");
            endpoint.wait_idle().await;
        });
    });
    let mut socket = Some(socket);
    for (seed, early) in [(1, false), (2, true)] {
        let mut driver = accept(socket.take().unwrap(), &config, seed);
        let mut pending: Vec<(StreamId, Vec<u8>)> = Vec::new();
        driver.run(|connection| {
            while let Some(id) = connection.accept(Direction::Bidirectional) {
                pending.push((id, Vec::new()));
            }
            let mut buffer = vec![0; 65_536];
            pending.retain_mut(|(id, data)| {
                loop {
                    match connection.streams().read(*id, &mut buffer) {
                        Ok(ReadOutcome::Bytes(count)) => data.extend_from_slice(&buffer[..count]),
                        Ok(ReadOutcome::Finished) => {
                            assert_eq!(connection.streams().write(*id, data), Ok(data.len()));
                            connection.streams().finish(*id).unwrap();
                            return false;
                        }
                        _ => return true,
                    }
                }
            });
            connection.is_drained()
        });
        assert_eq!(driver.early, early);
        socket = Some(driver.socket);
    }
    client.join().unwrap();
}

async fn exchange(connection: &quinn::Connection) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(&body(3000)).await.unwrap();
    send.finish().unwrap();
    assert!(receive.read_to_end(1 << 20).await.unwrap() == body(3000));
}

/// Accepts the next client on this socket with this transport.
fn accept(socket: UdpSocket, config: &ServerConfig, seed: u8) -> Driver {
    let mut first = vec![0; 65_536];
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    loop {
        let (size, remote) = socket.recv_from(&mut first).unwrap();
        let mut packets = Datagram::new(&first[..size], ParseOptions::default());
        // Skip late packets of the previous connection, which have short headers.
        let Some(Ok(Packet::Long(initial))) = packets.next() else { continue };
        let (version, original, scid) = (initial.version(), initial.dcid(), initial.scid());
        let start = Timestamp::START;
        let mut connection =
            Connection::accept_from(start, config, version, original, scid, remote, [seed; 32])
                .unwrap();
        connection.handle_datagram(start, from(remote), &mut first[..size]);
        return Driver { socket, connection, start: Instant::now(), closed: None, early: false };
    }
}
