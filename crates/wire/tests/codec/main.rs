//! Tests of reading and writing: examples of the RFCs, properties of values and of random bytes,
//! comparison with other implementations, and rejected input.

mod errors;
mod foreign;
mod multipath;
mod parameters;
mod random;
mod rfc;
mod round_trip;
#[path = "../support/mod.rs"]
mod support;
