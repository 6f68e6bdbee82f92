//! Runs the plugin exchange on a connection, as a native hook that handles the exchange's frame
//! types. The transport does loss detection, congestion control and acknowledgement for these
//! frames.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use equic_transport::operation::{
    AttachError, AttachPoint, Bytes, Call, Decision, Field, Hook, HookContext, HookError,
    HookEvent, HookId, Operation, OwnFrame,
};

use equic_wire::Side;

use super::config::{ExchangeConfig, PluginId, Push};
use super::frame::{DATA_HEAD, Kind, Status, length};
use super::machine::{Exchange, Sent};
use super::plugins::Plugins;
use super::violation::{PLUGIN_VIOLATION, Violation};

/// Maximum time between two checks for expired plugins. The limit is needed because the system's
/// clock may be changed between the checks.
const LOOK: Duration = Duration::from_secs(60);

/// Minimum number of bundle bytes in a DATA frame. A smaller frame would be mostly header.
const MIN_DATA: usize = 32;

/// Operations that the hook replaces for the exchange's frame types.
const OF_FRAMES: [Operation; 5] = [
    Operation::ParseFrame,
    Operation::ProcessFrame,
    Operation::WriteFrame,
    Operation::FrameAcked,
    Operation::FrameLost,
];

/// The application's handle of the exchange on a connection. A request takes effect at the next
/// call of [`Connection::tell_hook`](equic_transport::Connection::tell_hook), whatever its message
/// is.
#[derive(Clone)]
pub struct ExchangeHandle(Arc<Mutex<Exchange>>);

impl ExchangeHandle {
    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls [`Exchange::offer`].
    pub fn offer(&self, push: Arc<Push>, replaces: Option<PluginId>) {
        self.lock().offer(push, replaces);
    }

    /// Calls [`Exchange::detach`].
    pub fn detach(&self, id: PluginId) -> bool {
        self.lock().detach(id)
    }

    /// Calls [`Exchange::memory`].
    pub fn memory(&self) -> usize {
        self.lock().memory()
    }
}

/// The plugin exchange on a connection, as a native hook. The connection must declare
/// [`ExchangeConfig::parameter`]. Attach the hook before the connection's first packet, with
/// [`ExchangeHook::points`] and [`ExchangeHook::frames`].
pub struct ExchangeHook {
    shared: ExchangeHandle,
    plugins: Plugins,
    /// Kinds of frames that are queued in the transport, at most one frame of each kind.
    queued: BTreeSet<Kind>,
    /// Contents of the frames in flight, by token. If a frame is lost, its content is sent again.
    sent: BTreeMap<u64, Sent>,
    /// Token of the next frame. The transport identifies the exchange's frames by their tokens.
    next: u64,
    /// True while stream data is held back until the peer has answered this end's offers.
    holds: bool,
    /// True after the peer broke a rule of the exchange. The hook then does nothing more.
    over: bool,
}

impl ExchangeHook {
    /// Creates the exchange of a new connection, and the application's handle of it.
    pub fn new(config: Arc<ExchangeConfig>) -> (ExchangeHook, ExchangeHandle) {
        let shared = ExchangeHandle(Arc::new(Mutex::new(Exchange::new(config))));
        let hook = ExchangeHook {
            shared: shared.clone(),
            plugins: Plugins::default(),
            queued: BTreeSet::new(),
            sent: BTreeMap::new(),
            next: 0,
            holds: false,
            over: false,
        };
        (hook, shared)
    }

    /// Attaches the exchange to a connection that has not sent anything yet.
    ///
    /// # Errors
    /// The exchange conflicts with another hook. In this case, nothing is attached.
    pub fn attach(
        config: Arc<ExchangeConfig>,
        attach: impl FnOnce(Box<dyn Hook>, &[AttachPoint], &[OwnFrame]) -> Result<HookId, AttachError>,
    ) -> Result<(HookId, ExchangeHandle), AttachError> {
        let (hook, handle) = ExchangeHook::new(config);
        let id = attach(Box::new(hook), &ExchangeHook::points(), &ExchangeHook::frames())?;
        Ok((id, handle))
    }

    /// Returns the operations that the hook attaches to: those that handle its frames, and some
    /// that report events.
    pub fn points() -> Vec<AttachPoint> {
        let after = |operation| AttachPoint { before: false, ..AttachPoint::observe(operation) };
        let of_frames = Kind::ALL.iter().flat_map(|kind| {
            OF_FRAMES.map(|operation| AttachPoint::replace(operation).of_frame(kind.frame_type()))
        });
        let told = [
            Operation::ReadParameters,
            Operation::HandshakeConfirmed,
            Operation::HookMessage,
            Operation::HookTimer,
        ];
        let life = told.map(after);
        of_frames.chain(life).collect()
    }

    /// Returns the frame types that the plugin exchange uses.
    pub fn frames() -> Vec<OwnFrame> {
        Kind::ALL.iter().map(|kind| OwnFrame::new(kind.frame_type())).collect()
    }

