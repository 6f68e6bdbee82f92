//! The workload `--loaded`, which measures latency under load: small exchanges during a bulk
//! download on the same connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{close_all, fetch};
use crate::perf::{Received, request};
use crate::{
    Answer, BULK, Connection, Effective, ReceiveStream, SMALL_EXCHANGE, SendStream as _, Stack,
};

/// Runs exchanges for some time on an otherwise idle connection, and then for the same time during
/// a bulk download.
pub(crate) async fn run<S: Stack>(
    stack: &S,
    time: Duration,
    effective: &mut Effective,
) -> Result<Answer> {
    let start = Instant::now();
    let connection = Arc::new(stack.connect().await?);
    let handshake_seconds = Some(start.elapsed().as_secs_f64());
    let unloaded = exchanges(&connection, time).await?;
    let (mut to, from) = connection.open().await?;
    to.send(request(BULK).to_vec().into()).await?;
    to.finish().await?;
    let mut bulk = Bulk::begin(from).await?;
    let before = bulk.bytes();
    let start = Instant::now();
    let loaded = exchanges(&connection, time).await?;
    let seconds = start.elapsed().as_secs_f64();
    let bulk_bytes = bulk.bytes() - before;
    bulk.end().await?;
    drop(to);
    close_all(stack, vec![connection], 0, effective).await;
    Ok(Answer { handshake_seconds, ..Answer::of_loaded(unloaded, loaded, bulk_bytes, seconds) })
}

/// Measures the durations of exchanges that run one after the other. A duration is from the opening
/// of a stream to its end.
///
/// The exchanges run in a spawned task. A runtime with one thread polls the task that it blocks on
/// only once per 61 polls of spawned tasks.
async fn exchanges<C: Connection>(connection: &Arc<C>, time: Duration) -> Result<Vec<f64>> {
    let connection = Arc::clone(connection);
    let exchanging = tokio::spawn(async move {
        let mut times = Vec::new();
        let start = Instant::now();
        while start.elapsed() < time {
            let begun = Instant::now();
            let received = fetch(&*connection, SMALL_EXCHANGE).await?;
            times.push(begun.elapsed().as_secs_f64());
            ensure!(
                received.bytes == SMALL_EXCHANGE,
                "a small exchange had an unexpected size of {} bytes",
                received.bytes
            );
        }
        Ok(times)
    });
    exchanging.await?
}

/// A download that runs in its own task.
struct Bulk {
    received: Arc<Mutex<Received>>,
    reading: JoinHandle<Result<()>>,
}

impl Bulk {
    /// Starts a download. Returns when its first bytes have arrived.
    async fn begin(mut from: impl ReceiveStream) -> Result<Bulk> {
        let received = Arc::new(Mutex::new(Received::default()));
        let (first, begun) = oneshot::channel();
        let seen = Arc::clone(&received);
        let reading = tokio::spawn(async move {
            let mut first = Some(first);
            loop {
                let take = |data: &[u8]| {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).take(data);
                };
                ensure!(from.receive(take).await?, "the bulk download ended too early");
                if let Some(first) = first.take() {
                    // The receiver may have been dropped, which is not an error.
                    let _ = first.send(());
                }
            }
        });
        let mut bulk = Bulk { received, reading };
        match begun.await {
            Ok(()) => Ok(bulk),
            Err(_) => {
                (&mut bulk.reading).await??;
                None.context("the bulk download did not begin")
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// Stops the download. Exits the process if the received bytes differ from those that the
    /// server sent. Returns an error if the download had already ended.
    async fn end(&mut self) -> Result<()> {
        if self.reading.is_finished() {
            (&mut self.reading).await??;
        }
        self.reading.abort();
        // The lock may be poisoned: the task may have been cancelled between two chunks, but never
        // in the middle of a check.
        self.received.lock().unwrap_or_else(PoisonError::into_inner).finish();
        Ok(())
    }
}
