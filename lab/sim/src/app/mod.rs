//! Applications: the data that the two ends of a connection send to each other. They are the same
//! over QUIC and TCP.
//!
//! An [`Application`] is a description. [`crate::quic::attach`] and [`crate::tcp::attach`] create
//! both ends of a connection with that application on their nodes. [`Party::report`] returns the
//! results.
//!
//! Over QUIC, each request, object or segment has its own stream, and each message of a call is a
//! DATAGRAM frame (RFC 9221). Over TCP, all of them share one byte stream, in which they take turns
//! with frames of at most 16 KiB. The loss of a segment there delays all later data (head-of-line
//! blocking).
//!
//! * `client.rs`, `server.rs`, `call.rs`: the behaviour of each end;
//! * `playout.rs`: the playback buffer of a video;
//! * `party.rs`: one end with its connection. The trait `Channel` has the operations that it needs
//!   from a connection. `quic/channel.rs` and `tcp/channel.rs` implement it.

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

/// Smallest message of a call, in bytes. The message's number and creation time fit into it.
pub const LEAST_MESSAGE: u32 = 16;

/// Largest number of units of an application. A unit is a request, stream, object, segment or
/// message.
pub const MAX_UNITS: u64 = 1_000_000;

/// The application of a connection. It determines which data the two ends send, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Application {
    /// The client sends requests one after another, and the server answers each.
    Requests(Requests),
    /// The client sends on many streams at once.
    Streams(Streams),
    /// The client fetches a web page. It discovers some objects only after it has received others.
    Page(Page),
    /// The client fetches a video segment by segment, while it plays the video.
    Video(Video),
    /// The client sends messages at a constant rate. Each message is useful only for a short time.
    Call(Call),
}

/// Requests and their responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Number of requests.
    pub count: u64,
    /// Size of each request, in bytes.
    pub request: u64,
    /// Size of each response, in bytes.
    pub response: u64,
    /// Time from the end of a response to the start of the next request.
    pub think: Duration,
    /// Largest number of requests in progress.
    pub concurrent: u64,
}

/// Streams that all begin at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// Number of streams.
    pub count: u64,
    /// Size of each stream, in bytes.
    pub bytes: u64,
}

/// A web page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Size of each request, in bytes.
    pub request: u64,
    /// The objects of the page. There must be at least one, and at least one must have an empty
    /// `after`.
    pub objects: Vec<Object>,
}

/// An object of a [`Page`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Name of the object in results.
    pub name: String,
    /// Size of the response with the object, in bytes.
    pub bytes: u64,
    /// Indices of the objects of the page that must arrive before this object is requested.
    pub after: Vec<usize>,
}

/// A video with a constant bit rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Video {
    /// Bit rate of the video, in bits per second.
    pub rate: u64,
    /// Playback duration of a segment.
    pub segment: Duration,
    /// Number of segments.
    pub segments: u64,
    /// Playback duration that must be in the buffer before playback begins, and before it continues
    /// after a stall.
    pub buffer: Duration,
    /// Largest playback duration in the buffer. The client does not request a segment that would
    /// exceed it.
    pub ahead: Duration,
    /// Size of each request, in bytes.
    pub request: u64,
}

impl Video {
    /// Returns the size of a segment in bytes. It is at least one.
    pub fn segment_bytes(&self) -> u64 {
        let bits = u128::from(self.rate) * self.segment.as_nanos() / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX).max(1)
    }
}

/// A call: messages from the client to the server, at a constant rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of messages.
    pub count: u64,
    /// Size of each message in bytes, at least [`LEAST_MESSAGE`].
    pub message: u32,
    /// Time between two messages.
    pub every: Duration,
    /// A message that takes longer than this is late.
    pub deadline: Duration,
}

impl Application {
    /// Returns the number of the application's units: requests, streams, objects, segments or
    /// messages.
    pub fn units(&self) -> u64 {
        match self {
            Application::Requests(requests) => requests.count,
            Application::Streams(streams) => streams.count,
            Application::Page(page) => page.objects.len() as u64,
            Application::Video(video) => video.segments,
            Application::Call(call) => call.count,
        }
    }

    /// Returns `true` if most bytes go from the server to the client.
    pub fn is_download(&self) -> bool {
        !matches!(self, Application::Streams(_) | Application::Call(_))
    }

    /// Returns the largest number of streams that the application has open at a time.
    pub fn concurrent(&self) -> u64 {
        match self {
            Application::Requests(requests) => requests.concurrent,
            Application::Video(_) | Application::Call(_) => 1,
            Application::Streams(_) | Application::Page(_) => self.units(),
        }
    }

    /// Returns the number of bytes that the client sends for a unit.
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

    /// Returns the number of bytes that the server sends for a unit.
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

/// A completed request, stream, object, segment or message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Index of the unit, from 0, in the order of the description.
    pub number: u64,
    /// Time at which the application requested the unit. A request may be older than the
    /// connection, because it waits until the connection is established.
    pub began: Time,
    /// Time at which the receiving application had the unit's last byte.
    pub ended: Time,
}

impl Unit {
    /// Returns the time between `began` and `ended`.
    pub fn took(&self) -> Duration {
        self.ended.since(self.began)
    }
}

/// The results of an application after a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The completed units, in the order of their completion.
    pub units: Vec<Unit>,
    /// Number of messages that arrived after the deadline of a call.
    pub late: u64,
    /// Playback of the video, or `None` for other applications.
    pub playing: Option<Playing>,
    /// Time at which all units were complete, or `None` if they are not.
    pub completed: Option<Time>,
    /// Number of bytes that the receiving application has read.
    pub bytes: u64,
    /// Reason why the connection failed, or `None` if it did not.
    pub failure: Option<String>,
}

/// The playback of a video up to a point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Playing {
    /// Time from the start of the connection to the start of playback. `None` if playback has not
    /// begun.
    pub startup: Option<Duration>,
    /// Number of times that the buffer became empty before the end of the video.
    pub stalls: u64,
    /// Total duration of the stalls, including one in progress.
    pub stalled: Duration,
    /// Playback duration in the buffer.
    pub buffered: Duration,
}
