//! Tests of restarts and upgrades of a gateway under load, and of servers without any privileges.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::attack::{self, Attack};
use crate::common::{EQUIC, Running, eventually};
use crate::stage::TestStage;

const NOBODY: u64 = 65_534;

/// A BPF file system. It is unmounted when the value is dropped.
pub(crate) struct BpfFs {
    root: tempfile::TempDir,
}

impl BpfFs {
    pub(crate) fn mount() -> BpfFs {
        let root = tempfile::Builder::new().prefix("equic-bpf-").tempdir().expect("a directory");
        let none: Option<&str> = None;
        nix::mount::mount(
            Some("bpf"),
            root.path(),
            Some("bpf"),
            nix::mount::MsFlags::empty(),
            none,
        )
        .expect("a BPF file system can be mounted");
        BpfFs { root }
    }

    pub(crate) fn dir(&self) -> String {
        self.root.path().join("pin").to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        // Unmounting also removes all pins, and with them the objects that only the pins kept
        // alive.
        let _ = nix::mount::umount2(self.root.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

/// Compiles the XDP program with other options, to imitate the program of the next release.
pub(crate) fn other_object(to: &Path) {
    let bpf = Path::new(crate::common::ROOT).join("crates/gateway/bpf");
    let named = std::env::var("CLANG").ok();
    let usual = (16..=21).rev().map(|version| format!("clang-{version}"));
    for clang in named.into_iter().chain(usual).chain(["clang".to_owned()]) {
        let mut command = Command::new(clang);
        command.args(["-target", "bpf", "-Os", "-g", "-mcpu=v3"]);
        command.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
        command.arg("-I").arg(&bpf).arg("-c").arg(bpf.join("gateway.bpf.c")).arg("-o").arg(to);
        if command.status().is_ok_and(|status| status.success()) {
            return;
        }
    }
    panic!("no clang compiles the program");
}

/// Sets the flag when the value is dropped, also during a panic. Otherwise, the thread scope would
/// wait forever for threads that wait for the flag.
pub(crate) struct Done<'a>(pub(crate) &'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends the gateway before the next one starts, in a way that depends on the round. Of every four
/// rounds, one uses SIGKILL, one uses SIGTERM, and two do not end the gateway.
fn bring_down(gateway: &mut Running, round: usize) {
    match round % 4 {
        2 => {
            gateway.signal(Signal::SIGKILL);
            gateway.wait();
        }
        3 => {
            gateway.signal(Signal::SIGTERM);
            let left = gateway.event("left");
            assert_eq!((&left["protected"], &left["why"]), (&true.into(), &"SIGTERM".into()));
            assert!(gateway.wait().success());
        }
        _ => {}
    }
}

/// Checks that a gateway process that is still alive notices that another one has taken over.
fn followed(gateway: &mut Running, by: &Running, round: usize) {
    if matches!(round % 4, 0 | 1) {
        let why = gateway.event("left")["why"].to_string();
        assert!(why.contains(&format!("process {} has taken over", by.pid())), "{why}");
        assert!(gateway.wait().success());
    }
}

/// Runs a flood, and continuous requests on established connections. Meanwhile, gateways take over
/// one after the other: from a living process, with another program, after SIGKILL, after SIGTERM.
/// A socket behind the gateway would receive any flood packet that passes during a takeover. It
/// must receive none.
#[test]
fn takeover_lets_no_packet_through_and_breaks_no_connection() {
    let Some(stage) = TestStage::new("takeover", 2) else { return };
    let _turn = attack::turn();
    let fs = BpfFs::mount();
    let object = fs.root.path().with_extension("o");
    other_object(&object);
    let (pin, object) = (fs.dir(), object.to_str().expect("UTF-8").to_owned());
    let args = ["-i", "eth0", "-p", "443", "-p", "444", "--max-connections", "4", "--pin", &pin];
    let (mut gateway, ready) = stage.gateway_with(&args);
    assert_eq!((&ready["taken_over"], &ready["pin"]), (&Value::Null, &pin.as_str().into()));
    let server = stage.serve(&[]);
    let (host, attacker) = (stage.host(0), stage.host(1));
    let mut target = stage.target(attacker.v4());
    target.set_port(444);
    let behind = stage.lab.server().udp_socket_nonblocking(target).expect("a socket");
    let arrived = || std::iter::from_fn(|| behind.recv(&mut [0; 2048]).ok()).count();
    // Check that the test can fail: without a deny entry, packets of the flood must reach the
    // socket.
    let flood = |packets| {
        Attack::from(attacker.v4(), target, attack::garbage(), 20_000)
            .send(&attacker.namespace, packets)
    };
    flood(100);
    eventually("packets arrive", || (arrived() > 0).then_some(()));
    stage.equic(&["deny", &attacker.v4().to_string()]).ok();
    flood(100);
    eventually("they are denied", || (stage.verdict("denied").dropped >= 100).then_some(()));
    arrived();

    let peer = host.peer(host.v4());
    let links = [peer.connect(), peer.connect(), peer.connect(), peer.connect()];
    stage.await_connections(host.v4(), 4);
    let (done, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    let unlimited = Attack::from(attacker.v4(), target, attack::garbage(), 100_000);
    let flood = unlimited.start(&attacker.namespace);
    std::thread::scope(|scope| {
        let ended = Done(&done);
        // A failed request panics, and the thread scope passes the panic on.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                links.iter().for_each(|link| link.fetch(20_000));
                requests.fetch_add(links.len() as u64, Ordering::Relaxed);
            }
        });
        let settled = |before: u64| {
            eventually("requests go on", || {
                (requests.load(Ordering::Relaxed) > before + 8).then_some(())
            });
        };
        let mut denied = stage.verdict("denied").packets;
        let mut program = stage.program_on("eth0");
        for round in 0..8 {
            let upgrade = round % 4 == 1;
            bring_down(&mut gateway, round);
            let before = requests.load(Ordering::Relaxed);
            settled(before);
            let object = ["--object", &object];
            let rest = [&args[..], if upgrade { &object } else { &[] }].concat();
            let (next, ready) = stage.gateway_with(&rest);
            let taken = &ready["taken_over"];
            assert_eq!(taken["owner"]["pid"], gateway.pid(), "{ready}");
            assert_eq!(taken["servers"], 1);
            // Switch to the other program in one round, and back in the next.
            let replaced = upgrade || round % 4 == 2;
            assert_eq!(taken["replaced"], replaced, "{round}: {ready}");
            assert_eq!(stage.program_on("eth0") != program, replaced);
            program = stage.program_on("eth0");
            followed(&mut gateway, &next, round);
            gateway = next;
            let now = stage.verdict("denied").packets;
            assert!(now > denied, "counts go on, they do not begin anew");
            denied = now;
            assert_eq!(stage.connections(host.v4()), 4);
            settled(requests.load(Ordering::Relaxed));
        }
        drop(ended);
    });
    let report = flood.end();
    eprintln!("{} flood packets, {} requests", report.sent, requests.load(Ordering::Relaxed));
    assert!(report.sent > 10_000, "{report:?}");
    assert_eq!(arrived(), 0, "of {} packets", report.sent);
    stage.assert_refused(&peer, "quota");
    links.iter().for_each(|link| link.fetch(10_000));

    // Only an explicit `detach` may end the protection.
    let gone = stage.equic_in(&["detach", &stage.name]);
    assert!(gone.contains("detached from eth0"), "{gone}");
    assert_eq!(gateway.event("left")["protected"], false);
    assert!(gateway.wait().success() && stage.program_on("eth0").is_none());
    assert!(!Path::new(&pin).exists());
    Attack::from(attacker.v4(), target, attack::garbage(), 20_000).send(&attacker.namespace, 100);
    eventually("packets arrive again", || (arrived() > 0).then_some(()));
    links.iter().for_each(|link| link.fetch(10_000));
    assert!(server.terminate().success());
    std::fs::remove_file(object).expect("it was made");
}

#[test]
fn takeover_of_pins_that_do_not_fit_is_refused() {
    let Some(stage) = TestStage::new("misfit", 1) else { return };
    let fs = BpfFs::mount();
    let pin = fs.dir();
    let args = ["-i", "eth0", "-p", "443", "--pin", &pin];
    let (gateway, _) = stage.gateway_with(&args);
    let program = stage.program_on("eth0");
    assert!(gateway.terminate().success());
    assert_eq!(stage.program_on("eth0"), program);
    let status = stage.status();
    assert_eq!((&status["pin"], &status["owner"]["alive"]), (&pin.as_str().into(), &false.into()));
    let run = |args: &[&str]| {
        crate::common::equic_in(stage.lab.server(), &[&["gateway", "run"], args].concat())
    };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!(
        "[gateway]\nname = \"{}\"\ninterfaces = [\"eth0\"]\nsources = 4096\npin = \"{pin}\"\n\
         [[service]]\nname = \"quic\"\nlisten = [\"443\"]\n",
        stage.name
    );
    std::fs::write(file.path(), text).expect("it can be written");
    let refused = run(&["--config", file.path().to_str().expect("UTF-8")]);
    assert_eq!(refused.code, Some(1));
    let wanted = "`sources` is 65536 in the running gateway and 4096 in this configuration";
    assert!(refused.stderr.contains(wanted), "{refused:?}");
    let other = run(&[&args[..], &["--name", "another"]].concat());
    assert!(other.stderr.contains("the running gateway's name is"), "{other:?}");
    let nowhere = run(&["-i", "eth0", "-p", "443", "--pin", "/run/equic-no-bpffs/x"]);
    assert!(nowhere.stderr.contains("mount -t bpf -o mode=0700 bpf"), "{nowhere:?}");
    assert_eq!(stage.program_on("eth0"), program);
    crate::common::equic_in(stage.lab.server(), &["gateway", "detach", "--pin", &pin]).ok();
    assert!(stage.program_on("eth0").is_none() && !Path::new(&pin).exists());
}

/// Copies the command to a path where every user can run it.
fn public_equic(dir: &Path) -> PathBuf {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let copy = dir.join("equic");
    std::fs::copy(EQUIC.path(), &copy).expect("it can be copied");
    copy
}

/// Starts the server as the user `nobody`, without any capability.
fn serve_as_nobody(stage: &TestStage, equic: &Path, socket: &str) -> Running {
    let mut command = stage.lab.server().command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]);
    command.args(["--inh-caps=-all", "--no-new-privs"]).arg(equic);
    let args =
        ["serve", "--json", "--listen", "[::]:443", "--gateway", socket, "--idle-timeout", "1h"];
    let server = Running::start(command, &args);
    let ready = server.event("ready");
    assert_eq!(ready["gateway"]["name"], stage.name.as_str(), "{ready}");
    let status = of_process(server.pid(), "status");
    for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(bits(&status, set), 0, "{status}");
    }
    server
}

