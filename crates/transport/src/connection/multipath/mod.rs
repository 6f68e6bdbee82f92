//! Several paths at a time (RFC 10069): the path IDs in use, what was negotiated for each, and the
//! frames that are still to be sent.
//!
//! * this file: [`Multipath`], the state. A connection has one if both ends declared
//!   initial_max_path_id;
//! * `control.rs`: requests of the application, and the start of a path;
//! * `abandon.rs`: the end of a path;
//! * `frames.rs`: incoming frames; `write.rs`: outgoing frames;
//! * `send.rs`: the path of the next packet; `scheduler.rs`: the choice among the paths that may
//!   carry data; `choice.rs`: choices of hooks, and their limits; `copies.rs`: data that is sent on
//!   several paths.
//!
//! Other state of a path ID is kept in the same places as without this extension. Packet numbers
//! and packets in flight are in a separate space (`space.rs`), and connection IDs are in
//! `connection_ids.rs`. Everything that depends on addresses is in the current path (`path.rs`).

mod abandon;
mod choice;
mod control;
mod copies;
mod frames;
mod scheduler;
mod send;
mod write;

use std::net::SocketAddr;
use std::time::Duration;

use equic_wire::TransportErrorCode;

use super::paths::PathKey;
use super::space::{MOST_PATH_IDS, PathFrame, PathId};
use crate::Timestamp;

pub use choice::Overruled;
pub use control::{ClosePathError, OpenPathError, PathInfo, PathStatus};
pub use scheduler::Scheduler;

/// The end of a path (RFC 10069 s.3.4).
#[derive(Debug, Clone, Copy)]
struct Abandon {
    code: TransportErrorCode,
    /// Set if PATH_ABANDON must be sent.
    due: bool,
    /// True if the peer has acknowledged PATH_ABANDON.
    acked: bool,
    /// Time at which the peer's PATH_ABANDON arrived. `None` if it has not.
    heard: Option<Timestamp>,
    /// Time at which everything in flight on the path is declared lost. `None` after that was done.
    give_up: Option<Timestamp>,
    /// Period for which the path is kept after `heard`: three PTOs.
    patience: Duration,
}

impl Abandon {
    /// Returns the time at which all state of the path is removed, or `None` if the peer has not
    /// abandoned it or not acknowledged our PATH_ABANDON.
    fn over(&self) -> Option<Timestamp> {
        self.heard.filter(|_| self.acked).map(|heard| heard + self.patience)
    }
}

/// A path ID that may be used, or that is abandoned and not yet removed.
#[derive(Debug, Clone, Copy)]
struct Record {
    id: PathId,
    /// True if a packet was sent or received with this path ID.
    used: bool,
    /// True if the application was notified that the path is open.
    told: bool,
    /// Status that we recommend to the peer for the path, and its sequence number.
    wish: Option<(PathStatus, u64)>,
    /// Set if the status must be sent.
    wish_due: bool,
    /// Status that the peer last recommended, and its sequence number.
    peer_wish: Option<(PathStatus, u64)>,
    abandon: Option<Abandon>,
    /// Cost of using the path, set by the application. 0 means no cost.
    cost: u32,
}

impl Record {
    fn new(id: PathId) -> Record {
        let (wish, peer_wish) = (None, None);
        Record {
            id,
            used: false,
            told: false,
            wish,
            wish_due: false,
            peer_wish,
            abandon: None,
            cost: 0,
        }
    }
}

/// State of a path ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathState {
    /// No packet was sent or received with it.
    Unused,
    Used,
    /// One end has abandoned it.
    Abandoned,
    /// Its state was removed.
    Gone,
    /// It exceeds the limit that we have sent to the peer.
    Forbidden,
}

