//! Datagrams (RFC 9221): each is sent once and may be lost, so the client asks again where no answer comes.
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

/// The first `count` squares, by a server in this process that is asked for each in a datagram.
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

/// Asks until there is an answer.
async fn ask(connection: &Connection, number: u32) -> Result<u32, Box<dyn Error>> {
    loop {
        // Waits while the network takes no more; `send_datagram` would say that it is full.
        connection.send_datagram_wait(number.to_be_bytes().to_vec()).await?;
        let patience = 3 * connection.rtt() + Duration::from_millis(100);
        let Ok(answer) = timeout(patience, connection.read_datagram()).await else { continue };
        // An answer to an earlier question may be late.
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
        // Nobody waits for an answer that is late.
        let _ = connection.send_datagram(answer);
    }
}
