//! Programs that the gateway's XDP program is compared with: one that only passes packets, and the
//! minimal filter by source address, `bpf/reference.bpf.c`. The tests of the crate compile this
//! file, too.

use std::error::Error;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use libbpf_rs::{MapCore as _, MapFlags, Object, ObjectBuilder};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Number of additional calls in [`Program::MoreCalls`], compared with [`Program::Reference`]. The
/// C file has the same constant.
pub(crate) const CALLS: u32 = 16;
/// Verdict of an XDP program that drops the packet.
pub(crate) const XDP_DROP: u32 = 1;
pub(crate) const XDP_PASS: u32 = 2;

/// Aligns the bytes of the BPF program to 8, as the ELF parser needs.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/reference.bpf.o")));

/// A program that the gateway's XDP program is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// `return XDP_PASS`.
    Null,
    /// Parses the packet up to UDP, looks up the source in an LRU hash table, and drops the packet.
    Reference,
    /// Like `Reference`, with a table whose look-up the kernel inlines.
    NoCalls,
    /// Like `Reference`, with [`CALLS`] additional calls of a function that does nothing.
    MoreCalls,
}

/// All programs for comparison, loaded into the kernel.
pub(crate) struct Programs {
    null: OwnedFd,
    object: Object,
}

impl Programs {
    /// Loads the programs. The tables of sources contain only `source`.
    ///
    /// # Errors
    /// Fails without the privilege to load BPF programs.
    pub(crate) fn load(source: IpAddr) -> Result<Programs> {
        let object = ObjectBuilder::default().open_memory(&OBJECT.0)?.load()?;
        let key = key(source);
        for map in object.maps() {
            if map.name() == "sources" {
                map.update(&key, &1_u64.to_ne_bytes(), MapFlags::ANY)?;
            } else if map.name() == "places" {
                map.update(&place(key).to_ne_bytes(), &key, MapFlags::ANY)?;
            }
        }
        Ok(Programs { null: null()?, object })
    }

    /// Runs one of the programs `repeat` times on a frame. Returns its verdict, and the mean time
    /// of a run.
    ///
    /// # Errors
    /// Fails if the kernel cannot run the program.
    pub(crate) fn run(&self, which: Program, frame: &[u8], repeat: u32) -> Result<(u32, Duration)> {
        let name = match which {
            Program::Null => return run(self.null.as_raw_fd(), frame, repeat),
            Program::Reference => "reference",
            Program::NoCalls => "no_calls",
            Program::MoreCalls => "more_calls",
        };
        let program = self.object.progs().find(|program| program.name() == name);
        run(program.ok_or("the object lacks a program")?.as_fd().as_raw_fd(), frame, repeat)
    }
}

/// Returns the key of a source in the tables: `struct source` of the C file.
fn key(source: IpAddr) -> [u8; 16] {
    match source {
        IpAddr::V4(v4) => {
            let mut key = [0; 16];
            key[12..].copy_from_slice(&v4.octets());
            key
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Returns the index of a source in the table `places`. Must agree with place() in the C file.
fn place(key: [u8; 16]) -> u32 {
    let mut mixed = 0;
    for word in key.as_chunks::<4>().0 {
        mixed ^= u32::from_ne_bytes(*word);
    }
    mixed.wrapping_mul(0x9e37_79b1) >> 16
}

fn null() -> Result<OwnedFd> {
    let insn = |code, imm| libbpf_sys::bpf_insn { code, imm, ..Default::default() };
    // The instructions r0 = XDP_PASS; exit.
    let program = [insn(0xb7, XDP_PASS.cast_signed()), insn(0x95, 0)];
    // SAFETY: the strings end in NUL, and the array has the given number of instructions.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"null".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as u64,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(format!("loading the null program failed ({fd}): run as root").into());
    }
    // SAFETY: the kernel has just created the descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls `BPF_PROG_TEST_RUN`. Returns the verdict and the mean time of a run.
fn run(program: i32, frame: &[u8], repeat: u32) -> Result<(u32, Duration)> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
        data_in: frame.as_ptr().cast(),
        data_size_in: u32::try_from(frame.len())?,
        repeat: i32::try_from(repeat)?,
        ..Default::default()
    };
    // SAFETY: the descriptor is that of a program, and the frame outlives the call.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) };
    if result < 0 {
        return Err(format!("BPF_PROG_TEST_RUN failed ({result})").into());
    }
    Ok((options.retval, Duration::from_nanos(options.duration.into())))
}
