//! Information about the BPF programs, links and maps of the whole system. They are opened by ID,
//! which needs `CAP_SYS_ADMIN`, or queried through open descriptors, which needs no privilege.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::sys::check;

/// A BPF program that is loaded in the kernel.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// A hash of the program's instructions as loaded. It does not depend on the maps to which they
    /// refer.
    pub(crate) tag: [u8; 8],
    pub(crate) maps: Vec<u32>,
}

/// A link that attaches an XDP program to an interface.
#[derive(Debug)]
pub(crate) struct XdpLink {
    pub(crate) id: u32,
    /// Index of the interface. 0 if the interface was deleted, or the link was detached.
    pub(crate) ifindex: u32,
    pub(crate) program: u32,
    pub(crate) fd: OwnedFd,
}

type NextId = unsafe extern "C" fn(u32, *mut u32) -> i32;
type FdById = unsafe extern "C" fn(u32) -> i32;

/// Visits all kernel objects of a kind, such as programs. Objects that disappear during the call
/// may be left out.
fn each(
    next: NextId,
    open: FdById,
    mut visit: impl FnMut(u32, OwnedFd) -> io::Result<()>,
) -> io::Result<()> {
    let mut id = 0;
    loop {
        let mut found = 0;
        // SAFETY: the call writes only `found`.
        match check(unsafe { next(id, &raw mut found) }) {
            Ok(_) => id = found,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            Err(error) => return Err(error),
        }
        if let Some(fd) = by_id(open, id)? {
            visit(id, fd)?;
        }
    }
}

fn by_id(open: FdById, id: u32) -> io::Result<Option<OwnedFd>> {
    // SAFETY: the call takes a number and returns a new descriptor.
    match check(unsafe { open(id) }) {
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        // EAGAIN means that the link is still being created.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EAGAIN)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the map with this ID, if it still exists.
pub(crate) fn map_by_id(id: u32) -> io::Result<Option<OwnedFd>> {
    by_id(libbpf_sys::bpf_map_get_fd_by_id, id)
}

/// Returns another descriptor of a map that permits only reading, and mapping for reading.
pub(crate) fn read_only(map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let id = map_id(map)?;
    let options = libbpf_sys::bpf_get_fd_by_id_opts {
        sz: size_of::<libbpf_sys::bpf_get_fd_by_id_opts>() as _,
        open_flags: libbpf_sys::BPF_F_RDONLY,
        ..Default::default()
    };
    // SAFETY: `options` contains its own size and is valid during the call.
    let fd = check(unsafe { libbpf_sys::bpf_map_get_fd_by_id_opts(id, &raw const options) })?;
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the program with this ID, if it still exists.
pub(crate) fn program_by_id(id: u32) -> io::Result<Option<Program>> {
    program_fd(id)?.map(|fd| program_info(fd.as_fd())).transpose()
}

/// Opens the program with this ID, if it still exists.
pub(crate) fn program_fd(id: u32) -> io::Result<Option<OwnedFd>> {
    by_id(libbpf_sys::bpf_prog_get_fd_by_id, id)
}

/// Returns the number of runs of a program, and their total time in nanoseconds.
pub(crate) fn run_stats(program: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes.
    check(unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    Ok((info.run_cnt, info.run_time_ns))
}

/// Returns every program with this name.
pub(crate) fn programs_named(name: &str) -> io::Result<Vec<Program>> {
    let mut all = Vec::new();
    each(libbpf_sys::bpf_prog_get_next_id, libbpf_sys::bpf_prog_get_fd_by_id, |_, fd| {
        let program = program_info(fd.as_fd())?;
        if program.name == name {
            all.push(program);
        }
        Ok(())
    })?;
    Ok(all)
}

/// Returns the kernel's information about a program.
pub(crate) fn program_info(program: BorrowedFd<'_>) -> io::Result<Program> {
    let mut maps = vec![0u32; 64];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: maps.len() as u32,
        map_ids: maps.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes, and `map_ids` points to room for `nr_map_ids` numbers.
    check(unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    maps.truncate(info.nr_map_ids as usize);
    let name = crate::config::from_c_name(&info.name);
    Ok(Program { id: info.id, name, tag: info.tag, maps })
}

/// Returns the XDP links of a program.
pub(crate) fn xdp_links(program: u32) -> io::Result<Vec<XdpLink>> {
    let mut all = Vec::new();
    each(libbpf_sys::bpf_link_get_next_id, libbpf_sys::bpf_link_get_fd_by_id, |_, fd| {
        all.extend(xdp_link(fd)?.filter(|link| link.program == program));
        Ok(())
    })?;
    Ok(all)
}

/// Binds a map to a program. The program then keeps the map alive and lists it.
pub(crate) fn bind(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are valid during the call, and no options are given.
    check(unsafe {
        libbpf_sys::bpf_prog_bind_map(program.as_raw_fd(), map.as_raw_fd(), std::ptr::null())
    })
    .map(drop)
}

/// Returns the program and the interface of a link, or `None` if it is not an XDP link.
pub(crate) fn xdp_link(fd: OwnedFd) -> io::Result<Option<XdpLink>> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes.
    check(unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    if info.type_ != libbpf_sys::BPF_LINK_TYPE_XDP {
        return Ok(None);
    }
    // SAFETY: the kernel fills this member of the union for XDP links.
    let ifindex = unsafe { info.__bindgen_anon_1.xdp.ifindex };
    Ok(Some(XdpLink { id: info.id, ifindex, program: info.prog_id, fd }))
}

/// Replaces a link's program atomically. No packet passes without a program.
pub(crate) fn update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are valid during the call, and no options are given.
    check(unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
    })
    .map(drop)
}

/// Detaches a link's program from its interface, even if other processes hold the link.
pub(crate) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is valid during the call.
    check(unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

/// Returns the ID of the XDP program on an interface of this network namespace, and true if it runs
/// in the driver. Returns `None` if the interface has no program.
pub(crate) fn attached_program(ifindex: u32) -> io::Result<Option<(u32, bool)>> {
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: `options` contains its own size, and the call writes only `options`.
    check(unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &raw mut options) })?;
    Ok(match (options.drv_prog_id, options.hw_prog_id, options.skb_prog_id, options.prog_id) {
        (0, 0, 0, 0) => None,
        (0, 0, 0, id) => Some((id, u32::from(options.attach_mode) != libbpf_sys::XDP_ATTACHED_SKB)),
        (0, 0, id, _) => Some((id, false)),
        (0, id, ..) | (id, ..) => Some((id, true)),
    })
}

/// Returns the kernel's ID of a map.
pub(crate) fn map_id(map: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(crate::sys::map::map_info(map)?.id)
}
