//! Implements quinn's trait `Controller` (congestion control) with the functions of a plugin.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use equic_plugin::{Anchor, DEFAULT, DONE};
use equic_transport::operation::Operation;
use equic_vm::{Instance, Region};
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics, NewRenoConfig};

use crate::host::{Abi, Context, WORDS, least};
use crate::{Controllers, OPERATIONS, Path, PluginCall, at};

/// Initial congestion window, in datagrams (RFC 9002 s.7.2).
const INITIAL: u64 = 10;
/// Round-trip time that is assumed before the first sample (RFC 9002 s.6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);

impl ControllerFactory for Controllers {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let datagram_size = u64::from(mtu);
        let path = Path {
            window: INITIAL * datagram_size,
            threshold: u64::MAX,
            in_flight: 0,
            datagram_size,
            smoothed_rtt: nanoseconds(INITIAL_RTT),
            min_rtt: nanoseconds(INITIAL_RTT),
            latest_rtt: nanoseconds(INITIAL_RTT),
        };
        let control = match self.plugin.program.instantiate() {
            Ok(machine) => Control::Plugin(Mutex::new(machine)),
            Err(error) => {
                tracing::warn!(%error, "no memory for a plugin: using quinn's NewReno");
                Control::Quinn(new_reno(path.window, now, mtu))
            }
        };
        let initial = path.window;
        Box::new(Bytecode { controllers: (*self).clone(), control, path, initial, began: now })
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the controller that replaces a failed plugin: quinn's NewReno, which starts with the
/// plugin's last window.
fn new_reno(window: u64, now: Instant, mtu: u16) -> Box<dyn Controller> {
    let mut config = NewRenoConfig::default();
    config.initial_window(window);
    Arc::new(config).build(now, mtu)
}

/// The controller that currently makes the decisions for a path.
enum Control {
    /// The plugin. Its lock exists only for `clone_box`, which has a shared reference. No thread
    /// ever waits for the lock.
    Plugin(Mutex<Instance<Abi>>),
    /// quinn's own controller, which takes over after the plugin has failed.
    Quinn(Box<dyn Controller>),
}

/// The congestion controller of one path, whose decisions a plugin makes.
struct Bytecode {
    controllers: Controllers,
    control: Control,
    path: Path,
    initial: u64,
    /// Time at which the clock of the plugin started.
    began: Instant,
}

impl Bytecode {
    fn clock(&self, time: Instant) -> u64 {
        nanoseconds(time.saturating_duration_since(self.began))
    }

    /// Runs the plugin's functions for an operation, unless the plugin has failed.
    fn ask(&mut self, now: Instant, operation: Operation, words: &[u64]) {
        let clock = self.clock(now);
        let before = self.path;
        let ran = self.run(clock, operation, words);
        if let Err(reason) = &ran {
            let name = &self.controllers.plugin.manifest.name;
            tracing::warn!(plugin = %name, %reason, "the plugin failed: using quinn's NewReno");
            let mtu = u16::try_from(self.path.datagram_size).unwrap_or(u16::MAX);
            self.control = Control::Quinn(new_reno(self.path.window, now, mtu));
        }
        if ran != Ok(false)
            && let Some(listener) = &self.controllers.listener
        {
            listener(&PluginCall {
                now: clock,
                operation,
                words: words.to_vec(),
                before,
                after: self.path,
                failed: ran.err(),
            });
        }
    }

