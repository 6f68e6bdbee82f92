//! A connection between two ends in one process: a handshake, a question and an answer.
//!
//!     cargo run -p equic-transport --example in_memory
//!
//! There is no socket and no clock. Each datagram that one end sends is passed to the other end.
//! When neither end has anything to send, time advances to the next timer. A program with a socket
//! works the same way, with the datagrams of the socket and the time of its clock.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use equic_transport::{
    ClientConfig, Connection, DatagramMeta, Direction, Endpoint, EndpointConfig, Event, Handle,
    ReadOutcome, Received, ServerConfig, Timestamp, Transmit,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

/// Size of the largest possible UDP payload in bytes.
const LARGEST: usize = 65_527;

/// One-way delay of a datagram.
const DELAY: Duration = Duration::from_millis(1);

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut pair = Pair::connect()?;
    let question = pair.client().open(Direction::Bidirectional).ok_or("no stream is allowed")?;
    pair.client().streams().write(question, b"How are you?")?;
    pair.client().streams().finish(question)?;

    let asked = pair.wait(|pair| pair.server().accept(Direction::Bidirectional))?;
    let heard = pair.read_to_end(Pair::server, asked)?;
    pair.server().streams().write(asked, &heard.to_ascii_uppercase())?;
    pair.server().streams().finish(asked)?;

    let answer = pair.read_to_end(Pair::client, question)?;
    println!("{} after {:?}", String::from_utf8(answer)?, pair.now.since(Timestamp::START));
    Ok(())
}

/// One end: an endpoint, which finds the connection of a datagram, and its only connection.
pub(crate) struct End {
    address: SocketAddr,
    endpoint: Endpoint,
    connection: Option<(Handle, Connection)>,
}

impl End {
    /// Processes a received datagram.
    fn handle_datagram(
        &mut self,
        now: Timestamp,
        arrival: DatagramMeta,
        datagram: &mut [u8],
    ) -> Result<(), Box<dyn Error>> {
        // Buffer for an answer of the endpoint itself, for example a Version Negotiation packet.
        // There is no such answer in this example.
        let mut response = Vec::new();
        match self.endpoint.handle_datagram(now, arrival, datagram, &mut response) {
            Received::Incoming(incoming) => {
                self.connection = Some(self.endpoint.accept(now, incoming)?);
            }
            Received::Connection(_) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_datagram(now, arrival, datagram);
                }
            }
            Received::Respond | Received::Nothing => {}
        }
        Ok(())
    }

    /// Returns the next datagram that this end sends, or `None`.
    fn poll_transmit(&mut self, now: Timestamp, buffer: &mut [u8]) -> Option<Transmit> {
        let (handle, connection) = self.connection.as_mut()?;
        let transmit = connection.poll_transmit(now, buffer);
        // The endpoint must know a connection ID before the peer does.
        while let Some(change) = connection.poll_endpoint_event() {
            self.endpoint.handle_endpoint_event(*handle, change);
        }
        transmit
    }
}

/// A client and a server, and their common time.
pub(crate) struct Pair {
    now: Timestamp,
    client: End,
    server: End,
}

