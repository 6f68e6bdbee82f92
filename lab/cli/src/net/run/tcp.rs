//! Both endpoints of a transfer with the kernel's TCP in a real-time run.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use equic_netns::TcpInfo;
use equic_sim::payload::CHUNK;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::Instant;

use super::transfer::{Sender, Transfer};
use crate::failure::Result;

/// A TCP transfer whose endpoints are ready to start.
pub(super) struct Tcp {
    /// The client's socket, or `None` once the transfer has started.
    client: Mutex<Option<TcpStream>>,
    server: Mutex<Option<TcpListener>>,
    to: SocketAddr,
    /// A copy of the sender's socket, from which the counters are read.
    kept: Arc<OnceLock<OwnedFd>>,
}

impl Tcp {
    /// Creates a transfer from an unconnected socket and a listening one.
    pub(super) fn prepare(client: TcpStream, server: TcpListener) -> Result<Tcp> {
        let to = server.local_addr()?;
        let (client, server) = (Mutex::new(Some(client)), Mutex::new(Some(server)));
        Ok(Tcp { client, server, to, kept: Arc::default() })
    }

    /// Starts both endpoints. The client begins at the time `at`.
    pub(super) fn spawn(&self, at: Instant, transfer: &Arc<Transfer>) {
        fn taken<T>(from: &Mutex<Option<T>>) -> Option<T> {
            from.lock().unwrap_or_else(PoisonError::into_inner).take()
        }
        let (Some(client), Some(server)) = (taken(&self.client), taken(&self.server)) else {
            return;
        };
        let receiving = Arc::clone(transfer);
        tokio::spawn(async move {
            if let Err(failure) = receive(server, &receiving).await {
                receiving.fail(failure.to_string());
            }
        });
        let (to, kept, sending) = (self.to, Arc::clone(&self.kept), Arc::clone(transfer));
        tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            sending.begin();
            if let Err(failure) = send(client, to, &kept, &sending).await {
                sending.fail(failure.to_string());
            }
        });
    }

    /// Returns the counters of the sending endpoint.
    pub(super) fn sender(&self) -> Sender {
        let info = self.kept.get().and_then(|socket| TcpInfo::of(socket).ok()).unwrap_or_default();
        Sender {
            packets_sent: info.segments_sent,
            packets_lost: info.retransmitted,
            spurious: info.spurious,
            timeouts: info.timeouts,
            min_rtt: info.min_rtt,
        }
    }
}

async fn send(
    client: TcpStream,
    to: SocketAddr,
    kept: &OnceLock<OwnedFd>,
    transfer: &Transfer,
) -> Result {
    let mut stream = TcpSocket::from_std_stream(client).connect(to).await?;
    let socket = stream.as_fd().try_clone_to_owned()?;
    kept.get_or_init(|| socket);
    let mut sent = 0;
    while let Some(chunk) = transfer.next(sent) {
        stream.write_all(chunk).await?;
        sent += chunk.len() as u64;
    }
    stream.shutdown().await?;
    // Wait until the server has closed its side, too. It does so when it has received all data.
    let _ = stream.read(&mut [0]).await?;
    Ok(())
}

async fn receive(server: TcpListener, transfer: &Transfer) -> Result {
    let listener = tokio::net::TcpListener::from_std(server)?;
    let (mut stream, _) = listener.accept().await?;
    let mut buffer = vec![0; CHUNK];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            count => transfer.receive(&buffer[..count]),
        };
    }
}