fn of_process(pid: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("it runs")
}

/// Returns a set of capabilities from the text of /proc/PID/status.
fn bits(status: &str, set: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{set}:")));
    u64::from_str_radix(line.expect("the line is there").trim(), 16).expect("hex")
}

fn prepare(stage: &TestStage) -> (tempfile::TempDir, PathBuf, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let equic = public_equic(dir.path());
    let ports = "net/ipv4/ip_unprivileged_port_start";
    stage.lab.server().set_sysctl(ports, "0").expect("it is the namespace's");
    let socket = dir.path().join("sock").to_str().expect("UTF-8").to_owned();
    (dir, equic, socket)
}

/// Returns a configuration with a socket that every user may use, and with a lease that is far
/// longer than any test.
fn with_socket(stage: &TestStage, dir: &Path, socket: &str, pin: Option<&str>) -> String {
    let pin = pin.map_or_else(String::new, |pin| format!("pin = \"{pin}\"\n"));
    let text = format!(
        "[gateway]\nname = \"{}\"\ninterfaces = [\"eth0\"]\nlease = \"1m\"\n{pin}\
         [gateway.socket]\npath = \"{socket}\"\ngroup = \"nogroup\"\nmode = \"0660\"\n\
         [[service]]\nname = \"quic\"\nlisten = [\"443\"]\nmax_connections = 2\n",
        stage.name
    );
    let file = dir.join("equic.toml");
    std::fs::write(&file, text).expect("it can be written");
    file.to_str().expect("UTF-8").to_owned()
}

