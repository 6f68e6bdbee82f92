//! Server, client and load generator against each other on the loopback interface.
//!
//! `common` starts servers and watches their admission; `serving` asks for things, `hostile` for
//! things that do not exist or are no HTTP/3, `admission` counts who is in, `load` the generators,
//! `foreign` does it over quinn.
//! Randomised tests print their seed; EQUIC_SEED replays one.

mod admission;
mod common;
mod foreign;
mod hostile;
mod load;
mod serving;
