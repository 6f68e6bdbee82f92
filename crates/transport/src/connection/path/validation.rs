//! Validation of a path's address (RFC 9000 s.8): whether the peer is there, the challenges sent to find out, and the
//! limit on what may be sent before. The rest of a connection asks the [`Path`] whose it is.

use std::time::Duration;

use super::Path;
use crate::Timestamp;

/// Most bytes to send to an address not yet validated, as a multiple of those received from it (RFC 9000 s.8.1).
const AMPLIFICATION: u64 = 3;

/// A PATH_CHALLENGE is sent again after pauses that double so many times at most.
const MAX_DOUBLINGS: u32 = 6;

/// A question whether the peer is there (RFC 9000 s.8.2).
#[derive(Debug, Clone, Copy)]
struct Challenge {
    data: [u8; 8],
    /// Time at which the challenge is given up.
    until: Timestamp,
    /// True if it is to be sent now.
    due: bool,
    /// Time at which to send the challenge again; none: not again.
    again: Option<Timestamp>,
    /// Number of times that the challenge was sent.
    sent: u32,
}

/// Source from which a path's address is known; it decides what may be sent there before the peer has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum AddressOrigin {
    /// The peer is there: it has proved so, by a token, or it is the server that a client connects to.
    Known,
    /// Packets came from there: somebody else may have named the address, to have it flooded.
    Claimed,
    /// We chose it: as much may be sent as the window lets go, although the peer has not answered yet.
    Chosen,
}

/// Validation of one path, in both directions. Nothing else of the path is known here, and nobody but the path knows
/// of it.
#[derive(Debug)]
pub(super) struct Validation {
    /// The peer has answered from there.
    validated: bool,
    /// Somebody else may have named the address, to have it flooded; not so those that we chose.
    limited: bool,
    challenge: Option<Challenge>,
    /// Data of a PATH_CHALLENGE to be echoed (RFC 9000 s.8.2.2); the last one is enough.
    response: Option<[u8; 8]>,
    received: u64,
    sent: u64,
}

impl Validation {
    pub(super) fn new(origin: AddressOrigin) -> Validation {
        let validated = origin == AddressOrigin::Known;
        let limited = origin == AddressOrigin::Claimed;
        Validation { validated, limited, challenge: None, response: None, received: 0, sent: 0 }
    }

    fn is_validated(&self) -> bool {
        self.validated
    }

    /// The peer has proved to be there by something else than a PATH_RESPONSE.
    fn on_proof(&mut self) {
        self.validated = true;
    }

