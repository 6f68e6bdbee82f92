//! Network namespaces, traffic and attacks for experiments on one machine.
//!
//! A [`Lab`] is a server and some clients. Each has its own network namespace. A bridge in another
//! namespace connects them. The machine's own network is not affected. Start at [`Lab::builder`],
//! then use [`Namespace`] to run programs and code inside.
//!
//! * `lab`: the builder and the owner of a lab. `plan`: addresses; `construct`: creation.
//! * `namespace`, `process`: programs, closures and sockets inside a namespace; CPU pinning.
//! * `offload`: offloads of an interface.
//! * `state`, `cleanup`: the record of a lab on disk; removal on drop, on signals, and after a
//!   crash.
//! * [`flood`]: attack traffic, which cannot leave a lab. [`measure`]: the cost of an experiment in
//!   CPU time and packets.
//! * [`nftables`]: a packet filter for comparison with the gateway.
//! * [`emulation`]: a simulated network in real time, between programs on a lab's hosts. `tcp`: the
//!   kernel's TCP.
//! * [`relay`]: an impaired network in user space, between a server and its clients on any machine.
//!
//! Labs need root:
//!
//! ```no_run
//! use equic_netns::Lab;
//!
//! # fn main() -> Result<(), equic_netns::LabError> {
//! let lab = Lab::builder("example").clients(2).mtu(1500).build()?;
//! println!("{} has {} clients", lab.id(), lab.clients().len());
//! lab.close()
//! # }
//! ```

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
