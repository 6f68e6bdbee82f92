//! End-to-end tests of the gateway: the `equic` command, the XDP program on real interfaces in
//! network namespaces, real HTTP/3 servers and clients, real floods.
//!
//! Start at [`stage`] (a lab with a gateway, a server, and hosts as QUIC clients) and [`attack`]
//! (floods). The other modules, by subject:
//!
//! * Limits: [`quota`], [`flood`], [`bans`], [`live`] (live changes, dry run, strict).
//! * Addresses: [`forged`] (forged sources), [`migration`], [`retry`] (address validation),
//!   [`paths`] (several paths of a connection).
//! * Connection IDs and answers: [`ids`] (verifiable connection IDs), [`resets`] (dead servers),
//!   [`loops`] (answers to answers), [`versions`] of QUIC, [`handshake`].
//! * Lifetime: [`crash`], [`handover`] (takeovers, servers without privileges), [`honest_clients`]
//!   (honest clients that connect during all of this).
//! * [`other_traffic`]: traffic that has nothing to do with the protected service.
//! * [`readme`], [`tutorials`] and [`guides`]: commands of the documentation.
//! * [`wiring`]: interfaces, services, servers, and other XDP programs, which [`foreign`] attaches.
//!
//! Every test has its own lab and gateway name, so the tests run in parallel. Tests that flood take
//! turns ([`attack::turn`]). All need root. Without it, they print that they are skipped, or fail
//! if `CI` is set.

mod attack;
mod bans;
mod crash;
mod flood;
mod foreign;
mod forged;
mod guides;
mod handover;
mod handshake;
mod honest_clients;
mod ids;
mod live;
mod loops;
mod migration;
mod other_traffic;
mod paths;
mod quota;
mod readme;
mod resets;
mod retry;
mod stage;
mod tutorials;
mod versions;
mod wiring;

use equic_test_kit::commands as common;
