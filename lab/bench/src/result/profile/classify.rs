//! Classifies samples by the names of functions and files.
//!
//! If the program itself was running, the innermost function with a known name decides. For
//! example, a `memcpy` that a cipher calls counts as crypto. In the kernel, the system call and the
//! networking code decide. The lists contain names of ring, AWS-LC, BoringSSL, OpenSSL, Go and
//! Linux.

use super::Split;
use super::script::{Frame, Stack};

/// Kind of work of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Cryptography: ciphers, hashes, signatures.
    Crypto,
    /// Transfer of datagrams between the program and the network.
    PacketIo,
    /// All other work of the program.
    Protocol,
    /// Everything else.
    Other,
}

/// Substrings of the names of cryptographic functions, in lower case.
const CRYPTO: [&str; 35] = [
    // The entry is not "ring::", because "string::" contains that, too.
    "<ring::",
    " ring::",
    "ring_core_0",
    "aws_lc",
    "boringssl",
    "crypto/aes",
    "crypto/cipher",
    "crypto/ec",
    "crypto/ed25519",
    "crypto/hkdf",
    "crypto/hmac",
    "crypto/internal/",
    "crypto/rsa",
    "crypto/sha",
    "crypto/subtle",
    "/x/crypto/",
    "evp_aead",
    "evp_cipher",
    "evp_digest",
    "aes_gcm",
    "aesni",
    "aes_hw_",
    "aes_encrypt",
    "aes_decrypt",
    "vaes",
    "gcm_ghash",
    "gcm_gmult",
    "gcm_init",
    "gcm128",
    "chacha20",
    "poly1305",
    "sha256_block",
    "sha512_block",
    "x25519",
    "ecp_nistz256",
];
/// Prefixes of names of cryptographic functions, in lower case.
const CRYPTO_BEGINNINGS: [&str; 9] = [
    "ring::",
    "bn_mul",
    "bn_sqr",
    "rsaz_",
    "p256_",
    "curve25519",
    "crypto_gcm",
    "crypto_aead",
    "hmac_",
];
/// Names of files (libraries) that contain only cryptography.
const CRYPTO_OBJECTS: [&str; 5] =
    ["libcrypto.so", "libnettle.so", "libgcrypt.so", "cryptography/hazmat/", "aioquic/_crypto"];
/// Names of functions in programs whose only work is to send and receive. Samples in them count as
/// packet I/O.
const IO: [&str; 16] = [
    "quinn_udp::",
    "internal/poll.",
    "net.(*udpconn)",
    "net.(*conn)",
    "syscall.syscall",
    "runtime/syscall",
    "runtime.netpoll",
    "libc_sendmsg",
    "libc_recvmsg",
    "sendmmsg",
    "recvmmsg",
    "libc_sendto",
    "libc_recvfrom",
    "epoll_wait",
    "epoll_pwait",
    "sendfile",
];
/// Names of libc functions that only make a system call.
const CALLS: [&str; 11] = [
    "sendmsg",
    "recvmsg",
    "sendmmsg",
    "recvmmsg",
    "sendto",
    "recvfrom",
    "libc_send",
    "libc_recv",
    "epoll_wait",
    "epoll_pwait",
    "ppoll",
];
/// Kernel functions that process a packet, or that wait for one.
const KERNEL_IO: [&str; 30] = [
    "sys_send",
    "sys_recv",
    "sys_epoll",
    "sys_poll",
    "sys_ppoll",
    "sys_select",
    "sys_pselect",
    "sys_io_uring",
    "sys_setsockopt",
    "do_epoll",
    "ep_poll",
    "sock_sendmsg",
    "sock_recvmsg",
    "sock_write_iter",
    "sock_read_iter",
    "udp_",
    "udpv6_",
    "tcp_",
    "ip_",
    "ip6_",
    "inet_",
    "__ip_",
    "skb_",
    "__skb_",
    "__alloc_skb",
    "net_rx_action",
    "net_tx_action",
    "napi_",
    "dev_queue_xmit",
    "veth_",
];

/// Returns the kind of work of a sample.
#[must_use]
pub fn classify(stack: &Stack<'_>) -> Part {
    let Some(innermost) = stack.frames.first() else { return Part::Other };
    let kernel = stack.frames.iter().take_while(|frame| frame.is_kernel());
    if innermost.is_kernel() {
        // The kernel's ciphers (kTLS) run inside system calls.
        if kernel.clone().any(is_crypto) {
            return Part::Crypto;
        }
        let io = |frame: &Frame<'_>| {
            let name = frame.symbol;
            KERNEL_IO.iter().any(|piece| begins_or_is_call(name, piece))
        };
        return if kernel.clone().any(io) || enters(stack) { Part::PacketIo } else { Part::Other };
    }
    for frame in &stack.frames {
        if is_crypto(frame) {
            return Part::Crypto;
        }
        let name = frame.symbol.to_ascii_lowercase();
        if IO.iter().any(|piece| name.contains(piece)) {
            return Part::PacketIo;
        }
    }
    // A function belongs to the program if its name or its file is known. Functions that read the
    // clock are not assigned to a kind of work.
    let known = |frame: &Frame<'_>| {
        frame.object != "[vdso]" && (frame.object != "[unknown]" || frame.symbol != "[unknown]")
    };
    if known(innermost) { Part::Protocol } else { Part::Other }
}

/// Returns true if the sample is at the entry to or the exit from a system call that sends,
/// receives or waits. At these points, no kernel function in the stack shows which system call it
/// is.
fn enters(stack: &Stack<'_>) -> bool {
    let kernel = stack.frames.iter().take_while(|frame| frame.is_kernel());
    // Page faults and interrupts can occur anywhere, so they are excluded. Other system calls have
    // names.
    let other = |frame: &Frame<'_>| {
        frame.symbol.starts_with("asm_")
            || frame.symbol.contains("sys_")
            || frame.symbol.starts_with("ksys_")
    };
    let count = kernel.clone().count();
    let caller = stack.frames.get(count).map(|frame| frame.symbol.to_ascii_lowercase());
    !kernel.clone().any(other)
        && caller.is_some_and(|name| CALLS.iter().any(|piece| name.contains(piece)))
}

/// Returns true if `name` begins with `piece`, or is the system call `piece`. For example,
/// `__x64_sys_sendmsg` contains `sys_send` after the name of the architecture.
fn begins_or_is_call(name: &str, piece: &str) -> bool {
    name.starts_with(piece)
        || (piece.starts_with("sys_") && name.starts_with("__") && name.contains(piece))
        || (piece.ends_with("xmit") && name.contains(piece))
}

fn is_crypto(frame: &Frame<'_>) -> bool {
    let name = frame.symbol.to_ascii_lowercase();
    CRYPTO.iter().any(|piece| name.contains(piece))
        || CRYPTO_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || CRYPTO_OBJECTS.iter().any(|object| frame.object.contains(object))
}

/// Counts the samples of each kind of work.
#[must_use]
pub fn split(stacks: &[Stack<'_>]) -> Split {
    let mut split = Split::default();
    for stack in stacks {
        match classify(stack) {
            Part::Crypto => split.crypto += 1,
            Part::PacketIo => split.packet_io += 1,
            Part::Protocol => split.protocol += 1,
            Part::Other => split.other += 1,
        }
    }
    split
}
