//! Opens a connection to the first of several addresses that answers ("Happy Eyeballs", RFC 8305).

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::{Client, ClientError, Connection, Target};
use tokio::time::Instant;

/// Time without an answer after which the next address is tried too (RFC 8305 s.5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

type Attempt<'a> = Pin<Box<dyn Future<Output = Result<Connection, ClientError>> + Send + 'a>>;

impl Client {
    /// Tries the addresses in turn, within the time limit of one attempt. The next address is tried
    /// when an attempt fails, or has had no answer for [`ATTEMPT_DELAY`]. The first complete
    /// handshake wins, and the other attempts are dropped. With `early`, a connection to the first
    /// address is returned before its handshake, if the client has a session ticket of the server
    /// that allows it.
    ///
    /// # Errors
    /// If all attempts fail, returns the first error from a server that answered. If none answered,
    /// returns the last error.
    pub(super) async fn race(
        &self,
        target: &Target,
        peers: Vec<SocketAddr>,
        early: bool,
    ) -> Result<Connection, ClientError> {
        self.race_until(target, peers, early, self.deadline()).await
    }

    /// Like [`race`](Self::race), until a deadline.
    ///
    /// # Errors
    /// The errors of [`race`](Self::race).
    pub(super) async fn race_until(
        &self,
        target: &Target,
        peers: Vec<SocketAddr>,
        early: bool,
        deadline: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        let mut peers = interleaved(peers);
        let mut running: Vec<Attempt<'_>> = Vec::new();
        let mut failed: Option<ClientError> = None;
        if early && let Some(peer) = peers.pop_front() {
            let start = Instant::now();
            match self.begin(target, peer).map(equic_quic::Connecting::into_0rtt) {
                Ok(Ok(quic)) => return self.begun(quic, target, peer).await,
                Ok(Err(begun)) => {
                    running.push(Box::pin(self.finish(begun, target, peer, start, deadline)));
                }
                Err(error) => keep(&mut failed, error),
            }
        }
        while !running.is_empty() || !peers.is_empty() {
            let delay = if running.is_empty() { Duration::ZERO } else { ATTEMPT_DELAY };
            let ended = tokio::select! {
                biased;
                ended = next(&mut running), if !running.is_empty() => Some(ended),
                () = tokio::time::sleep(delay), if !peers.is_empty() => None,
            };
            match ended {
                Some(Ok(connection)) => return Ok(connection),
                Some(Err(error)) => keep(&mut failed, error),
                None => {}
            }
            if let Some(peer) = peers.pop_front() {
                running.push(Box::pin(self.open_at(target, peer, deadline)));
            }
        }
        Err(failed.unwrap_or_else(|| ClientError::Resolve {
            host: target.host().to_owned(),
            reason: "no address".to_owned(),
        }))
    }

    /// Returns a connection on which requests can be sent while its handshake continues.
    async fn begun(
        &self,
        quic: equic_quic::Connection,
        target: &Target,
        peer: SocketAddr,
    ) -> Result<Connection, ClientError> {
        self.open_paths(&quic);
        Connection::new(quic, target.clone(), peer, None, self.config.timeout).await
    }
}

/// Waits until one of the attempts ends, removes it, and returns its result.
async fn next(running: &mut Vec<Attempt<'_>>) -> Result<Connection, ClientError> {
    poll_fn(|cx| {
        let ended = running.iter_mut().enumerate().find_map(|(at, attempt)| {
            match attempt.as_mut().poll(cx) {
                Poll::Ready(outcome) => Some((at, outcome)),
                Poll::Pending => None,
            }
        });
        let Some((at, outcome)) = ended else { return Poll::Pending };
        // Removes the completed future at once, because it must not be polled again.
        drop(running.swap_remove(at));
        Poll::Ready(outcome)
    })
    .await
}

fn keep(failed: &mut Option<ClientError>, error: ClientError) {
    tracing::debug!(%error, "connection attempt failed");
    if failed.as_ref().is_none_or(ClientError::is_silence) {
        *failed = Some(error);
    }
}

/// Orders the addresses so that IPv4 and IPv6 alternate, beginning with the family of the
/// resolver's first address (RFC 8305 s.4). A family without a route then costs only one delay,
/// even if it has many addresses.
fn interleaved(peers: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first = peers.first().is_some_and(SocketAddr::is_ipv6);
    let (mut one, mut other): (VecDeque<_>, VecDeque<_>) =
        peers.into_iter().partition(|peer| peer.is_ipv6() == first);
    let mut all = VecDeque::with_capacity(one.len() + other.len());
    while !one.is_empty() || !other.is_empty() {
        all.extend(one.pop_front());
        all.extend(other.pop_front());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn race_alternates_between_families() {
        let order = |list: &[&str]| {
            let peers = list.iter().map(|peer| peer.parse().unwrap()).collect();
            interleaved(peers).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let (a, b, c) = ("[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1");
        let (x, y) = ("192.0.2.1:1", "192.0.2.2:1");
        assert_eq!(order(&[]), "");
        assert_eq!(order(&[a]), a);
        assert_eq!(order(&[a, b, c, x, y]), [a, x, b, y, c].join(" "));
        assert_eq!(order(&[x, a, b]), [x, a, b].join(" "));
        assert_eq!(order(&[x, y, a]), [x, a, y].join(" "));
    }
}
