//! Captures dropped packets: the XDP program copies them into a ring, from which this module reads
//! them.
//!
//! The program compares a packet's reason and source before it charges the rate limit of the
//! capture. So a rare reason is found even during a flood. A capture is a lease: if the capturing
//! process is killed, the program soon stops copying.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use ipnet::IpNet;

use super::events::typed;
use super::{Control, Event};
use crate::abi;
use crate::config::{address_bytes, canonical_prefix, nanos};
use crate::error::{Error, Result};
use crate::quantity::Rate;
use crate::reason::Reason;
use crate::sync::atomic::AtomicU64;
use crate::sys;
use crate::sys::region::atomic;

/// Selects the packets to capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureFilter {
    /// Reasons whose packets are captured. If it is empty, every reason that drops. Packets that
    /// pass or are answered are never captured.
    pub reasons: Vec<Reason>,
    /// Source prefix of the packets, or `None` for any source.
    pub source: Option<IpNet>,
    /// Maximum number of bytes to keep of each packet, beginning with its Ethernet header: 14 to
    /// [`CaptureFilter::MOST_BYTES`].
    pub snap: u32,
}

impl CaptureFilter {
    /// Maximum value of [`CaptureFilter::snap`], in bytes.
    pub const MOST_BYTES: u32 = abi::EQUIC_CAPTURE_MAX;
}

impl Default for CaptureFilter {
    /// Returns a filter for every dropped packet that keeps 256 bytes of each: enough for all
    /// unencrypted headers.
    fn default() -> CaptureFilter {
        CaptureFilter { reasons: Vec::new(), source: None, snap: 256 }
    }
}

/// A packet that was dropped. In a dry run, it would have been dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPacket {
    /// The drop event. Its time has the resolution of the kernel's tick, a few milliseconds.
    pub event: Event,
    /// Length of the frame as it arrived, in bytes.
    pub frame_len: u32,
    /// The captured bytes of the frame, beginning with its Ethernet header.
    pub frame: Vec<u8>,
}

/// The stream of dropped packets of one gateway. A gateway can have one capture at a time. A
/// capture ends when this value is dropped, or two seconds after the last [`Capture::poll`].
#[derive(Debug)]
pub struct Capture {
    ring: NonNull<libbpf_sys::ring_buffer>,
    // Boxed because the ring's callback keeps a pointer to it.
    heard: Box<Heard>,
    // Keeps the maps open. The ring uses their descriptors.
    control: Control,
    filter: CaptureFilter,
    /// Number that identifies this capture. It consists of the process id and a unique part.
    number: u64,
}

// SAFETY: no other value has the ring and the queue, and this value uses them only through `&mut
// self`.
unsafe impl Send for Capture {}

/// Copied packets that were read from the ring but not returned yet.
#[derive(Debug, Default)]
struct Heard(VecDeque<Vec<u8>>);

/// Maximum number of copied packets that wait to be returned. If there are more, the oldest are
/// dropped.
const WAITING: usize = 4096;
/// Time for which the XDP program copies packets after the last call of the capturing process.
const LEASE: Duration = Duration::from_secs(2);
/// Limit of captured packets per second and CPU if the gateway's own events are off.
const USUAL: Rate = Rate::per_second(100, 100);
/// Number of bytes in a record of the ring before the packet's own bytes.
const HEAD: usize = std::mem::offset_of!(abi::equic_captured, bytes);

/// libbpf calls this function for every record in the ring while `poll` runs.
unsafe extern "C" fn hear(heard: *mut c_void, data: *mut c_void, size: libbpf_sys::size_t) -> i32 {
    // SAFETY: `heard` is the queue given to `ring_buffer__new`, and nothing else borrows it while
    // `poll` runs. `data` has `size` bytes that do not change until this function returns.
    unsafe {
        let Heard(heard) = &mut *heard.cast::<Heard>();
        if heard.len() == WAITING {
            heard.pop_front();
        }
        heard.push_back(std::slice::from_raw_parts(data.cast::<u8>(), size as usize).to_vec());
    }
    0
}

impl Control {
    /// Starts capturing a sample of the dropped packets that match the filter. Per second and CPU,
    /// it captures at most as many packets as the gateway's `events` allow (100 if these are off).
    /// Without a capture, the XDP program copies nothing.
    ///
    /// A capture contains packets and addresses of clients. It needs the privileges of
    /// [`Control::open`].
    ///
    /// # Errors
    /// Returns [`Error::CaptureTaken`] if another process is capturing, and the kernel's error if a
    /// call fails.
    pub fn capture(&self, filter: &CaptureFilter) -> Result<Capture> {
        let number = self.claim_capture()?;
        let mut heard = Box::new(Heard::default());
        // SAFETY: the queue is boxed and lives as long as the ring. The callback has the right
        // type.
        let ring = unsafe {
            libbpf_sys::ring_buffer__new(
                self.maps.captured.as_raw_fd(),
                Some(hear),
                (&raw mut *heard).cast(),
                std::ptr::null(),
            )
        };
        let Some(ring) = NonNull::new(ring) else {
            let error = Error::last_os("listening to captured packets");
            self.release_capture(number);
            return Err(error);
        };
        let source = filter.source.map(|net| canonical_prefix(net.trunc()));
        let (control, filter) = (self.clone(), CaptureFilter { source, ..filter.clone() });
        let mut capture = Capture { ring, heard, control, filter, number };
        // Discards records of an earlier capture whose process was killed.
        capture.take(0)?;
        capture.heard.0.clear();
        capture.begin();
        Ok(capture)
    }