impl Pair {
    /// Creates two ends and completes their handshake.
    pub(crate) fn connect() -> Result<Pair, Box<dyn Error>> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let (client_config, server_config) = configs(provider.clone())?;
        let end = |address: &str, server, seed| -> Result<End, Box<dyn Error>> {
            let endpoint = Endpoint::new(EndpointConfig::new(&provider)?, server, [seed; 32]);
            Ok(End { address: address.parse()?, endpoint, connection: None })
        };
        // The last argument seeds the random numbers. A real program must use fresh randomness.
        let mut client = end("198.51.100.1:50000", None, 1)?;
        let server = end("192.0.2.1:443", Some(Arc::new(server_config)), 2)?;
        let (now, name) = (Timestamp::START, ServerName::try_from("equic.test")?);
        client.connection =
            Some(client.endpoint.connect(now, &client_config, name, server.address)?);
        let mut pair = Pair { now, client, server };
        pair.wait(|pair| match pair.client().poll_event() {
            Some(Event::Connected) => Some(()),
            _ => None,
        })?;
        Ok(pair)
    }

    /// Returns the client's connection.
    pub(crate) fn client(&mut self) -> &mut Connection {
        &mut self.client.connection.as_mut().expect("the client has a connection from the start").1
    }

    /// Returns the server's connection, which exists after the client's first datagram has arrived.
    pub(crate) fn server(&mut self) -> &mut Connection {
        &mut self.server.connection.as_mut().expect("the handshake is complete").1
    }

    /// Lets time pass until `wanted` returns a value, and returns it.
    pub(crate) fn wait<T>(
        &mut self,
        mut wanted: impl FnMut(&mut Pair) -> Option<T>,
    ) -> Result<T, Box<dyn Error>> {
        loop {
            if let Some(found) = wanted(self) {
                return Ok(found);
            }
            self.step()?;
        }
    }

    /// Reads a stream to its end.
    pub(crate) fn read_to_end(
        &mut self,
        end: fn(&mut Pair) -> &mut Connection,
        id: equic_transport::StreamId,
    ) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut read = Vec::new();
        self.wait(|pair| {
            let mut buffer = [0; 4096];
            loop {
                match end(pair).streams().read(id, &mut buffer) {
                    Ok(ReadOutcome::Bytes(count)) => read.extend_from_slice(&buffer[..count]),
                    Ok(ReadOutcome::Blocked) => return None,
                    Ok(ReadOutcome::Finished) => return Some(Ok(())),
                    Ok(ReadOutcome::Reset(code)) => return Some(Err(format!("reset: {code}"))),
                    Err(error) => return Some(Err(error.to_string())),
                }
            }
        })??;
        Ok(read)
    }

    /// Delivers one datagram in each direction. Without one, advances the time to the next
    /// timer.
    fn step(&mut self) -> Result<(), Box<dyn Error>> {
        let sent = Pair::carry(self.now, &mut self.client, &mut self.server)?
            | Pair::carry(self.now, &mut self.server, &mut self.client)?;
        let ends = [&mut self.client, &mut self.server];
        let connections = ends.into_iter().filter_map(|end| end.connection.as_mut());
        let mut connections: Vec<_> = connections.map(|(_, connection)| connection).collect();
        let timers = connections.iter_mut().filter_map(|connection| connection.poll_timeout());
        let timer = timers.min().ok_or("both ends are over")?;
        self.now = if sent { self.now + DELAY } else { self.now.max(timer) };
        for connection in connections {
            if connection.poll_timeout().is_some_and(|at| at <= self.now) {
                connection.handle_timeout(self.now);
            }
        }
        Ok(())
    }

    /// Delivers the next datagram from one end to the other. Returns false if there was no datagram
    /// to send.
    fn carry(now: Timestamp, from: &mut End, to: &mut End) -> Result<bool, Box<dyn Error>> {
        let mut buffer = [0; LARGEST];
        let Some(transmit) = from.poll_transmit(now, &mut buffer) else { return Ok(false) };
        let arrival = DatagramMeta { remote: from.address, local: None, ecn: transmit.ecn };
        to.handle_datagram(now + DELAY, arrival, &mut buffer[..transmit.size])?;
        Ok(true)
    }
}

/// Returns the configuration of a server with a self-signed certificate, and of a client that
/// trusts it.
fn configs(
    provider: rustls::crypto::CryptoProvider,
) -> Result<(ClientConfig, ServerConfig), Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed(vec!["equic.test".into()])?;
    let certificate = CertificateDer::from(made.cert);
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let (provider, versions) = (Arc::new(provider), [&rustls::version::TLS13]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone())?;
    let client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let transport = Arc::default();
    let client = ClientConfig::new(Arc::new(client)).with_transport(Arc::clone(&transport));
    let server = ServerConfig::new(Arc::new(server)).with_transport(transport);
    Ok((client, server))
}
