//! Tests with endpoints that misbehave. Each must end with the right result, and must leave no
//! process behind. The endpoints are this test program, started again with the QUIC Interop
//! Runner's environment variables.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use equic_interop::cell::{self, Settings};
use equic_interop::{
    Case, CaseResult, Certificates, Implementation, Outcome, Registry, Role, Size,
};

const LIAR: &str = "liar";

type Test = fn(&FaultyStage);

fn main() {
    if std::env::var_os("ROLE").is_some() {
        endpoint();
    }
    let tests: [(&str, Test); 9] = [
        ("cell_fails_if_the_client_does_nothing", cell_fails_if_the_client_does_nothing),
        ("cell_fails_if_the_client_truncates_a_file", cell_fails_if_the_client_truncates_a_file),
        (
            "cell_fails_if_the_client_copies_files_without_a_packet",
            cell_fails_if_the_client_copies_files_without_a_packet,
        ),
        (
            "cell_can_be_interrupted_if_the_client_hangs",
            cell_can_be_interrupted_if_the_client_hangs,
        ),
        (
            "cell_is_unsupported_if_an_endpoint_exits_with_127",
            cell_is_unsupported_if_an_endpoint_exits_with_127,
        ),
        ("cell_fails_if_the_client_fails", cell_fails_if_the_client_fails),
        ("cell_fails_if_the_server_dies", cell_fails_if_the_server_dies),
        ("cell_fails_if_a_program_is_missing", cell_fails_if_a_program_is_missing),
        (
            "cell_starts_no_endpoint_that_declines_the_case",
            cell_starts_no_endpoint_that_declines_the_case,
        ),
    ];
    let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let mut run = 0;
    for (name, test) in tests {
        if wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())) {
            test(&FaultyStage::new());
            println!("test {name} ... ok");
            run += 1;
        }
    }
    println!("faulty_endpoints: {run} passed");
}

/// Runs the misbehaving endpoint when a cell starts this program. The first argument selects how it
/// misbehaves.
fn endpoint() -> ! {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let how = std::env::args().nth(1).unwrap_or_default();
    if var("ROLE") == "server" {
        if how == "unsupported-server" {
            exit(127);
        }
        let port: u16 = var("PORT").parse().expect("a port");
        let socket = UdpSocket::bind(("127.0.0.1", port)).expect("the port is free");
        if how == "dying-server" {
            // Waits until the client sends a packet.
            let _ = socket.recv_from(&mut [0; 2000]);
            exit(3);
        }
        loop {
            sleep(Duration::from_secs(60));
        }
    }
    let (www, downloads) = (PathBuf::from(var("WWW")), PathBuf::from(var("DOWNLOADS")));
    let copy = |len: fn(usize) -> usize| {
        for entry in fs::read_dir(&www).expect("there are files") {
            let path = entry.expect("a file").path();
            let content = fs::read(&path).expect("it can be read");
            let to = downloads.join(path.file_name().expect("a name"));
            fs::write(to, &content[..len(content.len())]).expect("it is written");
        }
    };
    match how.as_str() {
        "nothing" => {}
        "truncates" => copy(|len| len - 1),
        "copies" => copy(|len| len),
        "unsupported" => exit(127),
        "fails" => {
            eprintln!("no initial cipher suite found\x1b[2J");
            exit(1)
        }
        "asks" => {
            let url = var("REQUESTS");
            let at = url.trim_start_matches("https://").split('/').next().expect("an address");
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.send_to(&[0x40; 50], at).expect("it is sent");
            sleep(Duration::from_secs(60));
        }
        "hangs" => {
            // This child process would outlive its parent.
            let mut child = std::process::Command::new("sleep").arg("300").spawn().expect("sleep");
            fs::write("child", child.id().to_string()).expect("it is written");
            child.wait().expect("its end");
        }
        other => panic!("no such lie: {other}"),
    }
    exit(0)
}

struct FaultyStage {
    folder: tempfile::TempDir,
    settings: Settings,
}

