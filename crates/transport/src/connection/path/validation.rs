//! Validation of a path's address (RFC 9000 s.8): challenges, responses, and the anti-amplification
//! limit. The rest of the connection uses it through [`Path`].

use std::time::Duration;

use rand::RngCore;

use super::Path;
use crate::Timestamp;

/// Anti-amplification limit: how many times the received bytes may be sent to an address before it
/// is validated (RFC 9000 s.8.1).
const AMPLIFICATION: u64 = 3;

/// Maximum number of times that the pause between two PATH_CHALLENGE frames is doubled.
const MAX_DOUBLINGS: u32 = 6;

/// Largest number of a path's challenges that the peer can still answer: the last ones sent. The
/// pauses between challenges double, so validation fails before more are sent.
const MAX_ASKED: usize = 8;

/// Maximum number of answers that wait on a path. The peer can get no more of them from one
/// datagram, even if it sends more challenges in it. All of them fit into a datagram of 1,200
/// bytes. A packet of challenges therefore causes one datagram, and needs no memory beyond these
/// answers.
const MAX_RESPONSES: usize = 64;

/// A pending path validation (RFC 9000 s.8.2).
#[derive(Debug)]
struct Challenge {
    /// Data of the next frame. Each frame has different data, so that the response shows which one
    /// arrived (RFC 9000 s.8.2.1).
    data: [u8; 8],
    /// Data of the frames sent, and whether their datagrams had 1,200 bytes.
    asked: Vec<([u8; 8], bool)>,
    /// Time at which the validation fails.
    until: Timestamp,
    /// True if the challenge must be sent now.
    due: bool,
    /// Time at which to send the challenge again. `None` before it is sent.
    again: Option<Timestamp>,
    /// Number of times that the challenge was sent.
    sent: u32,
}

/// What a PATH_RESPONSE proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum Answer {
    /// The peer is at the path's address. The challenge was sent in less than 1,200 bytes, so it is
    /// not known whether the path carries 1,200 bytes (RFC 9000 s.8.2.1).
    Address,
    /// The path carries 1,200 bytes to the peer, whose address was validated before.
    Size,
    /// Both: the peer is at the address, and the path carries 1,200 bytes.
    Path,
}

/// Source of a path's address. It determines what may be sent before validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum AddressOrigin {
    /// The peer has proved its address with a token, or it is the server to which a client
    /// connects.
    Known,
    /// Packets came from the address. An attacker may have spoofed it to flood a victim.
    Claimed,
    /// We chose the address. Only the congestion window limits what is sent before validation.
    Chosen,
}

/// Validation of one path, in both directions.
#[derive(Debug)]
pub(super) struct Validation {
    /// True if the address is validated.
    validated: bool,
    /// True if only a challenge of less than 1,200 bytes was answered. It is then unknown whether
    /// the path carries 1,200 bytes.
    small: bool,
    /// True if the anti-amplification limit applies. It does not for addresses that we chose.
    limited: bool,
    /// Boxed, because it is rarely needed.
    challenge: Option<Box<Challenge>>,
    /// Data of the PATH_CHALLENGE frames to answer (RFC 9000 s.8.2.2), oldest first; at most
    /// [`MAX_RESPONSES`].
    responses: Vec<[u8; 8]>,
    received: u64,
    sent: u64,
}

impl Validation {
    pub(super) fn new(origin: AddressOrigin) -> Validation {
        let validated = origin == AddressOrigin::Known;
        let limited = origin == AddressOrigin::Claimed;
        let responses = Vec::new();
        Validation {
            validated,
            small: false,
            limited,
            challenge: None,
            responses,
            received: 0,
            sent: 0,
        }
    }

    fn is_validated(&self) -> bool {
        self.validated
    }

    /// Validates the address by a proof other than a PATH_RESPONSE.
    fn on_proof(&mut self) {
        self.validated = true;
    }

    fn on_received(&mut self, bytes: usize) {
        self.received += bytes as u64;
    }

    pub(super) fn on_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Returns how many bytes may be sent before the address is validated, or `None` if there is no
    /// limit.
    pub(super) fn credit(&self) -> Option<u64> {
        (self.limited && !self.validated)
            .then(|| (self.received * AMPLIFICATION).saturating_sub(self.sent))
    }

    /// Starts a validation, or continues one with new data. It fails `patience` after its first
    /// start.
    fn ask(&mut self, now: Timestamp, data: [u8; 8], patience: Duration) {
        // Responses to earlier challenges may be in flight. They prove the same.
        let (until, asked) = match self.challenge.take() {
            Some(old) => (old.until, old.asked),
            None => (now + patience, Vec::new()),
        };
        let challenge = Challenge { data, asked, until, due: true, again: None, sent: 0 };
        self.challenge = Some(Box::new(challenge));
    }

