//! Sends and receives with system calls.

use std::io;
use std::net::UdpSocket;

use nix::libc;

use crate::message::{Messages, set, set_to};
use crate::{DATAGRAM, Receiver, Sender};

/// Sends one datagram per call.
pub(crate) struct SendOne {
    pub socket: UdpSocket,
}

impl Sender for SendOne {
    fn send(&mut self) -> io::Result<usize> {
        self.socket.send(&[7; DATAGRAM]).map(|_| 1)
    }
}

/// Receives one datagram per call.
pub(crate) struct ReceiveOne {
    pub socket: UdpSocket,
}

impl Receiver for ReceiveOne {
    fn receive(&mut self) -> io::Result<usize> {
        self.socket.recv(&mut [0; DATAGRAM]).map(|_| 1)
    }
}

/// Sends with sendmsg(2) or sendmmsg(2).
pub(crate) struct SendMessages {
    pub socket: UdpSocket,
    pub messages: Messages,
}

impl Sender for SendMessages {
    fn prepare(&mut self) -> bool {
        self.messages.write()
    }

    fn send(&mut self) -> io::Result<usize> {
        self.messages.send(&self.socket, 0)
    }
}

/// Receives with recvmsg(2) or recvmmsg(2).
pub(crate) struct ReceiveMessages {
    socket: UdpSocket,
    messages: Messages,
}

impl ReceiveMessages {
    pub(crate) fn new(socket: UdpSocket, count: usize, gro: bool) -> io::Result<ReceiveMessages> {
        set(&socket, libc::SOL_UDP, libc::UDP_GRO, gro.into())?;
        Ok(ReceiveMessages { socket, messages: Messages::to_receive(count, gro) })
    }
}

impl Receiver for ReceiveMessages {
    fn receive(&mut self) -> io::Result<usize> {
        self.messages.receive(&self.socket)
    }
}

/// Sends with sendmsg(2) and MSG_ZEROCOPY. The kernel uses the memory until the error queue reports
/// that it has finished.
pub(crate) struct SendZeroCopy {
    socket: UdpSocket,
    messages: Messages,
    completions: Messages,
    /// Number of messages whose memory the kernel has not returned.
    pending: usize,
    /// Number of messages whose memory the kernel has returned, and how many of them it had copied.
    done: usize,
    copied: usize,
}

impl SendZeroCopy {
    pub(crate) fn new(socket: UdpSocket, segments: usize) -> io::Result<SendZeroCopy> {
        set(&socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)?;
        Ok(SendZeroCopy {
            socket,
            messages: Messages::to_send(1, segments),
            completions: Messages::to_receive(1, false),
            pending: 0,
            done: 0,
            copied: 0,
        })
    }
}

impl Sender for SendZeroCopy {
    fn prepare(&mut self) -> bool {
        self.messages.write()
    }

    fn send(&mut self) -> io::Result<usize> {
        let sent = self.messages.send(&self.socket, libc::MSG_ZEROCOPY)?;
        self.pending += 1;
        Ok(sent)
    }

    fn settle(&mut self) -> io::Result<bool> {
        while let Some((count, copied)) = self.completions.completion(&self.socket)? {
            self.pending -= count.min(self.pending);
            self.done += count;
            self.copied += if copied { count } else { 0 };
        }
        Ok(self.pending == 0)
    }

    fn note(&self) -> Option<String> {
        Some(crate::copied(self.copied, self.done))
    }
}

/// Sends with sendmsg(2) and a transmission time for the datagrams (SO_TXTIME).
pub(crate) struct SendTimed(SendMessages);

impl SendTimed {
    pub(crate) fn new(socket: UdpSocket, segments: usize) -> io::Result<SendTimed> {
        let option = libc::sock_txtime { clockid: libc::CLOCK_MONOTONIC, flags: 0 };
        set_to(&socket, libc::SOL_SOCKET, libc::SO_TXTIME, &option)?;
        let mut messages = Messages::to_send(1, segments);
        messages.push(libc::SOL_SOCKET, libc::SCM_TXTIME, 0u64);
        Ok(SendTimed(SendMessages { socket, messages }))
    }
}

impl Sender for SendTimed {
    fn prepare(&mut self) -> bool {
        self.0.prepare()
    }

    fn send(&mut self) -> io::Result<usize> {
        // The time is now, so that no queue delays the datagrams. Only the cost of the option
        // counts.
        self.0.messages.replace(crate::monotonic()?);
        self.0.send()
    }
}
