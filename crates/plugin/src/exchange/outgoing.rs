//! The plugins that this endpoint offers to its peer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::config::Push;
use super::frame::{DATA_HEAD, Frame, Kind, MAX_CARRIED, MAX_OFFERS, MAX_TYPES, Offer, Status};
use super::ids::Ids;
use super::parameter::Parameter;
use super::violation::Violation;

/// An offer of this endpoint that has not ended.
#[derive(Debug)]
struct Offered {
    push: Arc<Push>,
    replaces: Option<u64>,
    frame_types: Vec<u64>,
    /// Number of bundle bytes that the OFFER frame carries. It is the same in each retransmission.
    carried: usize,
    /// Number of bytes, counted from the bundle's beginning, that the peer permits this endpoint to
    /// send.
    limit: usize,
    /// Number of bundle bytes that were sent at least once, including those in the OFFER frame.
    sent: usize,
    /// Ranges of the bundle that were sent and lost.
    lost: Vec<Range<usize>>,
    active: bool,
    /// True if a DETACH frame is due or was sent. No more of the bundle is sent then.
    detaching: bool,
}

impl Offered {
    fn has_data(&self) -> bool {
        !self.active && !self.detaching && (!self.lost.is_empty() || self.sent < self.limit)
    }
}

/// Change in the state of an offer that the peer has reported.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The plugin runs at the peer's end.
    Active,
    /// The offer has ended.
    Over,
}

/// Content of a frame about one of this endpoint's offers. It is sent again if the frame is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Offer(u64),
    Data(u64, Range<usize>),
    Detach(u64),
}

/// Offers of this endpoint on one connection.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    offers: BTreeMap<u64, Offered>,
    /// Plugin ID of the next offer.
    next: u64,
    over: Ids,
    /// Plugin IDs of the offers that must be sent or sent again.
    offers_due: BTreeSet<u64>,
    detaches_due: BTreeSet<u64>,
    /// Frame types of all offers, including those that have ended.
    allotted: BTreeSet<u64>,
    /// Counter that increases whenever an offer is made or ends.
    changes: u64,
}

impl Outgoing {
    /// Queues an offer of a plugin to a peer that sent the parameter `peer`. Returns its plugin ID,
    /// or the reason as an error if the peer would refuse the plugin.
    pub(super) fn offer(
        &mut self,
        push: Arc<Push>,
        frame_types: Vec<u64>,
        replaces: Option<u64>,
        peer: &Parameter,
    ) -> Result<u64, String> {
        push.fits(peer)?;
        if self.next >= MAX_OFFERS {
            return Err(format!("a connection permits at most {MAX_OFFERS} offers"));
        }
        let replaced = replaces.and_then(|other| self.offers.get(&other));
        let freed = replaced.map_or(0, |offered| offered.push.bytes.len() as u64);
        if self.offers.len() as u64 - u64::from(replaced.is_some()) >= peer.budgets.plugins {
            return Err(format!(
                "the peer accepts at most {} plugins at a time",
                peer.budgets.plugins
            ));
        }
        let sum = self.total() - freed + push.bytes.len() as u64;
        if sum > peer.budgets.total {
            return Err(format!(
                "the peer accepts at most {} bytes of bundles at a time",
                peer.budgets.total
            ));
        }
        let plugin = self.next;
        self.next += 1;
        let replaces = replaces.filter(|_| replaced.is_some());
        // A packet of 1,200 bytes must also have room for an acknowledgement.
        let most = MAX_CARRIED - 8 * frame_types.len().min(MAX_TYPES);
        let most = usize::try_from(peer.carried).map_or(most, |theirs| theirs.min(most));
        let carried = push.preamble.min(most);
        let offered = Offered {
            push,
            replaces,
            frame_types,
            carried,
            limit: 0,
            sent: carried,
            lost: Vec::new(),
            active: false,
            detaching: false,
        };
        self.allotted.extend(&offered.frame_types);
        self.changes += 1;
        self.offers.insert(plugin, offered);
        self.offers_due.insert(plugin);
        Ok(plugin)
    }

