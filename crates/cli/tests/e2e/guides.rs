//! Tests the how-to guides of the documentation: runs every command as the page prints it.
//!
//! A page is a list of commands in the order in which they are printed. Each test names the
//! commands that it runs, and [`Guide::end`] fails if the page has further ones. Comments after `#`
//! are left out.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;

use equic_netns::{Lab, Namespace};

use crate::common::{EQUIC, EQUIC_LAB, Out, ROOT, Running, eventually, finish, lab, unique};

/// A configuration with a service `web`, which several guides require.
const CONFIG: &str = "[gateway]\ninterfaces = [\"eth0\"]\n[[service]]\nname = \"web\"\nlisten = [\"443\"]\n\
    max_connections = 8\n";

/// Returns the commands of a page: the lines of its indented blocks that begin with a program.
fn commands(page: &str) -> VecDeque<String> {
    const PROGRAMS: [&str; 16] = [
        "apt",
        "cc",
        "cmake",
        "cp",
        "equic",
        "equic-lab",
        "go",
        "grep",
        "journalctl",
        "make",
        "pid",
        "python3",
        "sudo",
        "systemctl",
        "venv",
        "mount",
    ];
    let text = std::fs::read_to_string(format!("{ROOT}/docs/{page}.md")).unwrap();
    let mut commands: VecDeque<String> = VecDeque::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let Some(line) = line.strip_prefix("    ").filter(|_| !fenced) else { continue };
        if let Some(last) = commands.back_mut().filter(|last| last.ends_with('\\')) {
            last.pop();
            last.push_str(line.trim_start());
            continue;
        }
        let first = line.split([' ', '=', '/']).next().unwrap_or_default();
        if PROGRAMS.contains(&first) {
            let command = line.split("  #").next().unwrap_or_default();
            commands.push_back(command.trim_end().replace("sudo ", ""));
        }
    }
    commands
}

/// A page, and the machine of a reader, which has the interfaces `lo` and `eth0`.
struct Guide {
    lab: Lab,
    folder: tempfile::TempDir,
    left: VecDeque<String>,
    /// Replacements for what the page prints, such as paths of this machine.
    instead: Vec<(String, String)>,
    running: Vec<Running>,
}

impl Guide {
    /// Opens a page. Returns `None` if the test does not run as root.
    fn open(page: &str, instead: &[(&str, &str)]) -> Option<Guide> {
        // Shorten the name, because a lab's name may have at most 24 characters.
        let short: String = page.rsplit('/').next().unwrap().chars().take(12).collect();
        let lab = lab(&unique(&short), 1)?;
        let instead = instead.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
        let left = commands(page);
        assert!(!left.is_empty(), "{page} has no commands");
        let folder = tempfile::tempdir().unwrap();
        let guide = Guide { lab, folder, left, instead: instead.collect(), running: Vec::new() };
        guide.shell_succeeds("ip link set lo up");
        Some(guide)
    }