    /// Runs the plugin's functions for an operation. Returns `true` if one of them has the anchor
    /// `Replace`.
    ///
    /// # Errors
    /// Returns the reason if the plugin has failed.
    fn run(&mut self, now: u64, operation: Operation, words: &[u64]) -> Result<bool, String> {
        let Control::Plugin(machine) = &mut self.control else { return Ok(false) };
        let machine = machine.get_mut().unwrap_or_else(PoisonError::into_inner);
        let plugin = &self.controllers.plugin;
        let Some(place) = OPERATIONS.iter().position(|known| *known == operation) else {
            return Ok(false);
        };
        debug_assert!(words.len() as u64 * 8 <= WORDS);
        for anchor in [Anchor::Before, Anchor::Replace, Anchor::After] {
            let Some(entry) = plugin.functions[place][at(anchor)] else { continue };
            let room = Region::new(plugin.words, 8 * words.len() as u64);
            let mut memory = machine.memory();
            let room = memory.write(room).map_err(|error| error.to_string())?;
            for (place, word) in room.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            let mut context = Context {
                path: &mut self.path,
                now,
                manifest: &plugin.manifest,
                granted: &plugin.granted,
                looks_on: anchor != Anchor::Replace,
            };
            let mut budget = plugin.manifest.steps;
            let arguments = [plugin.words, 0, 0, 0, 0];
            let answer = machine
                .call(entry, arguments, &mut budget, &mut context)
                .map_err(|trap| format!("{operation}: {trap}"))?;
            match answer {
                _ if anchor != Anchor::Replace => {}
                DONE => {}
                // A plugin cannot return the default result here, because quinn's controllers do
                // not accept a window from outside.
                DEFAULT => {
                    return Err(format!(
                        "{operation}: the plugin asked for the default, which quinn cannot run"
                    ));
                }
                other => return Err(format!("{operation}: the plugin returned {other:#x}")),
            }
        }
        Ok(plugin.functions[place][at(Anchor::Replace)].is_some())
    }
}

impl Controller for Bytecode {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        if let Control::Quinn(other) = &mut self.control {
            return other.on_sent(now, bytes, last_packet_number);
        }
        self.path.in_flight = self.path.in_flight.saturating_add(bytes);
        self.ask(now, Operation::CongestionSent, &[0, bytes, self.path.in_flight]);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        if let Control::Quinn(other) = &mut self.control {
            return other.on_ack(now, sent, bytes, app_limited, rtt);
        }
        self.path.smoothed_rtt = nanoseconds(rtt.get());
        self.path.min_rtt = nanoseconds(rtt.min());
        self.path.latest_rtt = nanoseconds(now.saturating_duration_since(sent));
        let words = [0, bytes, self.path.in_flight, u64::from(app_limited)];
        self.ask(now, Operation::CongestionAcked, &words);
        self.path.in_flight = self.path.in_flight.saturating_sub(bytes);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest: Option<u64>,
    ) {
        // Only quinn knows which bytes were lost. So the number that quinn reports replaces the
        // plugin's.
        self.path.in_flight = in_flight;
        if let Control::Quinn(other) = &mut self.control {
            other.on_end_acks(now, in_flight, app_limited, largest);
        }
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, lost: u64) {
        if let Control::Quinn(other) = &mut self.control {
            return other.on_congestion_event(now, sent, persistent, lost);
        }
        let words = [0, self.clock(sent), u64::from(lost == 0), lost];
        self.ask(now, Operation::CongestionEvent, &words);
        // RFC 9002 s.7.6.2: persistent congestion resets the window. On eQUIC's own connections,
        // persistent congestion is a separate operation, which no controller decides.
        if persistent {
            self.path.window = least(self.path.datagram_size);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.path.datagram_size = u64::from(new_mtu);
        self.path.window = self.path.window.max(least(self.path.datagram_size));
        if let Control::Quinn(other) = &mut self.control {
            other.on_mtu_update(new_mtu);
        }
    }

    fn window(&self) -> u64 {
        match &self.control {
            Control::Plugin(_) => self.path.window,
            Control::Quinn(other) => other.window(),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        if let Control::Quinn(other) = &self.control {
            return other.metrics();
        }
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.path.window;
        metrics.ssthresh = Some(self.path.threshold);
        metrics
    }

    /// Copies the controller for a path that replaces this path. The plugin's variables keep their
    /// values.
    fn clone_box(&self) -> Box<dyn Controller> {
        let control = match &self.control {
            Control::Plugin(machine) => match copy(machine) {
                Some(copy) => Control::Plugin(Mutex::new(copy)),
                None => {
                    tracing::warn!("no memory for a plugin: using quinn's NewReno");
                    let mtu = u16::try_from(self.path.datagram_size).unwrap_or(u16::MAX);
                    Control::Quinn(new_reno(self.path.window, self.began, mtu))
                }
            },
            Control::Quinn(other) => Control::Quinn(other.clone_box()),
        };
        let (controllers, path) = (self.controllers.clone(), self.path);
        let (initial, began) = (self.initial, self.began);
        Box::new(Bytecode { controllers, control, path, initial, began })
    }

    fn initial_window(&self) -> u64 {
        self.initial
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Returns a new instance of the plugin with a copy of the memory.
fn copy(machine: &Mutex<Instance<Abi>>) -> Option<Instance<Abi>> {
    let mut machine = machine.lock().unwrap_or_else(PoisonError::into_inner);
    let mut copy = machine.program().instantiate().ok()?;
    let all = Region::new(0, machine.memory().size() as u64);
    copy.memory().write(all).ok()?.copy_from_slice(machine.memory().read(all).ok()?);
    Some(copy)
}
