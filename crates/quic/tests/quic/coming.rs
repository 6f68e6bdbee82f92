//! Checks that every call in the table of both APIs in `docs/quic.md` exists.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Context;

use equic_quic::operation::{AttachPoint, Hook, OwnFrame};
use equic_quic::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use equic_quic::{
    ClientConfig, Connecting, Connection, Endpoint, EndpointConfig, Incoming, NewConnection,
    PathStatus, RecvStream, SendStream, ServerConfig, TransportConfig, TransportErrorCode, VarInt,
};

type Done = Result<(), Box<dyn std::error::Error>>;

fn prepare(_: &mut NewConnection<'_>) {}

#[expect(dead_code, reason = "that it compiles is the test")]
fn configurations(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: rustls::RootCertStore,
    tls: (rustls::ServerConfig, rustls::ClientConfig),
    transport: TransportConfig,
) -> Done {
    let provider = equic_quic::default_provider()?;
    let _ = equic_quic::congestion::Algorithm::Bbr;
    let config = EndpointConfig::with_default_provider()?;
    let EndpointConfig { core: _, qlog: _, trace: _, subscriber: _, .. } = config;
    EndpointConfig::new(&provider)?;
    let transport = Arc::new(transport.with_max_mtu(1400));
    let _ = ServerConfig::with_single_cert(chain, key)?
        .with_alpn(&[b"protocol"])
        .with_transport(transport.clone());
    let _ = ServerConfig::new(tls.0).with_hooks(prepare);
    let _ = ClientConfig::with_platform_roots()?;
    let _ = ClientConfig::with_root_certificates(roots)?
        .with_alpn(&[b"protocol"])
        .with_transport(transport.clone());
    let _ = ClientConfig::new(tls.1).with_hooks(prepare);
    let TransportConfig {
        keep_exporter: _,
        congestion: _,
        initial_window: _,
        packet_threshold: _,
        time_threshold: _,
        initial_mtu: _,
        mtu_discovery: _,
        max_mtu: _,
        streams: _,
        datagram_receive_buffer: _,
        datagram_send_buffer: _,
        max_idle_timeout: _,
        keep_alive: _,
        max_paths: _,
        scheduler: _,
        ..
    } = &*transport;
    transport.validate()?;
    Ok(())
}

#[expect(dead_code, reason = "that it compiles is the test")]
async fn endpoints(
    addr: SocketAddr,
    server: ServerConfig,
    client: ClientConfig,
    config: EndpointConfig,
    code: VarInt,
) -> Done {
    let mut endpoint = Endpoint::client(addr)?;
    let _ = Endpoint::server(server.clone(), addr)?;
    let mut sockets = Endpoint::bind(addr, 1, None)?;
    endpoint.rebind(sockets.swap_remove(0))?;
    let _ = Endpoint::new(config, Some(server.clone()), sockets)?;
    drop(endpoint.connect_with(&client, addr, "name")?);
    endpoint.set_default_client_config(client);
    let connecting: Connecting = endpoint.connect(addr, "name")?;
    let connection = connecting.into_0rtt().map_err(|_| "no session")?;
    let _ = connection.handshake().await?;
    endpoint.set_server_config(Some(server.clone()));
    let next = async || endpoint.accept().await.ok_or("closed");
    let incoming: Incoming = next().await?;
    drop(incoming.accept()?);
    drop(next().await?.accept_with(&server)?);
    next().await?.retry();
    next().await?.refuse();
    next().await?.ignore();
    endpoint.stop_accepting();
    endpoint.close(code, "reason");
    endpoint.wait_idle().await;
    Ok(())
}

#[expect(dead_code, reason = "that it compiles is the test")]
async fn connections(
    connection: Connection,
    hook: Box<dyn Hook>,
    points: &[AttachPoint],
    frames: &[OwnFrame],
    cx: &mut Context<'_>,
    sink: equic_quic::event::JsonSeq<Vec<u8>>,
) -> Done {
    let _ = (connection.peer_identity(), connection.handshake_data());
    connection.export_keying_material(&mut [0; 32], b"label", b"context")?;
    let _ = (connection.open_bi().await?, connection.accept_bi().await?);
    let _ = (connection.open_uni().await?, connection.accept_uni().await?);
    let _ = (connection.poll_open_bi(cx), connection.poll_accept_bi(cx));
    connection.send_datagram(Vec::new())?;
    connection.send_datagram_wait(Vec::new()).await?;
    let _ = (connection.read_datagram().await?, connection.max_datagram_size());
    let _ = (connection.remote_address(), connection.local_ip(), connection.moves());
    let seen = connection.validated_address();
    let _ = connection.address_validated(seen).await?;
    let _ = (connection.stats().path, connection.rtt(), connection.update_keys());
    let id = connection.attach(hook, points)?;
    connection.tell_hook(id, b"message")?;
    let hook = connection.detach(id).ok_or("gone")?;
    connection.attach_with_frames(hook, points, frames)?;
    connection.subscribe(sink);
    connection.close(VarInt::ZERO, "reason");
    let _ = (connection.closed().await, connection.close_reason());
    Ok(())
}

#[expect(dead_code, reason = "that it compiles is the test")]
async fn addresses(endpoint: Endpoint, connection: Connection, ip: IpAddr) -> Done {
    endpoint.add_local_address(ip)?;
    connection.migrate(ip)?;
    let id = connection.open_path(ip).await?;
    connection.set_path_status(id, PathStatus::Backup)?;
    connection.set_path_cost(id, 1)?;
    connection.paths_changed(0).await?;
    let _ = connection.paths();
    connection.close_path(id, TransportErrorCode::NO_ERROR)?;
    endpoint.remove_local_address(ip);
    Ok(())
}

#[expect(dead_code, reason = "that it compiles is the test")]
async fn streams(
    mut send: SendStream,
    mut receive: RecvStream,
    code: VarInt,
    cx: &mut Context<'_>,
) -> Done {
    let _ = (send.write(b"data").await?, send.poll_write(cx, b"data"));
    send.write_all(b"data").await?;
    send.write_chunk("data".into()).await?;
    send.set_priority(send.priority()?)?;
    send.finish()?;
    send.reset(code);
    send.stopped().await?;
    let mut buffer = [0; 64];
    let _ = (receive.read(&mut buffer).await?, receive.poll_read(cx, &mut buffer));
    let _ = (receive.read_chunk().await?, receive.read_to_end(64).await?);
    let _ = (receive.read_with(64, |_| ()).await?, receive.poll_read_with(cx, 64, |_| ()));
    receive.stop(code);
    Ok(())
}

/// The last names of the paths in a table cell: `method` for `Type::method(argument)`.
fn names(cell: &str) -> Vec<&str> {
    let spans = cell.split('`').skip(1).step_by(2);
    let paths = spans.filter_map(|span| span.split_once("::"));
    paths.map(|(_, rest)| rest.split_once('(').map_or(rest, |(name, _)| name)).collect()
}

#[test]
fn api_table_compiles() {
    let (code, _) = include_str!("coming.rs").split_once("/// The last names").unwrap();
    let (_, table) = include_str!("../../../../docs/quic.md").split_once("## Both APIs").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| what"))
        .collect();
    assert!(rows.len() > 30, "{}", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 3, "{row}");
        let names = names(cells[2]);
        assert!(!names.is_empty(), "{row}");
        for name in names {
            let used = ["NAME(", "NAME: _", "NAME::"].map(|used| used.replace("NAME", name));
            let calls = |used: &String| {
                [".", "::", " "].iter().any(|before| code.contains(&format!("{before}{used}")))
            };
            assert!(used.iter().any(calls), "{name}: {row}");
        }
    }
}
