//! Metrics of a gateway for Prometheus, over HTTP. `equic gateway metrics` serves the metrics of a
//! gateway that any process runs. `equic gateway run --metrics` serves the metrics of the gateway
//! that it runs itself.
//!
//! * [`source`] finds the gateway, and finds it again after it was replaced.
//! * [`families`] converts the gateway's state to metric families.
//! * [`server`] is the HTTP server, with limits against hostile clients.
//!
//! There are no series per source address, because attackers control the number of sources, and
//! Prometheus keeps every label value that it has ever seen. `equic gateway watch` and `sources`
//! show sources.
//!
//! The crate `prometheus` writes the text format 0.0.4, which `promtool check metrics` reads. hyper
//! serves it over HTTP/1, one request per connection.

use std::net::SocketAddr;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};

use equic_gateway::Control;
use serde_json::json;

use super::Target;
use crate::failure::{Failure, Result};
use crate::output::{self, Journal};
use crate::signals::{Signals, runtime};
use crate::values::socket_address;

mod families;
mod server;
mod source;

use source::{Source, Tell};

/// Serves metrics to Prometheus about a gateway that another process runs. Waits while no such
/// gateway runs.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  equic gateway metrics --listen 127.0.0.1:9433     then scrape http://127.0.0.1:9433/metrics
  equic gateway metrics --once                      for a textfile collector

The metrics have no access control: choose an address that only your monitoring
system can reach.")]
pub(crate) struct Args {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address, default_value = "127.0.0.1:9433")]
    listen: SocketAddr,
    /// Print the metrics once and exit
    #[arg(long, conflicts_with_all = ["listen", "json"])]
    once: bool,
    #[command(flatten)]
    target: Target,
    /// Print JSON lines (schema equic.gateway.metrics/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result {
    if args.once {
        let control = args.target.open()?;
        return output::text(families::text(&mut families::Memory::default(), Some(&control))?);
    }
    let journal = Journal::new(args.json, "equic.gateway.metrics/1");
    let source = Source::find(args.target.gateway.clone(), notices())?;
    runtime(Some(1))?.block_on(async {
        let mut signals = Signals::new()?;
        serve(bind(args.listen)?, source, &journal)?;
        let why = signals.next().await;
        journal.entry(format_args!("left: {why}"), || json!({ "event": "left", "why": why }));
        Ok(())
    })
}

/// Error of the last attempt to read the gateway, or `None` if it succeeded. `gateway run` reports
/// the error as a condition.
pub(super) type LastError = Arc<Mutex<Option<String>>>;

/// Serves metrics of this process's gateway until the runtime ends. Must be called inside a
/// runtime. Returns the error of the last scrape, shared with the server.
pub(super) fn start(
    listener: TcpListener,
    control: &Control,
    journal: &Journal,
) -> Result<LastError> {
    let trouble = LastError::default();
    let told = Arc::clone(&trouble);
    let tell = move |what: Option<&str>| {
        *told.lock().unwrap_or_else(PoisonError::into_inner) = what.map(str::to_owned);
    };
    serve(listener, Source::of(control.clone(), Box::new(tell)), journal)?;
    Ok(trouble)
}

/// Returns a function that prints to standard error when reading the gateway starts to fail, when
/// the error changes, and when reading succeeds again.
fn notices() -> Tell {
    let last = Mutex::new(None::<String>);
    Box::new(move |what| {
        let now = what.map(str::to_owned);
        let before = std::mem::replace(
            &mut *last.lock().unwrap_or_else(PoisonError::into_inner),
            now.clone(),
        );
        match now {
            Some(why) if before.as_ref() != Some(&why) => {
                output::notice(format_args!("the metrics cannot be read from the gateway: {why}"));
            }
            None if before.is_some() => {
                output::notice("the metrics can be read from the gateway again")
            }
            _ => {}
        }
    })
}

/// Opens the listening socket.
///
/// # Errors
/// The address is in use, or it is not an address of this machine.
pub(super) fn bind(listen: SocketAddr) -> Result<TcpListener> {
    let failed = |error: std::io::Error| {
        let help = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process listens on this port (`ss -ltnp` shows which): choose another port"
            }
            std::io::ErrorKind::AddrNotAvailable => {
                "no network interface of this machine has this address: choose another one"
            }
            _ => "choose another address or port",
        };
        Failure::because(format_args!("cannot listen on {listen}"), error).help(help)
    };
    let listener = TcpListener::bind(listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn serve(listener: TcpListener, source: Source, journal: &Journal) -> Result {
    let failed = |error| Failure::because("cannot listen", error);
    let address = listener.local_addr().map_err(failed)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
    tokio::spawn(server::serve(listener, source));
    journal.entry(
        format_args!("serving metrics on http://{address}/metrics"),
        || json!({ "event": "metrics", "address": address }),
    );
    Ok(())
}
