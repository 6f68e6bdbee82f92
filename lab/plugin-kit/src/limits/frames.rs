//! Measures what exchange frames cost the end that receives them.

use std::sync::Arc;
use std::time::Duration;

use equic_plugin::exchange::{
    ExchangeConfig, Frame, Kind, MAX_OFFERS, MemoryCache, PluginId, Push,
};
use equic_plugin::{Accounts, Origin, Usage, pack};
use equic_transport::TransportConfig;
use equic_transport::operation::{
    AttachPoint, Bytes, Call, Decision, Hook, HookContext, HookError, HookId, Operation, OwnFrame,
};

use super::{Charged, charge, head, link, operation};
use crate::clang::compile_text_with;
use crate::network::End;
use crate::pair::{Pair, TrialError};

/// Number of plugins that keep running while the last one is replaced.
const STAYING: usize = 15;

/// Number of frame types that each plugin defines, which is the policy's limit.
const FRAME_TYPES: usize = 4;

/// A connection with the maximum number of plugins and frame types. The server repeatedly replaces
/// the last plugin. The client has the new plugin's bundle in its cache.
pub struct Replacing {
    pair: Pair,
    push: Arc<Push>,
    offered: u64,
    charged: Charged,
}

/// Returns a plugin with the maximum number of functions.
fn attached_to_all(number: usize) -> Result<Arc<Push>, TrialError> {
    let of_frames = [
        ("WriteFrame", "replace"),
        ("ProcessFrame", "replace"),
        ("ParseFrame", "replace"),
        ("FrameAcked", "replace"),
        ("FrameLost", "replace"),
        ("FrameLost", "before"),
    ];
    let (mut manifest, mut frames) = (String::new(), String::new());
    for frame in 0..FRAME_TYPES {
        let frame = 0x1f00 + 16 * number + 2 * frame;
        frames += &format!("[[frames]]\ntype = {frame}\nack-eliciting = true\n");
        for (name, anchor) in of_frames {
            manifest += &operation(name, anchor, "run");
            manifest += &format!("frame = {frame}\n");
        }
    }
    // There are already 24 functions for frames. Add eight for other operations, so that there are
    // 32.
    for name in super::OFTEN.iter().take(8) {
        manifest += &operation(name, "before", "run");
    }
    let head = head(&format!("all-{number}"), "\"observe\", \"tune\", \"frames\"", 16_384);
    let text = "equic_u64 run(void) { return 0; }";
    let object = compile_text_with("all", text, &[]).map_err(TrialError::of)?;
    let bundle = pack(&(head + &frames + &manifest), &object, None).map_err(TrialError::of)?;
    Ok(Arc::new(Push::new(&bundle).map_err(TrialError::of)?))
}

impl Replacing {
    /// Establishes the connection.
    ///
    /// # Errors
    /// A plugin cannot be built, or the connection cannot be established.
    pub fn new() -> Result<Replacing, TrialError> {
        let push = (0..=STAYING).map(attached_to_all).collect::<Result<Vec<_>, _>>()?;
        let last = Arc::clone(&push[STAYING]);
        let accounts = Arc::new(Accounts::default());
        let charged = Charged::of(&accounts);
        let adjust = |config: &mut ExchangeConfig| {
            charge(config, &accounts);
            config.cache = Some(Arc::new(MemoryCache::new(1 << 20)));
        };
        let both = [TransportConfig::default(), TransportConfig::default()];
        let mut pair = Pair::connect_with(&link(Some(100_000_000)), both, push, 1, adjust)?;
        pair.settle()?;
        Ok(Replacing { pair, push: last, offered: STAYING as u64, charged })
    }

    /// Replaces the last plugin this many times, at most 200.
    ///
    /// # Errors
    /// The connection ends.
    pub fn replace(&mut self, times: usize) -> Result<(), TrialError> {
        for _ in 0..times {
            let last = PluginId { by: Origin::Own, number: self.offered };
            self.pair.offer(End::Server, Arc::clone(&self.push), Some(last))?;
            self.offered += 1;
            self.pair.network.pass(Duration::from_millis(20)).map_err(TrialError::of)?;
        }
        Ok(())
    }

    /// Returns the number of plugins that run at the client.
    pub fn running(&self) -> usize {
        super::running(&self.pair)
    }

