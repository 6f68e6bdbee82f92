//! The gateway's Unix socket, through which servers without any privilege get a ledger.
//!
//! A server connects, sends its name, and gets descriptors: its ledger for writing, and the
//! gateway's settings and lists for reading. From then on it counts in shared memory like any other
//! server. The connection carries no more messages; while it is open, the ledger keeps its slot in
//! the gateway.
//!
//! A server's abilities are those of its descriptors: it can count, in its own ledger, for the
//! services that it was admitted for. It cannot put a ledger into a slot, change a limit, or read
//! another server's ledger. Through another connection, which ends with the answer, it can query
//! how many connections one source holds with the other servers of its services. It does that when
//! a client has migrated, because the kernel does not see migrations.
//!
//! * `protocol.rs`: the messages; start there;
//! * `host.rs`: the gateway's side, which does not trust any peer; `rules.rs`: who may do what;
//!   `path.rs`: the socket in the file system;
//! * `client.rs`: the server's side, behind [`Ledger::connect`](crate::Ledger::connect);
//!   `watch.rs`: how its thread is stopped; `lists.rs`: reading the lists.

pub(crate) mod client;
pub(crate) mod host;
pub(crate) mod lists;
mod path;
pub(crate) mod protocol;
mod rules;
pub(crate) mod watch;
