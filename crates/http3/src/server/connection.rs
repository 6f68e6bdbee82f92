//! The task of one connection, from its handshake to its close.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use equic_quic::{self as quic, Incoming};
use equic_wire::VarInt;
use h3::quic::StreamId;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::presence::Presence;
use super::respond::{self, Asked, Outcome};
use super::service::Handler;
use super::tolerance::Tolerance;
use super::{Context, Phase, Refused};
use crate::binding::{self, FrameLimits, Requests, Violation};
use crate::h3_code;

/// Time after which the server forgives a client one error: first for malformed requests, then for
/// requests that the client cancelled.
const FORGIVEN: [Duration; 2] = [Duration::from_secs(10), Duration::from_millis(30)];

type H3Connection = h3::server::Connection<binding::QuicConnection, Bytes>;

/// Returns the address in canonical form: an IPv4 client of a dual-stack socket has an IPv4
/// address.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// State that all requests of a connection share.
pub(super) struct Peer {
    pub context: Arc<Context>,
    pub number: u64,
    requests: AtomicU64,
    pub quic: quic::Connection,
    /// The application's service. `None`: the server answers with its own resources.
    pub handler: Option<Arc<dyn Handler>>,
    presence: Presence,
}

impl Peer {
    /// Returns the client's last validated address.
    pub(super) fn address(&self) -> SocketAddr {
        canonical(self.quic.validated_address().unwrap_or_else(|| self.quic.remote_address()))
    }

    /// Returns true if data read now is early data (0-RTT), which an attacker may have replayed.
    pub(super) fn is_early(&self) -> bool {
        self.quic.is_early()
    }

    /// Reports the connection to the admission after its handshake, when the client's address is
    /// validated.
    fn count(&self) -> Result<SocketAddr, Refused> {
        let at = self.address();
        self.presence.count(self.context.admission.opened(at)?, at);
        Ok(at)
    }

    /// Reports to the admission that another address of the client was validated.
    fn moved(&self, to: SocketAddr) -> Result<(), Refused> {
        if self.presence.moved(canonical(to))? {
            self.context.stats.0.moved.add(1);
        }
        Ok(())
    }

    /// Closes the connection with the error that the admission returned.
    fn refuse(&self, refused: &Refused) {
        self.context.stats.0.refused_late.add(1);
        self.quic.close(VarInt::from_u32(refused.code), &refused.reason);
    }
}

/// Releases the connection's entry in the admission when the connection's task ends, even by a
/// panic.
struct Release(Arc<Peer>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.presence.release();
        self.0.context.stats.0.closed.add(1);
    }
}

pub(super) async fn run(
    context: Arc<Context>,
    handler: Option<Arc<dyn Handler>>,
    incoming: Incoming,
    permit: OwnedSemaphorePermit,
    mut phase: watch::Receiver<Phase>,
) {
    let shaken = tokio::select! {
        quic = handshake(&context, incoming) => quic,
        // The server is shutting down, and this connection has no request in progress.
        () = Phase::Draining.begun(&mut phase) => None,
    };
    let Some(quic) = shaken else {
        context.stats.0.handshakes_failed.add(1);
        return;
    };
    // A connection with early data keeps its handshake permit until its handshake is complete.
    let permit = quic.is_early().then_some(permit);
    let presence = Presence::default();
    let requests = AtomicU64::new(0);
    let mut peer = Peer { context, number: 0, requests, quic, handler, presence };
    if permit.is_none()
        && let Err(refused) = peer.count()
    {
        return peer.refuse(&refused);
    }
    peer.number = peer.context.stats.0.opened.add(1);
    let peer = Arc::new(peer);
    let release = Release(Arc::clone(&peer));
    let address = peer.address();
    tokio::select! {
        // Polled first, so that the admission is notified as soon as the connection is closed.
        biased;
        reason = peer.quic.closed() => tracing::debug!(%address, %reason, "connection closed"),
        () = watch_over(&peer, permit) => {}
        () = label(&peer) => {}
        () = serve(&peer, phase) => {}
    }
    // Closes the connection without an error, unless it is already closed. Requests in progress
    // have been dropped.
    peer.quic.close(VarInt::from_u32(h3_code::NO_ERROR), "");
    drop(release);
}

