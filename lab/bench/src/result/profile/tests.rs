//! Tests of the classification, with handwritten samples in the format of perf 6.1 on Linux 6.18.

use super::*;

fn sample(frames: &[(&str, &str)]) -> String {
    let mut text = "bench-quinn 1200/1201 27676.485741: cpu-clock: \n".to_owned();
    for (symbol, object) in frames {
        text += &format!("\tffffffff816109c1 {symbol} ({object})\n");
    }
    text + "\n"
}

fn part(frames: &[(&str, &str)]) -> Part {
    let text = sample(frames);
    let stacks = parse(&text);
    assert_eq!(stacks.len(), 1);
    assert_eq!(stacks[0].frames.len(), frames.len(), "{text}");
    classify(&stacks[0])
}

const KERNEL: &str = "[kernel.kallsyms]";
const PROGRAM: &str = "/opt/bench (1)/bench-quinn";
const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";

#[test]
fn profile_part_of_kernel_packet_work_is_packet_io() {
    let call = [
        ("rep_movs_alternative", KERNEL),
        ("_copy_to_iter", KERNEL),
        ("__skb_datagram_iter", KERNEL),
        ("udp_recvmsg", KERNEL),
        ("__x64_sys_recvmmsg", KERNEL),
        ("do_syscall_64", KERNEL),
        ("__recvmmsg", LIBC),
    ];
    assert_eq!(part(&call), Part::PacketIo);
    assert_eq!(part(&[("veth_xmit", "[veth]"), ("dev_hard_start_xmit", KERNEL)]), Part::PacketIo);
    assert_eq!(part(&[("__dev_queue_xmit", KERNEL), ("main", PROGRAM)]), Part::PacketIo);
    let idle = [("schedule", KERNEL), ("do_epoll_wait", KERNEL), ("epoll_wait", LIBC)];
    assert_eq!(part(&idle), Part::PacketIo);
    // Interrupts within a receive call, and other system calls, are not packet I/O.
    assert_eq!(part(&[("do_syscall_64", KERNEL), ("__recvmmsg", LIBC)]), Part::PacketIo);
    let fault = [("asm_exc_page_fault", KERNEL), ("__libc_sendmsg", LIBC)];
    assert_eq!(part(&fault), Part::Other);
    assert_eq!(part(&[("do_syscall_64", KERNEL), ("__GI___write", LIBC)]), Part::Other);
    let futex = [("futex_wake", KERNEL), ("__x64_sys_futex", KERNEL), ("syscall", LIBC)];
    assert_eq!(part(&futex), Part::Other);
    let fault =
        [("do_anonymous_page", KERNEL), ("exc_page_fault", KERNEL), ("quiche::recv", PROGRAM)];
    assert_eq!(part(&fault), Part::Other);
    // "ip_" counts only at the start of a name.
    assert_eq!(part(&[("zip_pages", KERNEL)]), Part::Other);
}

#[test]
fn profile_part_of_ciphers_of_all_libraries_is_crypto() {
    for name in [
        "ring_core_0_17_14__aes_gcm_dec_update_vaes_avx2",
        "ring::aead::aes_gcm::seal",
        "<ring::hkdf::Okm<L> as core::fmt::Debug>::fmt",
        "aws_lc_0_34_0_aes_gcm_encrypt_avx512",
        "EVP_AEAD_CTX_seal_scatter",
        "aesni_gcm_encrypt",
        "gcm_ghash_avx",
        "ChaCha20_avx2",
        "crypto/internal/fips140/aes/gcm.gcmAesEnc",
        "golang.org/x/crypto/chacha20poly1305.(*chacha20poly1305).seal",
        "ecp_nistz256_point_double",
        "bn_mul_mont",
    ] {
        assert_eq!(part(&[(name, PROGRAM), ("main", PROGRAM)]), Part::Crypto, "{name}");
    }
    let copy = [("__memmove_avx_unaligned_erms", LIBC), ("ring::aead::seal_in_place", PROGRAM)];
    assert_eq!(part(&copy), Part::Crypto);
    let openssl = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3";
    assert_eq!(part(&[("[unknown]", openssl)]), Part::Crypto);
    // The Python package cryptography contains an OpenSSL without symbols.
    let hazmat = "/venv/site-packages/cryptography/hazmat/bindings/_rust.abi3.so";
    let copy = [("__memmove_avx_unaligned_erms", LIBC), ("[unknown]", hazmat), ("eval", PROGRAM)];
    assert_eq!(part(&copy), Part::Crypto);
    let ktls =
        [("crypto_gcm_encrypt", KERNEL), ("tls_sw_sendmsg", KERNEL), ("__x64_sys_sendmsg", KERNEL)];
    assert_eq!(part(&ktls), Part::Crypto);
}

