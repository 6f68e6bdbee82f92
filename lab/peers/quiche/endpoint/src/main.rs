//! quiche as an endpoint of the QUIC Interop Runner. It supports only version 1, sets no ECN marks,
//! and initiates no key update. As a client, it cannot restrict its cipher suites.

#![forbid(unsafe_code)]

mod client;
mod io;
mod server;

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use interop_contract::{Contract, MAX_REQUEST, hq_path};
use quiche::{Config, Connection, ConnectionId};

const BOTH: [&str; 7] =
    ["handshake", "transfer", "retry", "resumption", "zerortt", "http3", "multiconnect"];

fn main() -> Result<()> {
    let contract = Contract::read()?;
    let both = |more: &[&'static str]| [&BOTH[..], more].concat();
    contract.require(
        &both(&["versionnegotiation", "connectionmigration"]),
        &both(&["chacha20", "versionnegotiation", "connectionmigration"]),
    );
    if contract.server { server::serve(&contract) } else { client::fetch(&contract) }
}

fn config(contract: &Contract, version: u32) -> Result<Config> {
    let mut config = Config::new(version)?;
    let path = |name| {
        contract.cert(name).to_str().map(str::to_owned).context("the path is not valid UTF-8")
    };
    if contract.server {
        config.load_cert_chain_from_pem_file(&path("cert.pem")?)?;
        config.load_priv_key_from_pem_file(&path("priv.key")?)?;
    } else {
        config.load_verify_locations_from_file(&path("ca.pem")?)?;
        config.verify_peer(true);
    }
    config.set_application_protos(&[contract.alpn()])?;
    config.log_keys();
    if contract.is("zerortt") {
        config.enable_early_data();
    }
    config.set_max_idle_timeout(30_000);
    config.set_initial_max_data(512 << 10);
    config.set_initial_max_stream_data_bidi_local(256 << 10);
    config.set_initial_max_stream_data_bidi_remote(256 << 10);
    config.set_initial_max_stream_data_uni(256 << 10);
    config.set_initial_max_streams_bidi(100);
    config.set_initial_max_streams_uni(3);
    config.set_active_connection_id_limit(8);
    Ok(config)
}

/// Writes a key log if the environment asks for one.
fn log_keys(contract: &Contract, connection: &mut Connection) -> Result<()> {
    if let Some(path) = &contract.keylog {
        let file = std::fs::File::options().create(true).append(true).open(path)?;
        connection.set_keylog(Box::new(file));
    }
    Ok(())
}

fn random_id() -> Result<ConnectionId<'static>> {
    let mut id = vec![0; quiche::MAX_CONN_ID_LEN];
    getrandom::fill(&mut id).context("cannot get random numbers")?;
    Ok(ConnectionId::from_vec(id))
}

/// Provides the connection IDs that the peer needs to migrate. Returns the new IDs.
fn spare_ids(connection: &mut Connection) -> Result<Vec<ConnectionId<'static>>> {
    let mut made = Vec::new();
    while connection.is_established() && connection.scids_left() > 0 {
        let (id, mut token) = (random_id()?, [0; 16]);
        getrandom::fill(&mut token).context("cannot get random numbers")?;
        connection.new_scid(&id, u128::from_be_bytes(token), false)?;
        made.push(id);
    }
    Ok(made)
}

/// HTTP/0.9 streams of a server.
#[derive(Default)]
struct Hq {
    asked: HashMap<u64, Vec<u8>>,
    /// Responses by stream, each with the number of bytes that are already sent.
    answers: HashMap<u64, (Vec<u8>, usize)>,
}

impl Hq {
    fn go_on(&mut self, contract: &Contract, connection: &mut Connection) -> Result<()> {
        let mut buffer = [0; MAX_REQUEST];
        for stream in connection.readable().collect::<Vec<_>>() {
            while let Ok((len, fin)) = connection.stream_recv(stream, &mut buffer) {
                let request = self.asked.entry(stream).or_default();
                request.extend_from_slice(&buffer[..len]);
                anyhow::ensure!(request.len() <= MAX_REQUEST, "the request is too long");
                if fin {
                    let request = self.asked.remove(&stream).unwrap_or_default();
                    self.answers.insert(stream, (contract.file(hq_path(&request)?)?, 0));
                }
            }
        }
        self.answers.retain(|stream, (answer, sent)| {
            match connection.stream_send(*stream, &answer[*sent..], true) {
                Ok(more) => {
                    *sent += more;
                    *sent < answer.len()
                }
                Err(quiche::Error::Done) => true,
                Err(_) => false,
            }
        });
        Ok(())
    }
}