    /// Claims the gateway's only capture, if no other process has it. Returns the number of this
    /// process's capture.
    fn claim_capture(&self) -> Result<u64> {
        let (capture, now) = (self.maps.capture.pointer(), sys::monotonic_ns());
        let holder = atomic!(AtomicU64, capture, holder);
        let until = atomic!(AtomicU64, capture, until_ns);
        let taken = |_| Error::CaptureTaken { pid: (holder.load(Acquire) >> 32) as u32 };
        let before = until.load(Acquire);
        if before > now {
            return Err(taken(before));
        }
        // If several processes claim the capture at once, only one of them succeeds.
        let mine = now.saturating_add(nanos(LEASE));
        until.compare_exchange(before, mine, AcqRel, Acquire).map_err(taken)?;
        let number = u64::from(std::process::id()) << 32 | now & 0xffff_ffff;
        holder.store(number, Release);
        Ok(number)
    }

    /// Ends the capture with this number, unless it has ended already.
    fn release_capture(&self, number: u64) {
        let capture = self.maps.capture.pointer();
        if atomic!(AtomicU64, capture, holder).load(Acquire) == number {
            atomic!(AtomicU64, capture, until_ns).store(0, Release);
            let _ =
                atomic!(AtomicU64, capture, holder).compare_exchange(number, 0, AcqRel, Relaxed);
        }
    }
}

impl Capture {
    /// Stores the filter and the lease, so that the XDP program starts copying.
    fn begin(&self) {
        let capture = self.control.maps.capture.pointer();
        let store = |word: &AtomicU64, value: u64| word.store(value, Relaxed);
        let (addr, mask) = address_and_mask(self.filter.source);
        store(atomic!(AtomicU64, capture, reasons), reason_bits(&self.filter.reasons));
        store(atomic!(AtomicU64, capture, addr[0]), addr[0]);
        store(atomic!(AtomicU64, capture, addr[1]), addr[1]);
        store(atomic!(AtomicU64, capture, mask[0]), mask[0]);
        store(atomic!(AtomicU64, capture, mask[1]), mask[1]);
        let events = self.control.settings().events;
        let rate = if events.is_off() { USUAL } else { events }.to_abi();
        store(atomic!(AtomicU64, capture, rate.burst_ns), rate.burst_ns);
        store(atomic!(AtomicU64, capture, rate.cost_ns), rate.cost_ns);
        store(atomic!(AtomicU64, capture, lost), 0);
        let snap = self.filter.snap.clamp(14, CaptureFilter::MOST_BYTES);
        atomic!(AtomicU32, capture, snap).store(snap, Relaxed);
        self.renew();
    }

    fn renew(&self) {
        let until = sys::monotonic_ns().saturating_add(nanos(LEASE));
        let capture = self.control.maps.capture.pointer();
        atomic!(AtomicU64, capture, until_ns).store(until, Release);
    }

    /// Returns the packets that are waiting or arrive within `timeout`. The list may be empty. Must
    /// be called at least every two seconds, or the capture ends.
    ///
    /// # Errors
    /// Returns [`Error::CaptureTaken`] if this capture has ended and another process has started
    /// one. Returns the kernel's error if a call fails.
    pub fn poll(&mut self, timeout: Duration) -> Result<Vec<CapturedPacket>> {
        let holder = atomic!(AtomicU64, self.control.maps.capture.pointer(), holder).load(Acquire);
        if holder != self.number {
            return Err(Error::CaptureTaken { pid: (holder >> 32) as u32 });
        }
        self.renew();
        self.take(i32::try_from(timeout.min(LEASE / 2).as_millis()).unwrap_or(0))?;
        let names = self.control.service_names();
        let records = self.heard.0.drain(..);
        let packets = records.filter_map(|record| packet_of(&record, &names));
        Ok(packets.filter(|packet| self.filter.wants(&packet.event)).collect())
    }

    /// Returns the number of packets that matched the filter and the rate, but were lost because
    /// the ring was full.
    pub fn lost(&self) -> u64 {
        atomic!(AtomicU64, self.control.maps.capture.pointer(), lost).load(Relaxed)
    }

