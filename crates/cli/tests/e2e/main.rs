//! The gateway end to end: the `equic` command, the XDP program on real interfaces in network
//! namespaces, real HTTP/3 servers and clients, real floods.
//!
//! Start at [`stage`] (a lab, its gateway and server, its hosts as QUIC clients) and [`attack`].
//! Then, by what is shown: [`quota`], [`handshake`], [`migration`], [`forged`] (source addresses), [`crash`], [`flood`], [`live`]
//! (changes while it runs, dry run, strict), [`retry`] (proof of addresses), [`ids`] (connection
//! IDs that prove themselves), [`resets`] (servers that die), [`loops`] (answers to answers), [`versions`] (of
//! QUIC), [`bans`], [`paths`] (several of a connection), [`handover`] (takeovers, servers without privileges),
//! [`honest`] (clients that come meanwhile), [`bystander`] (traffic that is none of its business),
//! [`readme`] and [`tutorials`] (their commands), [`wiring`] (interfaces, services, servers; other XDP programs, made by [`foreign`]).
//!
//! Every test has a lab and a gateway name of its own, so they run side by side; those that flood
//! take turns ([`attack::turn`]). They need root; without it they say so, and fail where `CI` is set.

mod attack;
mod bans;
mod bystander;
mod crash;
mod flood;
mod foreign;
mod forged;
mod handover;
mod handshake;
mod honest;
mod ids;
mod live;
mod loops;
mod migration;
mod paths;
mod quota;
mod readme;
mod resets;
mod retry;
mod stage;
mod tutorials;
mod versions;
mod wiring;

use equic_testing as common;
