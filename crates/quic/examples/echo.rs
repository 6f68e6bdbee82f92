//! A server that echoes the data of each stream, and a client that sends it one text.
//!
//!     cargo run -p equic-quic --example echo

use std::error::Error;

use equic_quic::{ConnectionError, Endpoint, Incoming, VarInt};

mod local;

/// Maximum number of bytes that the server reads from a stream.
const LIMIT: usize = 1 << 20;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", echo("Is anybody there?").await?);
    Ok(())
}

/// Sends a text to a server in this process, and returns the answer.
pub(crate) async fn echo(text: &str) -> Result<String, Box<dyn Error>> {
    let (server_config, client_config) = local::configs(b"echo")?;
    let server = Endpoint::server(server_config, "127.0.0.1:0".parse()?)?;
    let address = server.local_addr()?;
    tokio::spawn(serve(server));

    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let connection = client.connect_with(&client_config, address, local::NAME)?.await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(text.as_bytes()).await?;
    send.finish()?;
    let answer = receive.read_to_end(LIMIT).await?;

    connection.close(VarInt::ZERO, "done");
    // Wait until the server was notified that the connection is closed.
    client.wait_idle().await;
    Ok(String::from_utf8(answer)?)
}

/// Accepts every client, and starts a task for each.
async fn serve(server: Endpoint) {
    while let Some(incoming) = server.accept().await {
        tokio::spawn(async move {
            if let Err(error) = answer(incoming).await {
                eprintln!("a client: {error}");
            }
        });
    }
}

/// Answers the streams of a client, one after the other.
async fn answer(incoming: Incoming) -> Result<(), Box<dyn Error + Send + Sync>> {
    let connection = incoming.await?;
    loop {
        let (mut send, mut receive) = match connection.accept_bi().await {
            Ok(streams) => streams,
            Err(ConnectionError::ApplicationClosed { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let all = receive.read_to_end(LIMIT).await?;
        send.write_all(&all).await?;
        send.finish()?;
    }
}
