//! Tests of our client with servers that do not process requests, so that the client must send them
//! again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use equic_http3::client::Unprocessed;
use equic_http3::{Client, ClientConfig, ClientError, Trust};
use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{PATIENCE, loopback, until};
use crate::foreign::raw_server;
use crate::rules::{field, headers};

const INTERNAL_ERROR: u32 = 0x102;
const NO_ERROR: u32 = 0x100;
const REQUEST_REJECTED: u32 = 0x10b;

/// The server's reaction to a request.
#[derive(Clone, Copy)]
enum Act {
    Answer,
    /// Answers, and then sends GOAWAY with this stream ID.
    AnswerAndGoAway(u64),
    /// Resets the request's stream with this code.
    Reset(u32),
    /// Sends GOAWAY with each of these stream IDs in turn. Neither reads nor answers the request.
    GoAway(&'static [u64]),
    /// Neither reads nor answers the request.
    Ignore,
    /// Closes the connection with this code.
    Close(u32),
}

/// A server that reacts to requests as a script says, and a client of it.
struct Scripted {
    client: Client,
    url: String,
    /// Number of requests on each connection, by the number of the connection.
    requests: Arc<Mutex<BTreeMap<usize, usize>>>,
}

impl Scripted {
    /// `script` chooses the reaction. Its arguments are the number of the connection and the number
    /// of the request on it, both from 0.
    fn new(script: impl Fn(usize, usize) -> Act + Send + Sync + Copy + 'static) -> Scripted {
        let (endpoint, fingerprint) = raw_server();
        let url = format!("https://{}/", endpoint.local_addr().unwrap());
        let requests: Arc<Mutex<BTreeMap<usize, usize>>> = Arc::default();
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            let count = AtomicUsize::new(0);
            while let Some(incoming) = endpoint.accept().await {
                let number = count.fetch_add(1, Ordering::Relaxed);
                seen.lock().unwrap().insert(number, 0);
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    let Ok(connection) = incoming.await else { return };
                    serve(&connection, |request| {
                        *seen.lock().unwrap().get_mut(&number).unwrap() += 1;
                        script(number, request)
                    })
                    .await;
                });
            }
        });
        let config = ClientConfig {
            trust: Trust::Fingerprint(fingerprint),
            bind: Some(loopback()),
            ..ClientConfig::default()
        };
        Scripted { client: Client::new(config).unwrap(), url, requests }
    }

    async fn get(&self) -> Result<(), ClientError> {
        let get = async {
            let mut response = self.client.get(&self.url).await?;
            assert_eq!(&response.body(100).await?[..], b"ok");
            Ok(())
        };
        timeout(PATIENCE, get).await.expect("the request ends")
    }

    /// Sends this many requests at the same time, and returns the errors of those that failed.
    async fn get_at_once(&self, count: usize) -> Vec<ClientError> {
        let mut running = JoinSet::new();
        for _ in 0..count {
            let (client, url) = (self.client.clone(), self.url.clone());
            running.spawn(async move { client.get(&url).await?.body(100).await });
        }
        let all = timeout(PATIENCE, running.join_all()).await.expect("all requests end");
        all.into_iter().filter_map(Result::err).collect()
    }

    fn requests(&self) -> Vec<usize> {
        self.requests.lock().unwrap().values().copied().collect()
    }
}

