//! Tests of the order of work when much is due at the same time.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Buf as _;
use equic_quic::{ServerConfig, StreamConfig, TransportConfig};
use equic_wire::VarInt;

use crate::common::{Identity, body, client, connect, echo, serve, settings, soon};

/// When many streams arrive together, some are answered before the others are accepted. Both ends
/// of the connection can then work at the same time.
#[tokio::test]
async fn accept_streams_a_few_at_a_time() {
    const STREAMS: usize = 32;
    let identity = Identity::new();
    let server = identity.server(1);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    serve(server.clone(), move |connection| {
        let tell = tell.clone();
        async move {
            let (mut run, mut all) = (0, Vec::new());
            while all.len() < STREAMS {
                let accepted = poll_fn(|cx| match connection.poll_accept_bi(cx) {
                    Poll::Ready(accepted) => {
                        run += 1;
                        Poll::Ready(accepted)
                    }
                    Poll::Pending => {
                        tell.send(std::mem::take(&mut run)).unwrap();
                        Poll::Pending
                    }
                });
                all.push(accepted.await.unwrap());
            }
            tell.send(run).unwrap();
        }
    });
    let (client, config) = (client(), identity.client());
    let connection = connect(&client, &config, &server).await;
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        // All streams are sent in one datagram, because the socket's task runs afterwards.
        let (mut send, receive) = connection.open_bi().await.unwrap();
        send.write_all(b"x").await.unwrap();
        open.push((send, receive));
    }
    let mut runs = Vec::new();
    while runs.iter().sum::<usize>() < STREAMS {
        runs.push(soon("a stream", told.recv()).await.unwrap());
    }
    assert!(runs.iter().all(|run| *run <= 8), "{runs:?}");
    assert_eq!(runs.iter().sum::<usize>(), STREAMS);
}

#[tokio::test]
async fn send_of_a_buffer_in_pieces_is_one_write() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    const ROOM: usize = 1_200;
    let room = ROOM as u64;
    let streams = StreamConfig::default().with_send_buffer(room).with_max_send_buffer(room);
    let transport = TransportConfig::default().with_streams(streams);
    let config = identity.client().with_transport(transport);
    let client = client();
    let connection = connect(&client, &config, &server).await;
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let all = body(2 * ROOM);
    let (first, second) = all.split_at(500);
    let mut data = first.chain(second);
    let mut counts = Vec::new();
    while data.has_remaining() {
        let wrote = poll_fn(|cx| send.poll_write_buf(cx, &mut data));
        counts.push(soon("room", wrote).await.unwrap());
    }
    assert_eq!(counts, [ROOM, ROOM], "each write fills the buffer from both pieces");
    assert_eq!(poll_fn(|cx| send.poll_write_buf(cx, &mut data)).await, Ok(0));
    send.finish().unwrap();
    assert_eq!(soon("the whole echo", receive.read_to_end(9_999)).await.unwrap(), all);
    assert!(poll_fn(|cx| send.poll_write_buf(cx, &mut &b"more"[..])).await.is_err());
}

/// Several datagrams that came together are due to be acknowledged at once. The answer carries the
/// acknowledgement, because the application is notified of data before the endpoint sends.
#[tokio::test]
async fn send_puts_answer_and_acknowledgement_into_one_datagram() {
    use tokio::io::AsyncReadExt as _;

    const REQUEST: usize = 3_000;
    const REQUESTS: u64 = 50;
    let identity = Identity::new();
    // Probes of the MTU would be additional datagrams.
    let transport = TransportConfig::default().with_mtu_discovery(false);
    let config = ServerConfig::new(identity.server_tls()).with_transport(transport.clone());
    let server = identity.server_with(1, settings(), config);
    serve(server.clone(), |connection| async move {
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        let mut request = [0; REQUEST];
        while receive.read_exact(&mut request).await.is_ok() {
            send.write_all(b"x").await.unwrap();
        }
    });
    let (client, config) = (client(), identity.client().with_transport(transport));
    let connection = connect(&client, &config, &server).await;
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let (request, mut answer) = (body(REQUEST), [0]);
    let mut before = 0;
    for number in 0..=REQUESTS {
        send.write_all(&request).await.unwrap();
        soon("an answer", receive.read_exact(&mut answer)).await.unwrap();
        if number == 0 {
            // The handshake is complete after the first answer.
            before = connection.stats().datagrams_received;
        }
    }
    let received = connection.stats().datagrams_received - before;
    assert!((REQUESTS..REQUESTS * 3 / 2).contains(&received), "{received} datagrams");
}

/// A client's request is sent with the last flight of its handshake. The server's answer is sent
/// with its last flight. This works because applications are notified before these flights are
/// sent.
#[tokio::test]
async fn send_takes_two_datagrams_per_end_for_handshake_and_exchange() {
    const CONNECTIONS: u64 = 50;
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let (client, config) = (client(), identity.client());
    let mut counts = (0, 0);
    // This is a separate task. The runtime polls the test's future only when no task is ready.
    let all = tokio::spawn(async move {
        for _ in 0..CONNECTIONS {
            let connection = connect(&client, &config, &server).await;
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            send.write_all(b"request").await.unwrap();
            send.finish().unwrap();
            let answer = soon("an answer", receive.read_to_end(100)).await.unwrap();
            assert_eq!(answer, b"request");
            let stats = connection.stats();
            counts = (counts.0 + stats.datagrams_sent, counts.1 + stats.datagrams_received);
            connection.close(VarInt::ZERO, "");
        }
        counts
    });
    let counts = soon("all connections", all).await.unwrap();
    // On a machine that is slow for a while, each end may have retransmitted something.
    let usual = 2 * CONNECTIONS..=2 * CONNECTIONS + CONNECTIONS / 2;
    assert!(usual.contains(&counts.0) && usual.contains(&counts.1), "{counts:?} datagrams");
}
