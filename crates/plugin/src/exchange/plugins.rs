//! Attaches the plugins that came through the exchange as hooks of the connection. Also maintains
//! the list of frame types that the connection must skip while no plugin handles them.

use std::collections::{BTreeMap, VecDeque};

use equic_transport::operation::{
    AttachError, AttachPoint, Call, Decision, Hook, HookContext, HookError, HookEvent, HookId,
    Operation, OwnFrame, Provided, ProvidedCall,
};

use super::config::{Loaded, PluginId};
use super::frame::{Status, length};
use super::machine::{Action, Exchange};

/// Maximum number of frame types of detached plugins that are remembered. The oldest are forgotten.
const MAX_RETIRED: usize = 64;

/// Maximum number of frame types that the connection skips. The transport has the same limit.
const MAX_SKIPPED: usize = 256;

/// A plugin whose hook is attached or being attached.
struct Attached {
    /// The plugin's hook, or `None` while it is being attached.
    hook: Option<HookId>,
    frame_types: Vec<u64>,
    /// True if the plugin must be detached as soon as it is attached.
    unwanted: bool,
}

/// The plugins that came through the exchange of one connection, attached or being attached, and
/// the frame types to skip.
#[derive(Default)]
pub(super) struct Plugins {
    attached: BTreeMap<PluginId, Attached>,
    /// Plugins that are being attached, by the token of the request.
    tokens: BTreeMap<u64, PluginId>,
    next: u64,
    /// Frame types of detached plugins. Their frames may still arrive.
    retired: VecDeque<u64>,
    /// Frame types of the plugins that this side offered. A frame may arrive before the peer's
    /// report that the plugin runs.
    offered: Vec<u64>,
    /// Frame types that the transport currently skips, sorted.
    skipped: Vec<u64>,
    /// True if `skipped` is up to date with `attached` and `retired`.
    fresh: bool,
    /// Value of [`Exchange::changes_of_offers`] when `offered` was last updated.
    seen: u64,
}

impl Plugins {
    pub(super) fn act(
        &mut self,
        host: &mut HookContext<'_>,
        exchange: &mut Exchange,
        action: Action,
    ) {
        match action {
            Action::Detach(id) => self.detach(host, id),
            Action::Attach { id, loaded, replaces } => {
                if let Some(other) = replaces {
                    self.detach(host, other);
                }
                self.attach(host, exchange, id, loaded);
            }
        }
    }

    fn attach(
        &mut self,
        host: &mut HookContext<'_>,
        exchange: &mut Exchange,
        id: PluginId,
        loaded: Loaded,
    ) {
        self.next += 1;
        let token = self.next;
        let frame_types = loaded.frames.iter().map(|own| own.frame_type).collect();
        let (hook, points, frames) = bounded(loaded);
        if let Err(denied) = host.attach(token, hook, points, frames) {
            return exchange.on_failed(id, Status::Failed, &denied.to_string());
        }
        self.tokens.insert(token, id);
        self.attached.insert(id, Attached { hook: None, frame_types, unwanted: false });
        self.fresh = false;
    }

    fn detach(&mut self, host: &mut HookContext<'_>, id: PluginId) {
        let Some(plugin) = self.attached.get_mut(&id) else { return };
        match plugin.hook {
            None => plugin.unwanted = true,
            Some(hook) => {
                let _ = host.detach(hook);
                self.retire(id);
            }
        }
    }

    /// Removes a detached plugin, and remembers its frame types so that its frames in flight are
    /// skipped.
    fn retire(&mut self, id: PluginId) {
        if let Some(gone) = self.attached.remove(&id) {
            self.fresh = false;
            gone.frame_types.iter().for_each(|frame_type| self.remember(*frame_type));
        }
    }

    fn remember(&mut self, frame_type: u64) {
        self.retired.retain(|one| *one != frame_type);
        self.retired.push_back(frame_type);
        while self.retired.len() > MAX_RETIRED {
            self.retired.pop_front();
        }
    }

    pub(super) fn on_attached(
        &mut self,
        host: &mut HookContext<'_>,
        exchange: &mut Exchange,
        token: u64,
        outcome: &Result<HookId, AttachError>,
    ) {
        let Some(id) = self.tokens.remove(&token) else { return };
        match outcome {
            Ok(hook) => {
                let Some(plugin) = self.attached.get_mut(&id) else { return };
                plugin.hook = Some(*hook);
                if plugin.unwanted {
                    self.detach(host, id);
                } else {
                    exchange.on_attached(id);
                }
            }
            Err(error) => {
                self.retire(id);
                let status = match error {
                    AttachError::FrameType(_) => Status::FrameTypes,
                    _ => Status::Failed,
                };
                exchange.on_failed(id, status, &error.to_string());
            }
        }
    }

