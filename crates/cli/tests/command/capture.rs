//! Tests of `gateway capture`: it writes dropped packets to a file that other programs can read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;
use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator as _};
use pcap_parser::{Block, PcapBlockOwned, PcapError, PcapNGReader};

use crate::common::{EQUIC, Running, equic, equic_lab_in, eventually, lab, unique, v4};

/// A packet in a file: bytes, length of the frame, and comment.
type Packet = (Vec<u8>, u32, String);

/// Returns the interfaces and the packets of a file.
fn read(path: &Path) -> (Vec<String>, Vec<Packet>) {
    let mut reader = PcapNGReader::new(65_536, std::fs::File::open(path).unwrap()).unwrap();
    let (mut interfaces, mut packets) = (Vec::new(), Vec::new());
    let text = |option: &pcap_parser::PcapNGOption<'_>| option.as_str().unwrap().to_owned();
    loop {
        let (length, block) = match reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof) => return (interfaces, packets),
            Err(PcapError::Incomplete(_)) => {
                reader.refill().unwrap();
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        match block {
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                let name = interface.options.iter().find(|option| option.code.0 == 2);
                interfaces.push(text(name.unwrap()));
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let comment = packet.options.iter().find(|option| option.code.0 == 1);
                let data = packet.packet_data().to_vec();
                packets.push((data, packet.origlen, text(comment.unwrap())));
            }
            _ => {}
        }
        reader.consume(length);
    }
}

#[test]
fn capture_has_dropped_packets_with_their_reasons() {
    let Some(lab) = lab("cli-capture", 1) else { return };
    let (server, client) = (lab.server(), lab.client(0));
    let name = &unique("capture");
    let gateway = Running::gateway(server, name, &[]);
    gateway.event("ready");
    let source = v4(client).to_string();
    let target = ["--gateway", name.as_str()];
    equic(&[&["gateway", "deny", &source], &target[..]].concat()).ok();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drops.pcapng");
    let file = path.to_str().unwrap();
    let start = |rest: &[&str]| {
        let args = ["gateway", "capture", "--write", file];
        let capture = Running::start(server.command(EQUIC), &[&args, &target[..], rest].concat());
        eventually("the capture has begun", || {
            std::fs::metadata(&path).is_ok_and(|file| file.len() > 0).then_some(())
        });
        capture
    };
    let to = format!("{}:443", v4(server));
    let garbage = ["net", "flood", "garbage", "--target", &to, "--packets", "30"];
    let flood = || equic_lab_in(client, &[&garbage[..], &["--duration", "10s"]].concat()).ok();

    let mut capture = start(&["--count", "10", "--reason", "denied", "--source", &source]);
    let second = equic(&[&["gateway", "capture", "--write", "-"], &target[..]].concat());
    let why = format!("process {} is already capturing", capture.pid());
    assert!(second.code == Some(1) && second.stderr.contains(&why), "{second:?}");
    // Send the flood repeatedly, because on a busy machine the capture may miss some packets.
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                flood();
            }
        });
        let status = capture.wait();
        ended.store(true, Ordering::Relaxed);
        assert!(status.success());
    });
    let said = capture.line("10 packets captured");
    assert!(!said.contains(" of "), "how many others came from there is not known: {said}");
    capture.line("  denied: 10");
    let (interfaces, packets) = read(&path);
    assert_eq!((interfaces, packets.len()), (vec!["eth0".to_owned()], 10));
    let about = format!("denied: the source is on the deny list; service quic, source {source}/32");
    for (data, length, comment) in &packets {
        assert_eq!((data.len(), comment), ((*length as usize).min(256), &about));
        assert_eq!(data[12..14], [8, 0], "an IPv4 packet");
    }
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let explain = ["gateway", "explain", "--pcap", file, "--summary"];
    let explained = equic(&[&explain, &target[..]].concat()).ok();
    assert!(explained.starts_with("10 packets\n"), "{explained}");

    // After SIGINT, the capture must finish its file. Packets that were dropped for another reason
    // than `--reason` must not be in the file.
    std::fs::remove_file(&path).unwrap();
    let mut capture = start(&["--reason", "quota", "--json"]);
    flood();
    capture.signal(Signal::SIGINT);
    assert!(capture.wait().success());
    assert!(read(&path).1.is_empty());
    capture.line("  \"schema\": \"equic.gateway.capture/1\"");
}
