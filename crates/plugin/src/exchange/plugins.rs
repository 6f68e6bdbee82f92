//! Plugins of the exchange as hooks of the connection, and the hook that skips frames of plugins that are not attached.

use std::collections::{BTreeMap, VecDeque};

use equic_transport::operation::{
    AttachError, Call, Decision, Hook, HookError, HookEvent, HookId, Host, Operation, OwnFrame,
    Point,
};

use super::config::{Loaded, PluginId};
use super::frame::{Status, length};
use super::machine::{Action, Exchange};

/// Frame types that are skipped at most: as many as one hook may have.
const MAX_SKIPPED: usize = 16;

/// Token of the hook that skips frames; plugins have those from 1.
const SKIPPER: u64 = 0;

/// A plugin that is attached, or is to be.
struct Attached {
    /// None: it is being attached.
    hook: Option<HookId>,
    frame_types: Vec<u64>,
    /// It is to be taken off as soon as it is attached.
    unwanted: bool,
}

/// The hook that skips frames.
#[derive(Default)]
enum Skipper {
    #[default]
    Off,
    /// It is being attached.
    Coming(Vec<u64>),
    On(HookId, Vec<u64>),
}

/// Plugins of the exchange that are hooks of one connection, or are to be, and the hook that skips frames.
#[derive(Default)]
pub(super) struct Plugins {
    attached: BTreeMap<PluginId, Attached>,
    /// The plugin that a token stands for, while it is being attached.
    tokens: BTreeMap<u64, PluginId>,
    next: u64,
    /// Frame types of plugins that were taken off, whose frames may still come. The oldest are forgotten.
    skipped: VecDeque<u64>,
    /// Frame types of offers of this side: the peer's end may send frames before this end hears that it runs.
    offered: Vec<u64>,
    skipper: Skipper,
    /// Another hook has one of the types, so that none can be skipped.
    barred: bool,
    /// Plugins whose frame types the skipper has while it is being attached.
    later: VecDeque<Action>,
}

impl Plugins {
    pub(super) fn act(&mut self, host: &mut Host<'_>, exchange: &mut Exchange, action: Action) {
        match action {
            Action::Detach(id) => self.detach(host, id),
            Action::Attach { id, loaded, replaces } => {
                let types: Vec<u64> = loaded.frames.iter().map(|own| own.frame_type).collect();
                let shared = |skipped: &[u64]| types.iter().any(|one| skipped.contains(one));
                match &self.skipper {
                    Skipper::Coming(skipped) if shared(skipped) => {
                        return self.later.push_back(Action::Attach { id, loaded, replaces });
                    }
                    Skipper::On(hook, skipped) if shared(skipped) => {
                        let _ = host.detach(*hook);
                        self.skipper = Skipper::Off;
                    }
                    _ => {}
                }
                if let Some(other) = replaces {
                    self.detach(host, other);
                }
                self.attach(host, exchange, id, loaded, types);
            }
        }
    }

    fn attach(
        &mut self,
        host: &mut Host<'_>,
        exchange: &mut Exchange,
        id: PluginId,
        loaded: Loaded,
        frame_types: Vec<u64>,
    ) {
        self.next += 1;
        let token = self.next;
        let (hook, points, frames) = bounded(loaded);
        if let Err(denied) = host.attach(token, hook, points, frames) {
            return exchange.on_failed(id, Status::Failed, &denied.to_string());
        }
        self.tokens.insert(token, id);
        self.attached.insert(id, Attached { hook: None, frame_types, unwanted: false });
    }

    fn detach(&mut self, host: &mut Host<'_>, id: PluginId) {
        self.later
            .retain(|action| !matches!(action, Action::Attach { id: other, .. } if *other == id));
        let Some(plugin) = self.attached.get_mut(&id) else { return };
        match plugin.hook {
            None => plugin.unwanted = true,
            Some(hook) => {
                let _ = host.detach(hook);
                self.retire(id);
            }
        }
    }

    /// A plugin is off: its frames that are still under way are skipped.
    fn retire(&mut self, id: PluginId) {
        if let Some(gone) = self.attached.remove(&id) {
            gone.frame_types.iter().for_each(|frame_type| self.skip(*frame_type));
        }
    }

    fn skip(&mut self, frame_type: u64) {
        self.skipped.retain(|one| *one != frame_type);
        self.skipped.push_back(frame_type);
        while self.skipped.len() > MAX_SKIPPED {
            self.skipped.pop_front();
        }
    }

