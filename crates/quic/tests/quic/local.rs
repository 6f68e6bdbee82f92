//! Tests of endpoints with several local addresses.

use std::net::{IpAddr, Ipv4Addr};

use equic_quic::{
    Connection, Endpoint, OpenPathError, PathError, Scheduler, ServerConfig, TransportConfig,
    TransportErrorCode,
};

use crate::common::{Identity, body, client, connect, echo, settings, soon};

const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Sends data, and checks that the peer echoes it.
async fn exchange(connection: &Connection) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let data = body(100_000);
    let expected = data.clone();
    let writer = tokio::spawn(async move {
        send.write_all(&data).await.unwrap();
        send.finish().unwrap();
    });
    assert!(soon("echoed", receive.read_to_end(1 << 20)).await.unwrap() == expected);
    writer.await.unwrap();
}

/// Migrates a connection to the second address and back. Its packets must leave through that socket
/// only.
async fn moves_there_and_back(client: &Endpoint) {
    let identity = Identity::new();
    let server = identity.server(1);
    // The server reports the address at which it sees the client.
    let (seen, mut sees) = tokio::sync::mpsc::unbounded_channel();
    let echoing = crate::common::serve(server.clone(), move |connection| {
        let seen = seen.clone();
        async move {
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let data = receive.read_to_end(1 << 20).await.unwrap();
                seen.send(connection.remote_address()).unwrap();
                send.write_all(&data).await.unwrap();
                send.finish().unwrap();
            }
        }
    });
    let second = client.add_local_address(SECOND).unwrap();
    assert_eq!(second.ip(), SECOND);
    let connection = connect(client, &identity.client(), &server).await;
    exchange(&connection).await;
    let first = sees.recv().await.unwrap();
    assert_ne!(first, second);
    connection.migrate(SECOND).unwrap();
    exchange(&connection).await;
    assert_eq!(sees.recv().await.unwrap(), second);
    connection.migrate(first.ip()).unwrap();
    exchange(&connection).await;
    assert_eq!(sees.recv().await.unwrap(), first);
    assert!(client.remove_local_address(SECOND));
    assert!(!client.remove_local_address(SECOND), "already removed");
    exchange(&connection).await;
    echoing.abort();
}

#[tokio::test]
async fn migration_to_another_local_address() {
    moves_there_and_back(&client()).await;
}

/// The first socket is a dual-stack one, with IPv4-mapped addresses.
#[tokio::test]
async fn migration_from_a_socket_of_both_families() {
    let sockets = Endpoint::bind("[::]:0".parse().unwrap(), 1, None).unwrap();
    moves_there_and_back(&Endpoint::new(settings(), None, sockets).unwrap()).await;
}

#[tokio::test]
async fn migration_to_addresses_that_cannot_be_bound() {
    let client = client();
    // This address is reserved for documentation, so this machine does not have it.
    let nobodys = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));
    assert!(client.add_local_address(nobodys).is_err());
    let error = client.add_local_address("::1".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    assert!(!client.remove_local_address(nobodys));
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let connection = connect(&client, &identity.client(), &server).await;
    exchange(&connection).await;
}

/// Returns a configuration that permits two paths, and uses them in turn.
fn of_two_paths() -> TransportConfig {
    TransportConfig::default().with_max_paths(2).with_scheduler(Scheduler::RoundRobin)
}

#[tokio::test]
async fn multipath_second_path_carries_data_and_is_closed() {
    let identity = Identity::new();
    let config = ServerConfig::new(identity.server_tls()).with_transport(of_two_paths());
    let server = identity.server_with(1, settings(), config);
    echo(server.clone());
    let client = client();
    let second = client.add_local_address(SECOND).unwrap();
    let config = identity.client().with_transport(of_two_paths());
    let connection = connect(&client, &config, &server).await;
    let id = soon("a second path", connection.open_path(SECOND)).await.unwrap();
    let locals = |connection: &Connection| -> Vec<Option<IpAddr>> {
        connection.paths().iter().map(|path| path.local).collect()
    };
    assert_eq!(locals(&connection)[1], Some(SECOND));
    // The exchange is too short to fill the window of one path, and both paths have sent.
    exchange(&connection).await;
    assert!(connection.paths().iter().all(|path| path.validated), "{:?}", connection.paths());
    let again = connection.open_path(SECOND).await;
    assert_eq!(again, Err(PathError::CannotOpen(OpenPathError::TooMany)));
    // Packets no longer leave from the removed address, and no data is lost.
    assert!(client.remove_local_address(second.ip()));
    connection.close_path(id, TransportErrorCode::APPLICATION_ABANDON_PATH).unwrap();
    assert_eq!(connection.paths().len(), 1);
    exchange(&connection).await;
}

/// An end is notified when a path is opened, and when the peer closes it.
#[tokio::test]
async fn multipath_changes_of_paths_are_reported() {
    let identity = Identity::new();
    let config = ServerConfig::new(identity.server_tls()).with_transport(of_two_paths());
    let server = identity.server_with(1, settings(), config);
    let client = client();
    client.add_local_address(SECOND).unwrap();
    let config = identity.client().with_transport(of_two_paths());
    let accepting = async { server.accept().await.unwrap().await.unwrap() };
    let (connection, accepted) = tokio::join!(connect(&client, &config, &server), accepting);
    let id = soon("a second path", connection.open_path(SECOND)).await.unwrap();
    assert_eq!(soon("the client's path", connection.paths_changed(0)).await, Ok(1));
    assert_eq!(soon("the server's path", accepted.paths_changed(0)).await, Ok(1));
    accepted.close_path(id, TransportErrorCode::APPLICATION_ABANDON_PATH).unwrap();
    assert_eq!(soon("the closed path", connection.paths_changed(1)).await, Ok(2));
    assert_eq!(connection.paths().len(), 1);
    let waiting = connection.paths_changed(2);
    accepted.close(0u32.into(), "");
    assert!(soon("the end", waiting).await.is_err());
}

#[tokio::test]
async fn multipath_is_refused_if_the_server_permits_one_path() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let client = client();
    client.add_local_address(SECOND).unwrap();
    let config = identity.client().with_transport(of_two_paths());
    let connection = connect(&client, &config, &server).await;
    let refused = soon("an answer", connection.open_path(SECOND)).await;
    assert_eq!(refused, Err(PathError::CannotOpen(OpenPathError::NotAgreed)));
    exchange(&connection).await;
}
