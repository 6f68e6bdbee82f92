//! A finer division of samples than [`super::Part`], by the work of the program, or of the kernel
//! on its behalf.
//!
//! For every program, cryptography, the kernel's work, copies, allocation and locks are
//! distinguished by the names of library functions. Protocol work is divided further only for
//! eQUIC, by the names of its modules. In other programs, all protocol work is [`Group::Rest`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::classify::{Part, classify};
use super::script::{Frame, Stack};

/// Kind of work of a sample, in the order of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Encryption and decryption of packets.
    Aead,
    /// Header protection (RFC 9001 s.5.4).
    HeaderProtection,
    /// Other cryptography: handshakes, and the initialisation of libraries.
    Handshake,
    /// TLS messages and certificates.
    Tls,
    /// System calls that send.
    Send,
    /// Delivery of datagrams to the receiver in soft interrupts. If server and client are on one
    /// machine, soft interrupts run during the sender's system call.
    Deliver,
    /// System calls that receive.
    Receive,
    /// Waiting for events, wake-ups and scheduling.
    Wake,
    /// Copying and clearing of memory outside of the kernel and of ciphers.
    Copy,
    /// Allocation and release of memory, and the page faults that result.
    Allocate,
    /// Locking: mutexes and atomics.
    Lock,
    /// Timers and the clock.
    Timer,
    /// Acknowledgements, loss detection and congestion control.
    Ack,
    /// Streams and flow control.
    Stream,
    /// Creation of packets: choosing their content, writing headers and frames.
    Build,
    /// Parsing of packets: headers, frames, lookup of their connection.
    Parse,
    /// HTTP/3 and QPACK.
    Http,
    /// The asynchronous runtime: tasks, wakers and futures.
    Runtime,
    /// Everything else.
    Rest,
}

impl Group {
    /// All groups, in the order of tables.
    pub const ALL: [Group; 19] = [
        Group::Aead,
        Group::HeaderProtection,
        Group::Handshake,
        Group::Tls,
        Group::Send,
        Group::Deliver,
        Group::Receive,
        Group::Wake,
        Group::Copy,
        Group::Allocate,
        Group::Lock,
        Group::Timer,
        Group::Ack,
        Group::Stream,
        Group::Build,
        Group::Parse,
        Group::Http,
        Group::Runtime,
        Group::Rest,
    ];

    /// Returns the name of the group in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Group::Aead => "AEAD",
            Group::HeaderProtection => "header protection",
            Group::Handshake => "other cryptography",
            Group::Tls => "TLS",
            Group::Send => "kernel: sending",
            Group::Deliver => "kernel: delivering",
            Group::Receive => "kernel: receiving",
            Group::Wake => "kernel: wake-ups",
            Group::Copy => "copies",
            Group::Allocate => "allocation",
            Group::Lock => "locks",
            Group::Timer => "timers, clock",
            Group::Ack => "acknowledgements, loss",
            Group::Stream => "streams",
            Group::Build => "packets made",
            Group::Parse => "packets read",
            Group::Http => "HTTP/3",
            Group::Runtime => "tasks",
            Group::Rest => "all else",
        }
    }
}

/// Number of samples of each group. Groups without samples are absent.
pub type Groups = BTreeMap<Group, u64>;

/// Substrings, in lower case, of the names of functions that protect headers. The cipher may run in
/// a function that they call.
const HEADER: [&str; 5] =
    ["headerprotection", "header_protection", "new_mask", "headerprotector", "header_key"];
/// Substrings of the names of functions that encrypt or decrypt packets.
const AEAD: [&str; 14] = [
    "evp_aead",
    "aead_aes",
    "aead_chacha",
    "aes_gcm",
    "aesni_gcm",
    "gcm_",
    "gcm128",
    "crypto_gcm",
    "crypto_aead",
    "chacha20_poly1305",
    "packetkey",
    "seal_in_place",
    "open_in_place",
    "::aead::",
];
/// Prefixes of names of functions that copy memory, in libc and in code from compilers.
const COPY: [&str; 8] =
    ["__memmove", "__memcpy", "__memset", "__mempcpy", "memmove", "memcpy", "memset", "__bzero"];
