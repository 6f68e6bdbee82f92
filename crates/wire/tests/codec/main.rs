//! What is read and written: by the RFCs' examples, by laws on values and bytes of chance, beside other
//! implementations, and what is refused.

mod errors;
mod foreign;
mod parameters;
mod random;
mod rfc;
mod round_trip;
#[path = "../support/mod.rs"]
mod support;
