//! Validation of a path's address (RFC 9000 s.8): whether the peer is there, the challenges sent to find out, and the
//! limit on what may be sent before. The rest of a connection asks the [`Path`] whose it is.

use std::time::Duration;

use rand::RngCore;

use super::Path;
use crate::Timestamp;

/// Most bytes to send to an address not yet validated, as a multiple of those received from it (RFC 9000 s.8.1).
const AMPLIFICATION: u64 = 3;

/// A PATH_CHALLENGE is sent again after pauses that double so many times at most.
const MAX_DOUBLINGS: u32 = 6;

/// Largest number of a path's challenges that the peer can still answer: the last ones sent. The
/// pauses between challenges double, so validation is given up before more are sent.
const MAX_ASKED: usize = 8;

/// Largest number of answers that a path owes at a time. The peer can get no more of them from one
/// datagram, even if it sends more challenges in it. All of them fit into a datagram of 1,200
/// bytes. A packet of challenges therefore causes one datagram, and needs no memory beyond these
/// answers.
const MAX_RESPONSES: usize = 64;

/// A question whether the peer is there (RFC 9000 s.8.2).
#[derive(Debug)]
struct Challenge {
    /// Data of the next frame: each has its own, so that an answer tells which one arrived (RFC 9000 s.8.2.1).
    data: [u8; 8],
    /// Data of frames that were sent, and whether their datagrams had 1,200 bytes.
    asked: Vec<([u8; 8], bool)>,
    /// Time at which the challenge is given up.
    until: Timestamp,
    /// True if it is to be sent now.
    due: bool,
    /// Time at which to send the challenge again; none: not again.
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
    /// Both at once.
    Path,
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
    /// It did so to a challenge in less than 1,200 bytes: whether the path carries as many is not known.
    small: bool,
    /// Somebody else may have named the address, to have it flooded; not so those that we chose.
    limited: bool,
    /// Kept apart, as it is seldom needed.
    challenge: Option<Box<Challenge>>,
    /// Data of each PATH_CHALLENGE to be echoed (RFC 9000 s.8.2.2), from the oldest on; at most [`MAX_RESPONSES`].
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
        // Answers to what was asked before may be under way: they prove the same.
        let (until, asked) = match self.challenge.take() {
            Some(old) => (old.until, old.asked),
            None => (now + patience, Vec::new()),
        };
        let challenge = Challenge { data, asked, until, due: true, again: None, sent: 0 };
        self.challenge = Some(Box::new(challenge));
    }

    /// Nothing is asked or answered any more.
    pub(super) fn stop(&mut self) {
        (self.challenge, self.responses) = (None, Vec::new());
    }

    /// True if an answer is awaited, or a challenge is to be sent.
    fn is_asking(&self) -> bool {
        self.challenge.is_some()
    }

    /// Data of the PATH_CHALLENGE that is to be sent now.
    fn challenge(&self) -> Option<[u8; 8]> {
        self.challenge.as_ref().filter(|asked| asked.due).map(|asked| asked.data)
    }

    /// The PATH_CHALLENGE was sent; `whole`: in a datagram of 1,200 bytes. The next one goes after `pause`, then
    /// after twice as long, and so on.
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

    /// PATH_RESPONSE came. Returns what it proves, or `None` if it is no answer to what was asked here. After
    /// [`Answer::Address`] the path is still asked about if a challenge of 1,200 bytes was sent, too.
    fn on_response(&mut self, data: [u8; 8]) -> Option<Answer> {
        let challenge = self.challenge.as_mut()?;
        let at = challenge.asked.iter().position(|(asked, _)| *asked == data)?;
        let (_, whole) = challenge.asked.remove(at);
        let before = std::mem::replace(&mut self.validated, true);
        // Once the address is validated nothing limits the size: if a challenge is still smaller, another one
        // would be, too.
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

    /// Time at which a PATH_CHALLENGE is to be sent again or given up; none: none is pending.
    fn timer(&self) -> Option<Timestamp> {
        let asked = self.challenge.as_ref()?;
        Some(asked.again.filter(|_| !asked.due).map_or(asked.until, |at| at.min(asked.until)))
    }

    /// A moment of [`Validation::timer`] may have come; returns whether the question is given up now.
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

    /// PATH_CHALLENGE came, and is to be answered. Of more than [`MAX_RESPONSES`] the first ones are.
    fn answer(&mut self, data: [u8; 8]) {
        if self.responses.len() < MAX_RESPONSES && !self.responses.contains(&data) {
            self.responses.push(data);
        }
    }

    /// True if a PATH_CHALLENGE is yet to be answered.
    fn owes_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Takes the data of all PATH_RESPONSE frames that are to be sent now.
    fn take_responses(&mut self) -> Vec<[u8; 8]> {
        std::mem::take(&mut self.responses)
    }

    /// True if a PATH_CHALLENGE or PATH_RESPONSE waits.
    pub(super) fn has_frames(&self) -> bool {
        self.owes_responses() || self.challenge().is_some()
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

    /// The PATH_CHALLENGE was sent; `whole`: in a datagram of 1,200 bytes. The next one goes after `pause`, then after
    /// twice as long, and so on.
    pub(in crate::connection) fn on_challenge_sent(
        &mut self,
        now: Timestamp,
        pause: Duration,
        whole: bool,
    ) {
        self.validation.on_challenge_sent(now, pause, whole);
    }

    /// PATH_RESPONSE came. Returns what it proves, or `None` if it is no answer to what was asked here. After
    /// [`Answer::Address`] the path is still asked about if a challenge of 1,200 bytes was sent, too.
    pub(in crate::connection) fn on_path_response(&mut self, data: [u8; 8]) -> Option<Answer> {
        self.validation.on_response(data)
    }

    /// Time at which a PATH_CHALLENGE is to be sent again or given up; none: none is pending.
    pub(in crate::connection) fn challenge_timer(&self) -> Option<Timestamp> {
        self.validation.timer()
    }

    /// A moment of [`Path::challenge_timer`] may have come; returns true if the question is given up now. Otherwise
    /// the next challenge may be due, with other data.
    pub(in crate::connection) fn on_challenge_timer(
        &mut self,
        now: Timestamp,
        rng: &mut dyn RngCore,
    ) -> bool {
        self.validation.on_timer(now, rng)
    }

    /// PATH_CHALLENGE came, and is to be answered, unless too many are.
    pub(in crate::connection) fn answer(&mut self, data: [u8; 8]) {
        self.validation.answer(data);
    }

    /// True if a PATH_CHALLENGE is yet to be answered.
    pub(in crate::connection) fn owes_responses(&self) -> bool {
        self.validation.owes_responses()
    }

    /// Takes the data of all PATH_RESPONSE frames that are to be sent now. What does not fit is to be given back by
    /// [`Path::answer`].
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
        assert_eq!(path.credit(), Some(0), "never less than nothing");
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
        assert_eq!(path.timer(), Some(at(3000)), "1600 ms more are too long");
        assert!(path.on_timer(at(3000), &mut rng) && !path.is_asking() && path.timer().is_none());
        assert!(!path.on_timer(at(3000), &mut rng), "it is given up once");
    }

    #[test]
    fn path_challenge_that_is_renewed_lasts_no_longer() {
        let mut path = Validation::new(AddressOrigin::Chosen);
        path.ask(at(0), [1; 8], PATIENCE);
        path.on_challenge_sent(at(0), PAUSE, true);
        path.ask(at(2900), [2; 8], PATIENCE);
        assert_eq!((path.challenge(), path.timer()), (Some([2; 8]), Some(at(3000))));
        assert_eq!(path.on_response([1; 8]), Some(Answer::Path), "its answer was under way");
    }

    #[test]
    fn path_response_must_match_what_was_sent() {
        let mut path = Validation::new(AddressOrigin::Claimed);
        assert_eq!(path.on_response([0; 8]), None);
        path.ask(at(0), [1; 8], PATIENCE);
        assert_eq!(path.on_response([1; 8]), None, "who knows it before it is sent has guessed");
        path.on_challenge_sent(at(0), PAUSE, true);
        assert!(path.on_response([2; 8]).is_none() && !path.is_validated());
        assert_eq!(path.on_response([1; 8]), Some(Answer::Path));
        assert!(path.is_validated() && !path.is_asking());
        assert_eq!(path.on_response([1; 8]), None, "once");
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
        assert_eq!(path.on_response(sent[1]), Some(Answer::Path), "it took its time");
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
        assert_eq!(path.on_response([1; 8]), None, "forgotten");
    }

    /// RFC 9000 s.8.2.1.
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
        // Asked again later, it is as any other.
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
        assert!(path.is_asking(), "no third one is needed");
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