    /// Returns the steps and memory that the plugins' address was charged for.
    pub fn usage(&self) -> Usage {
        self.charged.usage()
    }
}

/// A hook that sends the frames of the plugin exchange in violation of the exchange's rules. For
/// each message of the application, it queues a round of frames, several per packet.
struct Flood {
    kind: Kind,
    /// Number of frames of this round that must still be queued.
    left: u64,
}

impl Flood {
    fn queue(&mut self, host: &mut HookContext<'_>) {
        while self.left > 0 && host.queue_frame(self.kind.frame_type(), self.left).is_ok() {
            self.left -= 1;
        }
    }
}

impl Hook for Flood {
    fn replace(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let answer = match (call.operation, &mut call.bytes) {
            (Operation::WriteFrame, Bytes::Out(room)) => {
                let plugin = call.inputs.get(1).copied().unwrap_or(0) % MAX_OFFERS;
                let length = Frame::Detach { plugin }.write(room).unwrap_or(0);
                self.queue(host);
                length as u64
            }
            (Operation::ParseFrame, bytes) => {
                let mut reader = equic_wire::Reader::new(bytes.as_slice());
                let all = reader.len();
                let whole = reader.varint().and_then(|_| reader.varint_bytes());
                whole.map_or(0, |_| (all - reader.len()) as u64)
            }
            _ => 1,
        };
        if let Some(first) = outputs.first_mut() {
            *first = answer;
        }
        Ok(Decision::Done)
    }

    fn after(
        &mut self,
        host: &mut HookContext<'_>,
        _call: &Call<'_>,
        _outputs: &[u64],
    ) -> Result<(), HookError> {
        self.left = ROUND;
        self.queue(host);
        Ok(())
    }
}

/// Number of frames in a round, and the number of rounds after which the flood stops.
const ROUND: u64 = 2_000;
const ROUNDS: u64 = 50;
const ROUND_TIME: Duration = Duration::from_millis(20);

/// A connection on which a server sends packets that are full of frames of the plugin exchange.
pub struct Flooded {
    pair: Pair,
    hook: HookId,
}

impl Flooded {
    /// Establishes the connection.
    ///
    /// # Errors
    /// The connection cannot be established.
    pub fn new() -> Result<Flooded, TrialError> {
        let mut pair = Pair::with_bare_server(&link(Some(100_000_000)), 1)?;
        let points = Kind::ALL.iter().flat_map(|kind| {
            [Operation::ParseFrame, Operation::ProcessFrame, Operation::WriteFrame]
                .map(|operation| AttachPoint::replace(operation).of_frame(kind.frame_type()))
        });
        let message = AttachPoint::observe(Operation::HookMessage);
        let points: Vec<AttachPoint> =
            points.chain([AttachPoint { before: false, ..message }]).collect();
        let own: Vec<OwnFrame> =
            Kind::ALL.iter().map(|kind| OwnFrame::new(kind.frame_type())).collect();
        let server = pair.network.connection(End::Server);
        let server = server.ok_or_else(|| TrialError::of("there is no connection"))?;
        let flood = Box::new(Flood { kind: Kind::Detach, left: 0 });
        let hook = server.attach_with_frames(flood, &points, &own).map_err(TrialError::of)?;
        Ok(Flooded { pair, hook })
    }

    /// Sends frames until the client closes the connection. Returns the number of frames that were
    /// queued, rounded up to a full round.
    ///
    /// # Errors
    /// The client does not close the connection because of too many frames.
    pub fn send(&mut self) -> Result<u64, TrialError> {
        for round in 1..=ROUNDS {
            let server = self.pair.network.connection(End::Server);
            let server = server.ok_or_else(|| TrialError::of("there is no connection"))?;
            server.tell_hook(self.hook, &[]).map_err(TrialError::of)?;
            let (waits, mut since) = ("the frames are not sent in time", None);
            let passed = self.pair.network.run_until(ROUND_TIME * 2, waits, |network| {
                let begun = *since.get_or_insert(network.elapsed());
                network.elapsed() >= begun + ROUND_TIME
            });
            match passed {
                Ok(()) => {}
                Err(stuck) if stuck.to_string().contains("too many frames") => {
                    return Ok(round * ROUND);
                }
                Err(stuck) => return Err(TrialError::of(stuck)),
            }
        }
        Err(TrialError::of(
            "the client did not close the connection, although it received too many frames",
        ))
    }
}
