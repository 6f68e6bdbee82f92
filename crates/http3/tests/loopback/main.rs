//! Tests of the server, the client and the load generator against each other, on the loopback
//! interface.
//!
//! Helpers: `equic_test_kit::http3` starts servers and records the calls of their admission,
//! `common` sends requests and waits, `relay` delays datagrams, and `foreign` has peers on quinn.
//!
//! Tests:
//!
//! * `serving`: requests and responses; `service`: requests to a router of axum, and
//!   `service_attacks` peers that abuse it; `early`: 0-RTT; `paths`: multipath; `admission`: which
//!   clients are counted;
//! * `ends`: how requests and connections end; `repeat`: requests that a server did not process;
//!   `unread`: requests that the server does not read to their end; `long_fields`: requests with
//!   too many header fields; `trailers`: trailers of requests; `malformed`: malformed responses;
//!   `qpack`: large integers;
//! * `rules`: clients that break rules of HTTP/3; `lies`: servers that do so; `hostile`: garbage
//!   and malformed requests; `greedy`: clients that take too much.
//!
//! Randomised tests print their seed. EQUIC_SEED repeats a run.

mod admission;
mod common;
mod early;
mod ends;
mod foreign;
mod greedy;
mod hostile;
mod lies;
mod long_fields;
mod malformed;
mod paths;
mod qpack;
mod relay;
mod repeat;
mod rules;
mod service;
mod service_attacks;
mod serving;
mod trailers;
mod unread;