#[test]
fn profile_part_of_other_program_code_is_protocol() {
    for name in [
        "quinn_proto::connection::Connection::poll_transmit",
        "<quinn_proto::crypto::rustls::PacketKey as core::fmt::Debug>::fmt",
        "core::ptr::drop_in_place<alloc::vec::Vec<u8> (x)>",
        "github.com/quic-go/quic-go.(*Conn).run",
        "bytes::bytes_mut::BytesMut::split",
        "<alloc::string::String as core::clone::Clone>::clone",
        "[unknown]",
    ] {
        assert_eq!(part(&[(name, PROGRAM), ("main", PROGRAM)]), Part::Protocol, "{name}");
    }
    let malloc = [("_int_malloc", LIBC), ("quinn_proto::frame", PROGRAM)];
    assert_eq!(part(&malloc), Part::Protocol);
    for io in ["quinn_udp::imp::recv", "internal/poll.(*FD).ReadMsgInet4", "__libc_sendmsg"] {
        assert_eq!(part(&[(io, PROGRAM), ("main", PROGRAM)]), Part::PacketIo, "{io}");
    }
    assert_eq!(part(&[("__vdso_clock_gettime", "[vdso]"), ("main", PROGRAM)]), Part::Other);
    assert_eq!(part(&[("[unknown]", "[unknown]"), ("main", PROGRAM)]), Part::Other);
}

fn grouped(frames: &[(&str, &str)]) -> Group {
    let text = sample(frames);
    let stacks = parse(&text);
    let group = group(&stacks[0]);
    // Every sample belongs to exactly one group.
    assert_eq!(groups(&stacks), Groups::from([(group, 1)]));
    group
}

#[test]
fn profile_group_of_a_cipher_depends_on_its_caller() {
    let seal = [
        ("aes_gcm_encrypt_avx512", PROGRAM),
        ("aws_lc_0_47_0_EVP_AEAD_CTX_seal_scatter", PROGRAM),
        ("rustls::crypto::aws_lc_rs::quic::PacketKey::encrypt_in_place", PROGRAM),
    ];
    assert_eq!(grouped(&seal), Group::Aead);
    let mask = [
        ("aws_lc_0_47_0_aes_hw_encrypt", PROGRAM),
        ("aws_lc_rs::aead::quic::HeaderProtectionKey::new_mask", PROGRAM),
        ("equic_transport::connection::packet_builder::BuiltPacket::protect", PROGRAM),
    ];
    assert_eq!(grouped(&mask), Group::HeaderProtection);
    assert_eq!(grouped(&[("aws_lc_0_47_0_x25519", PROGRAM)]), Group::Handshake);
}

#[test]
fn profile_group_of_kernel_work_depends_on_the_system_call() {
    let call = ("__x64_sys_sendmsg", KERNEL);
    assert_eq!(grouped(&[("_copy_from_iter", KERNEL), call]), Group::Send);
    let deliver = [("udp_queue_rcv_skb", KERNEL), ("__napi_poll", KERNEL), call];
    assert_eq!(grouped(&deliver), Group::Deliver);
    let receive = [("__skb_datagram_iter", KERNEL), ("__x64_sys_recvmmsg", KERNEL)];
    assert_eq!(grouped(&receive), Group::Receive);
    let wait = [("schedule", KERNEL), ("do_epoll_wait", KERNEL), ("epoll_wait", LIBC)];
    assert_eq!(grouped(&wait), Group::Wake);
    assert_eq!(grouped(&[("do_syscall_64", KERNEL), ("__recvmmsg", LIBC)]), Group::Receive);
    let page = [("clear_page_erms", KERNEL), ("asm_exc_page_fault", KERNEL), ("_int_malloc", LIBC)];
    assert_eq!(grouped(&page), Group::Allocate);
    assert_eq!(grouped(&[("__vdso_clock_gettime", "[vdso]"), ("main", PROGRAM)]), Group::Timer);
}

