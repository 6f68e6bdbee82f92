//! The UDP socket. It sends and receives batches of datagrams.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Instant;

use anyhow::Result;
use equic_bench_contract::Knobs;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

/// Maximum number of messages per receive. With GRO, each may contain several datagrams.
const BATCH: usize = 8;
const MESSAGE: usize = 65_536;
/// Maximum size of a sent message in bytes: the largest UDP payload of IPv4.
const MOST: usize = 65_507;

pub struct Io {
    pub socket: UdpSocket,
    pub local: SocketAddr,
    state: UdpSocketState,
    offload: bool,
    out: Vec<u8>,
    batch: Batch,
}

/// Datagrams received by one system call.
pub struct Inbox {
    buffers: Vec<u8>,
    metas: [RecvMeta; BATCH],
    count: usize,
}

/// Queued datagrams of the same size, which one message sends.
#[derive(Default)]
struct Batch {
    to: Option<SocketAddr>,
    filled: usize,
    segment: usize,
    count: usize,
}

impl Io {
    pub fn new(socket: UdpSocket, knobs: &Knobs) -> Result<Io> {
        let state = UdpSocketState::new((&socket).into())?;
        let local = socket.local_addr()?;
        // The buffer has room for the next datagram after a full message.
        let out = vec![0; 2 * MESSAGE];
        let offload = knobs.gso.unwrap_or(true);
        Ok(Io { socket, local, state, offload, out, batch: Batch::default() })
    }

    /// Returns whether GSO is used for sending, and whether GRO is used for receiving.
    pub fn offloads(&self) -> (bool, bool) {
        (self.offload && self.state.max_gso_segments() > 1, self.state.gro_segments() > 1)
    }

    /// Waits until datagrams arrive, or until standard input ends if `stdin` is true. Returns true
    /// if standard input has ended.
    pub fn wait(&self, until: Option<Instant>, stdin: bool) -> Result<bool> {
        let timeout = match until {
            None => PollTimeout::NONE,
            Some(until) => {
                // Rounded up. Otherwise, the loop would wake before the timeout and spin.
                let left = until.saturating_duration_since(Instant::now());
                PollTimeout::try_from(left.as_nanos().div_ceil(1_000_000))
                    .unwrap_or(PollTimeout::MAX)
            }
        };
        let input = std::io::stdin();
        let mut fds = vec![PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        if stdin {
            fds.push(PollFd::new(input.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(fds.get(1).and_then(PollFd::any).unwrap_or(false))
    }

    /// Receives one batch of available datagrams. Returns false if no datagram was available.
    pub fn receive(&self, inbox: &mut Inbox) -> Result<bool> {
        let Inbox { buffers, metas, count } = inbox;
        let mut slices: Vec<IoSliceMut<'_>> =
            buffers.chunks_exact_mut(MESSAGE).map(IoSliceMut::new).collect();
        *count = match self.state.recv((&self.socket).into(), &mut slices, metas) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(*count > 0)
    }

    /// Returns the buffer for the next datagram of at most this number of bytes.
    pub fn room(&mut self, most: usize) -> &mut [u8] {
        let at = self.batch.filled;
        &mut self.out[at..at + most]
    }

    /// Queues the datagram that was written to the buffer of [`Io::room`]. Returns true if a
    /// message was sent.
    pub fn queue(&mut self, len: usize, to: SocketAddr) -> Result<bool> {
        let at = self.batch.filled;
        let batch = &self.batch;
        let other = batch.count > 0 && (len > batch.segment || batch.to != Some(to));
        if other || at + len > MOST {
            self.flush()?;
            self.out.copy_within(at..at + len, 0);
        }
        let batch = &mut self.batch;
        if batch.count == 0 {
            (batch.segment, batch.to) = (len, Some(to));
        }
        batch.filled += len;
        batch.count += 1;
        let most = if self.offload { self.state.max_gso_segments() } else { 1 };
        // A datagram shorter than the others ends its batch (GSO).
        let full = len < self.batch.segment || self.batch.count >= most;
        if full {
            self.flush()?;
        }
        Ok(full || other)
    }

    /// Sends the queued datagrams.
    pub fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let Some(destination) = batch.to else { return Ok(()) };
        let transmit = Transmit {
            destination,
            ecn: None,
            contents: &self.out[..batch.filled],
            segment_size: (batch.count > 1).then_some(batch.segment),
            src_ip: None,
        };
        loop {
            match self.state.send((&self.socket).into(), &transmit) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
                    poll(&mut fds, PollTimeout::NONE)?;
                }
                // Any other error counts as a lost packet.
                _ => return Ok(()),
            }
        }
    }
}

impl Inbox {
    pub fn new() -> Inbox {
        Inbox { buffers: vec![0; BATCH * MESSAGE], metas: [RecvMeta::default(); BATCH], count: 0 }
    }

    /// Passes each datagram and its source address to `take`.
    pub fn each(
        &mut self,
        mut take: impl FnMut(&mut [u8], SocketAddr) -> Result<()>,
    ) -> Result<()> {
        let messages = self.buffers.chunks_exact_mut(MESSAGE).zip(&self.metas);
        for (buffer, meta) in messages.take(self.count) {
            for datagram in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
                take(datagram, meta.addr)?;
            }
        }
        Ok(())
    }
}