/// Waits for the handshake, or for early data from a client whose token has validated its address
/// (RFC 9000 s.8.1). A connection with early data is served at once. The admission counts it only
/// when its handshake is complete, because the address in the token may belong to another host by
/// now.
async fn handshake(context: &Context, incoming: Incoming) -> Option<quic::Connection> {
    let (address, validated) = (incoming.remote_address(), incoming.is_validated());
    let connecting = match incoming.accept() {
        Ok(connecting) => connecting,
        Err(error) => {
            tracing::debug!(%address, %error, "handshake failed");
            return None;
        }
    };
    // This conversion never fails for a server's connection.
    let quic = connecting.into_0rtt().ok()?;
    if validated && quic.is_early() {
        return Some(quic);
    }
    match timeout(context.limits.handshake_timeout, quic.handshake()).await {
        Ok(Ok(_)) => Some(quic),
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!(%address, "a handshake took too long, so the connection was closed");
            None
        }
    }
}

/// Reports the client's addresses to the admission while the connection is open, and holds `permit`
/// until the handshake is complete. Returns when the server must end the connection, because the
/// handshake took too long or the admission has no room for the connection.
///
/// In the second case, this function has already closed the connection with the admission's error.
/// Otherwise `h3`, when it is dropped, would close the connection without an error.
async fn watch_over(peer: &Peer, permit: Option<OwnedSemaphorePermit>) {
    if permit.is_some() {
        let limit = peer.context.limits.handshake_timeout;
        match timeout(limit, peer.quic.handshake()).await {
            Ok(Ok(_)) => {}
            // The connection is closed. The function `run` notices this, so this future need not
            // complete.
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => {
                peer.context.stats.0.handshakes_failed.add(1);
                return;
            }
        }
        drop(permit);
        if let Err(refused) = peer.count() {
            return peer.refuse(&refused);
        }
    }
    match follow(peer).await {
        Ok(refused) => peer.refuse(&refused),
        Err(_) => std::future::pending().await,
    }
}

/// Reports each validated address of the client to the admission. Returns if the client stays at an
/// address for which the admission has no room.
async fn follow(peer: &Peer) -> Result<Refused, quic::ConnectionError> {
    let mut at = None;
    loop {
        let next = peer.quic.address_validated(at).await?;
        at = Some(next);
        if peer.moved(next).is_ok() {
            continue;
        }
        let left = peer.quic.address_validated(at);
        match timeout(peer.context.limits.migration_settle, left).await {
            Ok(elsewhere) => {
                elsewhere?;
            }
            // The server reports the address once more, because the admission may have room for the
            // connection by now.
            Err(_) => {
                if let Err(refused) = peer.moved(next) {
                    return Ok(refused);
                }
            }
        }
    }
}

/// Sets the cost of each of the client's paths while the connection is open.
async fn label(peer: &Peer) {
    if let Some(cost) = &peer.context.path_cost {
        let mut changes = 0;
        loop {
            for path in peer.quic.paths() {
                // Fails only if the path was closed in the meantime.
                let _ = peer.quic.set_path_cost(path.id, cost(canonical(path.remote).ip()));
            }
            match peer.quic.paths_changed(changes).await {
                Ok(count) => changes = count,
                Err(_) => break,
            }
        }
    }
    // The connection is closed. The other tasks notice this, so this future need not complete.
    std::future::pending().await
}

