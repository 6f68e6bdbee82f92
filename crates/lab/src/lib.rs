//! Network namespaces, traffic and attacks for experiments on one machine.
//!
//! A [`Lab`] is a server and some clients, each in a network namespace of its own, joined by a
//! bridge in another one; nothing of it is visible from the machine's own network. Start at
//! [`Lab::builder`], then [`Namespace`] for running programs and code inside.
//!
//! * `lab`: ordering and owning a lab. `plan`: who has which address; `construct`: making it so.
//! * `namespace`, `process`: programs, closures and sockets inside a namespace; CPU pinning.
//! * `offload`: what an interface does that software would have to do without it.
//! * `state`, `cleanup`: the record of a lab on disk; removal on drop, on signals, after a crash.
//! * [`flood`]: attack traffic, which refuses to leave a lab. [`measure`]: what it cost.
//! * [`nftables`]: a packet filter to compare the gateway with.
//! * [`emulation`]: a network of the simulator in real time, between programs on a lab's hosts. `tcp`: the kernel's TCP.
//! * [`relay`]: a bad network in user space, between a server and its clients on any machine.
//!
//! It needs root:
//!
//! ```no_run
//! use equic_lab::Lab;
//!
//! # fn main() -> Result<(), equic_lab::LabError> {
//! let lab = Lab::builder("example").clients(2).mtu(1500).build()?;
//! println!("{} has {} clients", lab.id(), lab.clients().len());
//! lab.close()
//! # }
//! ```

#[cfg(test)]
#[path = "../../gateway/tests/support/ci.rs"]
mod ci;
mod cleanup;
mod construct;
pub mod emulation;
mod error;
pub mod flood;
mod lab;
pub mod measure;
mod namespace;
pub mod nftables;
mod offload;
pub mod plan;
mod process;
pub mod relay;
mod state;
mod tcp;

pub use cleanup::{Sweep, cleanup_on_signals};
pub use error::LabError;
pub use lab::{Lab, LabBuilder};
pub use namespace::Namespace;
pub use process::{pin_command, pin_thread, spawn};
pub use state::{LabRecord, NamespaceRecord};
pub use tcp::{TcpInfo, TcpSettings, knows_congestion};
