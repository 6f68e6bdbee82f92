//! The client application for requests, streams, pages and videos. It sends requests on streams,
//! and waits for the responses.

use std::collections::{BTreeMap, VecDeque};

use super::party::{Heard, Program, RequestedUnits, Say};
use super::playout::Playout;
use super::{Application, Report, Unit};
use crate::time::Time;

/// The order in which the client requests the units of an application: requests, streams, objects
/// or segments.
enum Order {
    /// Requests one after another. `next` is the number of the next request, and `due` has the
    /// times at which further requests may begin.
    Requests { next: u64, due: VecDeque<Time> },
    /// Requests all units at once.
    Streams,
    /// Requests the objects of a page. For each object, `missing` is the number of objects that
    /// must arrive before the client requests it.
    Page { missing: Vec<usize> },
    /// Requests the segments of a video while the buffer has room. `next` is the number of the next
    /// segment, and `due` is the time at which the buffer will have room.
    Video { next: u64, player: Playout, due: Option<Time> },
}

/// The client's application.
pub(super) struct Client {
    application: Application,
    start: Time,
    asked: RequestedUnits,
    order: Order,
    /// Requests in progress, by stream: the unit and its start time.
    open: BTreeMap<u64, (u64, Time)>,
    /// Number of streams that the client has opened so far.
    streams: u64,
    report: Report,
}

impl Client {
    pub(super) fn new(application: &Application, start: Time, asked: RequestedUnits) -> Client {
        let order = match application {
            Application::Requests(requests) => {
                let first = requests.concurrent.clamp(1, requests.count.max(1));
                Order::Requests { next: 0, due: (0..first).map(|_| start).collect() }
            }
            Application::Page(page) => {
                Order::Page { missing: page.objects.iter().map(|one| one.after.len()).collect() }
            }
            Application::Video(video) => {
                Order::Video { next: 0, player: Playout::new(video, start), due: Some(start) }
            }
            // A call has its own client application, so it does not occur here.
            Application::Streams(_) | Application::Call(_) => Order::Streams,
        };
        let (open, report) = (BTreeMap::new(), Report::default());
        Client { application: application.clone(), start, asked, order, open, streams: 0, report }
    }

    fn ask(&mut self, now: Time, unit: u64, say: &mut Vec<Say>) {
        let stream = self.streams;
        self.streams += 1;
        self.asked.push(unit);
        self.open.insert(stream, (unit, now));
        say.push(Say::Stream { stream, bytes: self.application.request() });
    }

    fn on_unit(&mut self, now: Time, unit: u64, say: &mut Vec<Say>) {
        let mut next = Vec::new();
        match (&self.application, &mut self.order) {
            (Application::Requests(requests), Order::Requests { due, .. }) => {
                due.push_back(now + requests.think);
            }
            (Application::Page(page), Order::Page { missing }) => {
                for (index, object) in page.objects.iter().enumerate() {
                    let waited =
                        object.after.iter().filter(|before| **before as u64 == unit).count();
                    if waited > 0 {
                        missing[index] -= waited;
                        next.extend((missing[index] == 0).then_some(index as u64));
                    }
                }
            }
            (_, Order::Video { player, due, .. }) => {
                player.on_segment(now);
                *due = Some(player.room_at(now));
            }
            _ => {}
        }
        for unit in next {
            self.ask(now, unit, say);
        }
        if self.report.units.len() as u64 == self.application.units() {
            self.report.completed = Some(now);
        }
    }
}

impl Program for Client {
    fn start(&mut self, now: Time, say: &mut Vec<Say>) {
        let first: Vec<u64> = match &self.order {
            Order::Streams => (0..self.application.units()).collect(),
            Order::Page { missing } => {
                let free = missing.iter().enumerate().filter(|(_, missing)| **missing == 0);
                free.map(|(index, _)| index as u64).collect()
            }
            Order::Requests { .. } | Order::Video { .. } => Vec::new(),
        };
        for unit in first {
            self.ask(now, unit, say);
        }
        self.wake(now, say);
    }

    fn hear(&mut self, now: Time, heard: Heard, say: &mut Vec<Say>) {
        match heard {
            Heard::Bytes { bytes, .. } => self.report.bytes += bytes,
            Heard::Finished { stream } => {
                // For `streams`, the server ends each stream with an empty response. That response
                // is not a unit: the server counts the units it receives.
                if let Some((number, began)) = self.open.remove(&stream) {
                    self.report.units.push(Unit { number, began, ended: now });
                    self.on_unit(now, number, say);
                }
            }
            Heard::Connected | Heard::Message(_) => {}
        }
        self.wake(now, say);
    }

    fn wake(&mut self, now: Time, say: &mut Vec<Say>) {
        loop {
            let units = self.application.units();
            let unit = match &mut self.order {
                Order::Requests { next, due } => {
                    if *next >= units || due.pop_front_if(|at| *at <= now).is_none() {
                        return;
                    }
                    next
                }
                Order::Video { next, due, .. } => {
                    if *next >= units || due.take_if(|at| *at <= now).is_none() {
                        return;
                    }
                    next
                }
                Order::Streams | Order::Page { .. } => return,
            };
            let number = *unit;
            *unit += 1;
            self.ask(now, number, say);
        }
    }

    fn next(&self) -> Option<Time> {
        let units = self.application.units();
        match &self.order {
            Order::Requests { next, due } => due.front().copied().filter(|_| *next < units),
            Order::Video { next, due, .. } => due.filter(|_| *next < units),
            Order::Streams | Order::Page { .. } => None,
        }
    }

    fn start_at(&self) -> Time {
        self.start
    }

    fn is_done(&self) -> bool {
        self.report.completed.is_some() && self.application.is_download()
    }

    fn bytes(&self) -> u64 {
        self.report.bytes
    }

    fn report(&self, now: Time) -> Report {
        let mut report = self.report.clone();
        if let Order::Video { player, .. } = &self.order {
            report.playing = Some(player.playing(report.completed.unwrap_or(now)));
        }
        report
    }
}