impl FaultyStage {
    fn new() -> FaultyStage {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            size: Size::Small,
            certificates: Certificates::write(folder.path(), 1).expect("certificates"),
            logs: folder.path().join("logs"),
            seed: 1,
        };
        FaultyStage { folder, settings }
    }

    /// Returns this test program as an implementation that misbehaves in the given way.
    fn liar(&self, how: &str) -> Implementation {
        let own = std::env::current_exe().expect("this program");
        self.implementation(&own, how, "{}")
    }

    fn implementation(&self, program: &Path, how: &str, declines: &str) -> Implementation {
        let json = format!(
            r#"{{ "{LIAR}": {{ "url": "", "roles": ["client", "server"],
                "command": ["{}", "{how}"], "declines": {declines} }} }}"#,
            program.display()
        );
        let file = self.folder.path().join("implementations.json");
        fs::write(&file, json).expect("it is written");
        let registry = Registry::read(&file, Path::new("/"), Path::new("/")).expect("a registry");
        registry.select(&[], Role::Client).expect("it is there")[0].clone()
    }

    fn run(&self, client: &str, server: &str) -> Outcome {
        let (client, server) = (self.liar(client), self.liar(server));
        cell::run(&self.settings, &client, &server, Case::Handshake, &AtomicBool::new(false))
    }

    fn fails(&self, client: &str, server: &str, why: &str) {
        let outcome = self.run(client, server);
        assert_eq!(outcome.verdict, CaseResult::Failed, "{outcome:?}");
        assert!(outcome.why.contains(why), "{outcome:?}");
    }
}

fn cell_fails_if_the_client_does_nothing(stage: &FaultyStage) {
    stage.fails("nothing", "idle", "1 of 1 requested files were not downloaded");
}

fn cell_fails_if_the_client_truncates_a_file(stage: &FaultyStage) {
    stage.fails("truncates", "idle", "1023 bytes instead of 1024");
}

fn cell_fails_if_the_client_copies_files_without_a_packet(stage: &FaultyStage) {
    stage.fails("copies", "idle", "0 handshakes instead of 1");
}

fn cell_can_be_interrupted_if_the_client_hangs(stage: &FaultyStage) {
    let stop = AtomicBool::new(false);
    let (client, server) = (stage.liar("hangs"), stage.liar("idle"));
    let outcome = std::thread::scope(|scope| {
        let running =
            scope.spawn(|| cell::run(&stage.settings, &client, &server, Case::Handshake, &stop));
        // Stops the cell as a deadline would, but without waiting for a minute.
        let child = stage.settings.logs.join("liar_liar/handshake/client/child");
        until("the client has started", || {
            fs::read_to_string(&child).is_ok_and(|id| !id.is_empty())
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        running.join().expect("no panic")
    });
    assert_eq!(outcome.verdict, CaseResult::Failed, "{outcome:?}");
    assert!(outcome.why.contains("interrupted"), "{outcome:?}");
    let child = stage.settings.logs.join("liar_liar/handshake/client/child");
    let child = fs::read_to_string(child).expect("it was started");
    // The child was killed with its process group. The process that inherits it may not have reaped
    // it yet.
    until("it is gone", || {
        fs::read_to_string(format!("/proc/{child}/stat")).map_or(true, |stat| stat.contains(") Z "))
    });
}

/// Waits until a condition holds. The time limit is far longer than necessary.
fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(5));
    }
}

fn cell_is_unsupported_if_an_endpoint_exits_with_127(stage: &FaultyStage) {
    for (client, server) in [("unsupported", "idle"), ("nothing", "unsupported-server")] {
        let outcome = stage.run(client, server);
        assert_eq!(outcome.verdict, CaseResult::Unsupported, "{outcome:?}");
    }
}

fn cell_fails_if_the_client_fails(stage: &FaultyStage) {
    stage.fails("fails", "idle", "the client ended with status 1: no initial cipher suite found");
    let why = stage.settings.logs.join("liar_liar/handshake/why.txt");
    let why = fs::read_to_string(why).expect("it was written");
    assert!(
        why.contains("client/output.txt):\n  no initial cipher suite found\\u{1b}[2J\n"),
        "{why}"
    );
    assert!(why.contains("The server said last"), "{why}");
}

fn cell_fails_if_the_server_dies(stage: &FaultyStage) {
    stage.fails("asks", "dying-server", "the server ended before the client");
}

fn cell_fails_if_a_program_is_missing(stage: &FaultyStage) {
    let absent = stage.implementation(Path::new("/nonexistent/endpoint"), "", "{}");
    let stop = AtomicBool::new(false);
    let outcome =
        cell::run(&stage.settings, &stage.liar("copies"), &absent, Case::Handshake, &stop);
    assert_eq!(outcome.verdict, CaseResult::Failed, "{outcome:?}");
    assert!(outcome.why.contains("/nonexistent/endpoint cannot be started"), "{outcome:?}");
}

fn cell_starts_no_endpoint_that_declines_the_case(stage: &FaultyStage) {
    let declines = r#"{ "client": { "handshake": "it is shy" } }"#;
    let shy = stage.implementation(Path::new("/nonexistent"), "", declines);
    let stop = AtomicBool::new(false);
    let outcome = cell::run(&stage.settings, &shy, &stage.liar("idle"), Case::Handshake, &stop);
    assert_eq!(outcome.verdict, CaseResult::Unsupported, "{outcome:?}");
    assert!(outcome.why.contains("it is shy") && outcome.logs.is_none(), "{outcome:?}");
}
