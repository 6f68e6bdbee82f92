//! The state machine of the plugin exchange on one connection, without I/O. It handles received
//! frames, writes frames, and returns which plugins to attach and detach.

use std::collections::VecDeque;
use std::sync::Arc;

use equic_wire::Side;

use super::config::{Accepted, ExchangeConfig, Loaded, PluginId, Progress, Push, Update};
use super::frame::{Frame, Kind, Status};
use super::incoming::{self, Incoming, Outcome};
use super::outgoing::{self, News, Outgoing};
use super::parameter::Parameter;
use super::types;
use super::violation::Violation;
use crate::bundle::Bundle;
use crate::class::Origin;
use crate::policy::{Policy, decide};
use crate::runtime::Bucket;

/// Maximum number of offers of the application that wait for the handshake.
const MAX_WAITING: usize = 64;

/// Number of exchange frames that a peer may send in a burst. It is twice the number that all
/// bundles of a connection need, even if each DATA frame has the minimum of data. After the burst,
/// the peer may send [`FRAMES_PER_SECOND`].
const FRAMES: u64 = 16_384;
const FRAMES_PER_SECOND: u64 = 2_000;

/// Knowledge about whether the peer supports the exchange.
#[derive(Debug)]
enum Peer {
    /// The peer's transport parameters have not arrived.
    Unknown,
    /// The peer does not support the exchange.
    Silent,
    Speaks(Parameter),
}

/// A change to the connection's plugins that the caller must make. Actions must be carried out in
/// the order in which they are returned.
pub enum Action {
    /// Attach a plugin, then call [`Exchange::on_attached`] or [`Exchange::on_failed`].
    Attach {
        /// The plugin.
        id: PluginId,
        /// Its hook.
        loaded: Loaded,
        /// Plugin to detach first, because the new plugin replaces it. `None` if the new plugin
        /// replaces none.
        replaces: Option<PluginId>,
    },
    /// Detach a plugin, if it is attached.
    Detach(PluginId),
}

/// Content of an exchange frame. It is sent again if the frame is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent(Inner);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inner {
    Outgoing(outgoing::Sent),
    Incoming(incoming::Sent),
    Reserved,
}

/// The exchange of one connection, without I/O. The host makes these calls, in this order:
///
/// ```text
/// handle_parameters, handle_confirmed, handle_frame   input from the peer and the handshake
/// offer, detach                                       requests of the application
/// poll_action  -> attach or detach                    until it returns None; then on_attached, on_failed
/// check_expiry                                        periodically, and after the time that it returned
/// wants(kind), write(kind, buffer)                    frames to send; on_lost for frames that were lost
/// ```
pub struct Exchange {
    config: Arc<ExchangeConfig>,
    side: Side,
    ours: Parameter,
    peer: Peer,
    confirmed: bool,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Offers that wait for the handshake, each with the earlier offer that it replaces.
    waiting: VecDeque<(Arc<Push>, Option<PluginId>)>,
    actions: VecDeque<Action>,
    /// Frame types that other hooks of the connection use.
    foreign: Vec<u64>,
    /// Limits the number of exchange frames that the peer may send.
    frames: Bucket,
    /// Time of the latest frame, in nanoseconds on the connection's clock.
    now: u64,
    /// True if a reserved frame must be sent. That frame reveals whether the peer skips unknown
    /// frames.
    grease_due: bool,
}

impl Exchange {
    /// Creates the exchange of a new connection at a client. A server must also call
    /// [`Exchange::set_side`].
    pub fn new(config: Arc<ExchangeConfig>) -> Exchange {
        let ours = config.declared();
        let waiting = config.push.iter().map(|push| (push.clone(), None)).collect();
        Exchange {
            config,
            side: Side::Client,
            ours,
            peer: Peer::Unknown,
            confirmed: false,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            waiting,
            actions: VecDeque::new(),
            foreign: Vec::new(),
            frames: Bucket::new(FRAMES_PER_SECOND, FRAMES),
            now: 0,
            grease_due: false,
        }
    }

    /// Sets whether this endpoint is the client or the server. Each side assigns frame types from
    /// its own range.
    pub fn set_side(&mut self, side: Side) {
        self.side = side;
    }