    /// Stops the validation and drops pending responses.
    pub(super) fn stop(&mut self) {
        (self.challenge, self.responses) = (None, Vec::new());
    }

    /// Returns true if a validation is pending.
    fn is_asking(&self) -> bool {
        self.challenge.is_some()
    }

    /// Returns the data of the PATH_CHALLENGE that must be sent now.
    fn challenge(&self) -> Option<[u8; 8]> {
        self.challenge.as_ref().filter(|asked| asked.due).map(|asked| asked.data)
    }

    /// Records that the PATH_CHALLENGE was sent. `whole` is true if its datagram had 1,200 bytes.
    /// The next one is sent after `pause`, and the pause then doubles each time.
    fn on_challenge_sent(&mut self, now: Timestamp, pause: Duration, whole: bool) {
        if let Some(challenge) = &mut self.challenge {
            challenge.again = Some(now + pause * (1 << challenge.sent.min(MAX_DOUBLINGS)));
            challenge.due = false;
            challenge.sent += 1;
            if challenge.asked.len() == MAX_ASKED {
                challenge.asked.remove(0);
            }
            challenge.asked.push((challenge.data, whole));
        }
    }

    /// Processes a PATH_RESPONSE. Returns what it proves, or `None` if it answers no challenge of
    /// this path. After [`Answer::Address`], the validation continues if a challenge of 1,200 bytes
    /// was sent as well.
    fn on_response(&mut self, data: [u8; 8]) -> Option<Answer> {
        let challenge = self.challenge.as_mut()?;
        let at = challenge.asked.iter().position(|(asked, _)| *asked == data)?;
        let (_, whole) = challenge.asked.remove(at);
        let before = std::mem::replace(&mut self.validated, true);
        // Once the address is validated, nothing limits the size. A challenge that is still smaller
        // could not be sent in a larger datagram.
        if whole || before {
            self.challenge = None;
            let second = std::mem::take(&mut self.small);
            return Some(if second { Answer::Size } else { Answer::Path });
        }
        self.small = true;
        if !challenge.asked.iter().any(|(_, whole)| *whole) {
            self.challenge = None;
        }
        Some(Answer::Address)
    }

    /// Returns the time at which a PATH_CHALLENGE must be repeated or the validation fails, or
    /// `None` if none is pending.
    fn timer(&self) -> Option<Timestamp> {
        let asked = self.challenge.as_ref()?;
        Some(asked.again.filter(|_| !asked.due).map_or(asked.until, |at| at.min(asked.until)))
    }

    /// Performs what [`Validation::timer`] announced, if it is due. Returns true if the validation
    /// fails now.
    fn on_timer(&mut self, now: Timestamp, rng: &mut dyn RngCore) -> bool {
        let Some(asked) = &mut self.challenge else { return false };
        if asked.until <= now {
            self.challenge = None;
            return true;
        }
        if asked.again.is_some_and(|at| at <= now) {
            asked.due = true;
            asked.again = None;
            rng.fill_bytes(&mut asked.data);
        }
        false
    }

    /// Queues the response to a PATH_CHALLENGE. Beyond [`MAX_RESPONSES`], challenges are ignored.
    fn answer(&mut self, data: [u8; 8]) {
        if self.responses.len() < MAX_RESPONSES && !self.responses.contains(&data) {
            self.responses.push(data);
        }
    }

    /// Returns true if a PATH_RESPONSE waits.
    fn owes_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Returns the data of all PATH_RESPONSE frames to send now, and clears the list.
    fn take_responses(&mut self) -> Vec<[u8; 8]> {
        std::mem::take(&mut self.responses)
    }

    /// Returns true if a PATH_CHALLENGE or PATH_RESPONSE waits.
    pub(super) fn has_frames(&self) -> bool {
        self.owes_responses() || self.challenge().is_some()
    }
}

/// Interface of the validation for the rest of the connection.
impl Path {
    /// Returns true if the peer's address is validated.
    pub(in crate::connection) fn is_validated(&self) -> bool {
        self.validation.is_validated()
    }

    /// Validates the address by a proof other than a PATH_RESPONSE.
    pub(in crate::connection) fn on_proof(&mut self) {
        self.validation.on_proof();
    }

    /// Records received bytes. Three times as many may be sent before validation (RFC 9000 s.8.1).
    pub(super) fn on_credit(&mut self, bytes: usize) {
        self.validation.on_received(bytes);
    }

    /// Returns how many bytes may be sent before the address is validated, or `None` if there is no
    /// limit.
    pub(in crate::connection) fn credit(&self) -> Option<u64> {
        self.validation.credit()
    }

    /// Starts a validation, or continues one with new data. It fails `patience` after its first
    /// start.
    pub(in crate::connection) fn ask(&mut self, now: Timestamp, data: [u8; 8], patience: Duration) {
        self.validation.ask(now, data, patience);
    }

