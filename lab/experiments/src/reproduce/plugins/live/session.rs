//! A connection between client and server of the live network: requests, downloads, and plugins.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use equic_plugin::exchange::{Progress, Push, Update};
use equic_quic::{Connection, PathId, RecvStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::stage::{Exchange, LiveNetwork};
use crate::failure::{Failure, Result};

/// Maximum time for a plugin to run, and for a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause before a request, so that everything before the request has been acknowledged.
const SILENCE: Duration = Duration::from_millis(100);
/// Size of a request and of its response, in bytes.
const REQUEST: [usize; 2] = [100, 1_000];
/// Size of the pieces in which data is written and read, in bytes.
const CHUNK: usize = 64 << 10;

/// State of the plugins at one endpoint of the connection.
pub(super) struct End {
    pub(super) standings: watch::Receiver<Vec<Update>>,
    pub(super) exchange: Exchange,
}

impl End {
    /// Waits until the state of each plugin is final.
    async fn settled(&mut self) -> Result {
        let over = |one: &Update| {
            matches!(one.progress, Progress::Active | Progress::NotOffered(_) | Progress::Over(..))
        };
        let all_over = |all: &Vec<Update>| !all.is_empty() && all.iter().all(over);
        match timeout(PATIENCE, self.standings.wait_for(all_over)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Failure::new("the plugins did not reach their final state in time")),
        }
    }

    /// Returns true if the plugin that was injected last runs.
    fn runs(&self) -> bool {
        self.standings.borrow().last().is_some_and(|one| one.progress == Progress::Active)
    }
}

/// A connection, with its client side and its server side.
pub(super) struct Session {
    pub(super) client: Connection,
    pub(super) server: Connection,
    pub(super) client_end: End,
    pub(super) server_end: End,
}

impl Session {
    /// Waits until the state of each plugin is final at both endpoints. The last plugin must run.
    ///
    /// # Errors
    /// Fails if the last plugin does not run.
    pub(super) async fn settled(&mut self) -> Result {
        self.client_end.settled().await?;
        self.server_end.settled().await?;
        self.running()
    }

    /// Checks that the last plugin still runs at both endpoints.
    ///
    /// # Errors
    /// Fails if it does not run at one of them.
    pub(super) fn running(&self) -> Result {
        if self.client_end.runs() && self.server_end.runs() {
            return Ok(());
        }
        let standings = self.client_end.standings.borrow().clone();
        Err(Failure::new(format!("the plugin does not run: {standings:?}")))
    }

    /// Lets the client offer a plugin. It replaces the plugin that the client offered before, if
    /// any.
    pub(super) fn offer(&self, push: Arc<Push>) -> Result {
        let last = self.client_end.standings.borrow().last().and_then(|one| one.id);
        let kept = self.client_end.exchange.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let none = || Failure::new("the connection does not support the exchange of plugins");
        let (hook, handle) = kept.ok_or_else(none)?;
        handle.offer(push, last);
        Ok(self.client.tell_hook(hook, &[])?)
    }

    /// Sends a request whose packet the network drops. Returns the time until the response has
    /// arrived.
    pub(super) async fn lost_request(&self, stage: &LiveNetwork) -> Result<Duration> {
        let answering = tokio::spawn(answer(self.server.clone()));
        sleep(SILENCE).await;
        stage.live.lose(0, 1);
        let begun = Instant::now();
        let asked = async {
            let (mut send, mut receive) = self.client.open_bi().await?;
            send.write_all(&[0; REQUEST[0]]).await?;
            let answer = receive.read_to_end(REQUEST[1]).await?;
            Ok::<_, Failure>((answer.len(), begun.elapsed()))
        };
        let late = |_| Failure::new("no answer to the request arrived in time");
        let (length, took) = timeout(PATIENCE, asked).await.map_err(late)??;
        answering.await??;
        if length != REQUEST[1] {
            return Err(Failure::new(format!("the answer has {length} bytes, not {}", REQUEST[1])));
        }
        Ok(took)
    }

    /// Downloads this many bytes from the server. Returns the time until the last byte was read.
    pub(super) async fn download(&self, bytes: u64, limit: Duration) -> Result<Duration> {
        let begun = Instant::now();
        let sending = tokio::spawn(write(self.server.clone(), bytes));
        let read = async {
            let mut stream = self.client.accept_uni().await?;
            count(&mut stream).await
        };
        let late = |_| Failure::new(format!("{bytes} bytes did not arrive within {limit:?}"));
        let read = timeout(limit, read).await.map_err(late)??;
        let took = begun.elapsed();
        sending.await??;
        if read != bytes {
            return Err(Failure::new(format!("only {read} of {bytes} bytes arrived")));
        }
        Ok(took)
    }

    /// Starts a download that lasts as long as the connection.
    pub(super) fn download_on(&self) {
        // Both tasks end with an error when the connection ends, and the error is ignored.
        drop(tokio::spawn(write(self.server.clone(), u64::MAX)));
        let client = self.client.clone();
        drop(tokio::spawn(async move {
            let mut stream = client.accept_uni().await?;
            count(&mut stream).await
        }));
    }

    /// Returns the bytes that an endpoint has sent so far on each of the two paths.
    pub(super) fn sent(end: &Connection) -> [u64; 2] {
        let paths = end.paths();
        [0, 1].map(|id| {
            let path = paths.iter().find(|path| path.id == PathId::new(id));
            path.map_or(0, |path| path.bytes_sent)
        })
    }
}

async fn answer(server: Connection) -> Result {
    let (mut send, mut receive) = server.accept_bi().await?;
    let (mut buffer, mut read) = ([0; REQUEST[0]], 0);
    // The client does not end the stream. Its end might need another packet, and that packet would
    // not be lost.
    while read < REQUEST[0] {
        let Some(count) = receive.read(&mut buffer).await? else { break };
        read += count;
    }
    send.write_all(&[0; REQUEST[1]]).await?;
    send.finish()?;
    Ok(())
}

async fn write(server: Connection, bytes: u64) -> Result {
    let mut stream = server.open_uni().await?;
    let chunk = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(CHUNK as u64);
        stream.write_all(&chunk[..length as usize]).await?;
        left -= length;
    }
    stream.finish()?;
    // Waits until everything is acknowledged, because dropping the stream would discard its data.
    stream.stopped().await?;
    Ok(())
}

async fn count(stream: &mut RecvStream) -> Result<u64> {
    let (mut buffer, mut read) = (vec![0; CHUNK], 0);
    while let Some(count) = stream.read(&mut buffer).await? {
        read += count as u64;
    }
    Ok(read)
}