    pub(super) fn on_attached(
        &mut self,
        host: &mut Host<'_>,
        exchange: &mut Exchange,
        token: u64,
        outcome: &Result<HookId, AttachError>,
    ) {
        if token == SKIPPER {
            self.on_skipper(outcome);
            for action in std::mem::take(&mut self.later) {
                self.act(host, exchange, action);
            }
            return;
        }
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
                self.attached.remove(&id);
                let status = match error {
                    AttachError::FrameType(_) => Status::FrameTypes,
                    _ => Status::Failed,
                };
                exchange.on_failed(id, status, &error.to_string());
            }
        }
    }

    fn on_skipper(&mut self, outcome: &Result<HookId, AttachError>) {
        let coming = std::mem::take(&mut self.skipper);
        if let (Skipper::Coming(types), Ok(hook)) = (coming, outcome) {
            self.skipper = Skipper::On(*hook, types);
        } else {
            self.barred = true;
        }
    }

    /// A hook was taken off because it failed: the plugin that it was.
    pub(super) fn on_failed(&mut self, hook: HookId) -> Option<PluginId> {
        let found = self.attached.iter().find(|(_, plugin)| plugin.hook == Some(hook));
        let id = *found?.0;
        self.retire(id);
        Some(id)
    }

    /// Has frames skipped of the types that may still come and that nobody has.
    pub(super) fn refresh(&mut self, host: &mut Host<'_>, exchange: &Exchange) {
        if self.barred || matches!(self.skipper, Skipper::Coming(_)) || !self.later.is_empty() {
            return;
        }
        let offered: Vec<u64> = exchange.types_of_offers().collect();
        for gone in std::mem::replace(&mut self.offered, offered) {
            if !self.offered.contains(&gone) {
                self.skip(gone);
            }
        }
        let owned =
            |one: &u64| self.attached.values().any(|plugin| plugin.frame_types.contains(one));
        let all = self.offered.iter().chain(self.skipped.iter().rev()).copied();
        let mut wanted: Vec<u64> = all.filter(|one| !owned(one)).take(MAX_SKIPPED).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if let Skipper::On(hook, types) = &self.skipper {
            if *types == wanted {
                return;
            }
            let _ = host.detach(*hook);
        }
        self.skipper = Skipper::Off;
        if wanted.is_empty() {
            return;
        }
        let parse = |one: &u64| Point::replace(Operation::ParseFrame).of_frame(*one);
        let points = wanted.iter().map(parse).collect();
        let frames = wanted.iter().copied().map(OwnFrame::new).collect();
        if host.attach(SKIPPER, Box::new(Skip), points, frames).is_ok() {
            self.skipper = Skipper::Coming(wanted);
        }
    }
}

/// Skips frames that begin with a type and a length.
struct Skip;

fn parse(call: &Call<'_>, outputs: &mut [u64]) -> Decision {
    if let Some(first) = outputs.first_mut() {
        *first = length(call.bytes.as_slice()).unwrap_or(0) as u64;
    }
    Decision::Done
}

impl Hook for Skip {
    fn replace(
        &mut self,
        _host: &mut Host<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        Ok(parse(call, outputs))
    }
}

/// A plugin whose frames all begin with a type and a length, whatever its own parser says: so the peer can skip them
/// before the plugin is there, and after it is off.
struct Bounded {
    plugin: Box<dyn Hook>,
    frame_types: Vec<u64>,
}

fn bounded(loaded: Loaded) -> (Box<dyn Hook>, Vec<Point>, Vec<OwnFrame>) {
    let Loaded { hook, mut points, frames } = loaded;
    if frames.is_empty() {
        return (hook, points, frames);
    }
    for own in &frames {
        let point = Point::replace(Operation::ParseFrame).of_frame(own.frame_type);
        let parses = |one: &Point| {
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
    fn before(&mut self, host: &mut Host<'_>, call: &Call<'_>) -> Result<(), HookError> {
        self.plugin.before(host, call)
    }

    fn replace(
        &mut self,
        host: &mut Host<'_>,
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
        host: &mut Host<'_>,
        call: &Call<'_>,
        outputs: &[u64],
    ) -> Result<(), HookError> {
        self.plugin.after(host, call, outputs)
    }

    fn on_event(&mut self, host: &mut Host<'_>, event: &HookEvent) -> Result<(), HookError> {
        self.plugin.on_event(host, event)
    }
}