    /// Returns true if a validation is pending.
    pub(in crate::connection) fn is_asking(&self) -> bool {
        self.validation.is_asking()
    }

    /// Returns the data of the PATH_CHALLENGE that must be sent now.
    pub(in crate::connection) fn challenge(&self) -> Option<[u8; 8]> {
        self.validation.challenge()
    }

    /// Records that the PATH_CHALLENGE was sent. `whole` is true if its datagram had 1,200 bytes.
    /// The next one is sent after `pause`, and the pause then doubles each time.
    pub(in crate::connection) fn on_challenge_sent(
        &mut self,
        now: Timestamp,
        pause: Duration,
        whole: bool,
    ) {
        self.validation.on_challenge_sent(now, pause, whole);
    }

    /// Processes a PATH_RESPONSE. Returns what it proves, or `None` if it answers no challenge of
    /// this path. After [`Answer::Address`], the validation continues if a challenge of 1,200 bytes
    /// was sent as well.
    pub(in crate::connection) fn on_path_response(&mut self, data: [u8; 8]) -> Option<Answer> {
        self.validation.on_response(data)
    }

    /// Returns the time at which a PATH_CHALLENGE must be repeated or the validation fails, or
    /// `None` if none is pending.
    pub(in crate::connection) fn challenge_timer(&self) -> Option<Timestamp> {
        self.validation.timer()
    }

    /// Performs what [`Path::challenge_timer`] announced, if it is due. Returns true if the
    /// validation fails now. Otherwise the next challenge may be due, with new data.
    pub(in crate::connection) fn on_challenge_timer(
        &mut self,
        now: Timestamp,
        rng: &mut dyn RngCore,
    ) -> bool {
        self.validation.on_timer(now, rng)
    }

    /// Queues the response to a PATH_CHALLENGE, unless too many wait.
    pub(in crate::connection) fn answer(&mut self, data: [u8; 8]) {
        self.validation.answer(data);
    }

    /// Returns true if a PATH_RESPONSE waits.
    pub(in crate::connection) fn owes_responses(&self) -> bool {
        self.validation.owes_responses()
    }

