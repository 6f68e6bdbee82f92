//! The limits on the next datagram of a path: its size, and whether window and pacer permit it
//! (RFC 9000 s.8.1, RFC 9002 s.7). Choosing the path comes first ([`Target`]), and filling the
//! packets comes next (`send_packet.rs`).

use equic_wire::packet::MIN_INITIAL_DATAGRAM;

use super::Connection;
use super::multipath::Scheduler;
use super::path::Path;
use super::paths::PathKey;
use super::presence::Presence;
use super::send_packet::TxPlace;
use super::space::SpaceId;
use crate::Timestamp;
use crate::congestion::Rate;
use crate::operation::Operation;
use crate::path::BASE_SIZE;

/// The path that a datagram is built for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub path: PathKey,
    /// True if the datagram also carries content that any path can carry.
    pub shared: bool,
}

/// Content that a packet is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// All that is due and permitted, the most urgent frames first.
    Due,
    /// Only STREAM frames, because nothing else is due.
    Streams,
    /// Only the PING, IMMEDIATE_ACK and PADDING frames of an MTU probe.
    MtuProbe,
}

/// Limits on the content of the next datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// Path on which the datagram is sent.
    pub path: PathKey,
    /// Maximum UDP payload in bytes.
    pub size: usize,
    /// True if the congestion window and the pacer permit packets that count toward bytes in
    /// flight.
    pub in_flight: bool,
    /// True if this is not the current path of its path ID. The datagram then carries only frames
    /// that probe the path (RFC 9000 s.9.1).
    pub passive: bool,
    /// True if the datagram also carries content that any path can carry. With several paths, the
    /// scheduler has chosen this path for it.
    pub shared: bool,
    pub fill: Fill,
}

impl Budget {
    /// Returns the budget of a datagram with only stream data.
    #[inline(always)]
    pub(super) fn of_streams(path: PathKey, size: usize, in_flight: bool) -> Budget {
        Budget { path, size, in_flight, passive: false, shared: true, fill: Fill::Streams }
    }
}

impl Connection {
    /// Returns the limits on the next datagram of a path, or `None` if nothing may be sent on it.
    pub(super) fn budget(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        Target { path: key, shared }: Target,
        buffer: usize,
    ) -> Option<Budget> {
        let quiet = self.is_quiet(key);
        let path = &self.paths[key];
        // RFC 8899 s.4.3: after a probe timeout, the path may be dropping large datagrams. The
        // probes must be small, because otherwise they would be lost, too, and losses could not be
        // detected.
        let largest = if quiet { u16::MAX } else { BASE_SIZE };
        let (mtu, credit) = (path.mtu().min(largest), path.credit());
        let validated = path.is_validated();
        if !path.may_send() {
            // The anti-amplification limit blocks the path, not the congestion window.
            self.paths[key].on_underused(now);
            return None;
        }
        let mut size = self.datagram_size(hooks, key, mtu).min(buffer);
        if let Some(credit) = credit {
            // RFC 9000 s.8.1.
            size = size.min(usize::try_from(credit).unwrap_or(usize::MAX));
        }
        let in_flight = self.has_room(hooks, now, key, mtu);
        let passive = !self.paths[key].is_current();
        let mut budget = Budget { path: key, size, in_flight, passive, shared, fill: Fill::Due };
        if passive {
            budget.size = size.min(MIN_INITIAL_DATAGRAM);
        } else if in_flight && validated && self.handshake.is_confirmed() && quiet {
            // No MTU probe is sent until the path is validated. It would use up anti-amplification
            // credit, and the PATH_CHALLENGE would have to wait for more (RFC 9000 s.8.1, s.8.2.1).
            let (waiting, datagrams) = (self.streams.buffered(), self.datagrams.are_used());
            self.paths[key].weigh_mtu(waiting, datagrams);
            budget = self.probe_mtu(hooks, now, buffer, budget);
        }
        Some(budget)
    }

