//! Sends and receives with io_uring. Requests and results are in rings, and one call handles many
//! of them.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd, RecvMsgOut};
use io_uring::{IoUring, cqueue, opcode, squeue};
use nix::libc;

use crate::mapping::Mapping;
use crate::message::{MESSAGE, Messages, set};
use crate::{DATAGRAM, Receiver, Sender};

const ENTRIES: u32 = 64;
/// Constants of linux/io_uring.h: the flag that requests a report on copies, and the bit in a
/// notification that reports a copy.
const REPORT_USAGE: u16 = 1 << 3;
const COPIED: u32 = 1 << 31;
/// IORING_ENTER_GETEVENTS.
const GET_EVENTS: u32 = 1;
/// ID of the buffer group of a ring.
const GROUP: u16 = 0;

/// Creates a ring. This thread does the work of the ring, and only when it asks for results.
fn ring() -> io::Result<IoUring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES)
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: the caller owns what the entry points to, and keeps it until the result arrives.
    unsafe { ring.submission().push(entry) }.map_err(|_| io::Error::other("the ring is full"))
}

fn outcome(entry: &cqueue::Entry) -> io::Result<usize> {
    let result = entry.result();
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// Operations of io_uring that send a batch of datagrams.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// SENDMSG. The number is that of messages per call.
    Copy(usize),
    /// SENDMSG_ZC, which sends from the program's memory.
    ZeroCopy,
    /// SENDMSG_ZC from memory that is registered with the kernel.
    Registered,
    /// SEND of a bundle. Each datagram is a separate buffer.
    Bundle,
}

pub(crate) struct RingSender {
    ring: IoUring,
    how: How,
    socket: UdpSocket,
    segments: usize,
    messages: Messages,
    /// Buffers of a bundle. `None` for the other operations.
    buffers: Option<BufferRing>,
    /// Number of outstanding notifications, of received notifications, and of received
    /// notifications that reported a copy.
    pending: usize,
    done: usize,
    copied: usize,
}

impl RingSender {
    pub(crate) fn new(socket: UdpSocket, segments: usize, how: How) -> io::Result<RingSender> {
        let ring = ring()?;
        let count = if let How::Copy(count) = how { count } else { 1 };
        let mut messages = Messages::to_send(count, segments);
        let mut buffers = None;
        if how == How::Registered {
            let bytes = messages.bytes_mut();
            let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            // SAFETY: the memory belongs to the messages, which are dropped after the ring.
            unsafe { ring.submitter().register_buffers(&[part]) }?;
        }
        if how == How::Bundle {
            set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, DATAGRAM as libc::c_int)?;
            let mut ring = BufferRing::new(&ring, 64, DATAGRAM)?;
            (0..segments as u16).for_each(|index| ring.give(index));
            ring.publish();
            buffers = Some(ring);
        }
        let (pending, done, copied) = (0, 0, 0);
        Ok(RingSender { ring, how, socket, segments, messages, buffers, pending, done, copied })
    }

    /// Takes the results that have arrived. Returns the number of messages that were sent.
    fn take(&mut self) -> io::Result<usize> {
        let mut sent = 0;
        for entry in self.ring.completion() {
            if cqueue::notif(entry.flags()) {
                self.pending -= 1;
                self.done += 1;
                self.copied += usize::from(entry.result().cast_unsigned() & COPIED != 0);
                continue;
            }
            if outcome(&entry)? != self.segments * DATAGRAM {
                return Err(io::Error::other("a batch was sent in part"));
            }
            self.pending += usize::from(cqueue::more(entry.flags()) && self.buffers.is_none());
            sent += 1;
        }
        Ok(sent)
    }
}

impl Sender for RingSender {
    fn prepare(&mut self) -> bool {
        match &mut self.buffers {
            Some(buffers) => {
                let length = self.segments * DATAGRAM;
                // SAFETY: the kernel has copied what was sent from there, and the next send has not
                // begun.
                unsafe { buffers.memory.bytes_mut(0, length) }.fill(7);
                true
            }
            None => self.messages.write(),
        }
    }

    fn send(&mut self) -> io::Result<usize> {
        let socket = Fd(self.socket.as_raw_fd());
        let count = if let How::Copy(count) = self.how { count } else { 1 };
        for index in 0..count {
            let header = self.messages.header(index);
            let without_copy = opcode::SendMsgZc::new(socket, header).ioprio(REPORT_USAGE);
            let entry = match self.how {
                How::Copy(_) => opcode::SendMsg::new(socket, header).build(),
                How::ZeroCopy => without_copy.build(),
                How::Registered => without_copy.buf_index(Some(0)).build(),
                How::Bundle => opcode::SendBundle::new(socket, GROUP).build(),
            };
            push(&mut self.ring, &entry)?;
        }
        let mut sent = 0;
        while sent < count {
            self.ring.submit_and_wait(count - sent)?;
            sent += self.take()?;
        }
        if let Some(buffers) = &mut self.buffers {
            (0..self.segments as u16).for_each(|index| buffers.give(index));
            buffers.publish();
        }
        Ok(count * self.segments)
    }

    fn settle(&mut self) -> io::Result<bool> {
        if self.pending > 0 {
            get_events(&self.ring, 0)?;
            self.take()?;
        }
        Ok(self.pending == 0)
    }

    fn note(&self) -> Option<String> {
        (self.done > 0).then(|| crate::copied(self.copied, self.done))
    }
}

