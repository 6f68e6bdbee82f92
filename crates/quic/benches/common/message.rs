//! Memory of messages as sendmmsg(2), recvmmsg(2) and io_uring want it.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::ptr::null_mut;

use nix::libc;

use crate::DATAGRAM;

/// The largest message that comes with GRO.
pub(crate) const MESSAGE: usize = 65_536;
/// Words of a control message's buffer.
const CONTROL: usize = 12;

/// linux/errqueue.h: an entry about memory that was sent from, and that it was copied after all.
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
    // SAFETY: the pointer is to a value of the length that is given with it.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const *value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option of a socket that is a number.
pub(crate) fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_to(socket, level, option, &value)
}

/// Messages of one part each.
pub(crate) struct Messages {
    /// Memory that the pointers in `parts` point to.
    bytes: Vec<u8>,
    size: usize,
    /// What the pointers in `headers` are to, as is `control`.
    _parts: Vec<libc::iovec>,
    control: Vec<[u64; CONTROL]>,
    /// Bytes of `control` that are in use when something is sent.
    used: usize,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers are to memory that the value owns, which moves with it from thread to thread.
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
                // SAFETY: a message header of zeros is one: no name, no parts, no control messages.
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

    /// So many messages of so many datagrams each (GSO).
    pub(crate) fn to_send(messages: usize, segments: usize) -> Messages {
        let mut all = Messages::new(messages, segments * DATAGRAM, 0);
        if segments > 1 {
            all.push(libc::SOL_UDP, libc::UDP_SEGMENT, DATAGRAM as u16);
        }
        all
    }

    /// Room for so many messages, each of one datagram or of as many as come together (GRO).
    pub(crate) fn to_receive(count: usize, gro: bool) -> Messages {
        let size = if gro { MESSAGE } else { DATAGRAM };
        Messages::new(count, size, CONTROL * size_of::<u64>())
    }

    /// Adds a control message to each message.
    pub(crate) fn push<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        // SAFETY: the macros only compute lengths.
        let (space, length) = unsafe {
            let size = size_of::<T>() as u32;
            (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size))
        };
        assert!(self.used + space <= CONTROL * size_of::<u64>(), "no room for a control message");
        for (header, control) in self.headers.iter_mut().zip(&mut self.control) {
            let words = control.as_mut_ptr().cast::<u8>();
            // SAFETY: `used` is a multiple of a word, at which a control message may begin, and there is room for
            // this one behind it.
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

    /// Another value for the control message that was added last.
    pub(crate) fn replace<T: Copy>(&mut self, value: T) {
        // SAFETY: the macro only computes a length.
        let space = unsafe { libc::CMSG_SPACE(size_of::<T>() as u32) } as usize;
        for control in &mut self.control {
            // SAFETY: the last message begins there, and holds a value of this size.
            unsafe {
                let begin = control.as_mut_ptr().cast::<u8>().add(self.used - space);
                libc::CMSG_DATA(begin.cast()).cast::<T>().write_unaligned(value);
            }
        }
    }

    pub(crate) fn header(&self, index: usize) -> *const libc::msghdr {
        &raw const self.headers[index].msg_hdr
    }

    /// Writes all bytes anew, as sealing packets does.
    pub(crate) fn write(&mut self) -> bool {
        let next = self.bytes[0].wrapping_add(1);
        self.bytes.fill(next);
        true
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Sends all messages by one call: how many datagrams.
    pub(crate) fn send(&mut self, socket: &UdpSocket, flags: libc::c_int) -> io::Result<usize> {
        let (socket, headers) = (socket.as_raw_fd(), self.headers.as_mut_ptr());
        let datagrams = self.size / DATAGRAM;
        if self.headers.len() == 1 {
            // SAFETY: the header points to memory of `self` that lives as long as it and is as long as it says.
            let sent = unsafe { libc::sendmsg(socket, &raw const (*headers).msg_hdr, flags) };
            return if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(datagrams) };
        }
        // SAFETY: as above, for all headers.
        let sent = unsafe { libc::sendmmsg(socket, headers, self.headers.len() as u32, flags) };
        usize::try_from(sent)
            .map(|messages| messages * datagrams)
            .map_err(|_| io::Error::last_os_error())
    }

    /// Receives by one call: how many datagrams.
    pub(crate) fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT;
        for header in &mut self.headers {
            // The kernel has written there how much it used.
            header.msg_hdr.msg_controllen = (CONTROL * size_of::<u64>()) as _;
        }
        let (socket, headers) = (socket.as_raw_fd(), self.headers.as_mut_ptr());
        if self.headers.len() == 1 {
            // SAFETY: as for `send`; nobody else has references to the memory while it is written.
            let length = unsafe { libc::recvmsg(socket, &raw mut (*headers).msg_hdr, flags) };
            return usize::try_from(length)
                .map(|length| length.div_ceil(DATAGRAM))
                .map_err(|_| io::Error::last_os_error());
        }
        let count = self.headers.len() as u32;
        // SAFETY: as above, for all headers.
        let received = unsafe { libc::recvmmsg(socket, headers, count, flags, null_mut()) };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let datagrams = |header: &libc::mmsghdr| (header.msg_len as usize).div_ceil(DATAGRAM);
        Ok(self.headers[..received].iter().map(datagrams).sum())
    }

    /// What each message has been filled with by the last call that received several.
    pub(crate) fn received(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let messages = self.bytes.chunks_exact_mut(self.size).zip(&self.headers);
        messages.map(|(bytes, header)| &mut bytes[..header.msg_len as usize])
    }

    /// Reads the next entry of the error queue that says that memory was sent from: how many messages, and whether
    /// the kernel copied them after all. None: the queue is empty.
    pub(crate) fn completion(&mut self, socket: &UdpSocket) -> io::Result<Option<(usize, bool)>> {
        let header = &raw mut self.headers[0].msg_hdr;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header points to memory of `self`, which is as long as it says.
        let read = unsafe {
            (*header).msg_controllen = (CONTROL * size_of::<u64>()) as _;
            libc::recvmsg(socket.as_raw_fd(), header, flags)
        };
        if read < 0 {
            let error = io::Error::last_os_error();
            let none = error.kind() == io::ErrorKind::WouldBlock;
            return if none { Ok(None) } else { Err(error) };
        }
        // SAFETY: the kernel has written a control message there, or set the length to 0.
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