/// Answers requests until the client disconnects or the server shuts down.
async fn serve(peer: &Arc<Peer>, mut phase: watch::Receiver<Phase>) {
    let limits = &peer.context.limits;
    // The limit of RFC 9114 s.4.2.2 applies to the decoded section. It can also be used for the
    // encoded section, which is always shorter.
    let field_section = usize::try_from(limits.max_field_section_size).unwrap_or(usize::MAX);
    let incomplete = FrameLimits::default().incomplete.max(field_section.saturating_mul(4));
    let frames = FrameLimits { field_section, incomplete };
    let transport = binding::QuicConnection::with_limits(peer.quic.clone(), frames);
    let admitted = transport.requests();
    let mut builder = h3::server::builder();
    builder.max_field_section_size(limits.max_field_section_size).send_grease(false);
    // This step opens streams, so it would block forever if the client permitted none.
    let h3 = timeout(limits.handshake_timeout, builder.build(transport)).await;
    let Ok(Ok(mut h3)): Result<Result<H3Connection, _>, _> = h3 else { return };
    let mut requests = JoinSet::new();
    let now = Instant::now();
    let mut malformed = Tolerance::new(limits.max_malformed, FORGIVEN[0], now);
    let mut cancelled = Tolerance::new(limits.max_cancelled, FORGIVEN[1], now);
    // `going_away` becomes true when this server has sent GOAWAY, and `client_leaves` when the
    // client has sent it.
    let (mut going_away, mut client_leaves) = (false, false);
    loop {
        tokio::select! {
            // The order matters: requests that have arrived are accepted before the connection
            // ends.
            biased;
            () = Phase::Draining.begun(&mut phase), if !going_away => {
                going_away = true;
                if !go_away(&mut h3, &admitted, limits.stall_timeout).await {
                    return;
                }
            }
            () = admitted.client_leaves(), if !client_leaves => client_leaves = true,
            Some(done) = requests.join_next() => {
                if !matches!(done, Ok(Outcome::Answered)) {
                    peer.context.stats.0.failed.add(1);
                }
                let too_many = match done {
                    Err(error) if error.is_panic() => {
                        tracing::error!("a panic ended the task of a request; other requests continue");
                        None
                    }
                    Ok(Outcome::Malformed) => {
                        malformed.add(Instant::now()).then_some(Violation::MalformedRequests)
                    }
                    Ok(Outcome::Cancelled) => {
                        cancelled.add(Instant::now()).then_some(Violation::CancelledRequests)
                    }
                    _ => None,
                };
                if let Some(violation) = too_many {
                    let code = VarInt::from_u32(h3_code::EXCESSIVE_LOAD);
                    peer.quic.close(code, violation.phrase());
                    return;
                }
            }
            next = h3.accept() => match next {
                Ok(Some(resolver)) => {
                    let number = peer.requests.fetch_add(1, Ordering::Relaxed) + 1;
                    let address = peer.address();
                    let asked = Asked { address, number, admitted: admitted.clone() };
                    requests.spawn(respond::run(Arc::clone(peer), asked, resolver, phase.clone()));
                }
                // The connection was closed by the client, or by `h3` because of an error of the
                // client. A GOAWAY of the client does not lead here, because `h3` never sees it.
                Ok(None) | Err(_) => return,
            },
            () = std::future::ready(()), if client_leaves && !going_away && requests.is_empty() => {
                going_away = true;
                if !go_away(&mut h3, &admitted, limits.stall_timeout).await {
                    return;
                }
            }
            () = silence(&peer.quic), if going_away && requests.is_empty() => return,
        }
    }
}

/// Sends GOAWAY, and accepts no further request. Returns `true` if GOAWAY was sent in time.
async fn go_away(h3: &mut H3Connection, requests: &Requests, limit: Duration) -> bool {
    // RFC 9114 s.5.2 #5: GOAWAY names the first request that is not served.
    // `h3::server::Connection::shutdown` would name the last one that is served.
    let Ok(first) = StreamId::try_from(requests.close()) else { return false };
    matches!(timeout(limit, h3.inner.shutdown(&mut None, first)).await, Ok(Ok(())))
}

/// Waits until the client has received the last responses, because closing discards data that was
/// not acknowledged.
///
/// `h3` does not report acknowledgments. But while data is unacknowledged, QUIC sends a probe at
/// least once per PTO. So if nothing was sent for longer than that, all data has arrived.
async fn silence(quic: &quic::Connection) {
    let mut sent = quic.stats().datagrams_sent;
    loop {
        sleep(flight(quic)).await;
        let now = quic.stats().datagrams_sent;
        if now == sent {
            return;
        }
        sent = now;
    }
}

/// Returns a time within which data from the client arrives, even if the first transmission is
/// lost.
pub(super) fn flight(quic: &quic::Connection) -> Duration {
    Duration::from_millis(100) + 4 * quic.rtt()
}