#[test]
fn profile_group_of_equic_code_depends_on_the_module() {
    let under = |innermost: &'static str, caller: &'static str| {
        grouped(&[(innermost, PROGRAM), (caller, PROGRAM), ("tokio::runtime::task", PROGRAM)])
    };
    const TRANSMIT: &str = "equic_transport::connection::send::<impl X>::poll_transmit";
    assert_eq!(under("__memmove_avx_unaligned_erms", TRANSMIT), Group::Copy);
    assert_eq!(under("_int_malloc", TRANSMIT), Group::Allocate);
    assert_eq!(under("pthread_mutex_lock", TRANSMIT), Group::Lock);
    assert_eq!(under("core::slice::sort", TRANSMIT), Group::Build);
    assert_eq!(under("equic_transport::stream::send::SendHalf::next", TRANSMIT), Group::Stream);
    let loss = "equic_transport::recovery::sent::SentPackets::take";
    assert_eq!(under(loss, "x::handle_datagram"), Group::Ack);
    assert_eq!(under("core::str::eq", "x::Connection::handle_datagram"), Group::Parse);
    let tls = "<rustls::msgs::handshake::ServerExtensions as rustls::msgs::codec::Codec>::encode";
    assert_eq!(under(tls, "x::Connection::handle_datagram"), Group::Tls);
    assert_eq!(under("h3::frame::FrameStream<S,B>::poll_next", "main"), Group::Http);
    assert_eq!(under("tokio::runtime::time::wheel::Wheel::poll", "main"), Group::Timer);
    assert_eq!(under("core::fmt::write", "main"), Group::Runtime);
    // Protocol work of implementations other than eQUIC is not divided.
    assert_eq!(grouped(&[("quinn_proto::connection::streams", PROGRAM)]), Group::Rest);
    assert_eq!(Group::ALL.len(), Group::Rest as usize + 1);
    assert!(Group::ALL.is_sorted());
}

#[test]
fn profile_classifies_recorded_samples() {
    let stacks = parse(include_str!("recorded.txt"));
    let parts: Vec<Part> = stacks.iter().map(classify).collect();
    let expected = [
        ("bench-quiche", "aes_gcm_enc_update_vaes_avx512", Part::Crypto),
        ("bench-quinn", "ring_core_0_17_14__gcm_ghash_vpclmulqdq_avx2_1", Part::Crypto),
        // AWS-LC gathers entropy when it starts. The innermost function is a general one, so its
        // callers decide.
        ("equic", "rol64", Part::Crypto),
        ("bench-quic-go", "crypto/internal/fips140/aes/gcm.gcmAesEnc.abi0", Part::Crypto),
        ("bench-quic-go", "_copy_from_iter", Part::PacketIo),
        // No kernel function in this stack shows which system call it was.
        ("equic", "do_syscall_64", Part::PacketIo),
        ("bench-tcp", "_copy_from_iter", Part::PacketIo),
        ("equic", "clear_page_erms", Part::Other),
        ("bench-quic-go", "finish_task_switch.isra.0", Part::Other),
        ("bench-quic-go", "runtime.mapaccess2_fast64", Part::Protocol),
        ("equic", "__memmove_avx512_unaligned_erms", Part::Protocol),
    ];
    let found: Vec<(&str, &str, Part)> = stacks
        .iter()
        .zip(parts)
        .map(|(stack, part)| (stack.thread, stack.frames[0].symbol, part))
        .collect();
    assert_eq!(found, expected);
    // perf ends each stack with a frame without a name. This frame is not a function.
    assert!(!folded(&stacks).contains("[unknown]"), "{}", folded(&stacks));
}

