//! Tests of the additional attempts of `equic-lab bench run`: profiles and captures must be
//! correct, and no processes or files may be left behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{EQUIC_LAB, ROOT, eventually, finish, finish_within, root};
use crate::scene::{Scene, liar, ours};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

fn profiles(scene: &Scene) -> Vec<Value> {
    let text = std::fs::read_to_string(scene.out().join("profiles.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the processes whose working directory is this folder or below it.
fn processes_in(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.canonicalize().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let of = |entry: std::fs::DirEntry| std::fs::read_link(entry.path().join("cwd")).ok();
    all.filter_map(of).filter(|cwd| cwd.starts_with(&folder)).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> =
        all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn profile_is_taken_in_an_attempt_of_its_own() {
    let scene = Scene::new(&json!({ "equic": ours(), "honest": liar("honest") }));
    let mut args = vec!["--self", "--runs", "1", "--no-warmup", "--path", "loopback"];
    // With this size, each end uses at least about 100 ms of CPU time, so that even the smallest
    // group gets about ten samples.
    args.extend(["--bytes", "100M", "--qlog", "--profile", "--flamegraph"]);
    let text = finish_within(scene.bench(&args), Duration::from_secs(120)).ok();
    assert!(text.contains("division of CPU time"), "{text}");
    for group in ["AEAD", "kernel: sending", "kernel: receiving", "packets made", "streams"] {
        assert!(text.contains(group), "{group}: {text}");
    }
    let samples = scene.samples();
    let rounds: Vec<i64> = samples.iter().map(|one| one["round"].as_i64().unwrap()).collect();
    assert_eq!(rounds, [0, 0, -1, -1, -1, -1], "{samples:#?}");
    for sample in &samples {
        assert_eq!(sample["outcome"], "measured", "{sample:#}");
    }
    let profiles = profiles(&scene);
    assert_eq!(profiles.len(), 2);
    let of = |name: &str| profiles.iter().find(|one| one["client"] == name).unwrap();
    for end in ["server_split", "client_split"] {
        let split = &of("equic")[end];
        for part in ["crypto", "packet_io", "protocol"] {
            assert!(split[part].as_u64().unwrap() >= 3, "{end}: {split}");
        }
    }
    // Both tables divide the same samples, so their sums must agree.
    for (groups, split) in [("server_groups", "server_split"), ("client_groups", "client_split")] {
        let sum = |value: &Value| -> u64 {
            value.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
        };
        assert_eq!(sum(&of("equic")[groups]), sum(&of("equic")[split]));
    }
    let logs = scene.out().join("logs/equic_equic/download");
    assert_eq!(names(&logs), ["0", "extra", "profile"]);
    for end in ["server", "client"] {
        // No other files of perf may remain, and the additional attempt must not have written any.
        let kept = names(&logs.join("profile").join(end));
        let kept: Vec<&String> = kept.iter().filter(|name| *name != "log.txt").collect();
        assert_eq!(kept, ["flamegraph.svg"]);
        assert!(logs.join("extra").join(end).join("qlog").is_dir());
        let picture = logs.join("profile").join(end).join("flamegraph.svg");
        let picture = std::fs::read_to_string(picture).unwrap();
        // The flame graph must contain callers, not only the running functions.
        assert!(picture.contains("tokio::runtime"), "{}", &picture[..2000]);
        assert!(!logs.join("0").join(end).join("qlog").exists());
    }
    let commands =
        |attempt: &str| std::fs::read_to_string(logs.join(attempt).join("output.txt")).unwrap();
    assert!(commands("extra").contains("--qlog") && !commands("profile").contains("--qlog"));
    let page = std::fs::read_to_string(scene.out().join("report.html")).unwrap();
    assert!(page.contains("divided in the proportions of samples from a separate, unscored run"));
    assert_eq!(processes_in(&scene.out()), Vec::<PathBuf>::new());
}

/// A client that hangs the third time that it runs. The first two runs belong to the measured
/// attempt, because one of them only fetches a single byte.
const HANGS_ONCE: &str = r#"
if [ "$1" = client ]; then
	echo >>"$0.times"
	[ "$(wc -l <"$0.times")" = 3 ] && how=hangs
fi
"#;

#[test]
fn profile_that_is_interrupted_leaves_nothing_and_is_taken_again() {
    let scene = Scene::new(&json!({ "hangs": { "command": ["{dir}/hangs"] } }));
    let liar = format!("{ROOT}/lab/bench/tests/liar.sh");
    scene
        .script("hangs", &format!("how=honest\n{HANGS_ONCE}\nexec /bin/bash {liar} $how \"$@\"\n"));
    let args = ["--runs", "1", "--no-warmup", "--path", "loopback", "--profile", "--perf-data"];
    let mut command = scene.bench(&args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let logs = scene.out().join("logs/hangs_hangs/download/profile");
    // perf samples both ends while the client hangs.
    let pid = scene.out().join("certificates/usual/child.pid");
    eventually("the client", || pid.exists().then_some(()));
    for end in ["server", "client"] {
        assert!(logs.join(end).join("perf.data").exists());
    }
    assert!(processes_in(&logs).len() >= 2, "perf works there");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(processes_in(&logs), Vec::<PathBuf>::new());
    for end in ["server", "client"] {
        assert!(!names(&logs.join(end)).iter().any(|name| name.starts_with("perf")));
    }
    assert_eq!(scene.samples().last().unwrap()["failure"], "interrupted");
    assert!(!scene.out().join("profiles.jsonl").exists());

    let mut command = Command::new(EQUIC_LAB);
    command.args(["bench", "run", "--resume"]).arg(scene.out()).current_dir(ROOT);
    finish(command).ok();
    assert_eq!(profiles(&scene).len(), 1);
    let again = logs.with_file_name("profile-attempt-2");
    assert!(names(&again.join("client")).contains(&"perf.data".to_owned()));
    // The run is complete. `--resume` must not accept other options.
    let mut command = Command::new(EQUIC_LAB);
    command.args(["bench", "run", "--profile", "--resume"]).arg(scene.out());
    assert_eq!(finish(command).code, Some(2));
}

#[test]
fn profile_tools_that_are_missing_are_reported_before_anything_runs() {
    let scene = Scene::new(&json!({ "honest": liar("honest") }));
    let empty = scene.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for option in ["--profile", "--flamegraph", "--perf-data"] {
        let mut command = scene.bench(&["--path", "loopback", option]);
        command.env("PATH", &empty);
        let out = finish(command);
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.stderr.contains("install linux-perf"), "{out:?}");
    }
    // Imitates a perf that is installed but has no permission.
    let perf =
        "[ \"$1\" = --version ] || { echo 'Error:' >&2; echo 'no permission' >&2; exit 1; }\n";
    scene.script("empty/perf", perf);
    let mut command = scene.bench(&["--path", "loopback", "--profile"]);
    command.env("PATH", &empty);
    let out = finish(command);
    assert!(
        out.code == Some(1)
            && out.stderr.contains("perf does not work on this machine: no permission"),
        "{out:?}"
    );
    assert!(!scene.out().exists());
}

/// A packet in a capture file.
struct Packet {
    /// Time of the packet as Unix time in nanoseconds.
    at: u64,
    /// Captured bytes of the packet, starting with the Ethernet header.
    kept: Vec<u8>,
    /// Length of the whole packet, in bytes.
    length: usize,
}

/// Parses a pcap file whose times are in nanoseconds.
fn packets(file: &Path) -> Vec<Packet> {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 1), "nanoseconds, Ethernet");
    let mut packets = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let (kept, length) = (word(at + 8) as usize, word(at + 12) as usize);
        let kept = bytes[at + 16..at + 16 + kept].to_vec();
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        at += 16 + kept.len();
        packets.push(Packet { at: time, kept, length });
    }
    packets
}

#[test]
fn capture_is_taken_in_an_attempt_of_its_own() {
    if !root("capture_is_taken_in_an_attempt_of_its_own") {
        return;
    }
    let scene = Scene::new(&json!({ "equic": ours() }));
    let begun = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let mut args = vec!["--runs", "1", "--no-warmup", "--path", "loopback", "--path", "veth"];
    args.extend(["--path", "relay:delay=1ms", "--bytes", "2M", "--keylog", "--pcap"]);
    finish_within(scene.bench(&args), Duration::from_secs(120)).ok();
    let logs = scene.out().join("logs/equic_equic");
    for path in ["loopback", "veth", "relay-delay=1ms"] {
        let cell = logs.join(format!("download.{path}"));
        assert!(!cell.join("0/packets.pcap").exists());
        let extra = cell.join("extra");
        let said = std::fs::read_to_string(extra.join("output.txt")).unwrap();
        assert!(said.contains(", 0 left out because the file reached 100 MB, 0 lost"), "{said}");
        for end in ["server", "client"] {
            let keys = std::fs::read_to_string(extra.join(end).join("keys.log")).unwrap();
            assert!(keys.contains("SERVER_TRAFFIC_SECRET_0 "), "{keys}");
        }
        let packets = packets(&extra.join("packets.pcap"));
        let mut payload = 0;
        for packet in &packets {
            // Each packet must be complete, and must not be a batch of several packets.
            assert_eq!(packet.kept.len(), packet.length);
            assert!(packet.length <= 1514, "{path}: {}", packet.length);
            assert_eq!((&packet.kept[12..14], packet.kept[23]), (&[8, 0][..], 17), "UDP over IPv4");
            let udp = usize::from(u16::from_be_bytes([packet.kept[38], packet.kept[39]]));
            let ip = usize::from(u16::from_be_bytes([packet.kept[16], packet.kept[17]]));
            assert!(udp + 20 == ip && ip + 14 <= packet.length);
            payload += udp - 8;
            assert!(packet.at >= u64::try_from(begun.as_nanos()).unwrap());
        }
        // Every packet that passes a relay is captured twice.
        let times = if path.starts_with("relay") { 2 } else { 1 };
        assert!((2_000_000 * times..2_600_000 * times).contains(&payload), "{path}: {payload}");
        // The first packet must be an Initial (RFC 9000 s.17.2.2).
        assert_eq!(packets[0].kept[42] & 0xf0, 0xc0);
    }
}

#[test]
fn capture_keeps_as_many_bytes_as_requested() {
    if !root("capture_keeps_as_many_bytes_as_requested") {
        return;
    }
    let mut tcp = liar("honest");
    tcp["speaks"] = json!(["perf-tcp"]);
    let scene = Scene::new(&json!({ "equic": ours(), "silent": tcp }));
    let args = ["--runs", "1", "--no-warmup", "--path", "loopback", "--bytes", "1M", "--pcap=64"];
    finish_within(scene.bench(&args), Duration::from_secs(120)).ok();
    let file = |pair: &str| scene.out().join("logs").join(pair).join("download/extra/packets.pcap");
    let packets_of = packets(&file("equic_equic"));
    assert!(packets_of.iter().all(|one| one.kept.len() == one.length.min(64)));
    assert!(packets_of.iter().map(|one| one.length).sum::<usize>() > 1_000_000);
    assert!(file("silent_silent").exists());
    // Zero is not a valid number of bytes.
    let out = finish(scene.bench(&["--pcap=0"]));
    assert!(out.code == Some(2) && out.stderr.contains("--pcap"), "{out:?}");
}