    fn total(&self) -> u64 {
        self.offers.values().map(|offered| offered.push.bytes.len() as u64).sum()
    }

    /// Asks the peer to detach a plugin. Returns `false` if its offer has ended.
    pub(super) fn detach(&mut self, plugin: u64) -> bool {
        let Some(offered) = self.offers.get_mut(&plugin) else { return false };
        offered.detaching = true;
        self.detaches_due.insert(plugin);
        true
    }

    /// Handles a WANT frame, with which the peer permits this endpoint to send more of a bundle.
    pub(super) fn on_want(&mut self, plugin: u64, limit: u64) -> Result<(), Violation> {
        let Some(offered) = self.known(plugin)? else { return Ok(()) };
        match usize::try_from(limit) {
            Ok(limit) if limit <= offered.push.bytes.len() => {
                offered.limit = offered.limit.max(limit);
                Ok(())
            }
            _ => Err(Violation::Credit(plugin)),
        }
    }

    /// Handles a STATUS frame, with which the peer reports the outcome of an offer. Returns `None`
    /// if the outcome was already known.
    pub(super) fn on_status(
        &mut self,
        plugin: u64,
        status: Status,
    ) -> Result<Option<(Arc<Push>, News)>, Violation> {
        let Some(offered) = self.known(plugin)? else { return Ok(None) };
        let push = offered.push.clone();
        if status.is_active() {
            // A plugin that is being detached does not count as running.
            let news = !std::mem::replace(&mut offered.active, true) && !offered.detaching;
            return Ok(news.then_some((push, News::Active)));
        }
        // A newer plugin replaced this one before it ran. The newer plugin therefore also replaces
        // the one that this plugin was to replace.
        let superseded = status == Status::Detached && !offered.active && !offered.detaching;
        let before = offered.replaces.filter(|_| superseded);
        // The state of the offer is dropped. Later frames about it count as late and are ignored.
        self.offers.remove(&plugin);
        self.changes += 1;
        self.detach_all(before);
        self.over.insert(plugin);
        self.offers_due.remove(&plugin);
        self.detaches_due.remove(&plugin);
        Ok(Some((push, News::Over)))
    }

    /// Asks the peer to detach a plugin. If that plugin does not run yet, also detaches the plugin
    /// that it was to replace, and so on.
    fn detach_all(&mut self, from: Option<u64>) {
        let mut next = from;
        // A plugin can only replace one with a smaller plugin ID, so the loop ends.
        while let Some(plugin) = next {
            let offered = self.offers.get(&plugin).filter(|offered| !offered.active);
            next = offered.and_then(|offered| offered.replaces);
            self.detach(plugin);
        }
    }

    /// Returns the offer with this plugin ID, or `None` if it has ended. Fails if it was never
    /// made.
    fn known(&mut self, plugin: u64) -> Result<Option<&mut Offered>, Violation> {
        if plugin >= self.next {
            return Err(Violation::NotOffered(plugin));
        }
        Ok(self.offers.get_mut(&plugin))
    }

