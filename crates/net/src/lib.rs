//! Effects of a network on packets, without a network: one model of a link's rate, delay, queue, loss,
//! corruption, duplication and reordering. The relay in user space, the transport's tests in virtual
//! time and whatever simulates stand on the same one.
//!
//! [`Link`] describes one direction of a link; a [`Port`] is that direction in use: it is asked about
//! each packet in the order of sending, and its [`Delivery`] says what befalls the packet and when the
//! packet arrives. A [`Trace`] is a rate that was recorded, in Mahimahi's format. Nobody waits and no clock is read: moments are handed in, as the time since a start
//! that the caller chose. The same link, seed and packets give the same verdicts, in any process.
//!
//! ```
//! use std::time::Duration;
//! use equic_net::{Fate, Link, Port, Queue};
//!
//! let link = Link {
//!     rate: Some(10_000_000),
//!     delay: Duration::from_millis(50),
//!     queue: Queue::Packets(2),
//!     ..Link::default()
//! };
//! let mut port = Port::new(link, 1);
//! // 1,250 bytes take a millisecond at 10 Mb/s.
//! let verdict = port.send(Duration::ZERO, 1250);
//! assert_eq!((verdict.fate, verdict.arrival), (Fate::Delivered, Duration::from_millis(51)));
//! ```

#![forbid(unsafe_code)]

mod link;
mod loss;
mod port;
mod trace;

pub use link::{BlackHole, Chance, Link, LinkError, Queue, Stall};
pub use loss::{GilbertElliott, Loss};
pub use port::{Corruption, Delivery, Fate, Port};
pub use trace::{MAX_TRACE_TEXT, OPPORTUNITY_BYTES, Trace, TraceCursor, TraceError};
