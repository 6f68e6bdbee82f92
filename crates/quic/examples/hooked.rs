//! A hook that changes an operation of connections, from their first packet on: how often a server
//! sends acknowledgements.
//!
//!     cargo run -p equic-quic --example hooked

use std::error::Error;

use equic_quic::operation::{AttachPoint, Call, Decision, Hook, HookContext, HookError, Operation};
use equic_quic::{ClientConfig, Endpoint, ServerConfig, VarInt};

pub(crate) mod local;

/// Number of bytes that the client sends.
const LENGTH: usize = 1 << 20;

// acknowledge every tenth packet, at the latest after 20 ms
struct RareAcks;
impl Hook for RareAcks {
    fn replace(
        &mut self,
        _: &mut HookContext,
        _: &mut Call,
        out: &mut [u64],
    ) -> Result<Decision, HookError> {
        out.copy_from_slice(&[10, 20_000_000, 3]); // threshold, max_delay in ns, reordering
        Ok(Decision::Done)
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (server, client) = local::configs(b"hook")?;
    let usual = acknowledgements(server.clone(), &client).await?;
    let with_hook = acknowledgements(seldom(server), &client).await?;
    println!("{usual} acknowledgements, and with the hook {with_hook}");
    Ok(())
}

/// Returns the configuration of a server that acknowledges rarely.
pub(crate) fn seldom(mut config: ServerConfig) -> ServerConfig {
    config = config.with_hooks(|connection| {
        let points = [AttachPoint::replace(Operation::AckPolicy)];
        if let Err(error) = connection.attach(Box::new(RareAcks), &points) {
            eprintln!("not attached: {error}");
        }
    });
    config
}

/// Returns the number of acknowledgements that such a server sends for one megabyte.
pub(crate) async fn acknowledgements(
    config: ServerConfig,
    client_config: &ClientConfig,
) -> Result<u64, Box<dyn Error>> {
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let connecting = client.connect_with(client_config, server.local_addr()?, local::NAME)?;
    let sending = tokio::spawn(async move {
        let connection = connecting.await?;
        let mut send = connection.open_uni().await?;
        send.write_all(&vec![7; LENGTH]).await?;
        send.finish()?;
        send.stopped().await?;
        connection.close(VarInt::ZERO, "");
        Ok::<(), Box<dyn Error + Send + Sync>>(())
    });
    let connection = server.accept().await.ok_or("the endpoint is closed")?.await?;
    connection.accept_uni().await?.read_to_end(LENGTH).await?;
    sending.await?.map_err(|error| error.to_string())?;
    Ok(connection.stats().acks_sent)
}
