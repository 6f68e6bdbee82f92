//! Applications: what the ends of a connection have to say to each other, the same over QUIC and over TCP.
//!
//! An [`Application`] is a description; [`crate::quic::attach`] and [`crate::tcp::attach`] put both ends of a connection
//! that carries it on their nodes, and [`Party::report`] is what came of it. Over QUIC, each request, object or segment
//! has a stream of its own and each message of a call is a DATAGRAM frame (RFC 9221). Over TCP all share the one stream
//! of bytes, in frames of at most 16 KiB that take turns, so that what is lost of one holds up all that came behind it.
//!
//! * `client.rs`, `server.rs`, `call.rs`: what each end does; `playout.rs`: the buffer of a video;
//! * `party.rs`: an end with its connection. What a connection has to offer for that is the trait `Channel`, which
//!   `quic/channel.rs` and `tcp/channel.rs` have.

#[cfg(any(feature = "quic", feature = "tcp"))]
mod call;
#[cfg(any(feature = "quic", feature = "tcp"))]
mod client;
#[cfg(any(feature = "quic", feature = "tcp"))]
mod party;
#[cfg(any(feature = "quic", feature = "tcp"))]
mod playout;
#[cfg(any(feature = "quic", feature = "tcp"))]
mod server;

use std::time::Duration;

use crate::time::Time;

#[cfg(any(feature = "quic", feature = "tcp"))]
pub use party::Party;
#[cfg(any(feature = "quic", feature = "tcp"))]
pub(crate) use party::{Channel, Heard, Message, Say, ends};

/// Least bytes of a message of a call: its number and the time at which it was made are in it.
pub const LEAST_MESSAGE: u32 = 16;

/// Most units that an application has: requests, streams, objects, segments or messages.
pub const MAX_UNITS: u64 = 1_000_000;

/// Application of a connection: the pattern of its transfers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Application {
    /// The client asks, the server answers, again and again.
    Requests(Requests),
    /// The client sends on many streams at once.
    Streams(Streams),
    /// The client fetches a web page: objects, some of which are known only when others are there.
    Page(Page),
    /// The client fetches a video, segment by segment, while it plays.
    Video(Video),
    /// The client sends messages at a constant rate, each of which is worth something for a short time.
    Call(Call),
}

/// Requests and their responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Number of requests.
    pub count: u64,
    /// Bytes of each request.
    pub request: u64,
    /// Bytes of each response.
    pub response: u64,
    /// Time from the end of a response to the next request.
    pub think: Duration,
    /// Number of requests that are under way at a time.
    pub concurrent: u64,
}

/// Streams that all begin at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// Number of streams.
    pub count: u64,
    /// Bytes of each stream.
    pub bytes: u64,
}

/// A web page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Bytes of each request.
    pub request: u64,
    /// Objects: at least one, and one at least that comes after no other.
    pub objects: Vec<Object>,
}

/// An object of a [`Page`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Name in results.
    pub name: String,
    /// Bytes of the response.
    pub bytes: u64,
    /// Objects, by their place in the page, that have to be there before this one is asked for.
    pub after: Vec<usize>,
}

/// A video of constant rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Video {
    /// Bits per second of playing time.
    pub rate: u64,
    /// Playing time of a segment.
    pub segment: Duration,
    /// Number of segments.
    pub segments: u64,
    /// Playing time that is in the buffer when it begins to play, and when it goes on after a stall.
    pub buffer: Duration,
    /// Playing time that the buffer holds at most: no segment is asked for that would not fit.
    pub ahead: Duration,
    /// Bytes of each request.
    pub request: u64,
}

impl Video {
    /// Bytes of a segment, at least one.
    pub fn segment_bytes(&self) -> u64 {
        let bits = u128::from(self.rate) * self.segment.as_nanos() / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX).max(1)
    }
}

/// Messages at a constant rate, from the client to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of messages.
    pub count: u64,
    /// Bytes of each message, [`LEAST_MESSAGE`] or more.
    pub message: u32,
    /// Time from one message to the next.
    pub every: Duration,
    /// Time after which a message is late.
    pub deadline: Duration,
}

impl Application {
    /// Number of its requests, streams, objects, segments or messages.
    pub fn units(&self) -> u64 {
        match self {
            Application::Requests(requests) => requests.count,
            Application::Streams(streams) => streams.count,
            Application::Page(page) => page.objects.len() as u64,
            Application::Video(video) => video.segments,
            Application::Call(call) => call.count,
        }
    }

    /// True if most bytes go from the server to the client.
    pub fn is_download(&self) -> bool {
        !matches!(self, Application::Streams(_) | Application::Call(_))
    }

    /// Streams that it may have open at a time.
    pub fn concurrent(&self) -> u64 {
        match self {
            Application::Requests(requests) => requests.concurrent,
            Application::Video(_) | Application::Call(_) => 1,
            Application::Streams(_) | Application::Page(_) => self.units(),
        }
    }

    /// Bytes that the client says for a unit.
    #[cfg(any(feature = "quic", feature = "tcp"))]
    pub(crate) fn request(&self) -> u64 {
        match self {
            Application::Requests(requests) => requests.request,
            Application::Streams(streams) => streams.bytes,
            Application::Page(page) => page.request,
            Application::Video(video) => video.request,
            Application::Call(_) => 0,
        }
    }

    /// Bytes that the server answers for a unit.
    #[cfg(any(feature = "quic", feature = "tcp"))]
    pub(crate) fn response(&self, unit: u64) -> u64 {
        match self {
            Application::Requests(requests) => requests.response,
            Application::Page(page) => {
                let object = usize::try_from(unit).ok().and_then(|unit| page.objects.get(unit));
                object.map_or(0, |object| object.bytes)
            }
            Application::Video(video) => video.segment_bytes(),
            Application::Streams(_) | Application::Call(_) => 0,
        }
    }
}

/// A request, stream, object, segment or message that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Number, from 0 in the order of the description.
    pub number: u64,
    /// Time at which the application wanted it: of a request, before there was a connection perhaps.
    pub began: Time,
    /// Time at which its last byte was at the application that waits for it.
    pub ended: Time,
}

impl Unit {
    /// Time that it took.
    pub fn took(&self) -> Duration {
        self.ended.since(self.began)
    }
}

/// Figures of an application after a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Units that came to their end, in that order.
    pub units: Vec<Unit>,
    /// Units that are late by the deadline of a call, of those that came.
    pub late: u64,
    /// The video's playing, if it is one.
    pub playing: Option<Playing>,
    /// Time at which all was done; none: it did not get that far.
    pub completed: Option<Time>,
    /// Bytes that the application which waits has read.
    pub bytes: u64,
    /// Reason for which the connection failed, if it did.
    pub failure: Option<String>,
}

/// Playback of a video until a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Playing {
    /// Time from the start of the connection until it began to play; none: it has not.
    pub startup: Option<Duration>,
    /// Number of times that the buffer was empty before the end.
    pub stalls: u64,
    /// Time for which it stood still so, a stall that lasts included.
    pub stalled: Duration,
    /// Playing time in the buffer.
    pub buffered: Duration,
}
