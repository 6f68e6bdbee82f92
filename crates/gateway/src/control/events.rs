//! Reads drop events: a sample of the packets that the XDP program drops.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::time::Duration;

use serde::Serialize;

use super::Control;
use crate::abi;
use crate::error::{Error, Result};
use crate::prefix::ip_of;
use crate::reason::Reason;
use crate::sys;

/// A packet that was dropped. In a dry run, it would have been dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Time of the drop, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Index of the interface on which the packet arrived.
    pub ifindex: u32,
    /// Source address of the packet.
    pub from: SocketAddr,
    /// Destination address of the packet.
    pub to: SocketAddr,
    /// The service's name.
    pub service: String,
    /// Reason for the verdict.
    pub reason: Reason,
    /// True if the packet was dropped. False in a dry run.
    pub dropped: bool,
    /// Number of UDP payload bytes.
    pub length: u16,
    /// First byte of the payload.
    pub first_byte: u8,
    /// The QUIC version, or `None` for short headers.
    pub version: Option<u32>,
    /// Destination Connection ID, in hexadecimal.
    pub dcid: String,
}

/// The stream of drop events of one gateway. Each event goes to one reader only, so two readers
/// each get only some of the events.
#[derive(Debug)]
pub struct Events {
    ring: NonNull<libbpf_sys::ring_buffer>,
    // Boxed because the ring's callback keeps a pointer to it.
    heard: Box<Heard>,
    // Keeps the maps open. The ring uses their descriptors.
    control: Control,
}

// SAFETY: no other value has the ring and the queue, and this value uses them only through `&mut
// self`.
unsafe impl Send for Events {}

/// Events that were read from the ring but not returned yet.
#[derive(Debug, Default)]
struct Heard(VecDeque<abi::equic_event>);

/// Maximum number of events that wait. If there are more, the oldest are dropped.
const WAITING: usize = 65_536;

/// libbpf calls this function for every event in the ring while `poll` runs.
unsafe extern "C" fn hear(heard: *mut c_void, data: *mut c_void, size: libbpf_sys::size_t) -> i32 {
    if size as usize >= size_of::<abi::equic_event>() {
        // SAFETY: `heard` is the queue given to `ring_buffer__new`, and nothing else borrows it
        // while `poll` runs. `data` has `size` bytes, and every bit pattern is a valid event.
        unsafe {
            let Heard(heard) = &mut *heard.cast::<Heard>();
            if heard.len() == WAITING {
                heard.pop_front();
            }
            heard.push_back(data.cast::<abi::equic_event>().read_unaligned());
        }
    }
    0
}

impl Control {
    /// Starts reading the gateway's drop events.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn events(&self) -> Result<Events> {
        let mut heard = Box::new(Heard::default());
        // SAFETY: the queue is boxed and lives as long as the ring. The callback has the right
        // type.
        let ring = unsafe {
            libbpf_sys::ring_buffer__new(
                self.maps.events.as_raw_fd(),
                Some(hear),
                (&raw mut *heard).cast(),
                std::ptr::null(),
            )
        };
        let ring = NonNull::new(ring).ok_or_else(|| Error::last_os("listening to events"))?;
        Ok(Events { ring, heard, control: self.clone() })
    }
}

impl Events {
    /// Returns the events that are waiting or arrive within `timeout`. The list may be empty.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn poll(&mut self, timeout: Duration) -> Result<Vec<Event>> {
        let ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the ring is valid until it is dropped, and nothing else uses it because of `&mut
        // self`.
        match sys::check(unsafe { libbpf_sys::ring_buffer__poll(self.ring.as_ptr(), ms) }) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                return Err(Error::system("waiting for events", error));
            }
            _ => {}
        }
        let names = self.control.service_names();
        Ok(self.heard.0.drain(..).filter_map(|event| typed(&event, &names)).collect())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: `ring_buffer__new` created the ring, and it is not used again.
        unsafe { libbpf_sys::ring_buffer__free(self.ring.as_ptr()) };
    }
}

pub(super) fn typed(event: &abi::equic_event, names: &[String]) -> Option<Event> {
    let addr = |bytes: [u8; 16], port: u16| -> SocketAddr {
        let ip: IpAddr = ip_of(bytes);
        SocketAddr::new(ip, u16::from_be(port))
    };
    Some(Event {
        time_ns: event.time_ns,
        ifindex: event.ifindex,
        from: addr(event.src, event.sport),
        to: addr(event.dst, event.dport),
        service: names
            .get(usize::from(event.service))
            .cloned()
            .unwrap_or_else(|| event.service.to_string()),
        reason: Reason::from_number(event.reason.into())?,
        dropped: event.dropped != 0,
        length: event.length,
        first_byte: event.first_byte,
        version: (event.version != 0).then_some(event.version),
        dcid: event.dcid.hex(),
    })
}