    fn host(&self) -> &Namespace {
        self.lab.server()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Returns a shell on the reader's machine, in which the programs of this workspace are
    /// commands.
    fn shell(&self, line: &str, exec: &str) -> Command {
        let mut shell = self.host().command("bash");
        shell
            .current_dir(self.folder.path())
            .env_remove("EQUIC_LOG")
            .env("NO_COLOR", "1")
            .env("EQUIC", ROOT);
        shell.arg("-c").arg(format!(
            "set -o pipefail; equic() {{ {exec}{EQUIC} \"$@\"; }}; equic-lab() {{ {exec}{EQUIC_LAB} \"$@\"; }}; {line}"
        ));
        shell
    }

    /// Runs a line that is not on the page. It must succeed. Returns its output.
    fn shell_succeeds(&self, line: &str) -> String {
        succeeds(line, finish(self.shell(line, "")))
    }

    /// Takes the next command of the page, which must begin with `begins`, and applies the
    /// replacements.
    fn take(&mut self, begins: &str) -> String {
        let mut command =
            self.left.pop_front().unwrap_or_else(|| panic!("`{begins}` is not on the page"));
        assert!(command.starts_with(begins), "the page has `{command}` where `{begins}` was");
        for (from, to) in &self.instead {
            command = command.replace(from, to);
        }
        command
    }

    /// Runs the next command of the page, which must succeed, and returns its output.
    fn types(&mut self, begins: &str) -> String {
        let command = self.take(begins);
        self.shell_succeeds(&command)
    }

    /// Runs the next `count` commands of the page. Each must begin with `begins` and succeed.
    fn types_all(&mut self, count: usize, begins: &str) {
        for _ in 0..count {
            self.types(begins);
        }
    }

    /// Starts the next command of the page, which keeps running. Waits for an output line that
    /// begins with `ready`, and returns that line.
    fn starts(&mut self, begins: &str, ready: &str) -> String {
        let command = self.take(begins);
        self.starts_line(&command, ready)
    }

    /// Like [`Guide::starts`], but runs a line that is not on the page.
    fn starts_line(&mut self, line: &str, ready: &str) -> String {
        let program = Running::start(self.shell(line, "exec "), &[]);
        let line = program.line(ready);
        self.running.push(program);
        line
    }

    /// Ends all running commands, the last one first.
    fn stops(&mut self) {
        while let Some(program) = self.running.pop() {
            assert!(program.terminate().success());
        }
    }

    /// Starts the server of the next command. From then on, its fingerprint replaces the one on the
    /// page.
    fn serves(&mut self, begins: &str) {
        let command = self.take(begins);
        let program = Running::start(self.shell(&command, "exec "), &[]);
        program.line("serving HTTP/3 on ");
        let certificate = program.line("certificate ");
        let fingerprint = certificate.trim_start_matches("certificate ").to_owned();
        self.instead.retain(|(from, _)| from != "FINGERPRINT");
        self.instead.push(("FINGERPRINT".to_owned(), fingerprint));
        self.running.push(program);
    }

    /// Skips a command of the page, because another suite of `make test` runs it.
    fn elsewhere(&mut self, begins: &str, suite: &str) {
        let suites = std::fs::read_to_string(format!("{ROOT}/scripts/test.sh")).unwrap();
        assert!(suites.contains(suite), "there is no suite {suite}");
        self.take(begins);
    }

    /// Fails if the page has further commands.
    fn end(mut self) {
        assert!(self.left.is_empty(), "nobody types {:?}", self.left);
        self.stops();
    }
}

/// Asserts that a command succeeded, and returns its output.
fn succeeds(line: &str, out: Out) -> String {
    assert_eq!(out.code, Some(0), "{line}: {out:?}");
    format!("{}{}", out.stdout, out.stderr)
}

/// Start of the line that `equic gateway run` prints when the gateway protects its interfaces.
const GATEWAY: &str = "gateway `";

/// Path of the configuration in the packaged service, and the file that this test uses in its
/// place.
const SERVICE: (&str, &str) = ("/etc/equic/equic.toml", "equic.toml");

#[test]
fn guide_to_the_installation() {
    let Some(mut guide) =
        Guide::open("guide", &[SERVICE, ("--sort packets", "--sort packets --once")])
    else {
        return;
    };
    guide.write("equic.toml", CONFIG);
    guide.elsewhere("make deb", "packaging");
    guide.elsewhere("apt install", "packaging");
    guide.types("equic gateway check");
    guide.elsewhere("systemctl enable --now", "packaging");
    guide.elsewhere("journalctl", "packaging");
    guide.elsewhere("systemctl reload", "packaging");
    guide.starts_line("equic gateway run --config equic.toml", GATEWAY);
    guide.types_all(2, "equic gateway sources --by");
    guide.types("equic gateway watch");
    guide.types("equic gateway status");
    let pid = guide.take("pid=");
    let grep = guide.take("grep -h memlock");
    assert!(guide.shell_succeeds(&format!("{pid}; {grep}")).contains(" MiB"));
    guide.end();
}

#[test]
fn guide_to_operation() {
    let Some(mut guide) = Guide::open("how-to/operate", &[SERVICE]) else { return };
    guide.starts("equic gateway run -i eth0", GATEWAY);
    guide.types("equic gateway status");
    guide.types_all(2, "equic gateway set");
    guide.types("equic gateway sources --by drops");
    guide.types("equic gateway deny");
    guide.types("equic gateway lists");
    guide.types("equic gateway forget");
    guide.types("equic gateway allow");
    guide.types("equic gateway explain --src");
    guide.write("capture.pcap", empty_pcap());
    guide.types("equic gateway explain --pcap");
    guide.stops();
    guide.write("equic.toml", CONFIG);
    guide.starts_line("equic gateway run --config equic.toml", GATEWAY);
    guide.types("equic gateway check");
    guide.types("equic gateway reload");
    guide.end();
}

/// Returns a capture file (pcap) without packets: Ethernet, microseconds, little-endian.
fn empty_pcap() -> Vec<u8> {
    let words: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn guide_to_monitoring() {
    let instead = [
        ("gateway watch", "gateway watch --once"),
        ("--duration 10s", "--duration 1s"),
        // No packet is dropped here, so without a time limit the capture would never end.
        ("--count 100", "--count 100 --duration 1s"),
        (
            "--write - | tshark -r - -T fields -e ip.src -e frame.comment",
            "--write - --duration 1s > third.pcapng",
        ),
    ];
    let Some(mut guide) = Guide::open("how-to/monitoring", &instead) else { return };
    guide.starts_line("equic gateway run -i eth0 -p 443", GATEWAY);
    guide.types("equic gateway watch");
    guide.types("equic gateway capture --write drops.pcapng");
    std::fs::remove_file(guide.path("drops.pcapng")).unwrap();
    guide.types("equic gateway capture --write drops.pcapng");
    guide.types("equic gateway capture --write -");
    for file in ["drops.pcapng", "third.pcapng"] {
        // The file must start with the first block of the format pcapng.
        assert!(
            std::fs::read(guide.path(file)).unwrap().starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]),
            "{file}"
        );
    }
    guide.stops();
    guide.starts("equic gateway run -i eth0", GATEWAY);
    let scrape = "exec 3<>/dev/tcp/127.0.0.1/9433 && printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3";
    assert!(guide.shell_succeeds(scrape).contains("equic_up 1"));
    guide.stops();
    let command = guide.take("equic gateway metrics --listen");
    let exporter = Running::start(guide.shell(&command, "exec "), &[]);
    let metrics = eventually("metrics", || {
        Some(finish(guide.shell(scrape, ""))).filter(|out| out.code == Some(0))
    });
    assert!(metrics.stdout.contains("equic_up 0"), "{metrics:?}");
    assert!(exporter.terminate().success());
    guide.end();
}