/// State of multipath; see the module. Path IDs above the limit that we have sent have no record,
/// so the peer can create at most [`MOST_PATH_IDS`] of them. The limit rises when a record is
/// removed.
#[derive(Debug)]
pub(super) struct Multipath {
    /// Largest path ID that the peer may use.
    local_max: PathId,
    /// Set if MAX_PATH_ID must be sent.
    max_due: bool,
    /// The peer's initial_max_path_id. A lower limit is an error.
    peer_first: PathId,
    /// Largest path ID that we may use.
    peer_max: PathId,
    /// Path IDs up to `local_max` that are not removed, in ascending order; at most
    /// [`MOST_PATH_IDS`].
    list: Vec<Record>,
    /// Frame that reports to the peer what blocks this end, not sent yet: PATHS_BLOCKED, or
    /// PATH_CIDS_BLOCKED with a sequence number. `None` if there is nothing to report.
    blocked: Option<(PathId, Option<u64>)>,
    /// Content of the last such frame.
    told_blocked: Option<(PathId, Option<u64>)>,
    /// Address of the peer during the handshake.
    handshake_remote: SocketAddr,
    /// The path that carried the last packet with data, for [`Scheduler::RoundRobin`].
    last: Option<PathKey>,
    /// Data that other paths have carried, for [`Scheduler::Redundant`].
    copies: Vec<copies::Copies>,
    /// Overruled choices of hooks.
    watch: choice::Watch,
}

/// Returns the maximum number of paths under this configuration.
pub(super) fn most(max_paths: usize) -> usize {
    max_paths.min(MOST_PATH_IDS)
}

impl Multipath {
    /// Creates the state. The peer may use path IDs below `most`. We may use those up to
    /// `peer_max`, its initial_max_path_id.
    fn new(most: usize, peer_max: PathId, handshake_remote: SocketAddr) -> Multipath {
        let count = u32::try_from(most.clamp(1, MOST_PATH_IDS)).unwrap_or(1);
        let mut list: Vec<Record> = (0..count).map(|id| Record::new(PathId::new(id))).collect();
        if let Some(first) = list.first_mut() {
            (first.used, first.told) = (true, true);
        }
        Multipath {
            local_max: PathId::new(count - 1),
            max_due: false,
            peer_first: peer_max,
            peer_max,
            list,
            blocked: None,
            told_blocked: None,
            handshake_remote,
            last: None,
            copies: Vec::new(),
            watch: choice::Watch::default(),
        }
    }

    fn record(&self, id: PathId) -> Option<&Record> {
        self.list.iter().find(|record| record.id == id)
    }

    fn record_mut(&mut self, id: PathId) -> Option<&mut Record> {
        self.list.iter_mut().find(|record| record.id == id)
    }

    pub(super) fn state(&self, id: PathId) -> PathState {
        match self.record(id) {
            _ if id > self.local_max => PathState::Forbidden,
            Some(record) if record.abandon.is_some() => PathState::Abandoned,
            Some(record) if record.used => PathState::Used,
            Some(_) => PathState::Unused,
            None => PathState::Gone,
        }
    }

    /// Returns true if a path ID may be used and is not abandoned.
    pub(super) fn is_alive(&self, id: PathId) -> bool {
        matches!(self.state(id), PathState::Unused | PathState::Used)
    }

    /// Records that a packet was sent or received with this path ID.
    fn on_used(&mut self, id: PathId) {
        if let Some(record) = self.record_mut(id) {
            record.used = true;
        }
    }

    /// Returns true if the application must be notified that a path is open. This happens once per
    /// path.
    fn tells_opened(&mut self, id: PathId) -> bool {
        let record = self.record_mut(id).filter(|record| record.abandon.is_none());
        record.is_some_and(|record| !std::mem::replace(&mut record.told, true))
    }