#[test]
fn profile_parses_truncated_and_unusual_perf_output() {
    let text = "# ========\nPIPE 1 thread 1200/1201 27676.485741: cpu-clock: \n\
                \tffffffff816109c1 vma_expand+0x1d ([kernel.kallsyms])\n\
                \t           20ca3 operator new(unsigned long) (/usr/lib/libstdc++.so.6 (deleted))\n\
                \tnot a frame\n\n\
                empty 1/2 3.4: cpu-clock: \n\n\
                quinn 12/12 1.0: cpu-clock:\n\t 7f ring::a";
    let stacks = parse(text);
    assert_eq!(stacks.len(), 3);
    assert_eq!(stacks[0].thread, "PIPE 1 thread");
    let [first, second] = &stacks[0].frames[..] else { panic!("{:?}", stacks[0]) };
    assert_eq!((first.symbol, first.object), ("vma_expand", KERNEL));
    assert_eq!(second.symbol, "operator new(unsigned long)");
    assert_eq!(second.object, "/usr/lib/libstdc++.so.6");
    assert_eq!(stacks[1].frames, []);
    // The last frame was cut off before its file name.
    assert_eq!(split(&stacks), Split { other: 3, ..Split::default() });
    assert!(parse("").is_empty());
}

#[test]
fn profile_flamegraph_is_drawn_from_samples() {
    let mut text = String::new();
    for _ in 0..3 {
        text += &sample(&[("<b>&", PROGRAM), ("main", PROGRAM)]);
    }
    text += &sample(&[("ring::aead", PROGRAM), ("main", PROGRAM)]);
    let stacks = parse(&text);
    assert_eq!(folded(&stacks), "bench-quinn;main;<b>& 3\nbench-quinn;main;ring::aead 1\n");
    assert_eq!(split(&stacks), Split { crypto: 1, protocol: 3, ..Split::default() });
    let svg = flamegraph(&stacks, "a <title>");
    assert!(svg.contains("&lt;b&gt;&amp;: 3 samples, 75.0 %"), "{svg}");
    assert!(!svg.contains("<b>") && svg.contains("a &lt;title&gt;"), "{svg}");
    // A deep recursion must not make the picture arbitrarily high.
    let deep: Vec<(&str, &str)> = vec![("again", PROGRAM); 5000];
    let text = sample(&deep);
    let svg = flamegraph(&parse(&text), "deep");
    assert_eq!(svg.matches("again:").count(), 128);
    assert!(flamegraph(&[], "nothing").contains("nothing"));
}

#[test]
fn profile_commands_are_those_of_perf() {
    let record = record_words(42, "a.data", "fifo:b,c", Chains::Dwarf).join(" ");
    let expected = "perf record -q -e cpu-clock -F 997 --call-graph dwarf,8192 --max-size 256M -D -1 \
                    --control fifo:b,c -p 42 -o a.data";
    assert_eq!(record, expected);
    let script = script_words("a.data").join(" ");
    assert_eq!(script, "perf script --no-inline -F comm,pid,tid,time,event,ip,sym,dso -i a.data");
}

#[test]
fn profile_uses_frame_pointers_for_go_programs() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(dir.path().join(name), bytes).unwrap();
        Chains::of(&dir.path().join(name))
    };
    let mut elf = vec![0x7f; 4000];
    elf.extend(b"\x04\0\0\0\x53\0\0\0\x04\0\0\0Go\0\0an-id");
    assert_eq!(write("go", &elf), Chains::FramePointers);
    assert_eq!(write("rust", &elf[..4000]), Chains::Dwarf);
    assert_eq!(Chains::of(Path::new("/nowhere")), Chains::Dwarf);
    // The note of Go's linker is searched only near the beginning of the file.
    assert_eq!(write("large", &[vec![0; 20_000], elf].concat()), Chains::Dwarf);
}
