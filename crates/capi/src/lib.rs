//! C library of the eQUIC gateway.
