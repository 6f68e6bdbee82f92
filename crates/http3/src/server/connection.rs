//! One connection, from its handshake to its close.

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
use super::tolerance::Tolerance;
use super::{Context, Phase, Refused};
use crate::binding::{self, FrameLimits, Requests};
use crate::h3_code;

/// Time until one malformed request, and one that its client gave up, is forgiven.
const FORGIVEN: [Duration; 2] = [Duration::from_secs(10), Duration::from_millis(30)];

type H3Connection = h3::server::Connection<binding::QuicConnection, Bytes>;

/// An IPv4 client of a dual-stack socket, as IPv4.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// State that all requests of a connection share.
pub(super) struct Peer {
    pub context: Arc<Context>,
    pub number: u64,
    requests: AtomicU64,
    pub quic: quic::Connection,
    presence: Presence,
}

impl Peer {
    /// The last address at which the client has proved that it receives.
    pub(super) fn address(&self) -> SocketAddr {
        canonical(self.quic.validated_address().unwrap_or_else(|| self.quic.remote_address()))
    }

    /// True if data read now is early (0-RTT), and may be a repetition by an attacker.
    pub(super) fn is_early(&self) -> bool {
        self.quic.is_early()
    }

    /// Has the admission count the connection, whose client has proved its address.
    fn count(&self) -> Result<SocketAddr, Refused> {
        let at = self.address();
        self.presence.count(self.context.admission.opened(at)?, at);
        Ok(at)
    }

    /// The client has proved that it receives at this address, too.
    fn moved(&self, to: SocketAddr) -> Result<(), Refused> {
        if self.presence.moved(canonical(to))? {
            self.context.stats.0.moved.add(1);
        }
        Ok(())
    }

    /// The admission has no room for the connection.
    fn refuse(&self, refused: &Refused) {
        self.context.stats.0.refused_late.add(1);
        self.quic.close(VarInt::from_u32(refused.code), &refused.reason);
    }
}

/// Gives the guard back when the connection's task ends, by a panic too.
struct Release(Arc<Peer>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.presence.release();
        self.0.context.stats.0.closed.add(1);
    }
}

pub(super) async fn run(
    context: Arc<Context>,
    incoming: Incoming,
    permit: OwnedSemaphorePermit,
    mut phase: watch::Receiver<Phase>,
) {
    let shaken = tokio::select! {
        quic = handshake(&context, incoming) => quic,
        // Nobody has asked for anything on it yet: there is nothing to finish.
        () = Phase::Draining.begun(&mut phase) => None,
    };
    let Some(quic) = shaken else {
        context.stats.0.handshakes_failed.add(1);
        return;
    };
    // One that is begun on before its handshake is complete keeps its place among those.
    let permit = quic.is_early().then_some(permit);
    let presence = Presence::default();
    let mut peer = Peer { context, number: 0, requests: AtomicU64::new(0), quic, presence };
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
        // First, so that the guard goes as soon as the connection is closed.
        biased;
        reason = peer.quic.closed() => tracing::debug!(%address, %reason, "connection closed"),
        () = watch_over(&peer, permit) => {}
        () = label(&peer) => {}
        () = serve(&peer, phase) => {}
    }
    // Whatever is not closed yet is closed without error; the requests under way were dropped.
    peer.quic.close(VarInt::from_u32(h3_code::NO_ERROR), "");
    drop(release);
}

/// A connection whose handshake is complete, or that has early data of a client whose address a token
/// has proved (RFC 9000 s.8.1). That one is served, and counts when its handshake is complete: a token of an
/// earlier connection may be of an address that is another host's by now.
async fn handshake(context: &Context, incoming: Incoming) -> Option<quic::Connection> {
    let (address, validated) = (incoming.remote_address(), incoming.is_validated());
    let connecting = match incoming.accept() {
        Ok(connecting) => connecting,
        Err(error) => {
            tracing::debug!(%address, %error, "handshake failed");
            return None;
        }
    };
    // A server always gets it.
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
            tracing::debug!(%address, "handshake took too long");
            None
        }
    }
}