/// Prefixes of names of allocation functions.
const ALLOCATE: [&str; 16] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "_int_malloc",
    "_int_free",
    "_int_realloc",
    "__libc_malloc",
    "__libc_free",
    "__libc_calloc",
    "__libc_realloc",
    "cfree",
    "unlink_chunk",
    "tcache_",
    "sysmalloc",
    "systrim",
];
/// Substrings of the names of functions that manage memory for other functions.
const ALLOCATORS: [&str; 6] =
    ["alloc::alloc", "__rust_alloc", "__rust_dealloc", "__rdl_", "raw_vec", "mallocgc"];
/// Substrings of the names of functions that take or release locks.
const LOCK: [&str; 6] = [
    "pthread_mutex",
    "sync::poison::mutex",
    "sys::sync::mutex",
    "parking_lot",
    "lll_lock",
    "rwlock",
];
/// Kernel functions that wait, wake and schedule.
const WAKE: [&str; 13] = [
    "sys_epoll",
    "do_epoll",
    "ep_poll",
    "ep_send",
    "sys_poll",
    "sys_ppoll",
    "sys_select",
    "sys_pselect",
    "futex",
    "schedule",
    "try_to_wake_up",
    "finish_task_switch",
    "eventfd",
];
/// Kernel functions of soft interrupts.
const DELIVER: [&str; 6] =
    ["net_rx_action", "__napi_poll", "process_backlog", "napi_", "do_softirq", "handle_softirqs"];
/// Kernel functions that handle page faults.
const PAGES: [&str; 6] =
    ["page_fault", "do_anonymous_page", "clear_page", "handle_mm_fault", "sys_mmap", "sys_madvise"];

/// Substrings, in lower case, of the names of protocol functions. The innermost matching function
/// of a stack decides. If it matches several rows, the first one counts.
const PROTOCOL: [(Group, &[&str]); 8] = [
    (Group::Tls, &["rustls::", "webpki::", "rustls_pki_types::"]),
    (Group::Timer, &["::timers", "recovery::timer", "::timer::", "runtime::time", "instant::now"]),
    (
        Group::Ack,
        &[
            "connection::acks",
            "acknowledgements",
            "ack_frequency",
            "equic_transport::received",
            "equic_transport::ranges",
            "equic_transport::recovery",
            "equic_transport::congestion",
            "connection::packet_numbers",
        ],
    ),
    (Group::Http, &["h3::", "equic_http3", "bench_contract::http3", "http::", "qpack"]),
    (
        Group::Stream,
        &[
            "equic_transport::stream",
            "equic_quic::send",
            "equic_quic::receive",
            "equic_quic::cell",
            "equic_quic::connection",
            "equic_quic::memory",
        ],
    ),
    (
        Group::Parse,
        &[
            "handle_datagram",
            "connection::receive",
            "connection::frames",
            "equic_transport::endpoint",
            "equic_wire::packet::",
            "frame::read",
            "equic_quic::udp",
            "equic_quic::route",
        ],
    ),
    (
        Group::Build,
        &[
            "poll_transmit",
            "connection::send",
            "connection::write",
            "packet_builder",
            "frame::write",
            "connection::packet_keys",
            "equic_transport::crypto",
            "equic_transport::path",
            "connection::paths",
            "connection::path",
            "equic_transport::operation",
            "equic_quic::batch",
            "rand_chacha",
            "rand_core",
        ],
    ),
    (
        Group::Runtime,
        &["tokio::", "equic_quic::driver", "equic_quic::socket", "core::task", "mio::"],
    ),
];

fn any(name: &str, pieces: &[&str]) -> bool {
    pieces.iter().any(|piece| name.contains(piece))
}

