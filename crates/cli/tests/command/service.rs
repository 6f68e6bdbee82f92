//! Tests of gateways and servers under a service manager: signals during the start, notifications
//! to the manager, and reloads by process ID.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{EQUIC, PATIENCE, Running, equic, lab, unique};

const STRACE: &str = "strace runs: `make setup` installs it";

fn configure(folder: &Path, name: &str, rest: &str) -> String {
    let file = folder.join("equic.toml");
    let text = format!(
        "[gateway]\nname = \"{name}\"\ninterfaces = [\"eth0\"]\n[[service]]\nname = \"web\"\n\
         listen = [\"443\"]\n{rest}"
    );
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Runs the command under strace, which sends it a signal at the given system call.
fn signalled(mut host: Command, trace: &Path, which: &[&str], args: &[&str]) -> Running {
    host.args(["-qq", "-o", trace.to_str().unwrap()]).args(which).arg(EQUIC).args(args);
    host.stderr(Stdio::inherit());
    Running::start(host, &[])
}

fn pid_of(event: &Value) -> Pid {
    Pid::from_raw(i32::try_from(event["pid"].as_u64().expect("a number")).unwrap())
}

/// The signal arrives while the gateway opens the configuration, which is the first thing that it
/// does. It must still end cleanly.
#[test]
fn signals_at_the_start_of_a_gateway_are_kept() {
    let Some(lab) = lab("cli-early", 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let name = unique("early");
    let file = configure(folder.path(), &name, "");
    let trace = folder.path().join("trace");
    let args = ["gateway", "run", "--json", "--config", &file];
    let start = |signal: &str| {
        let inject = format!("inject=openat:signal={signal}:when=1");
        let strace = lab.server().command("strace");
        signalled(strace, &trace, &["-P", &file, "-e", &inject], &args)
    };
    let gateway = start("SIGHUP");
    let ready = gateway.event("ready");
    assert_eq!(gateway.event("reload")["ok"], true);
    kill(pid_of(&ready), Signal::SIGTERM).unwrap();
    assert_eq!(gateway.event("left")["why"], "SIGTERM");
    for signal in ["SIGTERM", "SIGINT"] {
        let mut gateway = start(signal);
        assert_eq!(gateway.event("left")["why"], signal);
        assert!(gateway.wait().success(), "{STRACE}");
    }
}

#[test]
fn signals_at_the_start_of_a_server_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let strace = Command::new("strace");
    // The signal arrives when the runtime is created, before the signal handlers are active.
    let which = ["-e", "inject=epoll_create1:signal=SIGTERM:when=1"];
    let args = ["serve", "--json", "--listen", "127.0.0.1:0"];
    let mut server = signalled(strace, &trace, &which, &args);
    server.event("stopped");
    assert!(server.wait().success(), "{STRACE}");
}

/// The manager must be notified that the gateway is ready only when reloads work, and again at the
/// end of each reload.
#[test]
fn service_manager_is_notified_when_a_configuration_is_in_force() {
    let Some(lab) = lab("cli-notify", 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let name = unique("notify");
    let file = configure(folder.path(), &name, "");
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut buffer = [0; 4096];
        let length = manager.recv(&mut buffer).expect("a message comes");
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let mut command = lab.server().command(EQUIC);
    command.env("NOTIFY_SOCKET", &socket);
    let gateway = Running::start(command, &["gateway", "run", "--json", "--config", &file]);
    assert_eq!(heard(), "READY=1\nSTATUS=the configuration is in force");
    let reload = || equic(&["gateway", "reload", "--pid", &gateway.pid().to_string()]);
    reload().ok();
    assert!(heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(heard().starts_with("READY=1\nSTATUS=configuration reloaded"));
    configure(folder.path(), &name, "group = \"g\"\n");
    let refused = reload();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(heard().starts_with("RELOADING=1\n"));
    let status = heard();
    assert!(status.starts_with("READY=1\nSTATUS=configuration NOT reloaded"), "{status}");
    assert!(status.contains("needs a restart: service.web.group"), "{status}");
    let other = std::process::id().to_string();
    let none = equic(&["gateway", "reload", "--pid", &other]);
    assert!(none.code == Some(1) && none.stderr.contains("runs no gateway"), "{none:?}");
    gateway.signal(Signal::SIGTERM);
    assert_eq!(heard(), "STOPPING=1\nSTATUS=SIGTERM");
}
