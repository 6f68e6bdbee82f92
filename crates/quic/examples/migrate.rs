//! A client that migrates to another address during a connection (RFC 9000 s.9), like a phone that
//! leaves a wireless network. The connection continues.
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

/// Returns the client's addresses, as the server sees them before and after the migration.
pub(crate) async fn migrate() -> Result<(SocketAddr, SocketAddr), Box<dyn Error>> {
    let (server_config, client_config) = local::configs(b"where")?;
    let server = Endpoint::server(server_config, "127.0.0.1:0".parse()?)?;
    let address = server.local_addr()?;
    tokio::spawn(serve(server));

    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let connection = client.connect_with(&client_config, address, local::NAME)?.await?;
    let before = ask(&connection).await?;
    // All connections of the endpoint migrate to the new socket. They use connection IDs that were
    // not used at the old address, so that observers cannot link the two.
    client.rebind(UdpSocket::bind("127.0.0.1:0")?)?;
    let after = ask(&connection).await?;
    Ok((before, after))
}

/// Asks the server for the address at which it sees this client.
async fn ask(connection: &Connection) -> Result<SocketAddr, Box<dyn Error>> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(b"?").await?;
    send.finish()?;
    Ok(String::from_utf8(receive.read_to_end(100).await?)?.parse()?)
}

/// Answers each stream with the client's address.
async fn serve(server: Endpoint) -> Option<()> {
    let connection = server.accept().await?.await.ok()?;
    loop {
        let (mut send, mut receive) = connection.accept_bi().await.ok()?;
        receive.read_to_end(1).await.ok()?;
        send.write_all(connection.remote_address().to_string().as_bytes()).await.ok()?;
        send.finish().ok()?;
    }
}