fn begins(name: &str, pieces: &[&str]) -> bool {
    pieces.iter().any(|piece| name.starts_with(piece))
}

/// Returns the group of a sample.
#[must_use]
pub fn group(stack: &Stack<'_>) -> Group {
    let names: Vec<String> =
        stack.frames.iter().map(|frame| frame.symbol.to_ascii_lowercase()).collect();
    match classify(stack) {
        Part::Crypto => cryptography(&names),
        Part::PacketIo | Part::Other => system(stack, &names),
        Part::Protocol => program(&names),
    }
}

fn cryptography(names: &[String]) -> Group {
    // Header protection uses the same block cipher as the AEAD, so the caller of the cipher
    // decides.
    for name in names {
        if any(name, &HEADER) {
            return Group::HeaderProtection;
        }
        if any(name, &AEAD) {
            return Group::Aead;
        }
    }
    Group::Handshake
}

fn system(stack: &Stack<'_>, names: &[String]) -> Group {
    let kernel = stack.frames.iter().take_while(|frame| frame.is_kernel()).count();
    let (kernel, program) = names.split_at(kernel);
    if kernel.is_empty() {
        return outside(stack, program);
    }
    let has = |pieces: &[&str]| kernel.iter().any(|name| any(name, pieces));
    // If a soft interrupt runs during a sending system call, it works for the receiver.
    if has(&DELIVER) {
        return Group::Deliver;
    }
    if has(&PAGES) {
        return Group::Allocate;
    }
    if has(&["sys_send", "sock_sendmsg", "sock_write_iter", "udp_send", "udpv6_send"]) {
        return Group::Send;
    }
    if has(&["sys_recv", "sock_recvmsg", "sock_read_iter", "udp_recv", "udpv6_recv"]) {
        return Group::Receive;
    }
    if has(&WAKE) {
        return Group::Wake;
    }
    if has(&["clock_gettime", "hrtimer", "sys_timer", "sys_nanosleep"]) {
        return Group::Timer;
    }
    // At the entry to the kernel, only the function in the program that made the call shows its
    // purpose.
    called(program.first().map_or("", String::as_str))
}

/// Returns the purpose of a system call. The name of the program's function that makes the call
/// decides.
fn called(name: &str) -> Group {
    if any(name, &["send"]) {
        Group::Send
    } else if any(name, &["recv"]) {
        Group::Receive
    } else if any(name, &["epoll", "poll", "futex", "pthread_cond"]) {
        Group::Wake
    } else {
        Group::Rest
    }
}

/// Returns the group of a sample outside of the kernel that is not protocol work: thin layers that
/// make system calls, and the clock.
fn outside(stack: &Stack<'_>, names: &[String]) -> Group {
    if stack.frames.first().is_some_and(|frame: &Frame<'_>| frame.object == "[vdso]") {
        return Group::Timer;
    }
    let found = names.iter().map(String::as_str).map(called).find(|group| *group != Group::Rest);
    found.unwrap_or(Group::Rest)
}

fn program(names: &[String]) -> Group {
    let Some(innermost) = names.first() else { return Group::Rest };
    if begins(innermost, &COPY) {
        return Group::Copy;
    }
    if begins(innermost, &ALLOCATE) || any(innermost, &ALLOCATORS) {
        return Group::Allocate;
    }
    if any(innermost, &LOCK) {
        return Group::Lock;
    }
    for name in names {
        let row = PROTOCOL.iter().find(|(_, pieces)| any(name, pieces));
        if let Some((group, _)) = row {
            return *group;
        }
    }
    Group::Rest
}

/// Counts the samples of each group.
#[must_use]
pub fn groups(stacks: &[Stack<'_>]) -> Groups {
    let mut groups = Groups::new();
    for stack in stacks {
        *groups.entry(group(stack)).or_default() += 1;
    }
    groups
}