#[test]
fn guide_to_lists_and_bans() {
    let Some(mut guide) = Guide::open("how-to/lists-and-bans", &[]) else { return };
    guide.starts_line("equic gateway run -i eth0 -p 443", GATEWAY);
    guide.types("equic gateway deny 198.51.100.0/24");
    guide.types("equic gateway allow");
    guide.types("equic gateway forget");
    guide.types("equic gateway lists");
    guide.write("deny.txt", "203.0.113.128/25\n# of today\n2001:db8::/32\n");
    guide.types("equic gateway deny --file");
    assert!(guide.shell_succeeds("equic gateway lists").contains("2001:db8::/32"));
    let table = "192.0.2.0\t192.0.3.127\t64500\tXX\tA\n2001:db8:9::\t2001:db8:9::\t1\tYY\tB\n";
    guide.write("ip2asn-combined.tsv", table);
    let script = "prefixes-of --asn 64500 --asn 64501 --out deny.txt ip2asn-combined.tsv";
    let page = std::fs::read_to_string(format!("{ROOT}/docs/how-to/lists-and-bans.md")).unwrap();
    assert!(page.contains(script));
    guide.shell_succeeds(&format!("{ROOT}/scripts/{script}"));
    guide.types("equic gateway deny --file");
    let lists = guide.shell_succeeds("equic gateway lists");
    assert!(lists.contains("192.0.2.0/24") && lists.contains("192.0.3.0/25"), "{lists}");
    assert!(!lists.contains("2001:db8"), "{lists}");
    guide.types("equic gateway lists");
    guide.shell_succeeds("equic gateway deny 198.51.100.9");
    guide.types("equic gateway forget");
    guide.types("equic gateway allow");
    guide.end();
}

