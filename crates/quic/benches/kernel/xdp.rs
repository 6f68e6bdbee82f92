//! Sends and receives through AF_XDP sockets, which bypass the network stack. The kernel and the
//! program share the memory of the frames. The sockets use copy mode, the only mode of virtual
//! interfaces.

mod frame;
mod program;

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::libc;

use self::frame::{End, HEADERS};
use self::program::Redirect;
use crate::mapping::Mapping;
use crate::place::{self, Place};
use crate::{DATAGRAM, Receiver, Sender};

/// Size of a frame in bytes: a datagram, its headers, and the headroom that the kernel needs.
const FRAME: usize = 2048;
/// Number of frames of a socket, and of entries in each of its rings.
const FRAMES: u32 = 512;

/// A ring: one side adds entries, and the other side takes them.
struct Ring<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    /// Number of entries that this side has added or taken. Wraps around.
    at: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn new(
        socket: &OwnedFd,
        page: libc::off_t,
        offsets: libc::xdp_ring_offset,
    ) -> io::Result<Ring<T>> {
        let length = offsets.desc as usize + FRAMES as usize * size_of::<T>();
        let mapping = Mapping::shared(length, socket.as_raw_fd(), page)?;
        Ok(Ring { mapping, offsets, at: 0, entry: std::marker::PhantomData })
    }

    fn counter(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel has a counter at this offset, which both sides use as an atomic.
        unsafe { AtomicU32::from_ptr(self.mapping.at(offset as usize)) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let index = (index % FRAMES) as usize;
        self.mapping.at(self.offsets.desc as usize + index * size_of::<T>())
    }

    /// Adds an entry. [`Ring::publish`] makes it visible to the kernel.
    fn add(&mut self, entry: T) {
        // SAFETY: the kernel reads only published entries, and there are no more frames than
        // entries.
        unsafe { self.entry(self.at).write(entry) };
        self.at = self.at.wrapping_add(1);
    }

    fn publish(&self) {
        self.counter(self.offsets.producer).store(self.at, Ordering::Release);
    }

    /// Returns the number of published entries that the kernel has not taken.
    fn waiting(&self) -> u32 {
        self.at.wrapping_sub(self.counter(self.offsets.consumer).load(Ordering::Acquire))
    }

    /// Takes the next entry that the kernel has added, or returns `None` if there is no new entry.
    /// The kernel may reuse the place of the entry after [`Ring::release`].
    fn take(&mut self) -> Option<T> {
        if self.counter(self.offsets.producer).load(Ordering::Acquire) == self.at {
            return None;
        }
        // SAFETY: the kernel has written this entry, and does not write it again before its
        // release.
        let entry = unsafe { self.entry(self.at).read() };
        self.at = self.at.wrapping_add(1);
        Some(entry)
    }

    fn release(&self) {
        self.counter(self.offsets.consumer).store(self.at, Ordering::Release);
    }
}

/// A socket that is bound to the first queue of an interface, and its memory.
struct Socket {
    file: OwnedFd,
    frames: Mapping,
    offsets: libc::xdp_mmap_offsets,
}

impl Socket {
    fn new(place: &Place, index: u8, ring: libc::c_int) -> io::Result<(Socket, u32)> {
        let (file, interface) = place.within(index, || {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            // SAFETY: no argument is a pointer.
            let file = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
            if file < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the call has created the file descriptor, which has no other owner.
            Ok((unsafe { OwnedFd::from_raw_fd(file) }, place::interface()?))
        })?;
        let frames = Mapping::anonymous(FRAMES as usize * FRAME)?;
        let memory = libc::xdp_umem_reg {
            addr: frames.at::<u8>(0) as u64,
            len: (FRAMES as usize * FRAME) as u64,
            chunk_size: FRAME as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&file, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, ring] {
            set(&file, libc::SOL_XDP, ring, &FRAMES)?;
        }
        let offsets = offsets(&file)?;
        Ok((Socket { file, frames, offsets }, interface))
    }