    fn on_received(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    pub(super) fn on_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Bytes that may be sent before the address is validated; none: no limit.
    pub(super) fn credit(&self) -> Option<u64> {
        (self.limited && !self.validated)
            .then(|| (self.received * AMPLIFICATION).saturating_sub(self.sent))
    }

    /// Asks whether the peer is there, or asks anew with other data. It is given up after `patience`, counted from
    /// the first time.
    fn ask(&mut self, now: Timestamp, data: [u8; 8], patience: Duration) {
        let until = self.challenge.map_or(now + patience, |old| old.until);
        self.challenge = Some(Challenge { data, until, due: true, again: None, sent: 0 });
    }

    /// Nothing is asked or answered any more.
    pub(super) fn stop(&mut self) {
        (self.challenge, self.response) = (None, None);
    }

    /// True if an answer is awaited, or a challenge is to be sent.
    fn is_asking(&self) -> bool {
        self.challenge.is_some()
    }

    /// Data of the PATH_CHALLENGE that is to be sent now.
    fn challenge(&self) -> Option<[u8; 8]> {
        self.challenge.filter(|asked| asked.due).map(|asked| asked.data)
    }

    /// The PATH_CHALLENGE was sent. It goes again after `pause`, then twice as long, and so on.
    fn on_challenge_sent(&mut self, now: Timestamp, pause: Duration) {
        if let Some(asked) = &mut self.challenge {
            asked.again = Some(now + pause * (1 << asked.sent.min(MAX_DOUBLINGS)));
            asked.due = false;
            asked.sent += 1;
        }
    }

    /// PATH_RESPONSE came; returns whether it is the answer to what was asked here, which validates the path.
    fn on_response(&mut self, data: [u8; 8]) -> bool {
        let answered = self.challenge.is_some_and(|asked| asked.sent > 0 && asked.data == data);
        if answered {
            (self.challenge, self.validated) = (None, true);
        }
        answered
    }

    /// Time at which a PATH_CHALLENGE is to be sent again or given up; none: none is pending.
    fn timer(&self) -> Option<Timestamp> {
        let asked = self.challenge?;
        Some(asked.again.filter(|_| !asked.due).map_or(asked.until, |at| at.min(asked.until)))
    }

    /// A moment of [`Validation::timer`] may have come; returns whether the question is given up now.
    fn on_timer(&mut self, now: Timestamp) -> bool {
        let Some(asked) = &mut self.challenge else { return false };
        if asked.until <= now {
            self.challenge = None;
            return true;
        }
        if asked.again.is_some_and(|at| at <= now) {
            asked.due = true;
            asked.again = None;
        }
        false
    }

    /// PATH_CHALLENGE came, and is to be answered.
    fn answer(&mut self, data: [u8; 8]) {
        self.response = Some(data);
    }

    /// Data of the PATH_RESPONSE that is to be sent now.
    fn response(&self) -> Option<[u8; 8]> {
        self.response
    }

    fn on_response_sent(&mut self) {
        self.response = None;
    }

    /// True if a PATH_CHALLENGE or PATH_RESPONSE waits.
    pub(super) fn has_frames(&self) -> bool {
        self.response.is_some() || self.challenge().is_some()
    }
}

/// Questions and news of the rest of a connection about the validation of a path.
impl Path {
    /// True if the peer has proved to be at the path's address.
    pub(in crate::connection) fn is_validated(&self) -> bool {
        self.validation.is_validated()
    }

    /// The peer has proved to be there by something else than a PATH_RESPONSE.
    pub(in crate::connection) fn on_proof(&mut self) {
        self.validation.on_proof();
    }

    /// So many bytes came from the path's address: three times as many may be sent there (RFC 9000 s.8.1).
    pub(super) fn on_credit(&mut self, bytes: usize) {
        self.validation.on_received(bytes);
    }

    /// Bytes that may be sent before the address is validated; none: no limit.
    pub(in crate::connection) fn credit(&self) -> Option<u64> {
        self.validation.credit()
    }

    /// Asks whether the peer is there, or asks anew with other data. It is given up after `patience`, counted from
    /// the first time.
    pub(in crate::connection) fn ask(&mut self, now: Timestamp, data: [u8; 8], patience: Duration) {
        self.validation.ask(now, data, patience);
    }

    /// True if an answer is awaited, or a challenge is to be sent.
    pub(in crate::connection) fn is_asking(&self) -> bool {
        self.validation.is_asking()
    }

    /// Data of the PATH_CHALLENGE that is to be sent now.
    pub(in crate::connection) fn challenge(&self) -> Option<[u8; 8]> {
        self.validation.challenge()
    }

    /// The PATH_CHALLENGE was sent. It goes again after `pause`, then twice as long, and so on.
    pub(in crate::connection) fn on_challenge_sent(&mut self, now: Timestamp, pause: Duration) {
        self.validation.on_challenge_sent(now, pause);
    }

    /// PATH_RESPONSE came; returns true if it is the answer to what was asked here, which validates the path.
    pub(in crate::connection) fn on_path_response(&mut self, data: [u8; 8]) -> bool {
        self.validation.on_response(data)
    }

    /// Time at which a PATH_CHALLENGE is to be sent again or given up; none: none is pending.
    pub(in crate::connection) fn challenge_timer(&self) -> Option<Timestamp> {
        self.validation.timer()
    }

    /// A moment of [`Path::challenge_timer`] may have come; returns true if the question is given up now.
    pub(in crate::connection) fn on_challenge_timer(&mut self, now: Timestamp) -> bool {
        self.validation.on_timer(now)
    }

