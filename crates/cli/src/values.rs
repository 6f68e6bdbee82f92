//! Parsers for values of options. Their errors say how to write the value.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use equic_gateway::parse_duration;

/// Parses an IP address and port.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address and port, such as 192.0.2.1:443 or [2001:db8::1]:443".to_owned()
    })
}

/// Parses an IP address.
pub(crate) fn ip_address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "write an IP address, such as 192.0.2.1 or 2001:db8::1".to_owned())
}

/// Parses a duration that must be longer than zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text).map_err(|error| error.to_string())? {
        Duration::ZERO => Err("the time must be longer than zero, such as 30s".to_owned()),
        duration => Ok(duration),
    }
}
