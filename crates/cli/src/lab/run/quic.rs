//! Both ends of a transfer by QUIC.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use equic_quic::rustls::RootCertStore;
use equic_quic::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use equic_quic::{
    ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TransportConfig, VarInt,
};
use equic_sim::payload::CHUNK;
use tokio::time::Instant;

use super::transfer::{Sender, Transfer};
use crate::failure::{Done, Failure};

/// Name in the server's certificate.
const NAME: &str = "server";
const ALPN: &[u8] = b"equic-lab";

/// A certificate that all servers of a run have.
pub(super) struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(super) fn new() -> Done<Identity> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()])
            .map_err(|error| Failure::because("cannot make a certificate", error))?;
        Ok(Identity {
            certificate: made.cert.der().clone(),
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
        })
    }
}

/// A transfer whose ends are ready.
pub(super) struct Quic {
    client: Endpoint,
    config: ClientConfig,
    server: Endpoint,
    to: SocketAddr,
    /// The sender's connection, once it has completed its handshake.
    connection: Arc<OnceLock<Connection>>,
}

impl Quic {
    /// Makes both endpoints, on sockets that are bound. Must be called inside a runtime.
    pub(super) fn prepare(
        client: std::net::UdpSocket,
        server: std::net::UdpSocket,
        transport: TransportConfig,
        identity: &Identity,
    ) -> Done<Quic> {
        let transport = Arc::new(transport);
        let chain = vec![identity.certificate.clone()];
        let listening = ServerConfig::with_single_cert(chain, identity.key.clone_key())?
            .with_alpn(&[ALPN])
            .with_transport(Arc::clone(&transport));
        let mut roots = RootCertStore::empty();
        roots.add(identity.certificate.clone())?;
        let config = ClientConfig::with_root_certificates(roots)?
            .with_alpn(&[ALPN])
            .with_transport(transport);
        let to = server.local_addr()?;
        let endpoint = |server, socket| {
            Endpoint::new(EndpointConfig::with_default_provider()?, server, vec![socket])
        };
        Ok(Quic {
            client: endpoint(None, client)?,
            config,
            server: endpoint(Some(listening), server)?,
            to,
            connection: Arc::default(),
        })
    }

    /// Lets both ends run; the client begins at this moment.
    pub(super) fn spawn(&self, at: Instant, transfer: &Arc<Transfer>) {
        let (server, receiving) = (self.server.clone(), Arc::clone(transfer));
        tokio::spawn(async move {
            if let Err(failure) = receive(&server, &receiving).await {
                receiving.fail(failure.to_string());
            }
        });
        let (client, config, to) = (self.client.clone(), self.config.clone(), self.to);
        let (kept, sending) = (Arc::clone(&self.connection), Arc::clone(transfer));
        tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            sending.begin();
            if let Err(failure) = send(&client, &config, to, &kept, &sending).await {
                sending.fail(failure.to_string());
            }
        });
    }

    /// Counters of the sender.
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

    /// Ends what is open.
    pub(super) fn close(&self) {
        self.client.close(VarInt::from_u32(0), "");
        self.server.close(VarInt::from_u32(0), "");
    }
}

async fn send(
    endpoint: &Endpoint,
    config: &ClientConfig,
    to: SocketAddr,
    kept: &OnceLock<Connection>,
    transfer: &Transfer,
) -> Done {
    let connection = endpoint.connect_with(config, to, NAME)?.await?;
    let connection = kept.get_or_init(|| connection);
    let mut stream = connection.open_uni().await?;
    let mut sent = 0;
    while let Some(chunk) = transfer.next(sent) {
        stream.write_all(chunk).await?;
        sent += chunk.len() as u64;
    }
    stream.finish()?;
    // Until all of it is acknowledged; the run closes the connection.
    stream.stopped().await?;
    Ok(())
}

async fn receive(endpoint: &Endpoint, transfer: &Transfer) -> Done {
    let Some(incoming) = endpoint.accept().await else { return Ok(()) };
    let connection = incoming.await?;
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