async fn serve(connection: &Connection, mut act: impl FnMut(usize) -> Act) {
    let mut control = connection.open_uni().await.unwrap();
    control.write_all(&[0, 4, 0]).await.unwrap();
    let mut open: Vec<(SendStream, RecvStream)> = Vec::new();
    let mut number = 0;
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        let act = act(number);
        number += 1;
        match act {
            Act::Answer | Act::AnswerAndGoAway(_) => {
                let _ = receive.read_to_end(10_000).await;
                let length = field("content-length", "2");
                let answer = [headers(&[&[0xd9], &length]), vec![0, 2, b'o', b'k']].concat();
                let _ = send.write_all(&answer).await;
                let _ = send.finish();
            }
            Act::Reset(code) => {
                let _ = receive.stop(VarInt::from_u32(code));
                let _ = send.reset(VarInt::from_u32(code));
            }
            Act::Close(code) => connection.close(VarInt::from_u32(code), b""),
            Act::GoAway(_) | Act::Ignore => open.push((send, receive)),
        }
        let named = match &act {
            Act::AnswerAndGoAway(stream) => std::slice::from_ref(stream),
            Act::GoAway(streams) => streams,
            _ => &[],
        };
        for stream in named {
            let id = (0b11 << 62 | *stream).to_be_bytes();
            let _ = control.write_all(&[&[7, 8], &id[..]].concat()).await;
        }
    }
}

fn why(error: &ClientError) -> Option<(Unprocessed, u32)> {
    match error {
        ClientError::Unprocessed { why, times, .. } => Some((*why, *times)),
        _ => None,
    }
}

/// If a server does not answer, only requests to this server may be delayed. The client must be
/// able to close at any time.
// RFC 9114 s.3.3 #1 #2
#[tokio::test]
async fn repeat_waits_for_its_own_server_only() {
    let server = Scripted::new(|_, _| Act::Answer);
    let silent = std::net::UdpSocket::bind(loopback()).unwrap();
    let to_silent = format!("https://{}/", silent.local_addr().unwrap());
    let client = server.client.clone();
    let waiting = tokio::spawn(async move { client.get(&to_silent).await.map(drop) });
    // The server has received the first datagram, so the client waits for an answer.
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let arrived =
        tokio::task::spawn_blocking(move || (silent.recv(&mut [0; 2_000]).unwrap(), silent));
    let (_, _silent) = arrived.await.unwrap();
    server.get().await.unwrap();
    server.client.leave(&server.url).await.unwrap();
    assert!(!waiting.is_finished());
    timeout(PATIENCE, server.client.close()).await.expect("the client ends");
    assert!(timeout(PATIENCE, waiting).await.expect("it ends with the client").unwrap().is_err());
}

// RFC 9114 s.5.2 #3
#[tokio::test]
async fn goaway_ends_the_use_of_a_connection() {
    let server = Scripted::new(|connection, request| match (connection, request) {
        (0, 0) => Act::AnswerAndGoAway(4),
        (0, _) => Act::Ignore,
        _ => Act::Answer,
    });
    let mut first = server.client.get(&server.url).await.unwrap();
    until("GOAWAY has come", || !first.connection().is_open()).await;
    // The response that began before GOAWAY is complete.
    assert_eq!(&first.body(100).await.unwrap()[..], b"ok");
    for _ in 0..3 {
        server.get().await.unwrap();
    }
    assert_eq!(server.requests(), [1, 3]);
    // A request on the connection itself must report that it was not sent.
    let error = first.connection().get(&"/".parse().unwrap()).await.err().unwrap();
    assert_eq!(why(&error), Some((Unprocessed::GoingAway, 1)), "{error}");
    assert_eq!(server.requests(), [1, 3]);
}

// RFC 9114 s.4.1.1 #9
#[tokio::test]
async fn goaway_repeats_the_requests_that_it_names() {
    // Requests on streams 0 to 16 are answered. Those on 20 and 24 are not processed.
    let server = Scripted::new(|connection, request| match (connection, request) {
        (0, 5) => Act::Ignore,
        (0, 6) => Act::GoAway(&[20]),
        _ => Act::Answer,
    });
    let failed = server.get_at_once(7).await;
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(server.requests(), [7, 2]);
}

#[tokio::test]
async fn goaway_that_shrinks_names_more_requests() {
    let server = Scripted::new(|connection, request| match (connection, request) {
        (0, 0 | 1) => Act::Ignore,
        (0, _) => Act::GoAway(&[8, 4, 0]),
        _ => Act::Answer,
    });
    let failed = server.get_at_once(3).await;
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(server.requests(), [3, 3]);
}

