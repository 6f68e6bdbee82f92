//! A model of what a network does to packets: rate, delay, queue, loss, corruption, duplication and
//! reordering. It needs no real network. The relay in user space, the transport's tests in virtual
//! time, and the simulator use it.
//!
//! [`Link`] describes one direction of a link. A [`Port`] is such a direction in use: the caller
//! passes each packet in the order of sending, and gets a [`Delivery`] with the packet's fate and
//! arrival time. A [`Trace`] is a recorded rate in Mahimahi's format.
//!
//! The model never waits and reads no clock. The caller passes times, counted from a start that it
//! chooses. The same link, seed and packets give the same results in any process.
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
