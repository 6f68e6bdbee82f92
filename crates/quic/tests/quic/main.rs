//! [`equic_quic`] over loopback: with itself, and with quinn.

mod common;
mod early;
mod foreign;
mod hostile;
mod logs;
mod own;
mod preferred;
mod ready;
