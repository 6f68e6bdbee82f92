//! One connection slot of a client: opens a connection, sends requests, holds and closes it, and
//! repeats that.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use equic_http3::client::{Client, ClientError, Connection, in_time};
use http::Method;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::sample::{Outcome, Sample, ms};
use crate::{Hold, Shared};

pub(super) struct Slot {
    pub shared: Arc<Shared>,
    pub client: Client,
    /// Number of the client.
    pub number: usize,
    /// Maximum number of connections on the client's socket, including closing ones. If there are
    /// more, the slot waits before it opens the next.
    pub max_open: usize,
}

/// Maximum number of times that a request is repeated on a new connection, if the server did not
/// process it.
const REPEATS: usize = 3;

/// Signals that the load has ended for this slot.
struct Over;

pub(super) async fn run(slot: Slot) {
    let mut stop = slot.shared.stop.subscribe();
    while let Ok(went_well) = slot.connection(&mut stop).await {
        let load = &slot.shared.load;
        let pause = if went_well { load.think } else { load.retry_pause };
        if !pause.is_zero() {
            let _ = until_stop(&mut stop, sleep(pause)).await;
        }
    }
}

impl Slot {
    /// Opens one connection and makes its requests. Returns `true` if all requests were successful.
    async fn connection(&self, stop: &mut watch::Receiver<bool>) -> Result<bool, Over> {
        // QUIC keeps the state of a closed connection for some time. Without this limit, a server
        // that refuses connections quickly would make the client run out of memory.
        while self.client.open_connections() >= self.max_open {
            until_stop(stop, sleep(Duration::from_millis(5))).await?;
        }
        self.turn(stop).await?;
        let (mut start, mut deadline) = self.begin(stop)?;
        let shared = &self.shared;
        let opening = self.client.open_at(&shared.target, shared.peer, Some(deadline));
        let mut connection = match in_time(Some(deadline), start, "handshake", opening).await {
            Ok(connection) => connection,
            Err(error) => {
                self.record(start, None, error.failure().into(), 0).await?;
                return Ok(false);
            }
        };
        let mut handshake = Some(ms(connection.handshake()));
        for number in 0..shared.load.requests {
            if number > 0 {
                (start, deadline) = self.begin(stop)?;
            }
            let (outcome, bytes) = self.request(&mut connection, deadline).await;
            let went_well = outcome == Outcome::Ok;
            self.record(start, handshake.take(), outcome, bytes).await?;
            if !went_well {
                return Ok(false);
            }
        }
        let lost = async {
            connection.closed().await;
            false
        };
        match shared.load.hold {
            Hold::No => Ok(true),
            Hold::UntilClosed => until_stop(stop, lost).await,
            Hold::For(time) => {
                let held = async {
                    tokio::select! {
                        went_well = lost => went_well,
                        () = sleep(time) => true,
                    }
                };
                until_stop(stop, held).await
            }
        }
    }

    /// Waits until the next connection is due according to the load's rate.
    async fn turn(&self, stop: &mut watch::Receiver<bool>) -> Result<(), Over> {
        let Some(rate) = self.shared.load.rate else { return Ok(()) };
        let number = self.shared.begun.fetch_add(1, Ordering::Relaxed);
        // If the rate is so low that the time is not representable, wait practically forever.
        let due = Duration::try_from_secs_f64(number as f64 / rate).unwrap_or(Duration::MAX);
        let wait = due.saturating_sub(self.shared.clock.elapsed());
        if wait.is_zero() { Ok(()) } else { until_stop(stop, sleep(wait)).await }
    }

    /// Claims one of the requests of the load. Returns its start time and its deadline, or `Over`
    /// if no request is left.
    fn begin(&self, stop: &watch::Receiver<bool>) -> Result<(Instant, Instant), Over> {
        if *stop.borrow() {
            return Err(Over);
        }
        if let Some(count) = self.shared.load.count
            && self.shared.taken.fetch_add(1, Ordering::Relaxed) >= count
        {
            return Err(Over);
        }
        let start = Instant::now();
        // `Instant` may overflow with a longer timeout, so limit it to a century.
        let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        Ok((start, start + self.shared.load.timeout.min(century)))
    }

    /// Sends a request. Repeats it on a new connection if the server did not process it.
    async fn request(&self, connection: &mut Connection, deadline: Instant) -> (Outcome, u64) {
        let Shared { path, target, peer, .. } = &*self.shared;
        let failed = |error: &ClientError| Outcome::from(error.failure());
        let mut answer = connection.request_until(Method::GET, path, Some(deadline)).await;
        for _ in 0..REPEATS {
            if !matches!(answer, Err(ClientError::Unprocessed { .. })) {
                break;
            }
            match self.client.open_at(target, *peer, Some(deadline)).await {
                Ok(opened) => *connection = opened,
                Err(error) => return (failed(&error), 0),
            }
            answer = connection.request_until(Method::GET, path, Some(deadline)).await;
        }
        match answer {
            Err(error) => (failed(&error), 0),
            Ok(mut response) => {
                let outcome = match response.drain().await {
                    Err(error) => failed(&error),
                    Ok(_) if response.status.is_success() => Outcome::Ok,
                    Ok(_) => Outcome::Error { kind: "status".into() },
                };
                (outcome, response.bytes())
            }
        }
    }

    async fn record(
        &self,
        start: Instant,
        handshake_ms: Option<f64>,
        outcome: Outcome,
        bytes: u64,
    ) -> Result<(), Over> {
        let sample = Sample {
            start_ms: self.shared.clock.at_ms(start),
            duration_ms: ms(start.elapsed()),
            client: self.number,
            handshake_ms,
            outcome,
            bytes,
        };
        // The receiver is dropped early only if the collector has failed, and then the whole load
        // fails.
        self.shared.samples.send(sample).await.map_err(|_| Over)?;
        let recorded = self.shared.recorded.fetch_add(1, Ordering::Relaxed) + 1;
        if self.shared.load.count == Some(recorded) {
            // That was the last request, so wake the slots that hold connections open.
            self.shared.stop.send_replace(true);
        }
        Ok(())
    }
}

/// Waits for `step` to complete, or for the end of the load.
async fn until_stop<T>(
    stop: &mut watch::Receiver<bool>,
    step: impl Future<Output = T>,
) -> Result<T, Over> {
    tokio::select! {
        value = step => Ok(value),
        () = ended(stop) => Err(Over),
    }
}

async fn ended(stop: &mut watch::Receiver<bool>) {
    // The sender is part of the state that this slot shares, so it still exists.
    let _ = stop.wait_for(|&stop| stop).await;
}