    /// Records that the transport detached a hook because it failed. Returns the plugin of the
    /// hook.
    pub(super) fn on_failed(&mut self, hook: HookId) -> Option<PluginId> {
        let found = self.attached.iter().find(|(_, plugin)| plugin.hook == Some(hook));
        let id = *found?.0;
        self.retire(id);
        Some(id)
    }

    /// Tells the transport which frame types to skip while no plugin handles them. The list
    /// includes the types of running plugins: if a plugin fails while it handles a frame, the later
    /// frames of that packet are skipped. The exchange calls this function for each frame that it
    /// handles. Nothing happens unless a plugin or an offer has changed.
    pub(super) fn refresh(&mut self, host: &mut HookContext<'_>, exchange: &Exchange) {
        let seen = exchange.changes_of_offers();
        if self.fresh && self.seen == seen {
            return;
        }
        self.seen = seen;
        let offered: Vec<u64> = exchange.types_of_offers().collect();
        for gone in std::mem::replace(&mut self.offered, offered) {
            if !self.offered.contains(&gone) {
                self.remember(gone);
            }
        }
        let running = self.attached.values().flat_map(|plugin| &plugin.frame_types);
        let all = running.chain(&self.offered).chain(self.retired.iter().rev()).copied();
        let mut wanted: Vec<u64> = all.take(MAX_SKIPPED).collect();
        wanted.sort_unstable();
        wanted.dedup();
        self.fresh = wanted == self.skipped || host.skip_frames(wanted.clone()).is_ok();
        if self.fresh {
            self.skipped = wanted;
        }
    }
}

fn parse(call: &Call<'_>, outputs: &mut [u64]) -> Decision {
    if let Some(first) = outputs.first_mut() {
        *first = length(call.bytes.as_slice()).unwrap_or(0) as u64;
    }
    Decision::Done
}

/// Wraps a plugin's hook so that every frame of the plugin must begin with a type and a length,
/// whatever the plugin's own parser accepts. The peer can therefore skip these frames before the
/// plugin is attached and after it is detached.
struct Bounded {
    plugin: Box<dyn Hook>,
    frame_types: Vec<u64>,
}

fn bounded(loaded: Loaded) -> (Box<dyn Hook>, Vec<AttachPoint>, Vec<OwnFrame>) {
    let Loaded { hook, mut points, frames } = loaded;
    if frames.is_empty() {
        return (hook, points, frames);
    }
    for own in &frames {
        let point = AttachPoint::replace(Operation::ParseFrame).of_frame(own.frame_type);
        let parses = |one: &AttachPoint| {
            one.operation == point.operation && one.replace && one.frame_type == point.frame_type
        };
        if !points.iter().any(parses) {
            points.push(point);
        }
    }
    let frame_types = frames.iter().map(|own| own.frame_type).collect();
    (Box::new(Bounded { plugin: hook, frame_types }), points, frames)
}

impl Hook for Bounded {
    fn before(&mut self, host: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        self.plugin.before(host, call)
    }

    fn replace(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        if call.operation == Operation::ParseFrame && self.frame_types.contains(&call.parameter) {
            return Ok(parse(call, outputs));
        }
        self.plugin.replace(host, call, outputs)
    }

    fn after(
        &mut self,
        host: &mut HookContext<'_>,
        call: &Call<'_>,
        outputs: &[u64],
    ) -> Result<(), HookError> {
        self.plugin.after(host, call, outputs)
    }

    fn on_event(&mut self, host: &mut HookContext<'_>, event: &HookEvent) -> Result<(), HookError> {
        self.plugin.on_event(host, event)
    }

    fn provides(&self) -> bool {
        self.plugin.provides()
    }

    fn provide(
        &mut self,
        host: &mut HookContext<'_>,
        call: &ProvidedCall<'_>,
        outputs: &mut [u64],
    ) -> Result<Provided, HookError> {
        self.plugin.provide(host, call, outputs)
    }

    fn memory(&self) -> usize {
        self.plugin.memory()
    }
}
