//! Tests of [`equic_quic`] over loopback: with itself, and with quinn.

mod closing;
mod coming;
mod common;
mod early;
mod errors;
mod events;
mod floor;
mod foreign;
mod hooks;
mod hostile;
mod identity;
mod layers;
mod local;
mod logs;
mod own;
mod panics;
mod preferred;
mod ready;
mod renewal;
mod settings;
mod steer;
mod tls;
mod turns;