    /// Returns the data of all PATH_RESPONSE frames to send now, and clears the list. The caller
    /// must return those that do not fit with [`Path::answer`].
    pub(in crate::connection) fn take_responses(&mut self) -> Vec<[u8; 8]> {
        self.validation.take_responses()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(100);
    const PATIENCE: Duration = Duration::from_secs(3);

    fn rng() -> StdRng {
        StdRng::seed_from_u64(1)
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::START + Duration::from_millis(millis)
    }

    #[test]
    fn anti_amplification_limit_is_three_times_the_received_bytes() {
        let mut path = Validation::new(AddressOrigin::Claimed);
        assert_eq!(path.credit(), Some(0));
        path.on_received(1200);
        path.on_sent(1300);
        assert_eq!(path.credit(), Some(2300));
        path.on_sent(2301);
        assert_eq!(path.credit(), Some(0), "the credit is never negative");
        path.on_proof();
        assert_eq!((path.credit(), path.is_validated()), (None, true));
        assert_eq!(Validation::new(AddressOrigin::Known).credit(), None);
        let chosen = Validation::new(AddressOrigin::Chosen);
        assert_eq!((chosen.credit(), chosen.is_validated()), (None, false));
    }

    #[test]
    fn path_challenge_backs_off_until_it_is_given_up() {
        let mut path = Validation::new(AddressOrigin::Chosen);
        path.ask(at(0), [1; 8], PATIENCE);
        assert_eq!((path.challenge(), path.timer()), (Some([1; 8]), Some(at(3000))));
        let (mut now, mut rng) = (0, rng());
        for pause in [100, 200, 400, 800] {
            path.on_challenge_sent(at(now), PAUSE, true);
            assert!(!path.has_frames() && path.is_asking());
            assert_eq!(path.timer(), Some(at(now + pause)));
            assert!(!path.on_timer(at(now + pause - 1), &mut rng) && !path.has_frames());
            now += pause;
            assert!(!path.on_timer(at(now), &mut rng) && path.has_frames());
        }
        path.on_challenge_sent(at(now), PAUSE, true);
        assert_eq!(path.timer(), Some(at(3000)), "a pause of 1600 ms would exceed the time");
        assert!(path.on_timer(at(3000), &mut rng) && !path.is_asking() && path.timer().is_none());
        assert!(!path.on_timer(at(3000), &mut rng), "the validation fails only once");
    }

    #[test]
    fn path_challenge_that_is_renewed_lasts_no_longer() {
        let mut path = Validation::new(AddressOrigin::Chosen);
        path.ask(at(0), [1; 8], PATIENCE);
        path.on_challenge_sent(at(0), PAUSE, true);
        path.ask(at(2900), [2; 8], PATIENCE);
        assert_eq!((path.challenge(), path.timer()), (Some([2; 8]), Some(at(3000))));
        assert_eq!(path.on_response([1; 8]), Some(Answer::Path), "the response was in flight");
    }

    #[test]
    fn path_response_must_match_what_was_sent() {
        let mut path = Validation::new(AddressOrigin::Claimed);
        assert_eq!(path.on_response([0; 8]), None);
        path.ask(at(0), [1; 8], PATIENCE);
        assert_eq!(path.on_response([1; 8]), None, "a response before the challenge is a guess");
        path.on_challenge_sent(at(0), PAUSE, true);
        assert!(path.on_response([2; 8]).is_none() && !path.is_validated());
        assert_eq!(path.on_response([1; 8]), Some(Answer::Path));
        assert!(path.is_validated() && !path.is_asking());
        assert_eq!(path.on_response([1; 8]), None, "a response counts once");
    }

    #[test]
    fn path_challenge_has_new_data_each_time_and_any_recent_answer_counts() {
        let (mut now, mut rng, mut sent) = (0, rng(), Vec::new());
        let mut path = Validation::new(AddressOrigin::Chosen);
        path.ask(at(0), [1; 8], PATIENCE);
        for _ in 0..4 {
            sent.extend(path.challenge());
            path.on_challenge_sent(at(now), PAUSE, true);
            now = path.timer().unwrap().since(Timestamp::START).as_millis() as u64;
            path.on_timer(at(now), &mut rng);
        }
        assert_eq!(sent.len(), 4);
        for (at, data) in sent.iter().enumerate() {
            assert!(!sent[..at].contains(data), "{sent:?}");
        }
        assert_eq!(path.on_response(sent[1]), Some(Answer::Path), "a late response counts");
    }

    #[test]
    fn path_challenge_data_is_remembered_within_bounds() {
        let (mut now, mut rng) = (0, rng());
        let mut path = Validation::new(AddressOrigin::Chosen);
        path.ask(at(0), [1; 8], PATIENCE * 1000);
        for _ in 0..50 {
            path.on_challenge_sent(at(now), PAUSE, true);
            now = path.timer().unwrap().since(Timestamp::START).as_millis() as u64;
            assert!(!path.on_timer(at(now), &mut rng));
        }
        assert_eq!(path.challenge.as_ref().unwrap().asked.len(), MAX_ASKED);
        assert_eq!(path.on_response([1; 8]), None, "the challenge was dropped");
    }

    /// RFC 9000 s.8.2.1: the second challenge tests the size.
    #[test]
    fn path_validation_by_a_small_datagram_needs_a_second_one() {
        let mut path = Validation::new(AddressOrigin::Claimed);
        path.ask(at(0), [1; 8], PATIENCE);
        path.on_challenge_sent(at(0), PAUSE, false);
        assert_eq!(path.on_response([1; 8]), Some(Answer::Address));
        assert!(path.is_validated() && path.credit().is_none() && !path.is_asking());
        path.ask(at(10), [2; 8], PATIENCE);
        path.on_challenge_sent(at(10), PAUSE, true);
        assert_eq!(path.on_response([2; 8]), Some(Answer::Size));
        assert!(!path.is_asking());
        // A later validation works like any other.
        path.ask(at(10), [3; 8], PATIENCE);
        path.on_challenge_sent(at(10), PAUSE, true);
        assert_eq!(path.on_response([3; 8]), Some(Answer::Path));
    }

    #[test]
    fn path_validation_waits_for_a_full_datagram_under_way() {
        let mut path = Validation::new(AddressOrigin::Claimed);
        path.ask(at(0), [1; 8], PATIENCE);
        path.on_challenge_sent(at(0), PAUSE, false);
        path.on_timer(at(100), &mut rng());
        let second = path.challenge().unwrap();
        path.on_challenge_sent(at(100), PAUSE, true);
        assert_eq!(path.on_response([1; 8]), Some(Answer::Address));
        assert!(path.is_asking(), "no third challenge is needed");
        assert_eq!(path.on_response(second), Some(Answer::Size));
        assert!(!path.is_asking());
    }

    #[test]
    fn path_challenge_of_the_peer_is_answered_within_bounds() {
        let mut path = Validation::new(AddressOrigin::Known);
        for byte in [1, 2, 1, 3] {
            path.answer([byte; 8]);
        }
        assert!(path.owes_responses() && path.has_frames());
        assert_eq!(path.take_responses(), [[1; 8], [2; 8], [3; 8]]);
        assert!(!path.owes_responses() && !path.has_frames());
        for number in 0..10_000_u64 {
            path.answer(number.to_be_bytes());
        }
        assert_eq!(path.take_responses().len(), MAX_RESPONSES);
    }
}