/// Has the connection counted at the addresses of its client, for as long as it is open. `permit` is held until the
/// handshake is complete. Returns when the server ends the connection: the handshake has taken too long, or the admission
/// has no room. In the second case the connection is closed with the admission's error; that must be done here, because h3
/// closes the connection without error when it is dropped.
async fn watch_over(peer: &Peer, permit: Option<OwnedSemaphorePermit>) {
    if permit.is_some() {
        let limit = peer.context.limits.handshake_timeout;
        match timeout(limit, peer.quic.handshake()).await {
            Ok(Ok(_)) => {}
            // The connection is closed, which `run` sees.
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

/// Reports each validated address of the client. Returns when the client stays at one that has no room for it.
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
            // Room may have come meanwhile.
            Err(_) => {
                if let Err(refused) = peer.moved(next) {
                    return Ok(refused);
                }
            }
        }
    }
}

/// Labels the client's paths by what they cost, for as long as the connection is there.
async fn label(peer: &Peer) {
    if let Some(cost) = &peer.context.path_cost {
        let mut changes = 0;
        loop {
            for path in peer.quic.paths() {
                // An error says that it was closed meanwhile.
                let _ = peer.quic.set_path_cost(path.id, cost(canonical(path.remote).ip()));
            }
            match peer.quic.paths_changed(changes).await {
                Ok(count) => changes = count,
                Err(_) => break,
            }
        }
    }
    // That the connection is closed others see.
    std::future::pending().await
}

/// Answers requests until the client or the server has had enough.
async fn serve(peer: &Arc<Peer>, mut phase: watch::Receiver<Phase>) {
    let limits = &peer.context.limits;
    // What is encoded is shorter than what it counts for.
    let field_section = usize::try_from(limits.max_field_section_size).unwrap_or(usize::MAX);
    let incomplete = FrameLimits::default().incomplete.max(field_section.saturating_mul(4));
    let frames = FrameLimits { field_section, incomplete };
    let transport = binding::QuicConnection::with_limits(peer.quic.clone(), frames);
    let admitted = transport.requests();
    let mut builder = h3::server::builder();
    builder.max_field_section_size(limits.max_field_section_size).send_grease(false);
    // Opens streams, which a client without room for them would hold up for ever.
    let h3 = timeout(limits.handshake_timeout, builder.build(transport)).await;
    let Ok(Ok(mut h3)): Result<Result<H3Connection, _>, _> = h3 else { return };
    let mut requests = JoinSet::new();
    let now = Instant::now();
    let mut malformed = Tolerance::new(limits.max_malformed, FORGIVEN[0], now);
    let mut cancelled = Tolerance::new(limits.max_cancelled, FORGIVEN[1], now);
    // True once GOAWAY was sent, and once the client has sent one.
    let (mut going_away, mut client_leaves) = (false, false);
    loop {
        tokio::select! {
            // The order matters: requests that have come are accepted before the connection ends.
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
                    Ok(Outcome::Malformed) => {
                        malformed.add(Instant::now()).then_some("malformed requests")
                    }
                    Ok(Outcome::Cancelled) => {
                        cancelled.add(Instant::now()).then_some("cancelled requests")
                    }
                    _ => None,
                };
                if let Some(reason) = too_many {
                    peer.quic.close(VarInt::from_u32(h3_code::EXCESSIVE_LOAD), reason);
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
                // The client closed the connection, or h3 did because of what it sent. h3 sees no
                // GOAWAY of the client, so it never ends the requests itself.
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

/// Sends GOAWAY, and accepts no further request. Returns whether GOAWAY was sent in time.
async fn go_away(h3: &mut H3Connection, requests: &Requests, limit: Duration) -> bool {
    // RFC 9114 s.5.2: the first request that is not served. `h3::server::Connection::shutdown` would
    // name the last one that is.
    let Ok(first) = StreamId::try_from(requests.close()) else { return false };
    matches!(timeout(limit, h3.inner.shutdown(&mut None, first)).await, Ok(Ok(())))
}

/// Waits until the last responses have reached the client, as closing throws away what has not.
///
/// h3 does not tell when a stream is acknowledged. While something is missing QUIC probes at least
/// once a probe timeout, so silence for longer means that all has arrived.
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

/// Time in which what the client has sent arrives, even if it was lost once.
pub(super) fn flight(quic: &quic::Connection) -> Duration {
    Duration::from_millis(100) + 4 * quic.rtt()
}
