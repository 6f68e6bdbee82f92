//! Both endpoints of a QUIC transfer in a real-time run.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use equic_experiments::identity::{Identity, NAME};
use equic_netns::Namespace;
use equic_quic::{ClientConfig, Connection, Endpoint, EndpointConfig, TransportConfig, VarInt};
use equic_sim::payload::CHUNK;
use tokio::time::Instant;

use super::plugins::Plugins;
use super::transfer::{Sender, Transfer};
use crate::failure::{Failure, Result};

/// Pause before a failed attempt to open a path is repeated.
const AGAIN: Duration = Duration::from_millis(100);

/// A QUIC transfer whose endpoints are ready to start.
pub(super) struct Quic {
    client: Endpoint,
    config: ClientConfig,
    server: Endpoint,
    to: SocketAddr,
    /// Further addresses of the client, from which additional paths are opened.
    further: Vec<IpAddr>,
    /// The sender's connection. Empty until its handshake is complete.
    connection: Arc<OnceLock<Connection>>,
    /// The receiver's.
    accepted: Arc<OnceLock<Connection>>,
}

impl Quic {
    /// Creates both endpoints, client and server, on bound sockets. Must be called inside a tokio
    /// runtime.
    pub(super) fn prepare(
        (client, server): (UdpSocket, UdpSocket),
        transport: TransportConfig,
        identity: &Identity,
        plugins: &Plugins,
    ) -> Result<Quic> {
        let transport = Arc::new(transport);
        let mut listening = identity.server(Arc::clone(&transport))?;
        let mut config = identity.client(transport)?;
        if let Some(hooks) = plugins.server.clone() {
            listening = listening.with_hooks(move |new| hooks.attach(new));
        }
        if let Some(hooks) = plugins.client.clone() {
            config = config.with_hooks(move |new| hooks.attach(new));
        }
        let to = server.local_addr()?;
        let endpoint = |server, socket| {
            Endpoint::new(EndpointConfig::with_default_provider()?, server, vec![socket])
        };
        Ok(Quic {
            client: endpoint(None, client)?,
            config,
            server: endpoint(Some(listening), server)?,
            to,
            further: Vec::new(),
            connection: Arc::default(),
            accepted: Arc::default(),
        })
    }

    /// Like [`Quic::prepare`], with additional paths from these addresses of the client's host.
    /// Must be called inside a tokio runtime.
    pub(super) fn with_paths(
        self,
        host: &Namespace,
        addresses: impl Iterator<Item = IpAddr>,
    ) -> Result<Quic> {
        let (client, runtime) = (self.client.clone(), tokio::runtime::Handle::current());
        let further: Vec<IpAddr> = addresses.collect();
        let add = || {
            let _inside = runtime.enter();
            further.iter().try_for_each(|address| client.add_local_address(*address).map(drop))
        };
        host.run(add)??;
        Ok(Quic { further, ..self })
    }

    /// Starts both endpoints. The client begins at the time `at`.
    pub(super) fn spawn(&self, at: Instant, transfer: &Arc<Transfer>) {
        let (server, receiving) = (self.server.clone(), Arc::clone(transfer));
        let accepted = Arc::clone(&self.accepted);
        tokio::spawn(async move {
            if let Err(failure) = receive(&server, &accepted, &receiving).await {
                receiving.fail(failure.to_string());
            }
        });
        let (client, config, to) = (self.client.clone(), self.config.clone(), self.to);
        let (kept, sending) = (Arc::clone(&self.connection), Arc::clone(transfer));
        let further = self.further.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            sending.begin();
            let opened = async {
                let connection = client.connect_with(&config, to, NAME)?.await?;
                for address in further {
                    tokio::spawn(keep_path(connection.clone(), address));
                }
                Ok::<_, Failure>(kept.get_or_init(|| connection))
            };
            let sent = match opened.await {
                Ok(connection) => send(connection, &sending).await,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = sent {
                sending.fail(failure.to_string());
            }
        });
    }

    /// Returns the counters of the sending endpoint.
    pub(super) fn sender(&self) -> Sender {
        let Some(connection) = self.connection.get() else { return Sender::default() };
        let stats = connection.stats();
        Sender {
            packets_sent: stats.packets_sent,
            packets_lost: stats.packets_lost,
            spurious: Some(stats.spurious_losses),
            timeouts: Some(stats.probe_timeouts),
            min_rtt: Some(stats.path.min_rtt).filter(|rtt| !rtt.is_zero()),
        }
    }

    /// Returns why a plugin of either endpoint was detached, or `None` if no plugin failed.
    pub(super) fn failed_plugin(&self) -> Option<String> {
        let ends = [&self.connection, &self.accepted];
        let failed = |end: &Arc<OnceLock<Connection>>| end.get()?.failed_hook();
        let failed = ends.into_iter().find_map(failed)?;
        Some(format!("a hook was taken off: {failed}"))
    }

    /// Closes the connection and the endpoints.
    pub(super) fn close(&self) {
        self.client.close(VarInt::from_u32(0), "");
        self.server.close(VarInt::from_u32(0), "");
    }
}

/// Keeps a path of the connection open from this address. When the path is closed, opens it again.
async fn keep_path(connection: Connection, address: IpAddr) {
    let (mut changes, mut opened) = (0, None);
    loop {
        let is_open = connection.paths().iter().any(|path| Some(path.id) == opened);
        if !is_open {
            opened = connection.open_path(address).await.ok();
        }
        let changed = async {
            match opened {
                Some(_) => connection.paths_changed(changes).await,
                None => {
                    tokio::time::sleep(AGAIN).await;
                    connection.close_reason().map_or(Ok(changes), Err)
                }
            }
        };
        match changed.await {
            Ok(count) => changes = count,
            Err(_) => return,
        }
    }
}

async fn send(connection: &Connection, transfer: &Transfer) -> Result {
    let mut stream = connection.open_uni().await?;
    let mut sent = 0;
    while let Some(chunk) = transfer.next(sent) {
        stream.write_all(chunk).await?;
        sent += chunk.len() as u64;
    }
    stream.finish()?;
    // Wait until all data is acknowledged, because the caller then closes the connection.
    stream.stopped().await?;
    Ok(())
}

async fn receive(
    endpoint: &Endpoint,
    accepted: &OnceLock<Connection>,
    transfer: &Transfer,
) -> Result {
    let Some(incoming) = endpoint.accept().await else { return Ok(()) };
    let connection = incoming.await?;
    let connection = accepted.get_or_init(|| connection);
    let mut stream = connection.accept_uni().await?;
    let mut buffer = vec![0; CHUNK];
    while let Some(count) = stream.read(&mut buffer).await? {
        if transfer.receive(&buffer[..count]) {
            break;
        }
    }
    connection.closed().await;
    Ok(())
}
