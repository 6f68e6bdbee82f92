//! Models the playback of a video and its buffer.

use std::time::Duration;

use super::{Playing, Video};
use crate::time::Time;

/// The state of the player.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Playback has not begun.
    Starting,
    /// Playback is running. The buffer becomes empty at `empty_at` if no segment arrives.
    Playing { empty_at: Time },
    /// Playback has stopped at `since`, because the buffer was empty.
    Stalled { since: Time },
}

/// A video player with its buffer.
#[derive(Debug)]
pub(super) struct Playout {
    start: Time,
    segment: Duration,
    /// Playback duration that the buffer must hold before playback begins, or continues after a
    /// stall.
    needed: Duration,
    /// Largest playback duration that the buffer holds.
    most: Duration,
    /// Number of segments that have not arrived yet.
    missing: u64,
    state: State,
    /// Playback duration in the buffer. Valid only while playback is not running.
    held: Duration,
    startup: Option<Duration>,
    stalls: u64,
    stalled: Duration,
}

impl Playout {
    /// Creates a player. Its startup delay counts from `start`.
    pub(super) fn new(video: &Video, start: Time) -> Playout {
        Playout {
            start,
            segment: video.segment,
            needed: video.buffer,
            most: video.ahead.max(video.segment),
            missing: video.segments,
            state: State::Starting,
            held: Duration::ZERO,
            startup: None,
            stalls: 0,
            stalled: Duration::ZERO,
        }
    }

    /// Updates the state if a stall has begun before `now`.
    fn look(&mut self, now: Time) {
        if let State::Playing { empty_at } = self.state
            && now > empty_at
            && self.missing > 0
        {
            self.stalls += 1;
            self.held = Duration::ZERO;
            self.state = State::Stalled { since: empty_at };
        }
    }

    /// Adds an arrived segment to the buffer.
    pub(super) fn on_segment(&mut self, now: Time) {
        self.look(now);
        self.missing = self.missing.saturating_sub(1);
        match &mut self.state {
            State::Playing { empty_at } => *empty_at += self.segment,
            State::Starting | State::Stalled { .. } => self.held += self.segment,
        }
        if self.held < self.needed && self.missing > 0 {
            return;
        }
        match self.state {
            State::Playing { .. } => return,
            State::Starting => self.startup = Some(now.since(self.start)),
            State::Stalled { since } => self.stalled += now.since(since),
        }
        self.state = State::Playing { empty_at: now + self.held };
    }

    fn buffered(&self, now: Time) -> Duration {
        match self.state {
            State::Starting | State::Stalled { .. } => self.held,
            State::Playing { empty_at } => empty_at.since(now),
        }
    }

    /// Returns the time at which the buffer has room for another segment. Returns `now` if there is
    /// room already.
    pub(super) fn room_at(&self, now: Time) -> Time {
        let over = (self.buffered(now) + self.segment).saturating_sub(self.most);
        // While playback is not running, segments are requested even if the buffer is full.
        if matches!(self.state, State::Playing { .. }) { now + over } else { now }
    }

    /// Returns the playback statistics until `now`: the startup delay, and the stalls.
    pub(super) fn playing(&self, now: Time) -> Playing {
        let (mut stalls, mut stalled) = (self.stalls, self.stalled);
        match self.state {
            State::Stalled { since } => stalled += now.since(since),
            State::Playing { empty_at } if now > empty_at && self.missing > 0 => {
                stalls += 1;
                stalled += now.since(empty_at);
            }
            State::Playing { .. } | State::Starting => {}
        }
        Playing { startup: self.startup, stalls, stalled, buffered: self.buffered(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn playout_plays_stalls_and_resumes() {
        let video = Video {
            rate: 1_000_000,
            segment: seconds(2),
            segments: 6,
            buffer: seconds(4),
            ahead: seconds(6),
            request: 100,
        };
        let at = Time::from_secs;
        let mut player = Playout::new(&video, at(1));
        player.on_segment(at(2));
        assert_eq!(player.playing(at(3)).startup, None);
        // Playback begins at second 3 with four seconds of video in the buffer, so the buffer lasts
        // until second 7.
        player.on_segment(at(3));
        assert_eq!(player.playing(at(3)).startup, Some(seconds(2)));
        assert_eq!(player.room_at(at(3)), at(3));
        // The buffer now holds six seconds of video. There is no room for another segment until two
        // of them have been played.
        player.on_segment(at(3));
        assert_eq!(player.room_at(at(3)), at(5));
        let playing = player.playing(at(12));
        assert_eq!((playing.stalls, playing.stalled), (1, seconds(3)));
        // After a stall, playback must continue only when two segments are in the buffer.
        player.on_segment(at(13));
        assert_eq!(player.playing(at(14)).stalled, seconds(5));
        player.on_segment(at(15));
        let playing = player.playing(at(16));
        assert_eq!(
            (playing.stalls, playing.stalled, playing.buffered),
            (1, seconds(6), seconds(3))
        );
        // The buffer becomes empty at the end of the video. This is not a stall.
        player.on_segment(at(16));
        assert_eq!(player.playing(at(100)).stalls, 1);
    }
}