    /// Carries out pending work: attaches and detaches plugins, queues frames, or closes the
    /// connection if `outcome` is an error.
    fn pump(&mut self, host: &mut HookContext<'_>, outcome: Result<(), Violation>) {
        if self.over {
            return;
        }
        if let Err(violation) = outcome {
            self.over = true;
            // This cannot fail, because it is the first request to close the connection.
            let _ = host.close(PLUGIN_VIOLATION, &violation.to_string());
            return;
        }
        let mut exchange = self.shared.lock();
        if let Some(seconds) = exchange.check_expiry() {
            host.set_timer(Some(host.now() + Duration::from_secs(seconds).min(LOOK)));
        }
        while let Some(action) = exchange.poll_action() {
            self.plugins.act(host, &mut exchange, action);
        }
        self.plugins.refresh(host, &exchange);
        if self.holds && !exchange.is_waiting() {
            self.holds = false;
            let _ = host.hold_streams(None);
        }
        for kind in Kind::ALL {
            if exchange.wants(kind) && !self.queued.contains(&kind) {
                if host.queue_frame(kind.frame_type(), self.next).is_err() {
                    return;
                }
                self.next += 1;
                self.queued.insert(kind);
            }
        }
    }

    /// Writes a frame of this kind into the space that is left in a packet. Returns the frame's
    /// length, or 0 if there was nothing to write or it did not fit.
    fn write(
        &mut self,
        host: &mut HookContext<'_>,
        kind: Kind,
        token: u64,
        buffer: &mut [u8],
    ) -> usize {
        let mut exchange = self.shared.lock();
        if self.over || !exchange.wants(kind) {
            self.queued.remove(&kind);
            return 0;
        }
        let mut most = buffer.len();
        if kind == Kind::Data {
            if host.get(Field::ApplicationWaits) != 0 {
                let share = most * usize::from(exchange.config().share.min(100)) / 100;
                most = most.min(share.max(DATA_HEAD + MIN_DATA));
            }
            if most < DATA_HEAD + MIN_DATA {
                // The transport calls again for the next packet.
                return 0;
            }
        }
        let written = exchange.write(kind, &mut buffer[..most]);
        let Some((length, sent)) = written else { return 0 };
        self.queued.remove(&kind);
        self.sent.insert(token, sent);
        length
    }
}

impl Hook for ExchangeHook {
    fn replace(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let Some(kind) = Kind::of(call.parameter) else { return Ok(Decision::Default) };
        if (call.operation, kind) == (Operation::ProcessFrame, Kind::Offer) {
            self.shared.lock().set_taken(host.frame_types());
        }
        let (token, mut outcome) = (call.inputs.get(1).copied(), Ok(()));
        let mut answer = 1;
        match (call.operation, &mut call.bytes) {
            (Operation::ParseFrame, bytes) => {
                answer = length(bytes.as_slice()).unwrap_or(0) as u64;
            }
            (Operation::ProcessFrame, bytes) if !self.over => {
                let mut exchange = self.shared.lock();
                exchange.set_now(host.now().as_nanos());
                outcome = exchange.handle_frame(bytes.as_slice());
            }
            (Operation::WriteFrame, Bytes::Out(buffer)) => {
                answer = self.write(host, kind, token.unwrap_or(0), buffer) as u64;
            }
            (Operation::FrameAcked, _) => {
                let _ = call.inputs.first().and_then(|token| self.sent.remove(token));
            }
            (Operation::FrameLost, _) => {
                let sent = call.inputs.first().and_then(|token| self.sent.remove(token));
                if let Some(sent) = sent {
                    self.shared.lock().on_lost(sent);
                }
            }
            _ => {}
        }
        if let Some(first) = outputs.first_mut() {
            *first = answer;
        }
        if call.operation != Operation::ParseFrame {
            self.pump(host, outcome);
        }
        Ok(Decision::Done)
    }

    fn after(
        &mut self,
        host: &mut HookContext<'_>,
        call: &Call<'_>,
        _outputs: &[u64],
    ) -> Result<(), HookError> {
        self.shared.lock().set_taken(host.frame_types());
        let outcome = match call.operation {
            Operation::ReadParameters => {
                let mut exchange = self.shared.lock();
                let server = host.get(Field::Side) != 0;
                exchange.set_side(if server { Side::Server } else { Side::Client });
                host.share_frames(exchange.config().share);
                exchange.handle_parameters(call.bytes.as_slice())
            }
            Operation::HandshakeConfirmed => {
                let mut exchange = self.shared.lock();
                exchange.handle_confirmed();
                let hold = exchange.config().hold;
                if !hold.is_zero() && exchange.is_waiting() {
                    // If this fails, another hook already holds stream data back and decides when
                    // to release it.
                    self.holds = host.hold_streams(Some(host.now() + hold)).is_ok();
                }
                Ok(())
            }
            _ => Ok(()),
        };
        self.pump(host, outcome);
        Ok(())
    }

    fn on_event(&mut self, host: &mut HookContext<'_>, event: &HookEvent) -> Result<(), HookError> {
        {
            let mut exchange = self.shared.lock();
            match event {
                HookEvent::Attached { token, outcome } => {
                    self.plugins.on_attached(host, &mut exchange, *token, outcome);
                }
                HookEvent::Failed { hook, error } => {
                    if let Some(id) = self.plugins.on_failed(*hook) {
                        exchange.on_failed(id, Status::Failed, &error.0);
                    }
                }
                _ => {}
            }
        }
        self.pump(host, Ok(()));
        Ok(())
    }

    fn memory(&self) -> usize {
        self.shared.memory() + self.sent.len() * size_of::<(u64, Sent)>()
    }
}