    fn bind(&self, interface: u32) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: interface,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the pointer refers to an address of the given length.
        let result =
            unsafe { libc::bind(self.file.as_raw_fd(), (&raw const address).cast(), length) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

fn set<T>(file: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer refers to a value of the given length.
    let result = unsafe {
        libc::setsockopt(file.as_raw_fd(), level, option, (&raw const *value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the offsets of the counters and entries in the socket's rings.
fn offsets(file: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    let mut offsets = std::mem::MaybeUninit::<libc::xdp_mmap_offsets>::zeroed();
    let mut length = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: the pointer refers to memory of the given length.
    let result = unsafe {
        libc::getsockopt(
            file.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            offsets.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all fields are integers, for which all bit patterns are valid.
    Ok(unsafe { offsets.assume_init() })
}

fn end(index: u8, socket: &UdpSocket) -> io::Result<End> {
    let port = socket.local_addr()?.port();
    Ok(End { mac: place::mac(index), address: place::address(index), port })
}

/// Sends frames, and writes their headers.
pub(crate) struct XdpSender {
    entries: Ring<libc::xdp_desc>,
    completions: Ring<u64>,
    socket: Socket,
    ends: [End; 2],
    datagrams: usize,
    /// Number of the next frame to use.
    next: u32,
    pending: u32,
}

impl XdpSender {
    /// Sends from the address of the first socket to that of the second, `datagrams` at a time.
    pub(crate) fn new(
        place: &Place,
        sockets: &[UdpSocket; 2],
        datagrams: usize,
    ) -> io::Result<XdpSender> {
        let (socket, interface) = Socket::new(place, 0, libc::XDP_TX_RING)?;
        set(&socket.file, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(4 << 20))?;
        let entries = Ring::new(&socket.file, libc::XDP_PGOFF_TX_RING, socket.offsets.tx)?;
        let page = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let completions = Ring::new(&socket.file, page, socket.offsets.cr)?;
        socket.bind(interface)?;
        // SAFETY: nothing has been sent yet.
        unsafe { socket.frames.bytes_mut(0, FRAMES as usize * FRAME) }.fill(7);
        let ends = [end(0, &sockets[0])?, end(1, &sockets[1])?];
        Ok(XdpSender { entries, completions, socket, ends, datagrams, next: 0, pending: 0 })
    }

    /// Reclaims frames that the kernel has sent.
    fn complete(&mut self) {
        while self.completions.take().is_some() {
            self.pending -= 1;
        }
        self.completions.release();
    }
}

impl Sender for XdpSender {
    fn prepare(&mut self) -> bool {
        self.complete();
        for index in 0..self.datagrams.min((FRAMES - self.pending) as usize) as u32 {
            let start = (self.next.wrapping_add(index) % FRAMES) as usize * FRAME + HEADERS;
            // SAFETY: the kernel has returned the frame.
            unsafe { self.socket.frames.bytes_mut(start, DATAGRAM) }.fill(7);
        }
        true
    }

    fn send(&mut self) -> io::Result<usize> {
        self.complete();
        // The kernel returns the frames in order.
        if (FRAMES - self.pending) < self.datagrams as u32 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for _ in 0..self.datagrams {
            let addr = (self.next % FRAMES) as usize * FRAME;
            self.next = self.next.wrapping_add(1);
            // SAFETY: the kernel has returned the frame.
            let frame = unsafe { self.socket.frames.bytes_mut(addr, HEADERS) };
            frame::write(frame, self.ends[0], self.ends[1], DATAGRAM);
            let len = (HEADERS + DATAGRAM) as u32;
            self.entries.add(libc::xdp_desc { addr: addr as u64, len, options: 0 });
        }
        self.entries.publish();
        self.pending += self.datagrams as u32;
        while self.entries.waiting() > 0 {
            let file = self.socket.file.as_raw_fd();
            // SAFETY: the pointers are null, and the lengths are 0.
            let sent = unsafe { libc::sendto(file, null(), 0, libc::MSG_DONTWAIT, null(), 0) };
            if sent < 0 {
                let error = io::Error::last_os_error();
                // A call sends up to 32 frames. The error EAGAIN means that there are more.
                let more = [libc::EAGAIN, libc::EBUSY, libc::ENOBUFS];
                if !error.raw_os_error().is_some_and(|error| more.contains(&error)) {
                    return Err(error);
                }
            }
        }
        Ok(self.datagrams)
    }

    fn settle(&mut self) -> io::Result<bool> {
        self.complete();
        Ok(self.pending == 0)
    }
}

/// Receives frames and reads their headers.
pub(crate) struct XdpReceiver {
    _redirect: Redirect,
    entries: Ring<libc::xdp_desc>,
    free: Ring<u64>,
    socket: Socket,
    port: u16,
}

impl XdpReceiver {
    /// Receives the datagrams that are addressed to `receiver`.
    pub(crate) fn new(place: &Place, receiver: &UdpSocket) -> io::Result<XdpReceiver> {
        let (socket, interface) = Socket::new(place, 1, libc::XDP_RX_RING)?;
        let entries = Ring::new(&socket.file, libc::XDP_PGOFF_RX_RING, socket.offsets.rx)?;
        let page = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let mut free = Ring::new(&socket.file, page, socket.offsets.fr)?;
        socket.bind(interface)?;
        (0..FRAMES).for_each(|index| free.add(u64::from(index) * FRAME as u64));
        free.publish();
        let file = socket.file.as_raw_fd();
        let _redirect = place.within(1, || Redirect::new(interface, file))?;
        Ok(XdpReceiver { _redirect, entries, free, socket, port: receiver.local_addr()?.port() })
    }
}

impl Receiver for XdpReceiver {
    fn receive(&mut self) -> io::Result<usize> {
        let mut datagrams = 0;
        while let Some(entry) = self.entries.take() {
            // SAFETY: the kernel does not write the frame until it is free again.
            let frame =
                unsafe { self.socket.frames.bytes(entry.addr as usize, entry.len as usize) };
            let datagram = frame::read(frame, self.port);
            datagrams += usize::from(datagram.is_some_and(|bytes| bytes.len() == DATAGRAM));
            self.free.add(entry.addr - entry.addr % FRAME as u64);
        }
        self.entries.release();
        self.free.publish();
        if datagrams == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(datagrams) }
    }
}
