//! Captures the packets of an attempt in a pcap file. These are all packets from or to the server's
//! ports that a packet(7) socket in the server's network namespace receives.

mod frame;

use std::fs::File;
use std::io::{self, BufWriter, IoSliceMut, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType,
    recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeVal};

use crate::context::{CellContext, CellError};
use crate::site::{Host, Site};
use crate::{BenchError, Failure};
use frame::Shape;

/// Name of the capture file in the folder of an attempt.
const FILE: &str = "packets.pcap";
/// Maximum size of the capture file of an attempt, in bytes.
pub(crate) const MOST: u64 = 100 << 20;
/// LINKTYPE_ETHERNET of the pcap format. The loopback interface also has Ethernet headers.
const ETHERNET: u32 = 1;
/// Size of the longest frame in bytes. With segmentation offload, TCP frames may be longer than
/// those of UDP.
const LONGEST: usize = 256 << 10;
/// Size of virtio_net_hdr, which precedes each frame.
const VIRTIO: usize = 10;
/// VIRTIO_NET_HDR_GSO_UDP_L4: several datagrams, each of `gso_size` bytes.
const GSO_UDP: u8 = 5;
/// PACKET_OUTGOING of packet(7). `LOOPBACK` is ARPHRD_LOOPBACK of netdevice(7).
const OUTGOING: u8 = 4;
const LOOPBACK: u16 = 772;
/// Size of the kernel's buffer for packets that were not read yet, in bytes.
const BUFFER: usize = 64 << 20;
/// Pause between two checks of the stop flag, in microseconds. `REST` is the maximum time for
/// reading the remaining packets after the flag is set.
const LOOK_US: i64 = 20_000;
const REST: Duration = Duration::from_secs(2);

/// A running capture. Dropping it ends the capture. The captured packets stay in the file.
#[derive(Debug)]
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Caught>>>,
}

/// Counts of the captured packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caught {
    /// Packets written to the file.
    pub written: u64,
    /// Packets that were not written because the file was full.
    pub beyond: u64,
    /// Packets for which the kernel had no space. A buffer of several datagrams counts as one.
    pub lost: u64,
}

/// Checks that this process may capture packets.
///
/// # Errors
/// [`BenchError::Plan`] if it may not.
pub(crate) fn check() -> Result<(), BenchError> {
    let failed = |error: io::Error| {
        BenchError::Plan(format!("--pcap needs root (CAP_NET_RAW), to see packets: {error}"))
    };
    open().map(drop).map_err(failed)
}

/// If the run keeps packets, starts a capture for a server that has these addresses.
pub(crate) fn begin(
    context: &CellContext<'_>,
    addresses: &[&str],
) -> Result<Option<Capture>, CellError> {
    let (Some(snap), Some(logs)) = (context.extras.pcap, context.logs) else { return Ok(None) };
    let port = |address: &&str| address.rsplit_once(':')?.1.parse().ok();
    let ports: Vec<u16> = addresses.iter().filter_map(port).collect();
    let wrong = |error: io::Error| {
        CellError::Failed(Failure::Start, format!("packets cannot be captured: {error}"))
    };
    std::fs::create_dir_all(logs).map_err(wrong)?;
    Capture::start(&context.server, ports, &logs.join(FILE), snap).map(Some).map_err(wrong)
}

impl Capture {
    /// Starts a thread that writes packets from or to these ports into a file, at most `snap` bytes
    /// of each packet.
    fn start(site: &Site<'_>, ports: Vec<u16>, path: &Path, snap: u32) -> io::Result<Capture> {
        let socket = match site.host {
            Host::Here(None) => open()?,
            Host::Here(Some(namespace)) => namespace.run(open).map_err(io::Error::other)??,
            Host::There(_) => {
                return Err(io::Error::other("packets can only be captured on this machine"));
            }
        };
        let mut file = Pcap::create(path, snap)?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("capture".into()).spawn(move || {
            read(&socket, &ports, &mut file, &told)?;
            file.out.flush()?;
            let lost = lost(&socket)?;
            Ok(Caught { written: file.written, beyond: file.beyond, lost })
        })?;
        Ok(Capture { stop, thread: Some(thread) })
    }

    /// Ends the capture when all packets so far are written. Returns a line for the notes of the
    /// attempt.
    pub(crate) fn finish(mut self) -> String {
        match self.end() {
            Ok(Caught { written, beyond, lost }) => format!(
                "{FILE}: {written} packets captured, {beyond} left out because the file reached {} MB, {lost} lost",
                MOST >> 20
            ),
            Err(error) => format!("{FILE}: {error}"),
        }
    }

    fn end(&mut self) -> io::Result<Caught> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(Caught::default()) };
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that captures packets panicked")))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // This runs only if the attempt has already failed. That failure is reported, so this error
        // is ignored.
        let _ = self.end();
    }
}

/// Opens a packet socket on all interfaces of the calling thread's network namespace.
fn open() -> io::Result<OwnedFd> {
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, LOOK_US))?;
    // Root may exceed the limit net.core.rmem_max.
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &BUFFER))?;
    let on: libc::c_int = 1;
    // SAFETY: the value lives through the call and its size is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_VNET_HDR,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    Errno::result(done)?;
    Ok(socket)
}