    /// Returns the path IDs for which both ends may issue connection IDs.
    fn issuable(&self) -> impl Iterator<Item = PathId> + '_ {
        let allowed = self.list.iter().filter(|record| record.id <= self.peer_max);
        allowed.filter(|record| record.abandon.is_none()).map(|record| record.id)
    }

    /// Processes a MAX_PATH_ID frame. Returns false if the limit is below the peer's
    /// initial_max_path_id.
    fn on_max_path_id(&mut self, max: PathId) -> bool {
        if max > self.peer_max {
            self.peer_max = max;
        }
        max >= self.peer_first
    }

    /// Sets the status that we recommend for a path.
    fn wish(&mut self, id: PathId, status: PathStatus) {
        if let Some(record) = self.record_mut(id) {
            let next = record.wish.map_or(0, |(_, sequence)| sequence + 1);
            (record.wish, record.wish_due) = (Some((status, next)), true);
        }
    }

    /// Processes a status that the peer recommends. A frame that is not newer than the last one is
    /// ignored (RFC 10069 s.4.3).
    fn on_peer_wish(&mut self, id: PathId, status: PathStatus, sequence: u64) {
        if let Some(record) = self.record_mut(id)
            && record.peer_wish.is_none_or(|(_, last)| sequence > last)
        {
            record.peer_wish = Some((status, sequence));
        }
    }

    /// Returns true if one of the ends wants to use the path only as a backup.
    fn is_backup(&self, id: PathId) -> bool {
        let backup = |wish| matches!(wish, Some((PathStatus::Backup, _)));
        self.record(id).is_some_and(|record| backup(record.wish) || backup(record.peer_wish))
    }

    /// Returns the cost of using the path, set by the application. 0 means no cost.
    fn cost(&self, id: PathId) -> u32 {
        self.record(id).map_or(0, |record| record.cost)
    }

    /// Records that we are blocked by a limit, or by missing connection IDs. Each case is reported
    /// to the peer once.
    fn on_blocked(&mut self, id: PathId, sequence: Option<u64>) {
        let blocked = Some((id, sequence));
        if self.told_blocked != blocked {
            (self.blocked, self.told_blocked) = (blocked, blocked);
        }
    }

    /// Returns true if a frame of this extension waits.
    pub(super) fn has_news(&self) -> bool {
        let of =
            |record: &Record| record.wish_due || record.abandon.is_some_and(|abandon| abandon.due);
        self.max_due || self.blocked.is_some() || self.list.iter().any(of)
    }

    /// Returns true if data that was sent on one path waits for another.
    pub(super) fn has_copies(&self) -> bool {
        self.copies.iter().any(|copies| !copies.is_empty())
    }

    /// Processes the acknowledgement of a frame of this extension.
    pub(super) fn on_acked(&mut self, frame: PathFrame) {
        if let PathFrame::Abandon(id) = frame
            && let Some(abandon) = self.record_mut(id).and_then(|record| record.abandon.as_mut())
        {
            abandon.acked = true;
            abandon.due = false;
        }
    }

    /// Processes the loss of a frame of this extension. It is sent again if it is still relevant.
    pub(super) fn on_lost(&mut self, frame: PathFrame) {
        match frame {
            PathFrame::Abandon(id) => {
                let record = self.record_mut(id);
                if let Some(abandon) = record.and_then(|record| record.abandon.as_mut()) {
                    abandon.due = !abandon.acked;
                }
            }
            PathFrame::Status(id, sequence) => {
                if let Some(record) = self.record_mut(id) {
                    record.wish_due |= record.wish.is_some_and(|(_, last)| last == sequence);
                }
            }
            PathFrame::MaxPathId(max) => self.max_due |= max == self.local_max,
            PathFrame::Blocked => {}
        }
    }

    /// Returns the time at which packets in flight on an abandoned path are declared lost, and the
    /// period for which the path is kept after the peer's PATH_ABANDON.
    #[cfg(test)]
    pub(super) fn abandon_periods(&self, id: PathId) -> Option<(Option<Timestamp>, Duration)> {
        let record = self.list.iter().find(|record| record.id == id)?;
        record.abandon.map(|abandon| (abandon.give_up, abandon.patience))
    }

    /// Returns the time of the next action for an abandoned path.
    pub(super) fn timer(&self) -> Option<Timestamp> {
        let ends = self.list.iter().filter_map(|record| record.abandon);
        ends.flat_map(|abandon| [abandon.give_up, abandon.over()]).flatten().min()
    }

    /// Removes a path ID. If possible, permits the peer to use another one instead.
    fn remove(&mut self, id: PathId) {
        self.list.retain(|record| record.id != id);
        if let Some(next) = self.local_max.next() {
            (self.local_max, self.max_due) = (next, true);
            self.list.push(Record::new(next));
        }
    }

    /// Returns the path IDs in use that are not abandoned.
    fn open_ids(&self) -> impl Iterator<Item = PathId> + '_ {
        let open = self.list.iter().filter(|record| record.used && record.abandon.is_none());
        open.map(|record| record.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> PathId {
        PathId::new(number)
    }

    fn new(most: usize, peer_max: u32) -> Multipath {
        Multipath::new(most, id(peer_max), SocketAddr::from(([192, 0, 2, 1], 443)))
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::START + Duration::from_millis(ms)
    }

    fn abandon(paths: &mut Multipath, number: u32) {
        paths.record_mut(id(number)).unwrap().abandon = Some(Abandon {
            code: TransportErrorCode::NO_ERROR,
            due: true,
            acked: false,
            heard: None,
            give_up: Some(at(100)),
            patience: Duration::from_millis(300),
        });
    }

    #[test]
    fn multipath_path_ids_are_limited() {
        for most in [0, 2, 8, 100] {
            let mut paths = new(most, u32::MAX);
            let count = most.clamp(1, MOST_PATH_IDS) as u32;
            assert_eq!(paths.state(id(count)), PathState::Forbidden);
            assert_eq!(paths.state(id(count - 1)) == PathState::Used, count == 1);
            for number in 0..20 {
                abandon(&mut paths, number);
                assert_eq!(paths.state(id(number)), PathState::Abandoned);
                paths.remove(id(number));
                assert_eq!(paths.state(id(number)), PathState::Gone);
                assert_eq!(paths.state(id(count + number)), PathState::Unused);
                assert_eq!(paths.list.len(), count as usize);
            }
            assert!(paths.max_due);
        }
    }

    #[test]
    fn multipath_cids_are_issued_within_both_limits() {
        let mut paths = new(4, 1);
        assert_eq!(paths.issuable().collect::<Vec<_>>(), [id(0), id(1)]);
        assert!(!paths.on_max_path_id(id(0)), "below the peer's transport parameter");
        assert!(paths.on_max_path_id(id(9)) && paths.on_max_path_id(id(2)), "reordered, valid");
        assert_eq!(paths.issuable().count(), 4);
        abandon(&mut paths, 2);
        assert_eq!(paths.issuable().collect::<Vec<_>>(), [id(0), id(1), id(3)]);
    }

    #[test]
    fn multipath_latest_path_status_counts() {
        let mut paths = new(2, 1);
        paths.on_peer_wish(id(1), PathStatus::Backup, 4);
        paths.on_peer_wish(id(1), PathStatus::Available, 4);
        paths.on_peer_wish(id(1), PathStatus::Available, 3);
        assert!(paths.is_backup(id(1)) && !paths.is_backup(id(0)));
        paths.on_peer_wish(id(1), PathStatus::Available, 5);
        assert!(!paths.is_backup(id(1)));
        paths.wish(id(1), PathStatus::Backup);
        paths.wish(id(1), PathStatus::Available);
        paths.record_mut(id(1)).unwrap().wish_due = false;
        paths.on_lost(PathFrame::Status(id(1), 0));
        assert!(!paths.has_news(), "a newer frame is in flight");
        paths.on_lost(PathFrame::Status(id(1), 1));
        assert!(paths.has_news());
    }

    #[test]
    fn multipath_abandoned_path_is_remembered_until_both_ends_know() {
        let mut paths = new(2, 1);
        abandon(&mut paths, 1);
        assert!(paths.has_news());
        assert_eq!(paths.timer(), Some(at(100)), "packets in flight are declared lost");
        paths.record_mut(id(1)).unwrap().abandon.as_mut().unwrap().give_up = None;
        assert_eq!(paths.timer(), None);
        paths.on_acked(PathFrame::Abandon(id(1)));
        assert!(!paths.has_news() && paths.timer().is_none(), "the peer has not abandoned it");
        paths.on_lost(PathFrame::Abandon(id(1)));
        assert!(!paths.has_news(), "another copy was acknowledged");
        paths.record_mut(id(1)).unwrap().abandon.as_mut().unwrap().heard = Some(at(50));
        assert_eq!(paths.timer(), Some(at(350)));
        assert!(!paths.tells_opened(id(1)));
    }

    #[test]
    fn multipath_blocked_is_sent_once() {
        let mut paths = new(2, 1);
        paths.on_blocked(id(1), None);
        assert_eq!(paths.blocked.take(), Some((id(1), None)));
        paths.on_blocked(id(1), None);
        assert!(!paths.has_news());
        paths.on_blocked(id(1), Some(0));
        assert!(paths.has_news());
    }
}
