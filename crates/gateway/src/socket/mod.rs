//! The gateway's Unix socket, through which servers without any privilege get a ledger.
//!
//! A server connects, sends its name, and receives descriptors: its ledger for writing, and the
//! gateway's settings and lists for reading. After that, it counts in shared memory like any other
//! server. The connection carries no more messages. While it is open, the ledger keeps its slot in
//! the gateway.
//!
//! A server's abilities are those of its descriptors. It can count connections in its own ledger,
//! but only for the services that the gateway allowed. It cannot put a ledger into a slot, change a
//! limit, or read another server's ledger.
//!
//! When a client migrates, the kernel does not see that. So the server asks the gateway how many
//! connections the new source holds with the other servers of its services. It does that over a
//! second connection, which ends with the answer.
//!
//! * `protocol.rs`: the messages. Start reading there;
//! * `host.rs`: the gateway's side, which does not trust any peer; `rules.rs`: the permissions of
//!   users; `path.rs`: the socket in the file system;
//! * `client.rs`: the server's side, behind [`Ledger::connect`](crate::Ledger::connect);
//!   `watch.rs`: how its thread is stopped; `lists.rs`: reading the lists.

pub(crate) mod client;
pub(crate) mod host;
pub(crate) mod lists;
mod path;
pub(crate) mod protocol;
mod rules;
pub(crate) mod watch;
