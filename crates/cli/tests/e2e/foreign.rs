//! Attaches XDP programs that do not belong to the gateway, for tests of conflicts.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use equic_netns::Namespace;

/// Attaches a program that passes all packets to an interface, and returns the program's ID. The
/// program stays attached when this process ends.
pub(crate) fn attach(host: &Namespace, interface: &str) -> u64 {
    let program = load(c"somebody_elses").expect("it loads");
    let attached = host.run(|| {
        let ifindex = nix::net::if_::if_nametoindex(interface).expect("the interface is there");
        let flags = libbpf_sys::XDP_FLAGS_UPDATE_IF_NOEXIST;
        // SAFETY: the program's descriptor is open during the call; no options are passed.
        let done = unsafe {
            let ifindex = ifindex.cast_signed();
            libbpf_sys::bpf_xdp_attach(ifindex, program.as_raw_fd(), flags, std::ptr::null())
        };
        assert_eq!(done, 0, "{}", io::Error::from_raw_os_error(-done));
        let mut id = 0;
        // SAFETY: `id` lives during the call.
        let found = unsafe { libbpf_sys::bpf_xdp_query_id(ifindex.cast_signed(), 0, &raw mut id) };
        assert_eq!(found, 0, "{}", io::Error::from_raw_os_error(-found));
        u64::from(id)
    });
    attached.expect("inside")
}

/// Creates an interface under another name, attaches the program, and then renames the interface to
/// `interface`. That way, no other program can be attached before this one.
#[allow(dead_code, reason = "each test program uses its part")]
pub(crate) fn attach_first(host: &Namespace, interface: &str) -> u64 {
    let ip = |args: &str| {
        let mut ip = host.command("ip");
        ip.args(args.split_whitespace());
        assert!(ip.status().expect("ip is installed").success(), "ip {args}");
    };
    ip("link add before type veth peer name behind");
    let program = attach(host, "before");
    ip(&format!("link set before name {interface}"));
    program
}

/// Loads the BPF program `r0 = XDP_PASS; exit`.
fn load(name: &CStr) -> io::Result<OwnedFd> {
    let instruction = |code: u32, imm| libbpf_sys::bpf_insn {
        code: code as u8,
        imm,
        ..libbpf_sys::bpf_insn::default()
    };
    let (mov, exit) = (0xb7, 0x95);
    let instructions = [instruction(mov, 2), instruction(exit, 0)];
    // SAFETY: name, licence and instructions live during the call; no options are passed.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            name.as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