    /// PATH_CHALLENGE came, and is to be answered.
    pub(in crate::connection) fn answer(&mut self, data: [u8; 8]) {
        self.validation.answer(data);
    }

    /// Data of the PATH_RESPONSE that is to be sent now.
    pub(in crate::connection) fn response(&self) -> Option<[u8; 8]> {
        self.validation.response()
    }

    /// The PATH_RESPONSE was sent.
    pub(in crate::connection) fn on_response_sent(&mut self) {
        self.validation.on_response_sent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(100);
    const PATIENCE: Duration = Duration::from_secs(3);

    fn at(millis: u64) -> Timestamp {
        Timestamp::START + Duration::from_millis(millis)
    }

    #[test]
    fn three_times_what_came_may_be_sent_until_the_peer_proves_to_be_there() {
        let mut path = Validation::new(AddressOrigin::Claimed);
        assert_eq!(path.credit(), Some(0));
        path.on_received(1200);
        path.on_sent(1300);
        assert_eq!(path.credit(), Some(2300));
        path.on_sent(2301);
        assert_eq!(path.credit(), Some(0), "never less than nothing");
        path.on_proof();
        assert_eq!((path.credit(), path.is_validated()), (None, true));
        assert_eq!(Validation::new(AddressOrigin::Known).credit(), None);
        let chosen = Validation::new(AddressOrigin::Chosen);
        assert_eq!((chosen.credit(), chosen.is_validated()), (None, false));
    }

    #[test]
    fn a_challenge_goes_again_ever_more_seldom_until_it_is_given_up() {
        let mut path = Validation::new(AddressOrigin::Chosen);
        path.ask(at(0), [1; 8], PATIENCE);
        assert_eq!((path.challenge(), path.timer()), (Some([1; 8]), Some(at(3000))));
        let mut now = 0;
        for pause in [100, 200, 400, 800] {
            path.on_challenge_sent(at(now), PAUSE);
            assert!(!path.has_frames() && path.is_asking());
            assert_eq!(path.timer(), Some(at(now + pause)));
            assert!(!path.on_timer(at(now + pause - 1)) && !path.has_frames());
            now += pause;
            assert!(!path.on_timer(at(now)) && path.has_frames());
        }
        path.on_challenge_sent(at(now), PAUSE);
        assert_eq!(path.timer(), Some(at(3000)), "1600 ms more are too long");
        assert!(path.on_timer(at(3000)) && !path.is_asking() && path.timer().is_none());
        assert!(!path.on_timer(at(3000)), "it is given up once");
    }

    #[test]
    fn to_ask_anew_does_not_make_it_last_longer() {
        let mut path = Validation::new(AddressOrigin::Chosen);
        path.ask(at(0), [1; 8], PATIENCE);
        path.on_challenge_sent(at(0), PAUSE);
        path.ask(at(2900), [2; 8], PATIENCE);
        assert_eq!((path.challenge(), path.timer()), (Some([2; 8]), Some(at(3000))));
        assert!(!path.on_response([1; 8]), "the answer to the question before counts no more");
    }

    #[test]
    fn only_the_answer_to_what_was_sent_validates() {
        let mut path = Validation::new(AddressOrigin::Claimed);
        assert!(!path.on_response([0; 8]));
        path.ask(at(0), [1; 8], PATIENCE);
        assert!(!path.on_response([1; 8]), "who knows it before it is sent has guessed");
        path.on_challenge_sent(at(0), PAUSE);
        assert!(!path.on_response([2; 8]) && !path.is_validated());
        assert!(path.on_response([1; 8]) && path.is_validated() && !path.is_asking());
        assert!(!path.on_response([1; 8]), "once");
    }

    #[test]
    fn the_last_question_of_the_peer_is_answered() {
        let mut path = Validation::new(AddressOrigin::Known);
        path.answer([1; 8]);
        path.answer([2; 8]);
        assert_eq!((path.response(), path.has_frames()), (Some([2; 8]), true));
        path.on_response_sent();
        assert_eq!((path.response(), path.has_frames()), (None, false));
    }
}
