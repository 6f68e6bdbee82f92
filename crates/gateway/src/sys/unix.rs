//! Unix sockets of type `SOCK_SEQPACKET`: messages, descriptors that are sent with them, and peer
//! credentials.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, Shutdown, SockFlag,
    SockType, UnixAddr, accept4, bind, connect, getsockopt, listen, recv, recvmsg, send, sendmsg,
    setsockopt, shutdown, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// The process that connected to a socket, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// ID of the process. 0 if this pid namespace cannot see the process.
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

fn new(flags: SockFlag) -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Unix, SockType::SeqPacket, flags | SockFlag::SOCK_CLOEXEC, None)?)
}

/// Binds a new socket to a path that must not exist. No process can connect before [`hear`] is
/// called.
pub(crate) fn bound(path: &Path) -> io::Result<OwnedFd> {
    let fd = new(SockFlag::SOCK_NONBLOCK)?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd)
}

/// Starts to accept connections on a bound socket.
pub(crate) fn hear(socket: &OwnedFd) -> io::Result<()> {
    Ok(listen(socket, Backlog::new(128)?)?)
}

/// Connects to the socket at a path. Every operation on the connection fails if it takes longer
/// than `patience`.
pub(crate) fn dial(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    let fd = new(SockFlag::empty())?;
    let patience = TimeVal::new(patience.as_secs().cast_signed(), patience.subsec_micros().into());
    setsockopt(&fd, sockopt::SendTimeout, &patience)?;
    setsockopt(&fd, sockopt::ReceiveTimeout, &patience)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd)
}

/// Returns the next connection, if one is waiting.
pub(crate) fn accept(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    match accept4(socket.as_raw_fd(), SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC) {
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(nix::Error::EAGAIN | nix::Error::ECONNABORTED | nix::Error::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn peer(socket: &OwnedFd) -> io::Result<Peer> {
    let of = getsockopt(socket, sockopt::PeerCredentials)?;
    Ok(Peer { pid: u32::try_from(of.pid()).unwrap_or(0), uid: of.uid() })
}

/// Sends a message together with descriptors. Never blocks on a socket from [`accept`].
pub(crate) fn tell(socket: &OwnedFd, bytes: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<i32> = with.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let rights = if raw.is_empty() { &[][..] } else { &rights[..] };
    let parts = [IoSlice::new(bytes)];
    let flags = MsgFlags::MSG_NOSIGNAL;
    let sent = sendmsg::<()>(socket.as_raw_fd(), &parts, rights, flags, None)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a message. Descriptors that the peer sends with it are discarded.
pub(crate) fn listen_to(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?)
}

/// Receives a message together with its descriptors, at most 16.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([i32; 16]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let mut received = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = part {
            // SAFETY: the kernel just created these descriptors for this process.
            received.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok((message.bytes, received))
}

/// Sends a request. It is not an error if the peer has already closed the connection, because its
/// answer may still be readable.
pub(crate) fn ask(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    match send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
        Ok(_) | Err(nix::Error::EPIPE | nix::Error::ECONNRESET) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Shuts a connection down. Threads that wait on its descriptor wake up.
pub(crate) fn end(socket: &OwnedFd) {
    // The connection may already have ended.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
}

/// Waits until one of these sockets is readable or has ended, for at most `patience`. Returns one
/// flag for each socket: true if it is readable or has ended.
pub(crate) fn wait(sockets: &[BorrowedFd<'_>], patience: Duration) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> =
        sockets.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)).collect();
    let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, patience) {
        Ok(_) | Err(nix::Error::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.iter().map(|one| one.revents().is_some_and(|seen| !seen.is_empty())).collect())
}

/// Returns true if the peer has closed the connection. Discards the bytes that the peer sent.
pub(crate) fn has_ended(socket: &OwnedFd) -> bool {
    let mut scrap = [0; 16];
    match recv(socket.as_raw_fd(), &mut scrap, MsgFlags::MSG_DONTWAIT) {
        Ok(0) => true,
        Ok(_) | Err(nix::Error::EAGAIN | nix::Error::EINTR) => false,
        Err(_) => true,
    }
}
