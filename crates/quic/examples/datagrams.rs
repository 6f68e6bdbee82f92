//! A client and a server that exchange datagrams (RFC 9221). Each datagram is sent once and may be
//! lost, so the client repeats its request if no answer arrives.
//!
//!     cargo run -p equic-quic --example datagrams

use std::error::Error;
use std::time::Duration;

use equic_quic::{Connection, Endpoint};
use tokio::time::timeout;

mod local;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    println!("{:?}", squares(10).await?);
    Ok(())
}

/// Returns the first `count` squares. The client sends one datagram for each to a server in this
/// process.
pub(crate) async fn squares(count: u32) -> Result<Vec<u32>, Box<dyn Error>> {
    let (server_config, client_config) = local::configs(b"square")?;
    let server = Endpoint::server(server_config, "127.0.0.1:0".parse()?)?;
    let address = server.local_addr()?;
    tokio::spawn(serve(server));

    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let connection = client.connect_with(&client_config, address, local::NAME)?.await?;
    if connection.max_datagram_size().is_none_or(|most| most < 8) {
        return Err("the server takes no datagrams".into());
    }
    let mut squares = Vec::new();
    for number in 1..=count {
        squares.push(ask(&connection, number).await?);
    }
    Ok(squares)
}

/// Repeats a request until an answer arrives.
async fn ask(connection: &Connection, number: u32) -> Result<u32, Box<dyn Error>> {
    loop {
        // This waits while the queue is full. `send_datagram` would return an error.
        connection.send_datagram_wait(number.to_be_bytes().to_vec()).await?;
        let patience = 3 * connection.rtt() + Duration::from_millis(100);
        let Ok(answer) = timeout(patience, connection.read_datagram()).await else { continue };
        // A late answer to an earlier request may arrive.
        let answer = <[u8; 8]>::try_from(&answer?[..])?;
        let [asked, square] = [&answer[..4], &answer[4..]]
            .map(|part| part.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)));
        if asked == number {
            return Ok(square);
        }
    }
}

/// Answers a number with that number and its square.
async fn serve(server: Endpoint) -> Option<()> {
    let connection = server.accept().await?.await.ok()?;
    loop {
        let datagram = connection.read_datagram().await.ok()?;
        let number = u32::from_be_bytes(datagram[..].try_into().ok()?);
        let answer = [number, number.wrapping_mul(number)].map(u32::to_be_bytes).concat();
        // An answer that cannot be sent now is dropped, because the client repeats its request.
        let _ = connection.send_datagram(answer);
    }
}