    /// Sets the arrival time of the frame that is handled next, in nanoseconds on the connection's
    /// clock.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
        self.incoming.set_now(now);
    }

    /// Sets the frame types that other hooks of the connection use. Offers of both sides must use
    /// other types.
    pub fn set_taken(&mut self, frame_types: Vec<u64>) {
        self.foreign = frame_types;
    }

    /// Handles the peer's transport parameters (RFC 9000 s.18), all in one slice.
    ///
    /// # Errors
    /// The exchange's parameter among them is malformed.
    pub fn handle_parameters(&mut self, parameters: &[u8]) -> Result<(), Violation> {
        self.peer = match Parameter::find(parameters)? {
            Some(parameter) => Peer::Speaks(parameter),
            None => Peer::Silent,
        };
        Ok(())
    }

    /// Records that the handshake is confirmed (RFC 9001 s.4.1.2), so that plugins may be offered.
    pub fn handle_confirmed(&mut self) {
        self.confirmed = true;
        self.grease_due = matches!(self.peer, Peer::Speaks(_));
        self.offer_waiting();
    }

    /// Handles one complete frame of the exchange, including its type.
    ///
    /// # Errors
    /// The peer broke a rule of the exchange. The caller must close the connection.
    pub fn handle_frame(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let (frame, _) = Frame::read(bytes)?;
        if !matches!(self.peer, Peer::Speaks(_)) {
            return Err(Violation::Undeclared);
        }
        self.frames.refill(self.now);
        if self.frames.left() == 0 {
            return Err(Violation::TooManyFrames(FRAMES, FRAMES_PER_SECOND));
        }
        self.frames.spend(1);
        let mut out = Vec::new();
        match frame {
            Frame::Offer(offer) => {
                let about = (&self.ours, !self.side, &*self.foreign);
                self.incoming.on_offer(offer, about, &self.config, &mut out)?;
            }
            Frame::Data { plugin, offset, data } => {
                self.incoming.on_data(plugin, offset, data, &self.config, &mut out)?;
            }
            Frame::Detach { plugin } => self.incoming.on_detach(plugin, &mut out),
            Frame::Want { plugin, limit } => self.outgoing.on_want(plugin, limit)?,
            Frame::Status { plugin, status, reason } => self.on_status(plugin, status, reason)?,
            Frame::Reserved => {}
        }
        self.settle(out);
        Ok(())
    }

    /// Offers a plugin as soon as the handshake is confirmed. If `replaces` is an earlier offer of
    /// this side, the new plugin replaces that offer's plugin. The configured listener receives the
    /// progress.
    pub fn offer(&mut self, push: Arc<Push>, replaces: Option<PluginId>) {
        if self.waiting.len() >= MAX_WAITING {
            let why = format!("{MAX_WAITING} offers are already waiting for the handshake");
            return self.tell_own(None, &push, Progress::NotOffered(why));
        }
        self.waiting.push_back((push, replaces));
        self.offer_waiting();
    }

    /// Detaches a plugin: at the peer's end if this side offered the plugin, otherwise at this end.
    /// Returns `false` if no such plugin exists.
    pub fn detach(&mut self, id: PluginId) -> bool {
        match id.by {
            Origin::Own => {
                // At this end the plugin is detached at once, without waiting for the peer's
                // answer.
                if self.outgoing.is_at_both_ends(id.number) {
                    self.actions.push_back(Action::Detach(id));
                }
                self.outgoing.detach(id.number)
            }
            Origin::Peer => {
                let known = self.incoming.known(id.number).is_some();
                self.end(
                    id.number,
                    Status::Removed,
                    "the endpoint that ran the plugin has detached it",
                );
                known
            }
        }
    }

    /// Detaches the running plugins that have expired according to [`ExchangeConfig::clock`].
    /// Returns the number of seconds until the next plugin expires, or `None` if no running plugin
    /// has an expiry.
    pub fn check_expiry(&mut self) -> Option<u64> {
        let peers = self.incoming.expiries().map(|(number, at)| (Origin::Peer, number, at));
        let own = self.outgoing.expiries().map(|(number, at)| (Origin::Own, number, at));
        let mut all: Vec<(Origin, u64, u64)> = peers.chain(own).collect();
        if all.is_empty() {
            return None;
        }
        let now = (self.config.clock)();
        for (by, number, at) in &all {
            match by {
                _ if *at > now => {}
                Origin::Peer => {
                    self.end(*number, Status::Expired, &format!("it expired at Unix time {at}"));
                }
                Origin::Own => {
                    self.detach(PluginId { by: Origin::Own, number: *number });
                }
            }
        }
        all.retain(|(_, _, at)| *at > now);
        all.iter().map(|(_, _, at)| at - now).min()
    }

    /// Returns the next action, or `None` if there is nothing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Records that a plugin was attached, as [`Exchange::poll_action`] requested.
    pub fn on_attached(&mut self, id: PluginId) {
        if id.by == Origin::Peer {
            let mut out = Vec::new();
            self.incoming.on_attached(id.number, &mut out);
            self.settle(out);
        }
    }

    /// Records that a plugin could not be attached, or that it failed while it ran.
    pub fn on_failed(&mut self, id: PluginId, status: Status, why: &str) {
        match id.by {
            Origin::Peer => self.end(id.number, status, why),
            // A plugin that is meant to run at both ends is useless at one end only.
            Origin::Own => {
                self.outgoing.detach(id.number);
            }
        }
    }

    /// Returns `true` if a frame of this kind must be sent.
    pub fn wants(&self, kind: Kind) -> bool {
        match kind {
            Kind::Reserved => self.grease_due,
            // An offer can arrive before the frame that confirms the handshake. This endpoint
            // answers the offer only after that frame.
            _ => self.confirmed && (self.outgoing.wants(kind) || self.incoming.wants(kind)),
        }
    }

    /// Writes a frame of this kind. Returns its length and its content, or `None` if no such frame
    /// is due or the buffer is too small.
    pub fn write(&mut self, kind: Kind, buffer: &mut [u8]) -> Option<(usize, Sent)> {
        if kind == Kind::Reserved {
            let length = Frame::Reserved.write(buffer).ok().filter(|_| self.grease_due)?;
            self.grease_due = false;
            return Some((length, Sent(Inner::Reserved)));
        }
        let ours = self.outgoing.write(kind, buffer);
        if let Some((length, sent)) = ours {
            return Some((length, Sent(Inner::Outgoing(sent))));
        }
        let (length, sent) = self.incoming.write(kind, buffer)?;
        Some((length, Sent(Inner::Incoming(sent))))
    }

    /// Records that a frame with this content was lost, so that it is sent again if necessary.
    pub fn on_lost(&mut self, sent: Sent) {
        match sent.0 {
            Inner::Outgoing(sent) => self.outgoing.on_lost(sent),
            Inner::Incoming(sent) => self.incoming.on_lost(sent),
            Inner::Reserved => {}
        }
    }

    /// Returns the memory of the peer's bundles that are being fetched, in bytes.
    pub fn memory(&self) -> usize {
        self.incoming.memory()
    }

    /// Returns `true` if the peer has not answered one of this side's offers yet.
    pub fn is_waiting(&self) -> bool {
        self.outgoing.is_waiting()
    }

    pub(super) fn config(&self) -> &ExchangeConfig {
        &self.config
    }

    fn offer_waiting(&mut self) {
        if !self.confirmed {
            return;
        }
        while let Some((push, replaces)) = self.waiting.pop_front() {
            let replaces = replaces.filter(|id| id.by == Origin::Own).map(|id| id.number);
            let named: Vec<u64> =
                push.manifest.frames.iter().map(|frame| frame.frame_type).collect();
            let in_use = |one| self.foreign.contains(&one) || self.outgoing.has_had(one, replaces);
            let offered = match (&self.peer, types::choose(&named, self.side, in_use)) {
                (Peer::Speaks(peer), Some(frame_types)) => {
                    self.outgoing.offer(push.clone(), frame_types, replaces, peer)
                }
                (Peer::Speaks(_), None) => {
                    Err("no unused frame types are left for the plugin".to_owned())
                }
                _ => Err("the peer does not support plugins".to_owned()),
            };
            match offered {
                Ok(number) => self.tell_own(Some(number), &push, Progress::Offered),
                Err(why) => self.tell_own(None, &push, Progress::NotOffered(why)),
            }
        }
    }

    fn on_status(&mut self, number: u64, status: Status, reason: &str) -> Result<(), Violation> {
        // Read this first, because it is forgotten as soon as the offer ends.
        let replaces = self.outgoing.replaces(number);
        let Some((push, news)) = self.outgoing.on_status(number, status)? else { return Ok(()) };
        let id = PluginId { by: Origin::Own, number };
        match news {
            News::Active => {
                self.tell_own(Some(number), &push, Progress::Active);
                if push.both {
                    let replaces = replaces.map(|number| PluginId { by: Origin::Own, number });
                    self.load_own(id, &push, replaces);
                }
            }
            News::Over => {
                self.actions.push_back(Action::Detach(id));
                let progress = Progress::Over(status, reason.to_owned());
                self.tell_own(Some(number), &push, progress);
            }
        }
        Ok(())
    }

    /// Loads a plugin of this side's offer at this end too, if it is meant to run at both ends.
    fn load_own(&mut self, id: PluginId, push: &Push, replaces: Option<PluginId>) {
        let frame_types = self.outgoing.frame_types(id.number).to_vec();
        let loaded = Bundle::parse(&push.bytes).ok().and_then(|bundle| {
            let now = (self.config.clock)();
            let granted = decide(&bundle, Origin::Own, &Policy::default(), now).ok()?;
            let plugin = Accepted {
                bundle: &bundle,
                hash: &push.hash,
                granted: &granted,
                frame_types: &frame_types,
                origin: Origin::Own,
                allowance: None,
            };
            self.config.load.load(&plugin).ok()
        });
        match loaded {
            Some(loaded) => self.actions.push_back(Action::Attach { id, loaded, replaces }),
            None => {
                self.outgoing.detach(id.number);
            }
        }
    }

    fn end(&mut self, number: u64, status: Status, why: &str) {
        let mut out = Vec::new();
        self.incoming.end(number, status, why.to_owned(), &mut out);
        self.settle(out);
    }

    /// Turns the outcomes of a received frame into actions and progress reports.
    fn settle(&mut self, out: Vec<Outcome>) {
        let theirs = |number| PluginId { by: Origin::Peer, number };
        for outcome in out {
            match outcome {
                Outcome::Progress(number, progress) => self.tell_theirs(number, progress),
                Outcome::Detach(number) => {
                    self.actions.push_back(Action::Detach(theirs(number)));
                }
                Outcome::Attach(number, loaded, replaces) => {
                    let mut ended = Vec::new();
                    let ran = replaces
                        .and_then(|other| self.incoming.supersede(other, number, &mut ended));
                    for outcome in ended {
                        // Attaching the new plugin also detaches the one that it replaces.
                        if let Outcome::Progress(number, progress) = outcome {
                            self.tell_theirs(number, progress);
                        }
                    }
                    let (id, replaces) = (theirs(number), ran.map(theirs));
                    self.actions.push_back(Action::Attach { id, loaded, replaces });
                }
            }
        }
        self.incoming.forget_over();
    }

    fn tell_theirs(&self, number: u64, progress: Progress) {
        let Some((hash, name)) = self.incoming.known(number) else { return };
        self.tell(Update { id: Some(PluginId { by: Origin::Peer, number }), hash, name, progress });
    }

    fn tell_own(&self, number: Option<u64>, push: &Push, progress: Progress) {
        let id = number.map(|number| PluginId { by: Origin::Own, number });
        let name = Some((push.manifest.name.clone(), push.manifest.version));
        self.tell(Update { id, hash: push.hash, name, progress });
    }

    fn tell(&self, update: Update) {
        if let Some(listener) = &self.config.listener {
            listener(&update);
        }
    }

    /// Returns the frame types of the plugins that this side offered. A frame of such a type may
    /// arrive before the peer's report that the plugin runs.
    pub(super) fn types_of_offers(&self) -> impl Iterator<Item = u64> + '_ {
        self.outgoing.types()
    }

    /// Returns a counter that changes whenever [`Exchange::types_of_offers`] may have changed.
    pub(super) fn changes_of_offers(&self) -> u64 {
        self.outgoing.changes()
    }
}