    /// Ends the capture. The XDP program stops copying, and another capture can start.
    pub fn end(&self) {
        self.control.release_capture(self.number);
    }

    /// Returns the gateway that dropped these packets.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Reads records from the ring. If it is empty, waits for a record until the timeout.
    fn take(&mut self, timeout_ms: i32) -> Result<()> {
        let failed = |error| Error::system("waiting for captured packets", error);
        // SAFETY: the ring is valid until it is dropped, and nothing else uses it because of `&mut
        // self`.
        sys::check(unsafe { libbpf_sys::ring_buffer__consume(self.ring.as_ptr()) })
            .map_err(failed)?;
        if !self.heard.0.is_empty() || timeout_ms == 0 {
            return Ok(());
        }
        // SAFETY: the ring is valid until it is dropped, and nothing else uses it because of `&mut
        // self`.
        let taken = unsafe { libbpf_sys::ring_buffer__poll(self.ring.as_ptr(), timeout_ms) };
        match sys::check(taken) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => Err(failed(error)),
            _ => Ok(()),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
        // SAFETY: `ring_buffer__new` created the ring, and it is not used again.
        unsafe { libbpf_sys::ring_buffer__free(self.ring.as_ptr()) };
    }
}

impl CaptureFilter {
    /// Returns true if a packet matches the filter. The XDP program may have copied other packets
    /// while the filter was being written.
    fn wants(&self, event: &Event) -> bool {
        (self.reasons.is_empty() || self.reasons.contains(&event.reason))
            && self.source.is_none_or(|net| net.contains(&event.from.ip()))
    }
}

/// Returns the address and mask with which the XDP program compares a packet's source.
fn address_and_mask(source: Option<IpNet>) -> ([u64; 2], [u64; 2]) {
    let Some(net) = source else { return ([0; 2], [0; 2]) };
    let mut mask = [0xff; 16];
    match net {
        IpNet::V4(net) => mask[12..].copy_from_slice(&net.netmask().octets()),
        IpNet::V6(net) => mask = net.netmask().octets(),
    }
    // The XDP program runs only on little-endian machines, and loads the bytes as two words.
    let words = |bytes: [u8; 16]| {
        let number = u128::from_le_bytes(bytes);
        [number as u64, (number >> 64) as u64]
    };
    (words(address_bytes(net.network())), words(mask))
}

/// Returns a mask with a bit for each of these reasons, or for every reason if the list is empty.
fn reason_bits(reasons: &[Reason]) -> u64 {
    let wanted = |reason: &Reason| reasons.is_empty() || reasons.contains(reason);
    Reason::all().filter(wanted).fold(0, |bits, reason| bits | 1 << reason.number())
}

fn packet_of(record: &[u8], names: &[String]) -> Option<CapturedPacket> {
    let (head, bytes) = record.split_at_checked(HEAD)?;
    let word = |at: usize| Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?));
    // SAFETY: the event is the first field of the record, `head` is longer than an event, and every
    // bit pattern is a valid event.
    let event = unsafe { head.as_ptr().cast::<abi::equic_event>().read_unaligned() };
    let frame_len = word(std::mem::offset_of!(abi::equic_captured, frame_len))?;
    let kept = word(std::mem::offset_of!(abi::equic_captured, bytes_len))? as usize;
    let frame = bytes[..kept.min(bytes.len())].to_vec();
    Some(CapturedPacket { event: typed(&event, names)?, frame_len, frame })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_filter_matches_addresses_as_the_program_stores_them() {
        let matches = |net: &str, from: &str| {
            let (addr, mask) = address_and_mask(Some(net.parse().expect("a prefix")));
            let from = u128::from_le_bytes(address_bytes(from.parse().expect("an address")));
            let words = [from as u64, (from >> 64) as u64];
            (0..2).all(|i| (words[i] ^ addr[i]) & mask[i] == 0)
        };
        assert!(matches("192.0.2.0/24", "192.0.2.77") && !matches("192.0.2.0/24", "192.0.3.77"));
        assert!(matches("0.0.0.0/0", "198.51.100.1") && !matches("0.0.0.0/0", "2001:db8::1"));
        assert!(matches("2001:db8::/48", "2001:db8:0:9::1"));
        assert!(
            !matches("2001:db8::/48", "2001:db8:1::1") && !matches("2001:db8::/48", "192.0.2.1")
        );
        assert_eq!(address_and_mask(None), ([0; 2], [0; 2]));
    }

    #[test]
    fn capture_record_that_is_truncated_is_not_read_past_its_end() {
        let mut record = vec![0; HEAD + 4];
        record[std::mem::offset_of!(abi::equic_captured, bytes_len)] = 200;
        let packet = packet_of(&record, &[]).expect("a packet");
        assert_eq!(packet.frame, [0; 4], "no more than there is");
        assert_eq!(packet_of(&record[..HEAD - 1], &[]), None);
    }
}
