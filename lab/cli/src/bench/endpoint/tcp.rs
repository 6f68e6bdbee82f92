//! `equic-lab bench endpoint tcp`: TLS over TCP, for comparison with QUIC.

use equic_bench_contract::tcp::{self, Library};
use equic_bench_contract::{Protocol, Role, command, report};
use rustls::crypto::aws_lc_rs;

/// Runs the server or the client over TLS and TCP.
pub(super) async fn run(role: Role) -> anyhow::Result<()> {
    let tls = report(include_str!("../../../../../Cargo.lock"), "rustls");
    let library = Library {
        name: format!("TCP, {tls}"),
        crypto: "aws-lc-rs",
        provider: aws_lc_rs::default_provider(),
        ticketer: aws_lc_rs::Ticketer::new()?,
    };
    match role {
        Role::Server(server) => tcp::serve(&server, library).await,
        Role::Client(client) => tcp::ask(&client, library).await,
    }
}

/// Parses the arguments that follow the word `tcp`.
pub(super) fn parse(words: &[String]) -> anyhow::Result<Role> {
    command::parse(words.iter().cloned(), &[Protocol::PerfTcp])
}
