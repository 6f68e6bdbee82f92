//! Runs the gateway's XDP program on frames from memory, and returns how it judged them.

use std::os::fd::AsRawFd;
use std::time::Duration;

use serde::Serialize;

use crate::abi;
use crate::control::Adaptive;
use crate::error::{Error, Result};
use crate::gateway::Gateway;
use crate::prefix::source_text;
use crate::reason::Reason;
use crate::sys;

/// Return code of an XDP program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// `XDP_ABORTED`. The gateway's program never returns it.
    Aborted,
    /// `XDP_DROP`: the packet is dropped.
    Drop,
    /// `XDP_PASS`: the kernel processes the packet as usual.
    Pass,
    /// `XDP_TX`: the program sends an answer back through the interface on which the packet
    /// arrived.
    Answer,
    /// Any other code. The gateway's program never returns such a code.
    Other(u32),
}

/// Result of running the XDP program once or several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestRun {
    /// Return code of the XDP program.
    pub action: Action,
    /// Average duration of one run, as measured by the kernel.
    pub duration: Duration,
}

/// The result of running the XDP program on a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Return code of the XDP program.
    pub action: Action,
    /// The verdict, or `None` if the packet is not for a service.
    pub verdict: Option<Verdict>,
}

/// The verdict on a packet: its reason, and the service and headers that it is based on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Reason for the verdict.
    pub reason: Reason,
    /// True if the packet does not reach the server, because it was dropped or answered. False in a
    /// dry run, even if the reason is a drop.
    pub dropped: bool,
    /// The service's name.
    pub service: String,
    /// The service's index.
    pub service_index: u32,
    /// Prefix of the source.
    pub source: String,
    /// Number of connections of the source on all servers. 0 for a later fragment, to which no
    /// quota applies.
    pub connections: u32,
    /// Number of the source's handshakes in progress. 0 if the policy does not count them.
    pub under_way: u32,
    /// State of adaptive Retry when the packet was judged. `None` if the service does not use
    /// adaptive Retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
    /// The QUIC version of a long header. `None` for a short header, and for a payload that is not
    /// QUIC.
    pub version: Option<u32>,
    /// Destination Connection ID in hexadecimal. A longer ID than the XDP program reads is cut.
    pub dcid: String,
    /// Source Connection ID in hexadecimal. A longer ID than the XDP program reads is cut.
    pub scid: String,
}

/// Minimum length of a frame: BPF_PROG_TEST_RUN needs an Ethernet header.
const SHORTEST: usize = 14;
/// Maximum length of a frame, larger than any packet. The kernel's own maximum depends on its page
/// size and MAX_SKB_FRAGS.
const LONGEST: usize = 65_535 + 64;

impl Gateway {
    /// Runs the XDP program on a frame as if it had arrived on the interface with this index.
    /// `None` means no particular interface. The program counts the packet and changes its state as
    /// for a packet from the wire.
    ///
    /// # Errors
    /// Returns [`Error::BadPacket`] for frames under 14 or over 65,599 bytes,
    /// [`Error::NoSuchInterface`] if no interface has the index, and otherwise the kernel's error.
    pub fn test_run(&self, frame: &[u8], ifindex: Option<u32>) -> Result<TestRun> {
        self.test_run_repeat(frame, ifindex, 1)
    }

    /// Does the same as [`Gateway::test_run`] `repeat` times in a row, and returns the last action.
    ///
    /// # Errors
    /// Returns the errors of [`Gateway::test_run`].
    pub fn test_run_repeat(
        &self,
        frame: &[u8],
        ifindex: Option<u32>,
        repeat: u32,
    ) -> Result<TestRun> {
        let bad = |why| Error::BadPacket { length: frame.len(), why };
        if frame.len() < SHORTEST {
            return Err(bad("an Ethernet frame must have at least 14 bytes"));
        }
        if frame.len() > LONGEST {
            return Err(bad("a frame must have at most 65,599 bytes"));
        }
        if let Some(original) = self.original() {
            original
                .bring(self.control().maps(), frame)
                .map_err(|error| Error::system("reading the maps of the gateway", error))?;
        }
        let context = libbpf_sys::xdp_md {
            data_end: frame.len() as u32,
            ingress_ifindex: ifindex.unwrap_or(0),
            ..Default::default()
        };
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            repeat: i32::try_from(repeat.max(1)).unwrap_or(i32::MAX),
            ..Default::default()
        };
        if ifindex.is_some() {
            options.ctx_in = (&raw const context).cast();
            options.ctx_size_in = size_of_val(&context) as u32;
        }
        // SAFETY: the frame and the context are valid during the call, and the options give their
        // sizes.
        let returned = unsafe {
            libbpf_sys::bpf_prog_test_run_opts(self.program_fd().as_raw_fd(), &raw mut options)
        };
        sys::check(returned).map_err(|error| match (ifindex, error.raw_os_error()) {
            (Some(index), Some(libc::ENODEV)) => {
                Error::NoSuchInterface { name: format!("number {index}"), similar: Vec::new() }
            }
            _ => Error::system("running the program on a packet", error),
        })?;
        let action = match options.retval {
            libbpf_sys::XDP_ABORTED => Action::Aborted,
            libbpf_sys::XDP_DROP => Action::Drop,
            libbpf_sys::XDP_PASS => Action::Pass,
            libbpf_sys::XDP_TX => Action::Answer,
            other => Action::Other(other),
        };
        Ok(TestRun { action, duration: Duration::from_nanos(options.duration.into()) })
    }

    /// Runs the XDP program on a frame and returns how it judged the frame. The program changes its
    /// state as for a packet from the wire. For example, if the same Initial is judged twice and
    /// opens a connection, the second verdict is `underway`.
    ///
    /// The gateway must be loaded with [`crate::LoadOptions::explain`] (as snapshots are).
    /// Otherwise the verdict is always `None`. A frame that is too short for an Ethernet header
    /// passes, as on an interface.
    ///
    /// # Errors
    /// Returns the errors of [`Gateway::test_run`].
    pub fn judge(&self, frame: &[u8]) -> Result<Judgement> {
        if frame.len() < SHORTEST {
            return Ok(Judgement { action: Action::Pass, verdict: None });
        }
        let _one = self.judging();
        let maps = self.control().maps();
        maps.explain.write(&abi::equic_explain::default());
        let action = self.test_run(frame, None)?.action;
        let explain = maps.explain.read();
        let adaptive = self.control().adaptive();
        let reason = Reason::from_number(explain.reason).filter(|_| explain.packets != 0);
        let verdict = reason.map(|reason| Verdict {
            reason,
            dropped: explain.dropped != 0,
            service: self.control().service_name(explain.service),
            service_index: explain.service,
            source: source_text(explain.source.addr, &maps.load),
            connections: explain.count,
            under_way: explain.under_way,
            adaptive: adaptive.get(explain.service as usize).copied().flatten(),
            version: (explain.version != 0).then_some(explain.version),
            dcid: explain.dcid.hex(),
            scid: explain.scid.hex(),
        });
        Ok(Judgement { action, verdict })
    }
}
