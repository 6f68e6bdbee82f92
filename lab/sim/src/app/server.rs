//! The server application for requests, streams, pages and videos. It answers each stream when the
//! last byte of the stream has arrived.

use super::party::{Heard, Program, RequestedUnits, Say};
use super::{Application, Report, Unit};
use crate::time::Time;

/// The server's application.
pub(super) struct Server {
    application: Application,
    /// Time at which the client begins its connection.
    start: Time,
    asked: RequestedUnits,
    report: Report,
}

impl Server {
    pub(super) fn new(application: &Application, start: Time, asked: RequestedUnits) -> Server {
        Server { application: application.clone(), start, asked, report: Report::default() }
    }
}

impl Program for Server {
    fn start(&mut self, _: Time, _: &mut Vec<Say>) {}

    fn hear(&mut self, now: Time, heard: Heard, say: &mut Vec<Say>) {
        match heard {
            Heard::Bytes { bytes, .. } => self.report.bytes += bytes,
            Heard::Finished { stream } => {
                let unit = self.asked.get(stream);
                say.push(Say::Stream { stream, bytes: self.application.response(unit) });
                self.report.units.push(Unit { number: unit, began: self.start, ended: now });
                if self.report.units.len() as u64 == self.application.units() {
                    self.report.completed = Some(now);
                }
            }
            Heard::Connected | Heard::Message(_) => {}
        }
    }

    fn wake(&mut self, _: Time, _: &mut Vec<Say>) {}

    fn next(&self) -> Option<Time> {
        None
    }

    fn start_at(&self) -> Time {
        self.start
    }

    fn is_done(&self) -> bool {
        self.report.completed.is_some() && !self.application.is_download()
    }

    fn bytes(&self) -> u64 {
        self.report.bytes
    }

    fn report(&self, _: Time) -> Report {
        self.report.clone()
    }
}