#[test]
fn unprivileged_server_is_protected_and_joins_the_next_gateway() {
    let Some(stage) = TestStage::new("nobody", 1) else { return };
    let (dir, equic, socket) = prepare(&stage);
    let config = with_socket(&stage, dir.path(), &socket, None);
    let (mut gateway, _) = stage.gateway_with(&["--config", &config]);
    let mode = std::fs::metadata(&socket).expect("it listens").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    // The gateway must keep exactly CAP_NET_ADMIN and CAP_BPF in every thread.
    for thread in std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).expect("it runs") {
        let status = std::fs::read_to_string(thread.expect("a thread").path().join("status"))
            .expect("it runs");
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(bits(&status, set), 1 << 12 | 1 << 39, "{set} of {status}");
        }
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }

    let mut server = serve_as_nobody(&stage, &equic, &socket);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let links = [peer.connect(), peer.connect()];
    stage.await_connections(host.v4(), 2);
    stage.assert_refused(&peer, "quota");
    let one = stage.status()["ledgers"][0].clone();
    assert_eq!(
        (one["pid"].as_u64(), one["uid"].as_u64()),
        (Some(server.pid().into()), Some(NOBODY))
    );
    assert_eq!((&one["socket"], &one["name"]), (&true.into(), &"equic serve".into()));
    let table = stage.equic(&["status"]).ok();
    assert!(table.contains("nobody, by socket"), "{table}");

    // An allowed source may exceed the quota. The server asks through the socket whether the source
    // is allowed.
    stage.equic(&["allow", &host.v4().to_string()]).ok();
    let third = peer.connect();
    stage.await_connections(host.v4(), 3);
    stage.equic(&["forget", &host.v4().to_string()]).ok();
    third.close();
    stage.await_connections(host.v4(), 2);

    // The gateway dies. The server must join the next gateway automatically, with its connections.
    gateway.signal(Signal::SIGKILL);
    gateway.wait();
    links.iter().for_each(|link| link.fetch(10_000));
    let (gateway, _) = stage.gateway_with(&["--config", &config, "--user", "daemon"]);
    let uid = of_process(gateway.pid(), "status");
    let daemon = nix::unistd::User::from_name("daemon").expect("users").expect("there is one");
    assert!(uid.contains(&format!("Uid:\t{0}\t{0}\t{0}\t{0}", daemon.uid)), "{uid}");
    stage.await_connections(host.v4(), 2);
    stage.assert_refused(&peer, "quota");
    links.iter().for_each(|link| link.fetch(10_000));

    // The server dies. Its connections must stop counting at once, long before its lease would
    // expire.
    server.signal(Signal::SIGKILL);
    server.wait();
    stage.await_servers(0);
    let _server = serve_as_nobody(&stage, &equic, &socket);
    peer.connect().fetch(10_000);
    assert!(gateway.terminate().success());
}

