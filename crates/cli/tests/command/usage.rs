//! Tests of wrong usage: the exit code and the error message.

use crate::common::{EXAMPLE, config_of_own_gateway, equic, root, unique};

const USAGE: i32 = 2;
const FAILED: i32 = 1;

/// The arguments, the expected exit code, and a text that standard error must contain.
type Case<'a> = (&'a [&'a str], i32, &'a str);

fn check(cases: &[Case<'_>]) {
    let mut wrong = Vec::new();
    for (args, code, part) in cases {
        let out = equic(args);
        let right = out.code == Some(*code)
            && out.stderr.starts_with("equic: ")
            && out.stderr.contains(part)
            && out.stdout.is_empty();
        if !right {
            wrong.push(format!("{args:?}: {code} and `{part}` expected, this came: {out:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn usage_that_is_wrong_is_explained() {
    let run = |rest: &[&'static str]| [&["gateway", "run", "-i", "lo"], rest].concat();
    check(&[
        (&["frobnicate"], USAGE, "unrecognized subcommand 'frobnicate'"),
        (&["gateway", "statsu"], USAGE, "'status'"),
        (&["gateway", "run"], USAGE, "--port PORT, or --config FILE"),
        (&["gateway", "run", "-p", "443"], USAGE, "--interface IF"),
        (&run(&[]), USAGE, "--port PORT"),
        (&run(&["-p", "0"]), USAGE, "a port from 1 to 65535"),
        (&run(&["-p", "70000"]), USAGE, "not a port"),
        (&run(&["-p", "eth0"]), USAGE, "192.0.2.1:443"),
        (&run(&["-p", "443", "--mode", "fast"]), USAGE, "`auto`, `native` or `generic`"),
        (&run(&["-p", "443", "-o", "policy=soft"]), USAGE, "`new`, `underway` or `strict`"),
        (&run(&["-p", "443", "--max-connections", "many"]), USAGE, "--max-connections"),
        (&run(&["-p", "443", "--new-per-source", "20"]), USAGE, "20/s burst 40"),
        (&run(&["-p", "443", "-o", "handshake_timeout=5"]), USAGE, "250ms"),
        (&run(&["-p", "443", "-o", "handshake_timeout=1h"]), USAGE, "out of range"),
        (&run(&["-p", "443", "-p", "443"]), USAGE, "already listens at"),
        (&run(&["-i", "lo", "-p", "443"]), USAGE, "listed twice"),
        (&run(&["-p", "443", "--name", "a b"]), USAGE, "not a valid name"),
        (&run(&["--config", EXAMPLE, "--max-connections", "5"]), USAGE, "cannot be used with"),
        (&run(&["--config", EXAMPLE, "-p", "443"]), USAGE, "cannot be used with"),
    ]);
}

#[test]
fn usage_of_further_commands_that_is_wrong_is_explained() {
    let run = |rest: &[&'static str]| [&["gateway", "run", "-i", "lo"], rest].concat();
    let explain = |rest: &[&'static str]| {
        [&["gateway", "explain", "--config", EXAMPLE, "--src", "192.0.2.9"], rest].concat()
    };
    let capture = |rest: &[&'static str]| [&["gateway", "capture", "--write", "x"], rest].concat();
    check(&[
        (&["gateway", "sources", "--by", "name"], USAGE, "connections"),
        (&["gateway", "deny"], USAGE, "<PREFIX>"),
        (&["gateway", "deny", "192.0.2"], USAGE, "192.0.2.0/24"),
        (&["gateway", "deny", "192.0.2.1/24"], USAGE, "write 192.0.2.0/24 or 192.0.2.1"),
        (&["gateway", "allow", "192.0.2.1", "--for", "10"], USAGE, "10m"),
        (&["gateway", "allow", "192.0.2.1", "--for", "0s"], USAGE, "forget"),
        (&["gateway", "forget", "example.com"], USAGE, "an address or prefix"),
        (&["gateway", "set"], USAGE, "<KEY=VALUE>"),
        (&["gateway", "set", "policy"], USAGE, "KEY=VALUE"),
        (&["gateway", "set", "max_conections=5"], USAGE, "did you mean max_connections"),
        (
            &["gateway", "set", "max_connections=5", "policy=x"],
            USAGE,
            "`new`, `underway` or `strict`",
        ),
        (&["gateway", "set", "lease=1ms"], USAGE, "out of range"),
        (&["gateway", "explain", "--config", EXAMPLE], USAGE, "--src"),
        (&explain(&["--short", "--initial"]), USAGE, "cannot be used with"),
        (&explain(&["--quic-version", "3"]), USAGE, "not a QUIC version"),
        (&explain(&["--dcid", "0"]), USAGE, "digits is odd"),
        (&explain(&["--scid", "xy"]), USAGE, "not hexadecimal"),
        (&explain(&["--size", "70000"]), USAGE, "--size"),
        (&explain(&["--vlan", "4096"]), USAGE, "--vlan"),
        (&explain(&["--dst", "2001:db8::1"]), USAGE, "belong to different address families"),
        (&explain(&["--pcap", "x.pcap"]), USAGE, "cannot be used with"),
        (&["gateway", "explain", "--hex", "00", "--summary"], USAGE, "--pcap"),
        (&["serve", "--scheduler", "backup"], USAGE, "--paths N"),
        (&["serve", "--path-cost", "192.0.2.0/24"], USAGE, "192.0.2.0/24=5"),
        (
            &["serve", "--idle-timeout", "1ms"],
            USAGE,
            "--idle-timeout <DURATION>': allowed is 100ms to",
        ),
        (&["serve", "--idle-timeout", "9999999999s"], USAGE, "or zero for never"),
        (&["serve", "--retry", "2049"], USAGE, "0 to 2048"),
        (&["serve", "--user-limit", "policy=new"], USAGE, "only a gateway enforces"),
        (&["serve", "--user-limit", "at_limit=close"], USAGE, "has no effect without a limit"),
        (&["get", "--scheduler", "redundant", "https://localhost/"], USAGE, "--path ADDR"),
        (&["get", "--path", "::1,cost=x", "https://localhost/"], USAGE, "cost=NUMBER"),
        (&["gateway", "capture"], USAGE, "--write <FILE>"),
        (&capture(&["--reason", "established"]), USAGE, "does not drop packets"),
        (&capture(&["--reason", "nonsense"]), USAGE, "equic gateway reasons"),
        (&capture(&["--source", "192.0.2.1/24"]), USAGE, "write 192.0.2.0/24 or 192.0.2.1"),
        (&capture(&["--snap", "63"]), USAGE, "--snap"),
        (&capture(&["--snap", "2049"]), USAGE, "--snap"),
        (&capture(&["--count", "0"]), USAGE, "--count"),
        (&["gateway", "capture", "--write", "-", "--json"], USAGE, "give `--write` a file name"),
        (&["serve", "--listen", "localhost"], USAGE, "--listen"),
        (&["serve", "--cert", "c.pem"], USAGE, "--key"),
        (&["serve", "--gateway", "x", "--gateway-config", EXAMPLE], USAGE, "cannot be used with"),
        (&run(&["-p", "443", "-o", "policy"]), USAGE, "KEY=VALUE"),
        (&run(&["-p", "443", "-o", "mode=generic"]), USAGE, "mean gateway.mode or"),
        (&run(&["-p", "443", "-o", "max_conections=5"]), USAGE, "mean max_connections?"),
        (&run(&["-p", "443", "-o", "web.policy=new"]), USAGE, "web"),
        (&run(&["-p", "443", "-o", "gateway.mode=fast"]), USAGE, "`auto`, `native` or `generic`"),
        (&run(&["-p", "443", "-o", "gateway.sources=1"]), USAGE, "64 to 16777216"),
        (&run(&["-p", "443", "-o", "ban.for=1ms"]), USAGE, "1s to 365d"),
        (
            &["serve", "--gateway", "--user-limit", "max_connections=5"],
            USAGE,
            "cannot be used with",
        ),
        (&run(&["-p", "443", "-o", "policy=new", "-o", "policy=new"]), USAGE, "given twice"),
        (
            &run(&["-p", "443", "--max-connections", "5", "-o", "quic.max_connections=6"]),
            USAGE,
            "--max-connections sets this, too",
        ),
        (&run(&["-p", "443", "--dry-run", "-o", "dry_run=off"]), USAGE, "--dry-run sets this, too"),
        (&run(&["-p", "443", "--new-per-source", "20MB/s"]), USAGE, "is in bytes"),
        (&["get"], USAGE, "<URL>"),
        (&["get", "https://a/", "https://b/", "-o", "file"], USAGE, "several bodies"),
        (&["get", "https://a/", "--insecure", "--ca", "x"], USAGE, "cannot be used with"),
        (&["get", "https://a/", "--pin", "abc"], USAGE, "64 hexadecimal digits"),
    ]);
}

/// An option or key that does not fit here must lead to the one that does.
#[test]
fn usage_error_names_what_to_use_instead() {
    let run = |rest: &[&'static str]| [&["gateway", "run", "-i", "lo"], rest].concat();
    check(&[
        (&run(&["-p", "443", "--policy", "strict"]), USAGE, "use `-o policy=VALUE`"),
        (&["serve", "--user-quota=5"], USAGE, "use `--user-limit max_connections=N`"),
        (&["serve", "--max-handshakes", "9"], USAGE, "the maximum is always 4096"),
        (&run(&["-p", "443", "--user-quota", "5"]), USAGE, "use `--max-connections N`"),
        (&run(&["-p", "443", "--deny", "192.0.2.1"]), USAGE, "`deny_files` or `allow_files` in a"),
        (
            &run(&["--config", EXAMPLE, "--max-connections", "9"]),
            USAGE,
            "`-o max_connections=VALUE`",
        ),
        (&["gateway", "set", "gateway.mode=native"], USAGE, "says if the gateway must restart"),
        (&["gateway", "set", "policy=new", "policy=strict"], USAGE, "given twice"),
        (
            &["serve", "--listen", "5000"],
            USAGE,
            "write ADDRESS:PORT with an IP address, such as [::]:5000",
        ),
    ]);
}

fn serve(config: &str) -> [&str; 5] {
    ["serve", "--listen", "[::1]:0", "--gateway-config", config]
}

#[test]
fn usage_with_a_wrong_value_says_how_to_write_it() {
    let explain = |flag| ["gateway", "explain", "--config", EXAMPLE, flag, "nonsense"];
    check(&[
        (&["get", "http://localhost/"], USAGE, "must begin with https://"),
        (&["get", "foo"], USAGE, "as in https://example.org/"),
        (&["get", "https://localhost:99999/"], USAGE, "not between 0 and 65535"),
        (&["get", "https://localhost/", "https://[::1/"], USAGE, "https://[::1/"),
        (&["get", "https://localhost/", "--timeout", "0s"], USAGE, "longer than zero"),
        (&["get", "https://localhost/", "--connect", "::1"], USAGE, "[2001:db8::1]:443"),
        (&["get", "https://localhost/", "--from", "lo"], USAGE, "such as 192.0.2.1 or"),
        (&["gateway", "metrics", "--listen", "9433"], USAGE, "such as 192.0.2.1:443"),
        (&["gateway", "run", "--metrics", "9433"], USAGE, "such as 192.0.2.1:443"),
        (&["gateway", "sources", "--top", "0"], USAGE, "--top"),
        (&explain("--src"), USAGE, "such as 192.0.2.1 or"),
        (&explain("--dst"), USAGE, "such as 192.0.2.1 or"),
    ]);
}

/// Every wrong configuration results in the exit code 2, with which systemd does not start the
/// gateway again.
#[test]
fn usage_of_a_wrong_configuration_is_reported_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    const SERVICE: &str = "[[service]]\nname = \"a\"\nlisten = [\"443\"]\n";
    let latin = file("latin.toml", b"# caf\xc3\xa9\n# caf\xe9\n");
    let lists = format!("deny_files = [\"gone.txt\"]\n[gateway]\nlease = \"1ms\"\n{SERVICE}");
    let lists = file("lists.toml", lists.as_bytes());
    let open = file("open.toml", format!("[gateway\nname = \"x\"\n{SERVICE}").as_bytes());
    let double = file("double.toml", b"[[service]\nname = \"a\"\nlisten = [\"443\"]\n");
    for (path, parts) in [
        (&latin, &["latin.toml:2:6: the byte 0xe9 is not UTF-8: save the file in UTF-8"][..]),
        (
            &lists,
            &[
                "lists.toml:1:15: deny_files: cannot read ",
                "gone.txt: No such file or directory",
                "lists.toml:3:9: gateway.lease: 1ms is out of range",
            ],
        ),
        (&open, &["open.toml:1:9: unclosed table, expected `]`"]),
        (&double, &["double.toml:1:11: unclosed array table, expected `]`"]),
    ] {
        for args in
            [&["gateway", "run", "--config", path][..], &["gateway", "check", path], &serve(path)]
        {
            parts.iter().for_each(|part| check(&[(args, USAGE, part)]));
        }
    }
    for path in [&open, &double] {
        let problems = equic(&["gateway", "check", path]).stderr;
        assert_eq!(problems.lines().count(), 1, "{problems}");
    }
}

/// A gateway within a server has no pins, no socket and no seccomp filter. The server must not
/// ignore these keys.
#[test]
fn usage_of_a_key_that_a_gateway_within_a_server_lacks_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("equic.toml");
    let config = path.to_str().unwrap();
    for (key, line) in [
        ("gateway.pin", "pin = \"/sys/fs/bpf/equic/x\""),
        ("gateway.seccomp", "seccomp = true"),
        ("gateway.socket", "[gateway.socket]\npath = \"/run/equic.sock\""),
    ] {
        let service = "[[service]]\nname = \"a\"\nlisten = [\"443\"]\n";
        let text = format!("[gateway]\ninterfaces = [\"lo\"]\n{line}\n{service}");
        std::fs::write(&path, text).unwrap();
        let said = format!("equic.toml: {key}: a gateway within a server does not support");
        check(&[(&serve(config), USAGE, &said)]);
        check(&[(&serve(config), USAGE, "`equic gateway run --config`")]);
    }
}

#[test]
fn failure_names_its_cause() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let text = file("text.txt", b"this is not what you are looking for, whatever it is\n");
    let unknown =
        file("unknown.toml", b"[[service]]\nname = \"a\"\nlisten = [\"443\"]\nmax_conns = 5\n");
    let range = file(
        "range.toml",
        b"[gateway]\nlease = \"1ms\"\n\n[[service]]\nname = \"a\"\nlisten = [\"443\"]\n",
    );
    let empty = file("empty.toml", b"");
    let nowhere = file("nowhere.toml", b"[[service]]\nname = \"a\"\nlisten = [\"443\"]\n");
    let missing = directory.path().join("missing").to_str().unwrap().to_owned();
    for (path, part) in [
        (&missing, "missing: No such file"),
        (&text, "text.txt:1:"),
        (&unknown, "unknown.toml:4:1: service.a.max_conns: there is no such key"),
        (&range, "range.toml:2:9: gateway.lease: 1ms is out of range"),
        (&empty, "[[service]]"),
    ] {
        let args = ["gateway", "explain", "--src", "192.0.2.9", "--config", path.as_str()];
        check(&[(&args, USAGE, part)]);
        check(&[(&["gateway", "run", "--config", path], USAGE, part)]);
        check(&[(&["gateway", "check", path], USAGE, part)]);
        check(&[(&serve(path), USAGE, part)]);
    }
    let fifo = directory.path().join("fifo").to_str().unwrap().to_owned();
    nix::unistd::mkfifo(fifo.as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    check(&[
        (&["gateway", "run", "--config", &nowhere], USAGE, "use -i INTERFACE"),
        (&serve(&fifo), USAGE, "the path names a FIFO"),
        (&serve(directory.path().to_str().unwrap()), USAGE, "the path names a directory"),
        (&["serve", "--root", &missing, "--listen", "[::1]:0"], FAILED, "cannot serve files from"),
        (&["serve", "--listen", "192.0.2.1:4433"], FAILED, "cannot listen on 192.0.2.1:4433"),
        (&["serve", "--cert", &text, "--key", &text], FAILED, "cannot read a certificate from"),
        (&["get", "https://localhost:1/", "--timeout", "1ms"], FAILED, "https://localhost:1"),
        (&["get", "https://localhost:1/", "--ca", &missing], FAILED, "cannot read"),
    ]);
}

#[test]
fn failure_names_its_cause_if_run_as_root() {
    if !root("failure_names_its_cause_if_run_as_root") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text.o");
    std::fs::write(&text, "not ELF").unwrap();
    let text = text.to_str().unwrap();
    let own = config_of_own_gateway(directory.path(), "nosuchif0", "own", 443);
    let lists = directory.path().join("lists.toml");
    let config = std::fs::read_to_string(&own).unwrap();
    std::fs::write(&lists, format!("deny_files = [\"text.o\"]\n{config}")).unwrap();
    let lists = lists.to_str().unwrap();
    let selector = unique("nobody");
    check(&[
        (
            &["gateway", "run", "-i", "nosuchif0", "-p", "443"],
            FAILED,
            "no network interface `nosuchif0`",
        ),
        (&["gateway", "run", "--config", lists], USAGE, "text.o:1:1: `not ELF` is not"),
        (
            &["gateway", "run", "-i", "lo", "-p", "443", "--object", text],
            FAILED,
            "is not the gateway's program",
        ),
        (
            &["gateway", "run", "-i", "lo", "-p", "443", "--object", crate::common::EQUIC.path()],
            FAILED,
            "is not the gateway's program",
        ),
        (
            &["gateway", "run", "-i", "lo", "-p", "443", "--object", "/missing.o"],
            FAILED,
            "/missing.o",
        ),
        (&["gateway", "status", "--gateway", &selector], FAILED, "no gateway"),
        (&["gateway", "deny", "192.0.2.1", "--gateway", &selector], FAILED, "no gateway"),
        (&["gateway", "set", "policy=new", "--gateway", &selector], FAILED, "no gateway"),
        (&["gateway", "detach", &selector], FAILED, "no gateway"),
        (&["serve", "--listen", "[::1]:0", "--gateway", &selector], FAILED, "no gateway"),
        (
            &["serve", "--listen", "[::]:0", "--service", "quic", "--gateway-config", &own],
            FAILED,
            "no network interface `nosuchif0`",
        ),
        (
            &["gateway", "explain", "--config", EXAMPLE, "--pcap", "/missing.pcap"],
            FAILED,
            "cannot open /missing.pcap",
        ),
        (
            &["gateway", "explain", "--config", EXAMPLE, "--pcap", EXAMPLE],
            FAILED,
            "neither in pcap nor in pcapng format",
        ),
    ]);
}

/// At every limit of open files, the command must either work or say that the limit is the problem.
#[test]
fn failure_by_the_descriptor_limit_names_the_limit() {
    if !root("failure_by_the_descriptor_limit_names_the_limit") {
        return;
    }
    let explain = ["gateway", "explain", "--config", EXAMPLE, "--src", "192.0.2.9"];
    let selector = unique("nobody");
    let serve = ["serve", "--listen", "[::1]:0", "--gateway", &selector];
    let status = ["gateway", "status", "--gateway", &selector];
    let (mut worked, mut short) = (0, 0);
    // Try every limit near the number of files that the start needs, and some higher ones.
    for limit in (4..40).chain((40..140).step_by(10)) {
        for args in [&explain[..], &serve, &status] {
            let mut command = std::process::Command::new("prlimit");
            command.arg(format!("--nofile={limit}")).arg(crate::common::EQUIC).args(args);
            let out = crate::common::finish(command);
            if out.stderr.contains("LimitNOFILE=") {
                assert_eq!(out.code, Some(1), "{limit}: {out:?}");
                short += 1;
            } else if args[..] == explain[..] {
                assert_eq!(out.code, Some(0), "{limit}: {out:?}");
                worked += 1;
            } else {
                assert!(out.stderr.contains("no gateway"), "{limit}: {out:?}");
                worked += 1;
            }
        }
    }
    assert!(worked > 9 && short > 30, "{worked} {short}");
}
