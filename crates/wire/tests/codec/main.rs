//! Tests of reading and writing: by the RFCs' examples, by laws on values and random bytes, beside other
//! implementations, and of the input that is refused.

mod errors;
mod foreign;
mod multipath;
mod parameters;
mod random;
mod rfc;
mod round_trip;
#[path = "../support/mod.rs"]
mod support;