#[test]
fn takeover_keeps_the_slots_of_unprivileged_servers() {
    let Some(stage) = TestStage::new("keeps", 1) else { return };
    let (dir, equic, socket) = prepare(&stage);
    let fs = BpfFs::mount();
    let config = with_socket(&stage, dir.path(), &socket, Some(&fs.dir()));
    let (mut gateway, _) = stage.gateway_with(&["--config", &config]);
    let mut server = serve_as_nobody(&stage, &equic, &socket);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let links = [peer.connect(), peer.connect()];
    stage.await_connections(host.v4(), 2);
    for round in 0..4 {
        if round == 2 {
            gateway.signal(Signal::SIGKILL);
            gateway.wait();
            stage.assert_refused(&peer, "quota");
        }
        let (next, _) = stage.gateway_with(&["--config", &config]);
        if round != 2 {
            gateway.event("left");
            assert!(gateway.wait().success());
        }
        gateway = next;
        // The server's connections must still count, in the same ledger.
        let one = stage.status()["ledgers"][0].clone();
        assert_eq!(
            (&one["slot"], &one["connections"], &one["opened"]),
            (&0.into(), &2.into(), &2.into())
        );
        stage.assert_refused(&peer, "quota");
        links.iter().for_each(|link| link.fetch(10_000));
    }
    // The last gateway process has the server's connection to the socket, so it must notice the
    // server's death at once.
    let known = || {
        let seen = of_process(gateway.pid(), "net/unix");
        seen.lines().filter(|line| line.contains(&socket)).count() > 1
    };
    eventually("the server is back at the socket", || known().then_some(()));
    server.signal(Signal::SIGKILL);
    server.wait();
    stage.await_servers(0);
    stage.equic_in(&["detach", &stage.name]);
    assert!(gateway.wait().success());
}