#[test]
fn guide_to_retry() {
    let Some(mut guide) = Guide::open("how-to/retry", &[]) else { return };
    guide.write("equic.toml", CONFIG);
    guide.starts_line("equic gateway run --config equic.toml", GATEWAY);
    guide.types("equic gateway set web.retry=adaptive");
    guide.types("equic gateway status");
    guide.types("equic gateway set web.versions=1");
    assert!(guide.types("equic gateway explain").contains("version_negotiation_sent"));
    guide.types("equic gateway keys renew");
    guide.end();
}

#[test]
fn guide_to_connection_ids() {
    let Some(mut guide) = Guide::open("how-to/connection-ids", &[]) else { return };
    guide.write("equic.toml", CONFIG);
    guide.starts_line("equic gateway run --config equic.toml", GATEWAY);
    guide.starts_line("equic serve --listen '[::]:443' --gateway", "serving HTTP/3 on ");
    guide.types("equic gateway status");
    guide.types_all(2, "equic gateway set");
    guide.end();
}

/// A mounted BPF file system. It is unmounted when the value is dropped.
struct BpfFs(PathBuf);

impl Drop for BpfFs {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        umount.arg("--lazy").arg(&self.0);
        finish(umount);
    }
}

#[test]
fn guide_to_upgrades() {
    let Some(mut guide) = Guide::open("how-to/upgrades", &[SERVICE]) else { return };
    let mounted = BpfFs(guide.path("bpf"));
    std::fs::create_dir(&mounted.0).unwrap();
    guide.shell_succeeds("mount -t bpf -o mode=0700 bpf bpf");
    let pins = mounted.0.join("pins").display().to_string();
    guide.instead.push((" /sys/fs/bpf/equic/NAME".to_owned(), String::new()));
    guide.instead.push(("--pin".to_owned(), format!("--pin {pins}")));
    guide.write("equic.toml", CONFIG);
    guide.starts("equic gateway run", GATEWAY);
    guide.stops();
    // The program must stay attached without a process.
    assert!(guide.shell_succeeds("equic gateway status").contains("eth0"));
    guide.types("equic gateway detach --pin");
    assert!(!Path::new(&pins).exists());
    guide.starts("equic gateway run", GATEWAY);
    guide.stops();
    guide.shell_succeeds(&format!("equic gateway detach --pin {pins}"));
    guide.end();
}

#[test]
fn guide_to_sockets() {
    let Some(mut guide) = Guide::open("how-to/sockets", &[SERVICE]) else { return };
    let socket = guide.path("equic.sock").display().to_string();
    guide.instead.push(("/run/equic/equic.sock".to_owned(), socket));
    guide.write("equic.toml", CONFIG);
    guide.starts("equic gateway run", GATEWAY);
    guide.starts_line("equic serve --gateway $PWD/equic.sock", "serving HTTP/3 on ");
    assert!(guide.shell_succeeds("equic gateway status").contains("equic serve"));
    guide.end();
}

