//! The client and server applications of a call. The client sends messages at a constant rate, and
//! the server counts how many arrive in time.

use super::party::{Heard, Message, Program, Say};
use super::{Call, Report, Unit};
use crate::time::Time;

/// The client's application. It sends messages as soon as the connection is established.
pub(super) struct Caller {
    call: Call,
    start: Time,
    begun: Option<Time>,
    sent: u64,
}

impl Caller {
    pub(super) fn new(call: &Call, start: Time) -> Caller {
        Caller { call: call.clone(), start, begun: None, sent: 0 }
    }
}

impl Program for Caller {
    fn start(&mut self, _: Time, _: &mut Vec<Say>) {}

    fn hear(&mut self, now: Time, heard: Heard, say: &mut Vec<Say>) {
        if matches!(heard, Heard::Connected) {
            self.begun.get_or_insert(now);
        }
        self.wake(now, say);
    }

    fn wake(&mut self, now: Time, say: &mut Vec<Say>) {
        while self.next().is_some_and(|at| at <= now) {
            let message = Message { number: self.sent, made: now, bytes: self.call.message };
            say.push(Say::Message(message));
            self.sent += 1;
            if self.sent == self.call.count {
                // The client ends a stream to mark the end of the call, because streams are
                // delivered reliably and messages are not.
                say.push(Say::Stream { stream: 0, bytes: 0 });
            }
        }
    }

    fn next(&self) -> Option<Time> {
        let begun = self.begun.filter(|_| self.sent < self.call.count)?;
        let every = u64::try_from(self.call.every.as_nanos()).unwrap_or(u64::MAX);
        Some(Time::from_nanos(begun.as_nanos().saturating_add(every.saturating_mul(self.sent))))
    }

    fn start_at(&self) -> Time {
        self.start
    }

    fn is_done(&self) -> bool {
        false
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn report(&self, _: Time) -> Report {
        Report::default()
    }
}

/// The server's application, which counts the received messages. The call is complete when all
/// messages have arrived, or one deadline after the server has received the end of the call.
pub(super) struct Called {
    call: Call,
    start: Time,
    over_at: Option<Time>,
    report: Report,
}

impl Called {
    pub(super) fn new(call: &Call, start: Time) -> Called {
        Called { call: call.clone(), start, over_at: None, report: Report::default() }
    }
}

impl Program for Called {
    fn start(&mut self, _: Time, _: &mut Vec<Say>) {}

    fn hear(&mut self, now: Time, heard: Heard, say: &mut Vec<Say>) {
        match heard {
            Heard::Message(Message { number, made, bytes }) => {
                let unit = Unit { number, began: made, ended: now };
                self.report.late += u64::from(unit.took() > self.call.deadline);
                self.report.bytes += u64::from(bytes);
                self.report.units.push(unit);
            }
            Heard::Finished { .. } => {
                self.over_at.get_or_insert(now + self.call.deadline);
            }
            Heard::Connected | Heard::Bytes { .. } => {}
        }
        self.wake(now, say);
    }

    fn wake(&mut self, now: Time, _: &mut Vec<Say>) {
        let all = self.report.units.len() as u64 == self.call.count;
        if all || self.over_at.is_some_and(|at| at <= now) {
            self.report.completed.get_or_insert(now);
        }
    }

    fn next(&self) -> Option<Time> {
        self.over_at.filter(|_| self.report.completed.is_none())
    }

    fn start_at(&self) -> Time {
        self.start
    }

    fn is_done(&self) -> bool {
        self.report.completed.is_some()
    }

    fn bytes(&self) -> u64 {
        self.report.bytes
    }

    fn report(&self, _: Time) -> Report {
        self.report.clone()
    }
}