/// Submits `submit` entries and runs pending work, without waiting.
fn get_events(ring: &IoUring, submit: u32) -> io::Result<()> {
    // SAFETY: no argument is a pointer. The memory that entries refer to is alive (see `push`).
    unsafe { ring.submitter().enter::<libc::sigset_t>(submit, 0, GET_EVENTS, None) }.map(drop)
}

/// A ring from which the kernel takes buffers when it needs them.
struct BufferRing {
    entries: Mapping,
    memory: Mapping,
    count: u16,
    size: usize,
    tail: u16,
}

impl BufferRing {
    /// Creates a ring with `count` buffers of `size` bytes. `count` must be a power of two. The
    /// kernel has no buffer before [`BufferRing::give`].
    fn new(ring: &IoUring, count: u16, size: usize) -> io::Result<BufferRing> {
        let entries = Mapping::anonymous(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory = Mapping::anonymous(usize::from(count) * size)?;
        let start = entries.at::<u8>(0) as u64;
        // SAFETY: the mapping has room for this many entries, and is dropped after the ring, which
        // owns neither.
        unsafe { ring.submitter().register_buf_ring_with_flags(start, count, GROUP, 0) }?;
        Ok(BufferRing { entries, memory, count, size, tail: 0 })
    }

    /// Adds a buffer for the kernel. [`BufferRing::publish`] makes it visible to the kernel.
    fn give(&mut self, index: u16) {
        let at = usize::from(self.tail % self.count) * size_of::<BufRingEntry>();
        // SAFETY: the kernel reads entries only up to the published tail. This entry is after it.
        let entry = unsafe { &mut *self.entries.at::<BufRingEntry>(at) };
        entry.set_addr(self.memory.at::<u8>(usize::from(index) * self.size) as u64);
        entry.set_len(self.size as u32);
        entry.set_bid(index);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail is a part of the first entry that `give` does not write. Both sides use
        // it as an atomic.
        let tail = unsafe {
            let tail = BufRingEntry::tail(self.entries.at::<BufRingEntry>(0));
            AtomicU16::from_ptr(tail.cast_mut())
        };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Receives with a multishot RECVMSG: one request gives a result for each message, which is in the
/// next buffer of the ring.
pub(crate) struct RingReceiver {
    ring: IoUring,
    socket: UdpSocket,
    /// Header that limits the sizes of the sender's address and of the control messages.
    header: Box<libc::msghdr>,
    buffers: BufferRing,
    armed: bool,
}

// SAFETY: the pointers of the header are null.
unsafe impl Send for RingReceiver {}

impl RingReceiver {
    /// Creates a receiver with `count` buffers. `count` must be a power of two.
    pub(crate) fn new(socket: UdpSocket, count: u16) -> io::Result<RingReceiver> {
        set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
        let ring = ring()?;
        // SAFETY: a message header of zeros is valid.
        let mut header: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
        header.msg_controllen = 96;
        let mut buffers = BufferRing::new(&ring, count, MESSAGE + 256)?;
        (0..count).for_each(|index| buffers.give(index));
        buffers.publish();
        Ok(RingReceiver { ring, socket, header, buffers, armed: false })
    }
}

impl Receiver for RingReceiver {
    fn receive(&mut self) -> io::Result<usize> {
        if !self.armed {
            let socket = Fd(self.socket.as_raw_fd());
            let entry = opcode::RecvMsgMulti::new(socket, &raw const *self.header, GROUP).build();
            push(&mut self.ring, &entry)?;
            self.armed = true;
            self.ring.submit()?;
        }
        get_events(&self.ring, 0)?;
        let mut datagrams = 0;
        for entry in self.ring.completion() {
            self.armed &= cqueue::more(entry.flags());
            let length = match outcome(&entry) {
                Ok(length) => length,
                // All buffers were full. The next call submits the request again.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => continue,
                Err(error) => return Err(error),
            };
            let index = cqueue::buffer_select(entry.flags())
                .ok_or_else(|| io::Error::other("a message without a buffer"))?;
            let start = usize::from(index) * self.buffers.size;
            // SAFETY: the kernel does not use the buffer until it is given back.
            let bytes = unsafe { self.buffers.memory.bytes(start, length) };
            let message = RecvMsgOut::parse(bytes, &self.header)
                .map_err(|()| io::Error::other("a message that is too short"))?;
            datagrams += message.payload_data().len().div_ceil(DATAGRAM);
            self.buffers.give(index);
        }
        self.buffers.publish();
        if datagrams == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(datagrams) }
    }
}

/// Requests bundles of messages from a multishot RECVMSG. Returns the kernel's error, or `None` if
/// the kernel accepts the request.
pub(crate) fn bundled_messages(socket: &UdpSocket) -> io::Result<Option<io::Error>> {
    /// IORING_RECVSEND_BUNDLE.
    const BUNDLE: u16 = 1 << 4;
    let mut ring = ring()?;
    let mut buffers = BufferRing::new(&ring, 2, MESSAGE)?;
    buffers.give(0);
    buffers.publish();
    // SAFETY: a message header of zeros is valid.
    let header: libc::msghdr = unsafe { std::mem::zeroed() };
    let socket = Fd(socket.as_raw_fd());
    let entry = opcode::RecvMsgMulti::new(socket, &raw const header, GROUP).ioprio(BUNDLE);
    push(&mut ring, &entry.build())?;
    ring.submit()?;
    get_events(&ring, 0)?;
    let refused = ring.completion().next().and_then(|entry| outcome(&entry).err());
    Ok(refused)
}
