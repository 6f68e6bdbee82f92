//! Accepts connection attempts, and shuts down the server.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use equic_quic::Incoming;
use equic_wire::VarInt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::service::Handler;
use super::{Context, Phase, Server, ServerError, ServerStats, connection};
use crate::h3_code;
use crate::server::Decision;

/// Time limit for the phase in which open connections are closed. The same limit applies again to
/// sending their last packets.
const CLOSING: Duration = Duration::from_secs(1);

/// Serves requests with `handler`, or with the server's own resources if it is `None`.
pub(super) async fn run(
    server: &Server,
    handler: Option<Arc<dyn Handler>>,
    shutdown: impl Future<Output = ()>,
) -> Result<ServerStats, ServerError> {
    let mut connections = JoinSet::new();
    let lost = serve(server, handler, &mut connections, shutdown).await.is_err();

    server.endpoint.stop_accepting();
    for (phase, time) in [(Phase::Draining, server.context.limits.grace), (Phase::CutOff, CLOSING)]
    {
        server.phase.send_replace(phase);
        let all_closed = async { while connections.join_next().await.is_some() {} };
        // Connections that are still open after this phase of the shutdown take part in the next
        // one.
        let _ = timeout(time, all_closed).await;
    }
    server.endpoint.close(VarInt::from_u32(h3_code::NO_ERROR), "server shutting down");
    connections.shutdown().await;
    let _ = timeout(CLOSING, server.endpoint.wait_idle()).await;
    if lost { Err(ServerError::Lost) } else { Ok(server.context.stats.snapshot()) }
}

async fn serve(
    server: &Server,
    handler: Option<Arc<dyn Handler>>,
    connections: &mut JoinSet<()>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Lost> {
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            Some(ended) = connections.join_next() => {
                // The panic has already dropped the connection's streams and the `Opened` value by
                // which the admission counts it.
                if ended.is_err_and(|error| error.is_panic()) {
                    tracing::error!("a panic ended the task of a connection; other connections continue");
                }
            }
            incoming = server.endpoint.accept() => {
                let incoming = incoming.ok_or(Lost)?;
                if let Some((incoming, permit)) = decide(&server.context, incoming) {
                    let context = Arc::clone(&server.context);
                    let phase = server.phase.subscribe();
                    let handler = handler.clone();
                    connections.spawn(connection::run(context, handler, incoming, permit, phase));
                }
            }
        }
    }
}

struct Lost;

/// Applies the admission's decision to a connection attempt. If the attempt is accepted, returns it
/// with its handshake permit.
fn decide(context: &Context, incoming: Incoming) -> Option<(Incoming, OwnedSemaphorePermit)> {
    let counters = &context.stats.0;
    counters.attempts.add(1);
    let peer = connection::canonical(incoming.remote_address());
    let under_way =
        || context.max_handshakes.saturating_sub(context.handshakes.available_permits());
    let decision = match context.admission.incoming(peer) {
        // The client has presented a valid token, so a Retry is not necessary.
        Decision::Accept if incoming.is_validated() => Decision::Accept,
        Decision::Accept if context.retry || under_way() >= context.unproven => Decision::Retry,
        decision => decision,
    };
    match decision {
        Decision::Ignore => {
            counters.ignored.add(1);
            incoming.ignore();
            return None;
        }
        Decision::Refuse => {
            counters.refused.add(1);
            incoming.refuse();
            return None;
        }
        Decision::Retry if incoming.may_retry() => {
            counters.retried.add(1);
            incoming.retry();
            return None;
        }
        Decision::Accept | Decision::Retry => {}
    }
    match Arc::clone(&context.handshakes).try_acquire_owned() {
        Ok(permit) => Some((incoming, permit)),
        Err(_) => {
            counters.overloaded.add(1);
            incoming.ignore();
            None
        }
    }
}

impl Drop for Server {
    /// Closes the connections of a server that was dropped before it ran.
    fn drop(&mut self) {
        self.endpoint.close(VarInt::from_u32(h3_code::NO_ERROR), "");
    }
}