// RFC 9114 s.3.3 #4
#[tokio::test]
async fn rejected_requests_are_sent_again_on_one_connection() {
    let server = Scripted::new(|connection, request| match (connection, request) {
        (0, 0) => Act::Answer,
        (0, _) => Act::Reset(REQUEST_REJECTED),
        _ => Act::Answer,
    });
    let failed = server.get_at_once(9).await;
    assert!(failed.is_empty(), "{failed:?}");
    // Some requests may be sent only after the first one was rejected, so the numbers of requests
    // vary.
    assert_eq!(server.requests().len(), 2);
}

/// The server answers only a few requests on each connection. It covers the others with GOAWAY and
/// rejects them. All requests must succeed in the end.
#[tokio::test]
async fn goaway_after_every_few_requests_loses_none() {
    let server = Scripted::new(|_, request| match request {
        0..2 => Act::Answer,
        2 => Act::AnswerAndGoAway(12),
        _ => Act::Reset(REQUEST_REJECTED),
    });
    let failed = server.get_at_once(60).await;
    assert!(failed.is_empty(), "{failed:?}");
    for _ in 0..10 {
        server.get().await.unwrap();
    }
}

#[tokio::test]
async fn rejected_without_end_is_an_error_that_says_so() {
    for (act, expected) in [
        (Act::Reset(REQUEST_REJECTED), Unprocessed::Rejected),
        (Act::GoAway(&[0]), Unprocessed::GoingAway),
    ] {
        let server = Scripted::new(move |_, _| act);
        let error = server.get().await.unwrap_err();
        assert_eq!(why(&error), Some((expected, 4)), "{error}");
        assert!(error.to_string().contains("did not process the request"), "{error}");
        assert_eq!(server.requests(), [1; 4]);
    }
}

// RFC 9114 s.4.1.1 #8, s.8 #1
#[tokio::test]
async fn reset_with_another_code_is_not_repeated() {
    for code in [NO_ERROR, INTERNAL_ERROR, 0x10c] {
        let server = Scripted::new(move |_, _| Act::Reset(code));
        let error = server.get().await.unwrap_err();
        assert_eq!(why(&error), None, "{error}");
        assert_eq!(server.requests(), [1], "{code:x}");
    }
}

// RFC 9114 s.5.1 #1, s.5.4 #1
#[tokio::test]
async fn closed_connections_are_replaced_once_they_have_answered() {
    for (code, repeated) in [(NO_ERROR, true), (INTERNAL_ERROR, false)] {
        let server = Scripted::new(move |connection, request| match (connection, request) {
            (0, 1) => Act::Close(code),
            _ => Act::Answer,
        });
        server.get().await.unwrap();
        let second = server.get().await;
        assert_eq!(second.is_ok(), repeated, "{code:x}: {second:?}");
        assert_eq!(server.requests(), if repeated { vec![2, 1] } else { vec![2] });
    }
    let server = Scripted::new(|_, _| Act::Close(NO_ERROR));
    let error = server.get().await.unwrap_err();
    assert_eq!(why(&error), None, "{error}");
    assert_eq!(server.requests(), [1]);
}

/// RFC 9114 s.5.2: a server may announce its shutdown with a large ID, before it knows which
/// request is the last.
#[tokio::test]
async fn goaway_in_two_steps_loses_no_request() {
    const MOST: u64 = (1 << 62) - 4;
    let server = Scripted::new(|connection, request| match (connection, request) {
        (0, 0) => Act::Answer,
        (0, 1) => Act::AnswerAndGoAway(MOST),
        (0, 2) => Act::Ignore,
        (0, _) => Act::GoAway(&[12, 8]),
        _ => Act::Answer,
    });
    let failed = server.get_at_once(4).await;
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(server.requests().len(), 2);
}