/// Returns the number of packets for which the kernel had no space.
fn lost(socket: &OwnedFd) -> io::Result<u64> {
    // SAFETY: all zeros is a valid tpacket_stats, which the kernel fills in.
    let mut stats: libc::tpacket_stats = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: both pointers are to values that live through the call; the length is that of the
    // first value.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut length,
        )
    };
    Errno::result(done)?;
    Ok(stats.tp_drops.into())
}

/// Reads packets until `stop` is set and no packet is left.
fn read(socket: &OwnedFd, ports: &[u16], file: &mut Pcap, stop: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; VIRTIO + LONGEST];
    let mut space = nix::cmsg_space!(TimeSpec);
    let mut until = None;
    loop {
        if stop.load(Ordering::Relaxed)
            && *until.get_or_insert(Instant::now() + REST) < Instant::now()
        {
            return Ok(());
        }
        let (length, time, address) = {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let flags = MsgFlags::empty();
            match recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags) {
                Ok(message) => {
                    let time = message.cmsgs()?.find_map(|one| match one {
                        ControlMessageOwned::ScmTimestampns(time) => Some(time),
                        _ => None,
                    });
                    (message.bytes, time, message.address)
                }
                Err(Errno::EAGAIN) if stop.load(Ordering::Relaxed) => return Ok(()),
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                // Kernels before 6.2 do not report the length of the datagrams that were sent as
                // one buffer.
                Err(Errno::EINVAL) => continue,
                Err(error) => return Err(error.into()),
            }
        };
        // On the loopback interface, the socket sees each packet twice.
        let twice =
            |address: &LinkAddr| address.pkttype() == OUTGOING && address.hatype() == LOOPBACK;
        if address.as_ref().is_some_and(twice) {
            continue;
        }
        let Some((header, frame)) =
            buffer.get(..length).and_then(|all| all.split_at_checked(VIRTIO))
        else {
            continue;
        };
        let Some(shape) = Shape::of(frame).filter(|shape| shape.has_port(ports)) else { continue };
        // The fields of virtio_net_hdr are flags, gso_type, hdr_len and gso_size, in native byte
        // order.
        let several = header.get(1) == Some(&GSO_UDP);
        let size = match header {
            [_, _, _, _, low, high, ..] if several => u16::from_ne_bytes([*low, *high]),
            _ => 0,
        };
        let time = time.unwrap_or_else(|| TimeSpec::new(0, 0));
        for segment in shape.segments(frame, size.into()) {
            file.add(time, &segment)?;
        }
    }
}

/// A file of the pcap format, version 2.4, with nanoseconds.
struct Pcap {
    out: BufWriter<File>,
    snap: u32,
    size: u64,
    written: u64,
    beyond: u64,
}

impl Pcap {
    fn create(path: &Path, snap: u32) -> io::Result<Pcap> {
        let mut out = BufWriter::new(File::create(path)?);
        out.write_all(&0xa1b2_3c4d_u32.to_le_bytes())?;
        out.write_all(&[2, 0, 4, 0])?;
        for word in [0, 0, snap, ETHERNET] {
            out.write_all(&word.to_le_bytes())?;
        }
        // Writes the file header now, so that a file without packets is valid, too.
        out.flush()?;
        Ok(Pcap { out, snap, size: 24, written: 0, beyond: 0 })
    }

    fn add(&mut self, time: TimeSpec, frame: &[u8]) -> io::Result<()> {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let kept = length.min(self.snap);
        let size = 16 + u64::from(kept);
        if self.beyond > 0 || self.size + size > MOST {
            self.beyond += 1;
            return Ok(());
        }
        let seconds = u32::try_from(time.tv_sec()).unwrap_or(u32::MAX);
        let nanoseconds = u32::try_from(time.tv_nsec()).unwrap_or(0);
        for word in [seconds, nanoseconds, kept, length] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(frame.get(..kept as usize).unwrap_or(frame))?;
        self.size += size;
        self.written += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_file_limits_the_packet_length_and_the_file_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut file = Pcap::create(&path, 60).unwrap();
        let frame = frame::tests::datagram(true, &[7; 1000]);
        file.add(TimeSpec::new(5, 6), &frame).unwrap();
        file.add(TimeSpec::new(5, 7), &frame[..30]).unwrap();
        file.out.flush().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 24 + 16 + 60 + 16 + 30);
        assert_eq!(bytes[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([word(24), word(28), word(32), word(36)], [5, 6, 60, 1062]);
        assert_eq!(bytes[40..100], frame[..60]);
        assert_eq!([word(100), word(104), word(108), word(112)], [5, 7, 30, 30]);
        // After the first packet that did not fit, no packet is written, so that the file has no gap.
        file.size = MOST - 75;
        file.add(TimeSpec::new(6, 0), &frame).unwrap();
        file.add(TimeSpec::new(6, 0), &[]).unwrap();
        file.out.flush().unwrap();
        assert_eq!((file.written, file.beyond), (2, 2));
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
