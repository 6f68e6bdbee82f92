//! A client moves to another address in the middle of a connection (RFC 9000 s.9), as a phone does that
//! leaves a wireless network; the connection goes on.
//!
//!     cargo run -p equic-quic --example migrate

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};

use equic_quic::{Connection, Endpoint};

mod local;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (before, after) = migrate().await?;
    println!("the server saw the client at {before}, then at {after}");
    Ok(())
}

/// Addresses of a client that its server saw before and after it moved.
pub(crate) async fn migrate() -> Result<(SocketAddr, SocketAddr), Box<dyn Error>> {
    let (server_config, client_config) = local::configs(b"where")?;
    let server = Endpoint::server(server_config, "127.0.0.1:0".parse()?)?;
    let address = server.local_addr()?;
    tokio::spawn(serve(server));

    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let connection = client.connect_with(&client_config, address, local::NAME)?.await?;
    let before = ask(&connection).await?;
    // All connections of the endpoint go on from the new socket, with connection IDs that nobody has seen
    // at the old one.
    client.rebind(UdpSocket::bind("127.0.0.1:0")?)?;
    let after = ask(&connection).await?;
    Ok((before, after))
}

/// The address at which the server sees this connection's client.
async fn ask(connection: &Connection) -> Result<SocketAddr, Box<dyn Error>> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(b"?").await?;
    send.finish()?;
    Ok(String::from_utf8(receive.read_to_end(100).await?)?.parse()?)
}

/// Tells a client, on each stream that it opens, the address at which it is seen.
async fn serve(server: Endpoint) -> Option<()> {
    let connection = server.accept().await?.await.ok()?;
    loop {
        let (mut send, mut receive) = connection.accept_bi().await.ok()?;
        receive.read_to_end(1).await.ok()?;
        send.write_all(connection.remote_address().to_string().as_bytes()).await.ok()?;
        send.finish().ok()?;
    }
}
