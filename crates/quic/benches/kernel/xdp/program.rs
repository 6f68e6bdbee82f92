//! An XDP program that redirects all packets of a queue to the queue's AF_XDP socket. bpf(2) loads
//! its six instructions directly.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use nix::libc;

/// Constants from linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The driver runs the program, before it creates an skb. veth runs it on packets that it takes
/// from an skb.
const DRIVER_MODE: u32 = 1 << 2;

/// The start of `union bpf_attr`, longer than the calls here need.
type Attributes = [u32; 32];

fn bpf(command: libc::c_int, attributes: &Attributes) -> io::Result<libc::c_long> {
    // SAFETY: the call gets the length of the attributes. The callers keep alive what they point
    // to.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of::<Attributes>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn file(result: libc::c_long) -> OwnedFd {
    // SAFETY: the call has created the file descriptor, which has no other owner.
    unsafe { OwnedFd::from_raw_fd(result as RawFd) }
}

/// Returns the low and the high half of a 64-bit pointer or number.
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    code as u64
        | (to as u64) << 8
        | (from as u64) << 12
        | (offset as u16 as u64) << 16
        | (value as u32 as u64) << 32
}

/// An attached program. Dropping this detaches the program.
pub(crate) struct Redirect {
    _files: [OwnedFd; 3],
}

impl Redirect {
    /// Attaches the program to an interface in the namespace of this thread. `socket` must be bound
    /// to the interface's first queue.
    pub(crate) fn new(interface: u32, socket: RawFd) -> io::Result<Redirect> {
        let mut attributes = Attributes::default();
        attributes[..4].copy_from_slice(&[MAP_TYPE_XSKMAP, 4, 4, 1]);
        let map = file(bpf(MAP_CREATE, &attributes)?);
        let program = [
            // r2 = context.rx_queue_index
            instruction(0x61, 2, 1, 16, 0),
            // r1 = map
            instruction(0x18, 1, 1, 0, map.as_raw_fd()),
            0,
            // r3 = XDP_PASS, for a queue that has no socket
            instruction(0xb7, 3, 0, 0, 2),
            // return bpf_redirect_map(r1, r2, r3)
            instruction(0x85, 0, 0, 0, 51),
            instruction(0x95, 0, 0, 0, 0),
        ];
        let [instructions, license] = [program.as_ptr() as u64, c"GPL".as_ptr() as u64].map(halves);
        let mut attributes = Attributes::default();
        attributes[..2].copy_from_slice(&[PROG_TYPE_XDP, program.len() as u32]);
        attributes[2..4].copy_from_slice(&instructions);
        attributes[4..6].copy_from_slice(&license);
        attributes[17] = ATTACH_XDP;
        let program = file(bpf(PROG_LOAD, &attributes)?);
        let (queue, value) = (0u32, socket);
        let [key, value] = [&raw const queue as u64, &raw const value as u64].map(halves);
        let mut attributes = Attributes::default();
        attributes[0] = map.as_raw_fd() as u32;
        attributes[2..4].copy_from_slice(&key);
        attributes[4..6].copy_from_slice(&value);
        bpf(MAP_UPDATE_ELEM, &attributes)?;
        let mut attributes = Attributes::default();
        let program_file = program.as_raw_fd() as u32;
        attributes[..4].copy_from_slice(&[program_file, interface, ATTACH_XDP, DRIVER_MODE]);
        let link = file(bpf(LINK_CREATE, &attributes)?);
        Ok(Redirect { _files: [link, program, map] })
    }
}