    /// Returns `true` if the peer has not answered one of the offers yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.offers.values().any(|offered| !offered.active)
    }

    /// Returns the plugin IDs and expiries of the plugins that run at both ends. The expiries are
    /// in seconds since the Unix epoch.
    pub(super) fn expiries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let both = |offered: &&Offered| offered.active && offered.push.both && !offered.detaching;
        let all = self.offers.iter().filter(move |(_, offered)| both(offered));
        all.filter_map(|(plugin, offered)| Some((*plugin, offered.push.manifest.expires?)))
    }

    /// Returns true if the plugin runs at both ends.
    pub(super) fn is_at_both_ends(&self, plugin: u64) -> bool {
        self.offers.get(&plugin).is_some_and(|offered| offered.push.both)
    }

    /// Returns `true` if an offer, current or ended, uses this frame type. Ended offers count,
    /// because frames of a detached plugin may still be in flight. The plugin that replaces
    /// `replaced` may reuse that plugin's types.
    pub(super) fn has_had(&self, frame_type: u64, replaced: Option<u64>) -> bool {
        if replaced.is_some_and(|other| self.frame_types(other).contains(&frame_type)) {
            return false;
        }
        self.allotted.contains(&frame_type)
    }

    /// Returns the frame types of all offers that have not ended.
    pub(super) fn types(&self) -> impl Iterator<Item = u64> + '_ {
        self.offers.values().flat_map(|offered| &offered.frame_types).copied()
    }

    /// Returns a counter that changes whenever [`Outgoing::types`] may have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn replaces(&self, plugin: u64) -> Option<u64> {
        self.offers.get(&plugin)?.replaces
    }

    pub(super) fn frame_types(&self, plugin: u64) -> &[u64] {
        self.offers.get(&plugin).map_or(&[], |offered| &offered.frame_types)
    }

    /// Returns `true` if a frame of this kind must be sent.
    pub(super) fn wants(&self, kind: Kind) -> bool {
        match kind {
            Kind::Offer => !self.offers_due.is_empty(),
            Kind::Detach => !self.detaches_due.is_empty(),
            Kind::Data => self.offers.values().any(Offered::has_data),
            _ => false,
        }
    }

    /// Writes a frame of this kind. Returns `None` if no such frame is due, or if the buffer is too
    /// small.
    pub(super) fn write(&mut self, kind: Kind, buffer: &mut [u8]) -> Option<(usize, Sent)> {
        match kind {
            Kind::Offer => {
                let plugin = *self.offers_due.first()?;
                let offered = self.offers.get(&plugin)?;
                let frame = Frame::Offer(Offer {
                    plugin,
                    hash: offered.push.hash,
                    size: offered.push.bytes.len() as u64,
                    preamble: offered.push.preamble as u64,
                    replaces: offered.replaces,
                    frame_types: offered.frame_types.clone(),
                    carried: offered.push.bytes.get(..offered.carried)?.to_vec(),
                });
                let length = frame.write(buffer).ok()?;
                self.offers_due.remove(&plugin);
                Some((length, Sent::Offer(plugin)))
            }
            Kind::Detach => {
                let plugin = *self.detaches_due.first()?;
                let length = Frame::Detach { plugin }.write(buffer).ok()?;
                self.detaches_due.remove(&plugin);
                Some((length, Sent::Detach(plugin)))
            }
            Kind::Data => self.write_data(buffer),
            _ => None,
        }
    }

    fn write_data(&mut self, buffer: &mut [u8]) -> Option<(usize, Sent)> {
        let most = buffer.len().checked_sub(DATA_HEAD).filter(|most| *most > 0)?;
        let (plugin, offered) = self.offers.iter_mut().find(|(_, offered)| offered.has_data())?;
        let piece = match offered.lost.pop() {
            Some(lost) => {
                let end = lost.end.min(lost.start + most);
                offered.lost.extend((end < lost.end).then_some(end..lost.end));
                lost.start..end
            }
            None => {
                let end = offered.limit.min(offered.sent + most);
                offered.sent..end
            }
        };
        let data = offered.push.bytes.get(piece.clone())?;
        let frame = Frame::Data { plugin: *plugin, offset: piece.start as u64, data };
        let Ok(length) = frame.write(buffer) else {
            if piece.start < offered.sent {
                offered.lost.push(piece);
            }
            return None;
        };
        offered.sent = offered.sent.max(piece.end);
        Some((length, Sent::Data(*plugin, piece)))
    }

    /// Queues the content of a lost frame again, unless its offer has ended.
    pub(super) fn on_lost(&mut self, sent: Sent) {
        match sent {
            Sent::Offer(plugin) => {
                self.offers_due.extend(self.offers.contains_key(&plugin).then_some(plugin));
            }
            Sent::Detach(plugin) => {
                self.detaches_due.extend(self.offers.contains_key(&plugin).then_some(plugin));
            }
            Sent::Data(plugin, piece) => {
                if let Some(offered) = self.offers.get_mut(&plugin) {
                    offered.lost.push(piece);
                }
            }
        }
    }
}
