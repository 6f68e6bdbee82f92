//! If an endpoint panics while it works for one connection, only that connection ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use equic_quic::operation::{AttachPoint, Call, Hook, HookContext, HookError, Operation};
use equic_quic::{Connection, ConnectionError, Endpoint, ServerConfig};

use crate::common::{Identity, client, connect, echo, exchange, serve, settings, soon};

/// A hook that panics at its next call after it is armed.
#[derive(Clone, Default)]
struct Panics(Arc<AtomicBool>);

impl Hook for Panics {
    fn before(&mut self, _: &mut HookContext<'_>, _: &Call<'_>) -> Result<(), HookError> {
        assert!(!self.0.swap(false, Ordering::Relaxed), "this panic is a part of the test");
        Ok(())
    }
}

fn is_internal_error(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::Transport { code: 1, reason } if reason.contains("panic"))
}

/// Makes two connections. Makes the server panic at an operation of the first one. Returns both.
async fn first_panics_at(
    operation: Operation,
) -> (Endpoint, Endpoint, [Connection; 2], Connection) {
    let identity = Identity::new();
    let hook = Panics::default();
    let (armed, attached) = (Arc::clone(&hook.0), AtomicBool::new(false));
    let config = ServerConfig::new(identity.server_tls()).with_hooks(move |new| {
        if !attached.swap(true, Ordering::Relaxed) {
            new.attach(Box::new(hook.clone()), &[AttachPoint::observe(operation)]).unwrap();
        }
    });
    let server = identity.server_with(1, settings(), config);
    let (kept, mut accepted) = tokio::sync::mpsc::unbounded_channel();
    serve(server.clone(), move |connection| {
        let kept = kept.clone();
        async move {
            kept.send(connection.clone()).unwrap();
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let data = receive.read_to_end(10_000).await.unwrap_or_default();
                if send.write_all(&data).await.is_ok() {
                    let _ = send.finish();
                }
            }
        }
    });
    let client = client();
    let first = connect(&client, &identity.client(), &server).await;
    let theirs = soon("accepted", accepted.recv()).await.unwrap();
    let second = connect(&client, &identity.client(), &server).await;
    exchange(&first, 1_000).await;
    exchange(&second, 1_000).await;
    armed.store(true, Ordering::Relaxed);
    (server, client, [first, second], theirs)
}

#[tokio::test]
async fn panic_of_a_connection_ends_only_that_connection() {
    // The panic happens while a datagram is received, while one is sent, and in a timer.
    for operation in [Operation::AfterPacketRead, Operation::SendPacket, Operation::OnTimer] {
        let (server, _client, [first, second], theirs) = first_panics_at(operation).await;
        let (mut send, _receive) = first.open_bi().await.unwrap();
        send.write_all(b"this ends it").await.unwrap();
        let error = soon("ended at the server", theirs.closed()).await;
        assert!(is_internal_error(&error), "{operation:?}: {error:?}");
        // The server resets the connection when the next packet arrives. The first data may have been
        // acknowledged before the panic, so the client sends more.
        let _ = send.write_all(b"more").await;
        assert_eq!(soon("reset at the client", first.closed()).await, ConnectionError::Reset);
        assert_eq!(server.broken_connections(), 1);
        // The panic does not affect the other connection or new ones.
        exchange(&second, 5_000).await;
        drop((theirs, send));
        second.close(equic_quic::VarInt::ZERO, "");
        soon("no connection is left", server.wait_idle()).await;
    }
}

#[tokio::test]
async fn panic_in_the_applications_task_ends_the_connection_there() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let client = client();
    let first = connect(&client, &identity.client(), &server).await;
    let second = connect(&client, &identity.client(), &server).await;
    let hook = Panics::default();
    let armed = Arc::clone(&hook.0);
    let id = first.attach(Box::new(hook), &[AttachPoint::observe(Operation::HookMessage)]).unwrap();
    armed.store(true, Ordering::Relaxed);
    let task = {
        let first = first.clone();
        tokio::spawn(async move { first.tell_hook(id, b"panic") })
    };
    let told = soon("told", task).await;
    // The connection ends if the hook is called at once, and also if the socket's task calls it.
    drop(told);
    let ended = async {
        loop {
            if let Some(error) = first.close_reason() {
                break error;
            }
            // The socket's task handles the connection after a write.
            if let Ok((mut send, _)) = first.open_bi().await {
                let _ = send.write_all(b"look").await;
            }
            tokio::task::yield_now().await;
        }
    };
    let error = soon("ended", ended).await;
    assert!(is_internal_error(&error), "{error:?}");
    assert_eq!(client.broken_connections(), 1);
    exchange(&second, 5_000).await;
}
