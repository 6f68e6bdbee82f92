//! An s2n-quic server that joins a running gateway. Your own server needs the lines that are marked
//! `eQUIC`. The rest is written like s2n-quic's own examples.
//!
//!     equic gateway run -i eth0 -p 4433 --max-connections 8
//!     cargo run -p serve-s2n-quic -- 4433 eth0
//!
//! The server echoes every bidirectional stream (ALPN `echo`).

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use equic_gateway::ConnectionIds; // eQUIC IDs
use equic_gateway::{Control, Guard, Service}; // eQUIC
use equic_gateway::{JoinOptions, Ledger, TokenCheck}; // eQUIC Retry
use equic_token::RetryToken; // eQUIC Retry
use s2n_quic::provider::address_token::{Context, Format, Provider};
use s2n_quic::provider::connection_id::{ConnectionInfo, Generator, Validator};
use s2n_quic::provider::endpoint_limits::{ConnectionAttempt, Limiter, Outcome};
use s2n_quic::provider::event::events::{
    ConnectionStarted as Started, PathChallengeStatus as Status, PathChallengeUpdated as Update,
};
use s2n_quic::provider::event::{ConnectionInfo as Info, ConnectionMeta as Meta, Subscriber};
use s2n_quic::provider::tls::rustls;
use s2n_quic::{Connection, Server};
use s2n_quic_core::connection::{InitialId, LocalId};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

// -- eQUIC: a source at its limit is refused before the handshake. A connection counts at the
// address of its handshake, and later at the address of each validated path, until its context is
// dropped. Do not count at `Connection::remote_addr` or on `ActivePathUpdated`: one packet with a
// forged address changes them.
struct Quota(Service);

impl Limiter for Quota {
    fn on_connection_attempt(&mut self, from: &ConnectionAttempt) -> Outcome {
        if self.0.full((&from.remote_address).into()) { Outcome::close() } else { Outcome::allow() }
    }
}

impl Subscriber for Quota {
    type ConnectionContext = (SocketAddr, Option<Guard>);
    fn create_connection_context(&mut self, _: &Meta, _: &Info) -> Self::ConnectionContext {
        (([0; 4], 0).into(), None)
    }
    fn on_connection_started(&mut self, c: &mut Self::ConnectionContext, _: &Meta, e: &Started) {
        c.0 = (&e.path.remote_addr).into();
    }
    fn on_path_challenge_updated(&mut self, c: &mut Self::ConnectionContext, _: &Meta, e: &Update) {
        let ok = matches!(e.path_challenge_status, Status::Validated { .. });
        c.1.iter_mut().filter(|_| ok).for_each(|g| _ = g.try_moved((&e.path.remote_addr).into()));
    }
}
// --

// -- eQUIC Retry: a client that sends a token has received a Retry packet from the gateway.
// s2n-quic gets the original Destination Connection ID from here. The other ID is in the packet,
// where the gateway has already compared it.
struct Tokens(Ledger);

impl Format for Tokens {
    const TOKEN_LEN: usize = RetryToken::LEN;

    fn validate_token(&mut self, from: &mut Context<'_>, token: &[u8]) -> Option<InitialId> {
        let ring = self.0.key_ring().ok()??;
        let proof = RetryToken::authenticate(&ring, ring.now(), token).ok()?;
        let from = SocketAddr::from(&from.remote_address);
        // On a socket for IPv4 and IPv6, the address of an IPv4 client is an IPv4-mapped address.
        let brought = SocketAddr::new(from.ip().to_canonical(), from.port()) == proof.client;
        brought.then(|| InitialId::try_from_bytes(proof.original.as_bytes()))?
    }
    fn generate_retry_token(&mut self, _: &mut Context, _: &InitialId, _: &mut [u8]) -> Option<()> {
        None
    }
    fn generate_new_token(&mut self, _: &mut Context, _: &LocalId, _: &mut [u8]) -> Option<()> {
        None
    }
}

impl Provider for Tokens {
    type Format = Self;
    type Error = Infallible;
    fn start(self) -> std::result::Result<Self, Infallible> {
        Ok(self)
    }
}
// --

// -- eQUIC IDs: every connection ID is made with the gateway's current keys. IDs are replaced after
// a day, which is the longest lifetime that s2n-quic allows and much shorter than that of the keys.
struct Ids(ConnectionIds);

impl Generator for Ids {
    fn generate(&mut self, _: &ConnectionInfo) -> LocalId {
        LocalId::try_from_bytes(self.0.generate().as_bytes()).expect("4 to 20 bytes")
    }
    fn lifetime(&self) -> Option<Duration> {
        Some(Duration::from_secs(24 * 60 * 60))
    }
}

impl Validator for Ids {
    fn validate(&self, _: &ConnectionInfo, packet: &[u8]) -> Option<usize> {
        (packet.len() >= ConnectionIds::LEN).then_some(ConnectionIds::LEN)
    }
}
// --

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(port), Some(gateway)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve-s2n-quic PORT GATEWAY".into());
    };
    let options = JoinOptions::new("s2n-quic").issue_ids(true); // eQUIC IDs
    let options = options.token_check(TokenCheck::GatewayKeys); // eQUIC Retry
    let gateway = Control::open(Some(&gateway))?.join(options)?; // eQUIC
    let service = gateway.service_at(0)?; // eQUIC
    let ids = gateway.connection_ids(0)?.ok_or("the gateway does not share its keys")?; // eQUIC IDs

    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let tls = rustls::Server::builder()
        .with_certificate(made.cert.pem(), made.signing_key.serialize_pem())?
        .with_application_protocols(["echo"].iter())?
        .build()?;
    let mut server = Server::builder()
        .with_tls(tls)?
        .with_io(format!("[::]:{port}").as_str())?
        .with_endpoint_limits(Quota(service.clone()))? // eQUIC
        .with_event(Quota(service.clone()))? // eQUIC
        .with_address_token(Tokens(gateway))? // eQUIC Retry
        .with_connection_id(Ids(ids))? // eQUIC IDs
        .start()?;
    println!("listening on {}", server.local_addr()?);
    while let Some(connection) = server.accept().await {
        tokio::spawn(serve(connection, service.clone()));
    }
    Ok(())
}

async fn serve(mut connection: Connection, service: Service) -> Result<()> {
    // -- eQUIC: the handshake is complete, so the connection counts from here until it is closed.
    let count = |c: &mut (SocketAddr, Option<Guard>)| c.1.insert(service.opened(c.0)).over_limit();
    if connection.query_event_context_mut(count)? {
        connection.close(1u32.into());
        return Ok(());
    }
    // --
    while let Some(mut stream) = connection.accept_bidirectional_stream().await? {
        tokio::spawn(async move {
            while let Ok(Some(data)) = stream.receive().await {
                stream.send(data).await?;
            }
            stream.close().await
        });
    }
    Ok(())
}
