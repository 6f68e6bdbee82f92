//! A gateway in the process of another command: `equic serve --gateway-config`. A thread manages it
//! with the same loop as `equic gateway run`.

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use equic_console::manager::Manager;
use equic_gateway::{Attached, Config};
use tokio::sync::oneshot;

use super::changes::Changes;
use super::duties::{Duties, End, Source, Watched};
use super::keeper::{Keeper, Pace};
use super::links;
use crate::failure::{Failure, Result};
use crate::gateway::attach::Running;
use crate::gateway::{config_failure, metrics};
use crate::output::Journal;
use crate::signals::runtime;

/// A gateway that this process runs in addition to its main work. When the value is dropped, the
/// gateway's loop ends, and then the program is detached.
pub(crate) struct Hosted {
    running: Arc<Running>,
    config: Config,
    /// The listening socket for the metrics, until the loop starts.
    metrics: Option<TcpListener>,
    keeper: Option<HostedKeeper>,
}

/// The thread of the gateway's loop. The loop ends when `_stop` is dropped.
struct HostedKeeper {
    _stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// Reads the configuration of a gateway for a [`Hosted`].
///
/// # Errors
/// The file is invalid, names no interface, or has a key that only `equic gateway run` supports.
pub(crate) fn read(file: &Path) -> Result<Config> {
    let config = Config::read(file).map_err(config_failure)?;
    let unsupported = unsupported(file, &config);
    if !unsupported.is_empty() {
        let lines = unsupported.iter().map(|key| {
            format!(
                "{}: {key}: a gateway within a server does not support this key: remove the key, or run the gateway with `equic gateway run --config`, and the server with --gateway",
                file.display()
            )
        });
        return Err(Failure::Invalid(lines.collect::<Vec<_>>().join("\n")));
    }
    if config.gateway.interfaces.is_empty() {
        return Err(Failure::usage(format!(
            "the configuration {} names no interface: set `interfaces` in its table [gateway]",
            file.display()
        )));
    }
    Ok(config)
}

/// Returns the keys of the configuration that only `equic gateway run` supports.
fn unsupported(file: &Path, config: &Config) -> Vec<&'static str> {
    // The value `true` is also the default, so only the text says whether the operator relies on it.
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let table = text.parse::<toml::Table>().unwrap_or_default();
    let seccomp = table.get("gateway").and_then(|gateway| gateway.get("seccomp"));
    let given = [
        ("gateway.pin", config.gateway.pin.is_some()),
        ("gateway.seccomp", seccomp == Some(&toml::Value::Boolean(true))),
        ("gateway.socket", config.gateway.socket.is_some()),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect()
}

/// Opens the listening socket for the metrics, if the configuration enables them.
pub(crate) fn metrics_listener(config: &Config) -> Result<Option<TcpListener>> {
    config.gateway.metrics.map(metrics::bind).transpose()
}

impl Hosted {
    /// Takes over a started gateway with this configuration. [`Hosted::manage`] starts its loop.
    pub(crate) fn new(running: Running, config: Config, metrics: Option<TcpListener>) -> Hosted {
        Hosted { running: Arc::new(running), config, metrics, keeper: None }
    }

    /// Returns the interfaces to which the gateway was attached at its start. With `wait`, the loop
    /// attaches it later.
    pub(crate) fn attached(&self) -> &[Attached] {
        &self.running.attached
    }

    /// Starts the gateway's loop in a thread. The loop writes its events to the journal.
    pub(crate) fn manage(&mut self, journal: Journal) -> Result {
        let (running, config) = (Arc::clone(&self.running), self.config.clone());
        let listener = self.metrics.take();
        let (stop, stopped) = oneshot::channel();
        let (started, start) = mpsc::channel();
        let work = move || {
            let failed = started.clone();
            let run = || {
                runtime(Some(1))?
                    .block_on(manage(&running, config, listener, journal, stopped, &started))
            };
            if let Err(failure) = run() {
                // The receiver waits for this message or for that of the started loop.
                let _ = failed.send(Err(failure));
            }
        };
        let thread = std::thread::Builder::new()
            .name("equic-gateway".to_owned())
            .spawn(work)
            .map_err(|error| Failure::because("cannot start the gateway's thread", error))?;
        self.keeper = Some(HostedKeeper { _stop: stop, thread });
        start.recv().unwrap_or_else(|_| Err(Failure::new("the gateway's thread has ended")))
    }

    /// Ends the gateway's loop, and saves the state that it keeps. The gateway stays attached.
    pub(crate) fn stop_managing(&mut self) {
        if let Some(HostedKeeper { _stop: stop, thread }) = self.keeper.take() {
            drop(stop);
            // The thread does not panic, and the gateway ends anyway.
            let _ = thread.join();
        }
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.stop_managing();
    }
}

/// Runs the gateway's loop until the sender of `stopped` is dropped. Sends a message to `started`
/// when the loop starts.
async fn manage(
    running: &Running,
    config: Config,
    listener: Option<TcpListener>,
    journal: Journal,
    mut stopped: oneshot::Receiver<()>,
    started: &mpsc::Sender<Result>,
) -> Result {
    let links = links(&journal);
    let control = running.gateway.control().clone();
    let scrapes = match listener {
        Some(listener) => metrics::start(listener, &control, &journal)?,
        None => metrics::LastError::default(),
    };
    let watched = Watched { changes: Changes::new(&control), scrapes, links };
    let pace = Pace { look: config.gateway.poll_every, summary: None };
    // The process does not read the file again, because SIGHUP ends the server.
    let configure = Box::new(|| Err(Failure::new("this process cannot reload its configuration")));
    let source = Source { file: None, configure, end: End::Never };
    let duties = Duties::new(&running.gateway, config, source, watched, &journal);
    let mut keeper = Keeper::new(duties, control, None, journal, pace);
    let _ = started.send(Ok(()));
    let end = async || {
        // The sender sends nothing. It is dropped to end the loop.
        let _ = (&mut stopped).await;
        "the server ends"
    };
    keeper.keep(end, running, &Manager::none()).await;
    keeper.finish();
    Ok(())
}
