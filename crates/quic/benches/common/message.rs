//! Memory of messages for sendmmsg(2), recvmmsg(2) and io_uring.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::ptr::null_mut;

use nix::libc;

use crate::DATAGRAM;

/// Maximum size of a message with GRO, in bytes.
pub(crate) const MESSAGE: usize = 65_536;
/// Size of the buffer for control messages, in 64-bit words.
const CONTROL: usize = 12;

/// Constants of linux/errqueue.h: the origin of an entry about zero-copy sending, and the code that
/// reports that the kernel copied the memory.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

/// Sets an option of a socket.
pub(crate) fn set_to<T>(
    socket: &UdpSocket,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer refers to a value of the given length.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const *value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option of a socket to a number.
pub(crate) fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_to(socket, level, option, &value)
}

/// Messages, each with one buffer.
pub(crate) struct Messages {
    /// Memory that the pointers in `parts` point to.
    bytes: Vec<u8>,
    size: usize,
    /// The pointers in `headers` refer to these parts, and to `control`.
    _parts: Vec<libc::iovec>,
    control: Vec<[u64; CONTROL]>,
    /// Number of bytes of each `control` that are in use for sending.
    used: usize,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers refer to memory that the value owns, which moves with it between threads.
unsafe impl Send for Messages {}

impl Messages {
    fn new(count: usize, size: usize, control_length: usize) -> Messages {
        let mut bytes = vec![7; count * size];
        let mut parts: Vec<libc::iovec> = bytes
            .chunks_exact_mut(size)
            .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: size })
            .collect();
        let mut control = vec![[0; CONTROL]; count];
        let headers = parts
            .iter_mut()
            .zip(&mut control)
            .map(|(part, control)| {
                // SAFETY: a header of zeros is valid. It has no name, no parts and no control
                // messages.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = part;
                header.msg_hdr.msg_iovlen = 1;
                let none = control_length == 0;
                header.msg_hdr.msg_control =
                    if none { null_mut() } else { control.as_mut_ptr().cast() };
                header.msg_hdr.msg_controllen = control_length as _;
                header
            })
            .collect();
        Messages { bytes, size, _parts: parts, control, used: 0, headers }
    }

    /// Creates messages for sending. Each has `segments` datagrams (GSO).
    pub(crate) fn to_send(messages: usize, segments: usize) -> Messages {
        let mut all = Messages::new(messages, segments * DATAGRAM, 0);
        if segments > 1 {
            all.push(libc::SOL_UDP, libc::UDP_SEGMENT, DATAGRAM as u16);
        }
        all
    }

    /// Creates `count` messages for receiving. Each has room for one datagram, or with `gro` for
    /// all datagrams that GRO combines.
    pub(crate) fn to_receive(count: usize, gro: bool) -> Messages {
        let size = if gro { MESSAGE } else { DATAGRAM };
        Messages::new(count, size, CONTROL * size_of::<u64>())
    }

    /// Adds a control message to each message.
    ///
    /// # Panics
    /// Panics if there is no room for it.
    pub(crate) fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        // SAFETY: the macros only compute lengths.
        let (space, length) = unsafe {
            let size = size_of::<T>() as u32;
            (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size))
        };
        assert!(self.used + space <= CONTROL * size_of::<u64>(), "no room for a control message");
        for (header, control) in self.headers.iter_mut().zip(&mut self.control) {
            let words = control.as_mut_ptr().cast::<u8>();
            // SAFETY: `used` is a multiple of a word, so a control message may begin there. The
            // assertion has checked that there is room for this one.
            unsafe {
                let control = words.add(self.used).cast::<libc::cmsghdr>();
                (*control).cmsg_level = level;
                (*control).cmsg_type = kind;
                (*control).cmsg_len = length as _;
                libc::CMSG_DATA(control).cast::<T>().write_unaligned(value);
            }
            header.msg_hdr.msg_control = words.cast();
            header.msg_hdr.msg_controllen = (self.used + space) as _;
        }
        self.used += space;
    }

    /// Replaces the value of the control message that was added last. The type must be the same.
    pub(crate) fn replace<T: Copy>(&mut self, value: T) {
        // SAFETY: the macro only computes a length.
        let space = unsafe { libc::CMSG_SPACE(size_of::<T>() as u32) } as usize;
        for control in &mut self.control {
            // SAFETY: the last control message begins there, and has a value of this size.
            unsafe {
                let begin = control.as_mut_ptr().cast::<u8>().add(self.used - space);
                libc::CMSG_DATA(begin.cast()).cast::<T>().write_unaligned(value);
            }
        }
    }

    pub(crate) fn header(&self, index: usize) -> *const libc::msghdr {
        &raw const self.headers[index].msg_hdr
    }

    /// Overwrites all bytes, as sealing packets does.
    pub(crate) fn write(&mut self) -> bool {
        let next = self.bytes[0].wrapping_add(1);
        self.bytes.fill(next);
        true
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Sends all messages with one call. Returns the number of datagrams.
    pub(crate) fn send(&mut self, socket: &UdpSocket, flags: libc::c_int) -> io::Result<usize> {
        let (socket, headers) = (socket.as_raw_fd(), self.headers.as_mut_ptr());
        let datagrams = self.size / DATAGRAM;
        if self.headers.len() == 1 {
            // SAFETY: the header points to memory of `self`, which lives as long as `self` and has
            // the given length.
            let sent = unsafe { libc::sendmsg(socket, &raw const (*headers).msg_hdr, flags) };
            return if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(datagrams) };
        }
        // SAFETY: the same holds for all headers.
        let sent = unsafe { libc::sendmmsg(socket, headers, self.headers.len() as u32, flags) };
        usize::try_from(sent)
            .map(|messages| messages * datagrams)
            .map_err(|_| io::Error::last_os_error())
    }

    /// Receives messages with one call. Returns the number of datagrams.
    pub(crate) fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT;
        for header in &mut self.headers {
            // The kernel has replaced the length with the number of bytes that it used.
            header.msg_hdr.msg_controllen = (CONTROL * size_of::<u64>()) as _;
        }
        let (socket, headers) = (socket.as_raw_fd(), self.headers.as_mut_ptr());
        if self.headers.len() == 1 {
            // SAFETY: the same holds as for `send`. There are no references to the memory while the
            // kernel writes it.
            let length = unsafe { libc::recvmsg(socket, &raw mut (*headers).msg_hdr, flags) };
            return usize::try_from(length)
                .map(|length| length.div_ceil(DATAGRAM))
                .map_err(|_| io::Error::last_os_error());
        }
        let count = self.headers.len() as u32;
        // SAFETY: the same holds for all headers.
        let received = unsafe { libc::recvmmsg(socket, headers, count, flags, null_mut()) };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let datagrams = |header: &libc::mmsghdr| (header.msg_len as usize).div_ceil(DATAGRAM);
        Ok(self.headers[..received].iter().map(datagrams).sum())
    }

    /// Returns the contents of each message after the last call that received several messages.
    pub(crate) fn received(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let messages = self.bytes.chunks_exact_mut(self.size).zip(&self.headers);
        messages.map(|(bytes, header)| &mut bytes[..header.msg_len as usize])
    }

    /// Reads the next entry about zero-copy sending from the error queue. Returns the number of
    /// messages, and whether the kernel copied them after all. Returns `None` if the queue is
    /// empty.
    pub(crate) fn completion(&mut self, socket: &UdpSocket) -> io::Result<Option<(usize, bool)>> {
        let header = &raw mut self.headers[0].msg_hdr;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header points to memory of `self`, which has the given length.
        let read = unsafe {
            (*header).msg_controllen = (CONTROL * size_of::<u64>()) as _;
            libc::recvmsg(socket.as_raw_fd(), header, flags)
        };
        if read < 0 {
            let error = io::Error::last_os_error();
            let none = error.kind() == io::ErrorKind::WouldBlock;
            return if none { Ok(None) } else { Err(error) };
        }
        // SAFETY: the kernel has written a control message there, or has set the length to 0.
        let error = unsafe {
            let control = libc::CMSG_FIRSTHDR(header);
            if control.is_null() {
                return Err(io::Error::other("an error without a control message"));
            }
            libc::CMSG_DATA(control).cast::<libc::sock_extended_err>().read_unaligned()
        };
        if error.ee_origin != ORIGIN_ZEROCOPY {
            return Err(io::Error::from_raw_os_error(error.ee_errno.cast_signed()));
        }
        let count = error.ee_data.wrapping_sub(error.ee_info) as usize + 1;
        Ok(Some((count, error.ee_code == CODE_COPIED)))
    }
}
