//! Receives the kernel's notifications about interfaces: rtnetlink(7), group RTMGRP_LINK.
//!
//! Every notification makes the gateway check its interfaces. The indices of deleted interfaces are
//! also passed on.

use std::collections::BTreeSet;
use std::io;

use nix::libc;

use crate::netlink::Listener;

/// Sizes of nlmsghdr (netlink(7)) and of ifinfomsg (rtnetlink(7)), in bytes.
const HEADER: usize = 16;
const INTERFACE: usize = 16;

/// A socket that receives notifications about interfaces of this network namespace. It needs no
/// privileges.
pub(super) struct Links(Listener);

impl Links {
    /// Opens the socket. Must be called inside a tokio runtime.
    pub(super) fn open() -> io::Result<Links> {
        Listener::open(libc::RTMGRP_LINK).map(Links)
    }

    /// Waits until [`Links::hear`] has messages to read.
    pub(super) async fn ready(&self) {
        self.0.ready().await;
    }

    /// Reads all pending messages. Returns the indices of interfaces that were deleted since the
    /// last call.
    pub(super) fn hear(&self) -> BTreeSet<u32> {
        let mut gone = BTreeSet::new();
        self.0.hear(|messages| gone.extend(vanished(messages)));
        gone
    }
}

/// Returns the indices of the interfaces that the messages report as deleted.
fn vanished(mut messages: &[u8]) -> Vec<u32> {
    let mut gone = Vec::new();
    while let Some(header) = messages.first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let Some(body) = messages.get(HEADER..length) else { break };
        // With AF_BRIDGE, RTM_DELLINK only means that the interface is no longer a port of a
        // bridge.
        if kind == libc::RTM_DELLINK
            && let Some(body) = body.first_chunk::<INTERFACE>()
            && i32::from(body[0]) == libc::AF_UNSPEC
        {
            gone.push(u32::from_ne_bytes([body[4], body[5], body[6], body[7]]));
        }
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, family: u8, index: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(36u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([family, 0, 0, 0]);
        bytes.extend(index.to_ne_bytes());
        bytes.extend([0; 8]);
        // An attribute.
        bytes.extend([4, 0, 1, 0]);
        bytes
    }

    #[test]
    fn link_messages_give_the_deleted_interfaces() {
        let (new, deleted) = (libc::RTM_NEWLINK, libc::RTM_DELLINK);
        let bridge = u8::try_from(libc::AF_BRIDGE).unwrap();
        let all = [
            message(new, 0, 5),
            message(deleted, 0, 6),
            message(deleted, bridge, 7),
            message(deleted, 0, 8),
        ]
        .concat();
        assert_eq!(vanished(&all), [6, 8]);
        for length in 0..all.len() {
            assert!(vanished(&all[..length]).len() <= 2, "cut at {length}");
        }
    }

    #[test]
    fn link_messages_with_a_false_length_are_not_read() {
        for length in [0u32, 1, 15, 16, 20, 31, 37, u32::MAX] {
            let mut bytes = message(libc::RTM_DELLINK, 0, 6);
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(vanished(&bytes), [0u32; 0], "{length}");
        }
    }
}