    /// Returns the path and the size of a datagram with only stream data, on the path `chosen` by a
    /// hook, or else on the best path that has room. The caller must check that only stream data is
    /// due ([`Connection::is_streams_only`]).
    ///
    /// Paths are checked for room in the same order as without the early exit. As there, each path
    /// without room records that. Returns `None` if no path has room, or if a path must first send
    /// something that belongs to it.
    pub(super) fn budget_of_streams(
        &mut self,
        now: Timestamp,
        chosen: Option<PathKey>,
    ) -> Option<Budget> {
        if self.multipath.is_some() && self.config.scheduler == Scheduler::Redundant {
            // Data is sent on several paths.
            return None;
        }
        if let Some(key) = chosen {
            return self.budget_of_streams_on(now, key).filter(|budget| budget.in_flight);
        }
        let mut after = None;
        loop {
            let (rank, key) = self.next_candidate(after)?;
            let budget = self.budget_of_streams_on(now, key)?;
            if budget.in_flight {
                return Some(budget);
            }
            after = Some(rank);
        }
    }

    /// Returns the limits on a datagram of a path with only stream data. Returns `None` if
    /// acknowledgements or probes are due on the path, or if it is not settled
    /// ([`Path::is_settled`]).
    #[inline(always)]
    fn budget_of_streams_on(&mut self, now: Timestamp, key: PathKey) -> Option<Budget> {
        let path = self.paths.get(key)?;
        let place = TxPlace { space: SpaceId::Data(path.id()), path: key };
        if !path.is_settled(now) || !self.pending_on(place).is_empty() {
            return None;
        }
        let mtu = path.mtu();
        let path = &mut self.paths[key];
        path.set_hook_window(None);
        let in_flight = path.admits(now, mtu, Path::whole_rate);
        Some(Budget::of_streams(key, mtu.into(), in_flight))
    }

    /// Returns true if the window and the pacer permit a datagram of `size` bytes, and the event
    /// loop does not hold the connection back. The path records what does not permit it.
    fn has_room(&mut self, hooks: impl Presence, now: Timestamp, key: PathKey, size: u16) -> bool {
        let held = self.held.is_held();
        let window = self.window(hooks, key);
        let fits = self.paths[key].fits(window, size);
        let until = if fits && !held { self.pace(hooks, now, key, size) } else { None };
        self.paths[key].admit(now, fits, until) && !held
    }

    /// Returns the earliest time at which a datagram of `size` bytes may leave, or `None` if it may
    /// leave now.
    fn pace(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        key: PathKey,
        size: u16,
    ) -> Option<Timestamp> {
        let rate = self.pacing_rate(hooks, key);
        let input = (key, rate, size);
        let usual = |connection: &mut Connection| {
            connection.paths[key].pace(now, Rate::bytes_per_second(rate as f64), size)
        };
        hooks.decide_from(self, Operation::PaceUntil, input, usual, |connection, until| {
            connection.bound_pace(now, key, until)
        })
    }

    /// Returns true if no PTO probe is due on a path.
    fn is_quiet(&self, key: PathKey) -> bool {
        self.spaces.probes(SpaceId::Data(self.paths[key].id())) == 0
    }

    fn probe_mtu(
        &mut self,
        hooks: impl Presence,
        now: Timestamp,
        buffer: usize,
        budget: Budget,
    ) -> Budget {
        let key = budget.path;
        let usual =
            |connection: &mut Connection| connection.paths[key].next_mtu_probe(now).unwrap_or(0);
        // A hook can only prevent a probe. The state of the path determines its time and size. The
        // default begins a probe, so it is not computed if the hook prevents it.
        let bound = |connection: &mut Connection, size: u16| {
            if size == 0 { 0 } else { usual(connection) }
        };
        let size = hooks.decide_from(self, Operation::ProbeMtu, key, usual, bound);
        match usize::from(size) {
            0 => budget,
            size if size <= buffer => Budget { size, fill: Fill::MtuProbe, ..budget },
            _ => {
                self.mtu_probe_done(budget.path, false);
                budget
            }
        }
    }
}
