//! The gateway's Unix socket: how servers without any privilege get a ledger.
//!
//! A server connects, says what it is called, and gets descriptors: its ledger to write, the
//! gateway's settings and lists to read. From then on it counts in shared memory like any other. The
//! connection says nothing more; while it is open, the ledger has its place in the gateway.
//!
//! What a server can do is what its descriptors let it do: count, in its own ledger, for the services
//! it was let in for. It cannot put a ledger anywhere, change a limit, or read another's ledger. By another
//! connection, which ends with the answer, it can ask how many connections one source holds with the other servers
//! of its services: when a client has migrated, which the kernel does not see.
//!
//! * `protocol.rs`: the messages; start there;
//! * `host.rs`: the gateway's side, which takes every peer for hostile; `rules.rs`: who may do what;
//!   `path.rs`: the socket in the file system;
//! * `client.rs`: the server's side, behind [`Ledger::connect`](crate::Ledger::connect); `watch.rs`: how its thread is ended;
//!   `lists.rs`: the lists as it reads them.

pub(crate) mod client;
pub(crate) mod host;
pub(crate) mod lists;
mod path;
pub(crate) mod protocol;
mod rules;
pub(crate) mod watch;