#[test]
fn guide_to_congestion_controllers() {
    let Some(mut guide) = Guide::open("how-to/congestion-controller", &[]) else { return };
    guide.types("cp -r");
    guide.types_all(2, "equic plugin operations");
    let page =
        std::fs::read_to_string(format!("{ROOT}/docs/how-to/congestion-controller.md")).unwrap();
    let (_, line) = page.split_once("```c\n").unwrap();
    let (line, _) = line.split_once("```").unwrap();
    let (before, _) = line.split_once(" / ").unwrap();
    let source = std::fs::read_to_string(guide.path("mine/reno.c")).unwrap();
    let old =
        source.lines().find(|old| old.starts_with(before)).expect("the line that the page changes");
    guide.write("mine/reno.c", source.replacen(old, line.trim_end(), 1));
    guide.types("equic plugin build");
    assert!(guide.types("equic plugin run").contains("CongestionEvent"));
    guide.elsewhere("equic-lab sim run", "sim");
    guide.end();
}

#[test]
fn guide_to_plugins() {
    let instead = [
        ("plugins/cap-path", "$EQUIC/plugins/cap-path"),
        ("https://HOST/PATH", "--pin FINGERPRINT https://localhost:4433/bytes/100000 -o /dev/null"),
        ("--plugin-cache DIR", "--plugin-cache cache"),
        ("ADDRESS", "127.0.0.1"),
    ];
    let Some(mut guide) = Guide::open("plugins", &instead) else { return };
    // Skip the first section, because the test `first_plugin` runs it.
    guide.left.drain(..guide.left.iter().position(|line| line.contains("build --debug")).unwrap());
    guide.shell_succeeds("equic plugin new seldom");
    guide.types("equic plugin build --debug");
    guide.types("equic plugin check");

    guide.shell_succeeds("equic plugin build $EQUIC/plugins/cap -o cap.qplug");
    guide.write("policy.toml", "anyone = [\"observe\", \"tune\"]\n");
    guide.types("equic plugin build --schema");
    guide.serves("equic serve --push cap.qplug");
    assert!(guide.types("equic get --accept-plugins").contains("active"));
    guide.stops();
    guide.serves("equic serve --accept-plugins");
    assert!(guide.types("equic get --push").contains("active"));
    guide.stops();

    guide.shell_succeeds("equic plugin build $EQUIC/plugins/reno -o reno.qplug");
    guide.shell_succeeds("equic plugin key ann.key && equic plugin sign reno.qplug --key ann.key");
    let key = guide.types("equic plugin key log.key");
    let key =
        key.split_whitespace().find(|word| word.starts_with("ed25519:")).expect("the public key");
    guide.instead.push(("ed25519:...".to_owned(), key.to_owned()));
    guide.types_all(3, "equic plugin log");
    let log = guide.types("equic plugin monitor");
    assert!(log.contains("the log has 1 "), "{log}");

    guide.types("equic plugin build");
    guide.serves("equic serve --paths 2");
    assert!(guide.types("equic get --path").contains("active"));
    guide.end();
}

#[test]
fn guide_to_comparisons_of_builds() {
    let instead = [
        // Use enough rounds for a verdict, but short ones.
        (
            "--runs 10",
            "--runs 6 --workload download --bytes 200k --max-foreign 100 --max-steal 100",
        ),
    ];
    let Some(mut guide) = Guide::open("how-to/compare-builds", &instead) else { return };
    let page = std::fs::read_to_string(format!("{ROOT}/docs/how-to/compare-builds.md")).unwrap();
    let (_, builds) = page.split_once("```json\n").unwrap();
    let (builds, _) = builds.split_once("```").unwrap();
    let folder = guide.folder.path().to_str().unwrap().to_owned();
    guide.write(
        "builds.json",
        builds.replace("/opt/old/bin", &folder).replace("/opt/new/bin", &folder),
    );
    guide.write("mine", format!("#!/bin/sh\nexec {EQUIC_LAB} bench endpoint \"$@\"\n"));
    guide.shell_succeeds("chmod +x mine");
    guide.types("equic-lab bench run");
    let compare = guide.take("equic-lab bench compare");
    let verdict = finish(guide.shell(&compare, ""));
    // The two builds are equal, but random noise may make one look worse.
    assert!(matches!(verdict.code, Some(0 | 1)), "{verdict:?}");
    assert!(verdict.stdout.contains("Download"), "{verdict:?}");
    guide.end();
}
