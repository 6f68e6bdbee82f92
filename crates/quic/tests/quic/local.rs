//! Endpoints with several local addresses.

use std::net::{IpAddr, Ipv4Addr};

use equic_quic::{Connection, Endpoint};

use crate::common::{Identity, body, client, connect, echo, settings, soon};

const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Sends data and wants it back.
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

/// Goes on from the second address and back, with its data out of that socket and no other.
async fn moves_there_and_back(client: &Endpoint) {
    let identity = Identity::new();
    let server = identity.server(1);
    // The server says at which address it sees the client.
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
    assert!(!client.remove_local_address(SECOND), "it is gone");
    exchange(&connection).await;
    echoing.abort();
}

#[tokio::test]
async fn a_connection_goes_on_from_another_of_its_addresses() {
    moves_there_and_back(&client()).await;
}

/// The first socket speaks IPv6, and IPv4 mapped.
#[tokio::test]
async fn also_where_the_first_socket_is_of_both_families() {
    let sockets = Endpoint::bind("[::]:0".parse().unwrap(), 1, None).unwrap();
    moves_there_and_back(&Endpoint::new(settings(), None, sockets).unwrap()).await;
}

#[tokio::test]
async fn addresses_that_cannot_be_had() {
    let client = client();
    // Of documentation: nobody has it.
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
