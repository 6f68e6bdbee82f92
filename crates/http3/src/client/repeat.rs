//! Sends requests on kept connections, and repeats those that the server did not process on a new
//! connection.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Client, ClientError, Connection, Response, Target, in_time};
use equic_quic::EarlyData;

/// Largest number of attempts of one request. Some servers take only one request per connection, so
/// each connection serves one of the waiting requests. This number therefore also limits how many
/// requests can wait.
const MAX_TIMES: u32 = 100;

/// Largest number of consecutive attempts of one request on connections on which the server
/// answered nothing at all.
const MAX_FRUITLESS: u32 = 4;

/// The connection that the client keeps open to one target. It is locked while a new connection is
/// opened, so a server that does not answer delays only requests to itself.
pub(super) type Kept = Arc<Mutex<Option<Connection>>>;

impl Client {
    /// Sends a GET request for a URL, on the kept connection if it still takes requests.
    ///
    /// The client sends a request again, on a new connection, in these cases:
    ///
    /// * The server rejected the request (RFC 9114 s.4.1.1).
    /// * The server's GOAWAY covers the request (RFC 9114 s.5.2).
    /// * The request was in rejected early data (RFC 8470 s.3).
    /// * The server closed the kept connection before its response (RFC 9110 s.9.2.2).
    ///
    /// Requests that wait at the same time share the new connection.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect) and [`Connection::get`]. Returns
    /// [`ClientError::Unprocessed`] if the server did not process the request:
    ///
    /// * on four connections in a row on which it answered nothing;
    /// * on a hundred connections;
    /// * until [`ClientConfig::timeout`](super::ClientConfig::timeout).
    pub async fn get(&self, url: &str) -> Result<Response, ClientError> {
        let (target, path) = Target::parse(url)?;
        let (start, deadline) = (Instant::now(), self.deadline());
        let (mut times, mut fruitless) = (0, 0);
        loop {
            let connection = self.connection(&target, start, deadline).await?;
            let (peer, why) = match connection.get(&path).await {
                Err(ClientError::Unprocessed { peer, why, .. }) => (peer, why),
                answer => return answer,
            };
            connection.retire();
            times += 1;
            fruitless = if connection.has_answered() { 0 } else { fruitless + 1 };
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if times >= MAX_TIMES || fruitless >= MAX_FRUITLESS || is_late {
                return Err(ClientError::Unprocessed { peer, why, times });
            }
            tracing::debug!(%peer, %why, times, "sending the request again");
        }
    }

    /// Returns the kept connection to a target, or opens a new one if the kept one takes no more
    /// requests. Other requests to this target wait for the new connection, each until its own
    /// deadline.
    // RFC 9114 s.3.3 #1 #2
    async fn connection(
        &self,
        target: &Target,
        start: Instant,
        deadline: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        let kept = Arc::clone(self.kept().entry(target.clone()).or_default());
        let locked = async { Ok(kept.lock().await) };
        let mut last = in_time(deadline, start, "handshake", locked).await?;
        if let Some(connection) = last.as_ref().filter(|last| last.is_open()) {
            return Ok(connection.clone());
        }
        // A server that has rejected early data would reject it again.
        let rejected = last.as_ref().is_some_and(|last| last.early_data() == EarlyData::Rejected);
        let early = self.config.early_data && !rejected;
        let peers = in_time(deadline, start, "name resolution", self.addresses(target)).await?;
        let connection = self.race_until(target, peers, early, deadline).await?;
        *last = Some(connection.clone());
        Ok(connection)
    }
}
