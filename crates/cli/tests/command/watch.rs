//! Tests of the dashboard `equic gateway watch` on a pseudo-terminal, with a running gateway and a
//! real flood.

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{
    EQUIC, EQUIC_LAB, PATIENCE, Running, equic, equic_in, eventually, lab, unique, v4,
};
use equic_netns::{Lab, Namespace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, SlavePty, native_pty_system};
use serde_json::Value;

/// A command that runs on its own terminal. It is killed when the value is dropped.
struct Session {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    // Keeps the terminal open after the command has ended.
    _slave: Box<dyn SlavePty + Send>,
    keyboard: Box<dyn std::io::Write + Send>,
    screen: Arc<Mutex<vt100::Parser>>,
    before: Modes,
}

/// Input and output mode flags of a terminal.
type Modes = (u32, u32, u32, u32);

impl Session {
    fn start(name: &str, size: (u16, u16), rest: &[&str], no_color: bool) -> Session {
        let (cols, rows) = size;
        let pty = native_pty_system()
            .openpty(PtySize { rows, cols, ..PtySize::default() })
            .expect("a pseudo-terminal");
        let before = modes(&*pty.master);
        let mut command = CommandBuilder::new(EQUIC);
        command.args(["gateway", "watch", "--gateway", name, "--interval", "200ms"]);
        command.args(rest);
        command.env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8");
        command.env_remove("NO_COLOR");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let child = pty.slave.spawn_command(command).expect("the command starts");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(length(rows), length(cols), 0)));
        let mut output = pty.master.try_clone_reader().expect("it can be read");
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown.lock().expect("nobody panics").process(&bytes[..read]);
            }
        });
        let keyboard = pty.master.take_writer().expect("it can be written");
        Session { child, master: pty.master, _slave: pty.slave, keyboard, screen, before }
    }

    fn look<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.screen.lock().expect("nobody panics").screen())
    }

    fn text(&self) -> String {
        self.look(vt100::Screen::contents)
    }

    /// Waits until the screen shows all of these texts.
    fn shows(&self, parts: &[&str]) -> String {
        self.until(parts, |text| parts.iter().all(|part| text.contains(part)))
    }

    fn until(&self, what: impl std::fmt::Debug, so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            if so(&text) {
                return text;
            }
            assert!(Instant::now() < deadline, "{what:?} did not come:\n{text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn lacks(&self, part: &str) {
        self.until(format!("no {part}"), |text| !text.contains(part));
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("it takes keys");
        self.keyboard.flush().expect("it takes keys");
    }

    fn resize(&self, cols: u16, rows: u16) {
        self.screen
            .lock()
            .expect("nobody panics")
            .screen_mut()
            .set_size(length(rows), length(cols));
        self.master.resize(PtySize { rows, cols, ..PtySize::default() }).expect("it is resized");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.process_id().expect("it runs").cast_signed())
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the child is ours");
    }

    /// Waits until the command has taken over the terminal.
    fn taken(&self) {
        eventually("the alternate screen, in raw mode", || {
            let taken = self.look(|screen| screen.alternate_screen() && screen.hide_cursor());
            (taken && modes(&*self.master) != self.before).then_some(())
        });
    }

    /// Waits until the terminal is restored.
    fn await_restored(&self) {
        eventually("the terminal as it was", || {
            let other = self.look(|screen| screen.alternate_screen() || screen.hide_cursor());
            (!other && modes(&*self.master) == self.before).then_some(())
        });
    }

    /// Waits until the command ends. Checks that the terminal is restored, and returns the exit
    /// code.
    fn ends(&mut self) -> u32 {
        let status = eventually("the end", || self.child.try_wait().expect("the child is ours"));
        self.await_restored();
        assert!(!self.text().contains("panicked"), "{}", self.text());
        status.exit_code()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn length(length: u16) -> NonZero<u16> {
    NonZero::new(length).expect("a size")
}

/// Returns every cell of a screen.
fn cells(screen: &vt100::Screen) -> Vec<&vt100::Cell> {
    let (rows, cols) = screen.size();
    let places = (0..rows.get()).flat_map(|row| (0..cols.get()).map(move |col| (row, col)));
    places.filter_map(|(row, col)| screen.cell(row, col)).collect()
}

fn modes(master: &dyn MasterPty) -> Modes {
    let termios = master.get_termios().expect("a terminal has modes");
    (
        termios.input_flags.bits(),
        termios.output_flags.bits(),
        termios.control_flags.bits(),
        termios.local_flags.bits(),
    )
}

fn gateway(host: &Namespace, name: &str) -> Running {
    let gateway = Running::gateway(host, name, &["--new-per-source", "5/s burst 5"]);
    gateway.event("ready");
    gateway
}

/// Starts a flood of new connections from the lab's first client, far more than its quota.
fn flood(lab: &Lab) -> Running {
    let target = format!("{}:443", v4(lab.server()));
    let args =
        ["net", "flood", "initial", "--pps", "500", "--duration", "300s", "--json", "--target"];
    Running::start(lab.client(0).command(EQUIC_LAB), &[&args[..], &[&target]].concat())
}

fn lists(name: &str) -> Vec<Value> {
    let lists = equic(&["gateway", "lists", "--json", "--gateway", name]).json();
    lists["entries"].as_array().expect("entries").clone()
}

/// The dashboard must show rates and the attacker, and deny it with a key.
#[test]
fn watch_shows_an_attacker_and_denies_it() {
    let Some(lab) = lab("cli-watch", 1) else { return };
    let name = &unique("watch");
    let _gateway = gateway(lab.server(), name);
    let _flood = flood(&lab);
    let attacker = v4(lab.client(0)).to_string();
    let mut watch = Session::start(name, (120, 36), &["--sort", "drops"], false);
    watch.taken();
    let text = watch.shows(&[name.as_str(), &attacker, "rate_new_source", "quic on 443", "q quit"]);
    assert!(text.contains("Sources 1 by drops/s"), "{text}");
    // Read the rate of drops from the title of the curve. The flood has 500 packets per second.
    let rate = eventually("a rate of drops", || {
        let text = watch.text();
        let (_, behind) = text.split_once("dropped ")?;
        let mut words = behind.split_whitespace();
        let (number, unit) = (words.next()?, words.next()?);
        let number: f64 = number.parse().ok()?;
        (unit == "/s" && number > 50.0).then_some(number)
    });
    assert!(rate < 1_000.0, "{rate}");
    // The sampled drops must show the port that the attacker sends from.
    watch.shows(&[&format!("{attacker}:"), "now"]);
    let red = |cell: &&vt100::Cell| cell.fgcolor() == vt100::Color::Idx(1);
    assert!(watch.look(|screen| cells(screen).iter().any(red)), "drops are red");

    watch.press("d");
    watch.shows(&[&format!("{attacker}/32: drop all its packets"), "10 minutes"]);
    assert!(lists(name).is_empty(), "not before it is confirmed");
    watch.press("1\r");
    watch.shows(&[&format!("{attacker}/32 is denied for 1m"), "denied"]);
    let entries = lists(name);
    assert_eq!(entries[0]["prefix"], format!("{attacker}/32"), "{entries:?}");
    assert_eq!(entries[0]["action"], "deny");
    assert!(entries[0]["expires_in"]["secs"].as_u64().unwrap() <= 60, "{entries:?}");
    eventually("packets are denied", || {
        let status = equic(&["gateway", "status", "--json", "--gateway", name]).json();
        let verdicts = status["services"][0]["verdicts"].as_array()?.clone();
        verdicts
            .iter()
            .find(|row| row["reason"] == "denied" && row["dropped"].as_u64() > Some(100))
            .cloned()
    });

    // Escape must close the dialog and keep the entry. Then `y` removes the entry, and the source
    // is put on the allow list.
    watch.press("f\u{1b}");
    watch.lacks("remove it from both lists?");
    assert_eq!(lists(name).len(), 1);
    watch.press("fy");
    watch.shows(&["is on neither list"]);
    assert!(lists(name).is_empty());
    watch.press("a4\r");
    watch.shows(&["is allowed for ever"]);
    assert_eq!(
        (&lists(name)[0]["action"], &lists(name)[0]["expires_in"]),
        (&"allow".into(), &Value::Null)
    );

    watch.press("p");
    watch.shows(&["PAUSED"]);
    watch.press("p?");
    watch.shows(&["exempt from all limits", "reading the gateway took"]);
    watch.press("x");
    watch.resize(40, 10);
    watch.shows(&["passed", "dropped", &attacker, "? help  q quit"]);
    watch.press("\t");
    watch.shows(&["Reasons"]);
    watch.resize(120, 36);
    watch.shows(&["Reasons", "Sources", "Drops"]);
    watch.press("q");
    assert_eq!(watch.ends(), 0);
}

/// Sends a key and a new terminal size at the same time. A reader that handles only one of two
/// simultaneous events would lose the key.
#[test]
fn watch_loses_no_key_when_the_terminal_is_resized() {
    let Some(lab) = lab("cli-resized", 1) else { return };
    let name = &unique("resized");
    let _gateway = gateway(lab.server(), name);
    let mut watch = Session::start(name, (120, 36), &[], false);
    watch.taken();
    watch.shows(&[name.as_str(), "? help", "q quit"]);
    for round in 0..40_u16 {
        watch.resize(100 + round, 36);
        watch.press("?");
        if round % 2 == 0 {
            watch.shows(&["exempt from all limits", "reading the gateway took"]);
        } else {
            watch.lacks("exempt from all limits");
            watch.shows(&["? help", "q quit"]);
        }
    }
    watch.press("q");
    assert_eq!(watch.ends(), 0);
}

#[test]
fn watch_restores_the_terminal_however_it_ends() {
    let Some(lab) = lab("cli-terminal", 1) else { return };
    let name = &unique("terminal");
    let _gateway = gateway(lab.server(), name);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut watch = Session::start(name, (80, 24), &[], true);
        watch.taken();
        watch.shows(&[name.as_str(), "Sources"]);
        watch.signal(signal);
        assert_eq!(watch.ends(), 0, "{signal}");
    }
    let mut watch = Session::start(name, (80, 24), &[], true);
    watch.taken();
    let stopped = |watch: &Session| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", watch.pid())).ok()?;
        // The process name is in parentheses and may contain anything. The other fields follow it.
        stat.rsplit_once(") ").filter(|(_, rest)| rest.starts_with('T')).map(|_| ())
    };
    // Ctrl-Z and the signal SIGTSTP must have the same effect. While the command is stopped, the
    // shell may change the terminal, so check the modes after SIGCONT, too.
    for round in 0..2 {
        if round == 0 {
            watch.press("\u{1a}");
        } else {
            watch.signal(Signal::SIGTSTP);
        }
        eventually("it is stopped", || stopped(&watch));
        watch.await_restored();
        watch.signal(Signal::SIGCONT);
        watch.taken();
        watch.shows(&[name.as_str(), "Sources", "q quit"]);
    }
    // NO_COLOR.
    watch.look(|screen| {
        let plain = |cell: &&vt100::Cell| {
            (cell.fgcolor(), cell.bgcolor()) == (vt100::Color::Default, vt100::Color::Default)
        };
        assert!(cells(screen).iter().all(plain));
    });
    watch.press("\u{3}");
    assert_eq!(watch.ends(), 0);
}

#[test]
fn watch_waits_for_a_gateway_that_ended() {
    let Some(lab) = lab("cli-watch-gone", 1) else { return };
    let name = &unique("watch-gone");
    let mut first = gateway(lab.server(), name);
    let mut watch = Session::start(name, (100, 24), &[], false);
    watch.shows(&[name.as_str(), "up "]);
    first.signal(Signal::SIGKILL);
    first.wait();
    watch.shows(&["GONE", "gateway gone, waiting"]);
    watch.taken();
    let again = gateway(lab.server(), name);
    watch.lacks("GONE");
    let _flood = flood(&lab);
    watch.shows(&[&v4(lab.client(0)).to_string(), "rate_new_source"]);
    drop(again);
    watch.shows(&["gateway gone, waiting"]);
    // The gateway has ended, so the key must change nothing.
    watch.press("d\r");
    watch.shows(&["nothing was changed"]);
    watch.press("q");
    assert_eq!(watch.ends(), 0);
}

#[test]
fn watch_without_a_terminal_needs_once() {
    let refused = equic(&["gateway", "watch"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("equic gateway status --json"), "{refused:?}");
    assert!(refused.stderr.contains("--once") && refused.stdout.is_empty(), "{refused:?}");
    let range = equic(&["gateway", "watch", "--interval", "1ms"]);
    assert!(range.code == Some(2) && range.stderr.contains("out of range"), "{range:?}");

    let Some(lab) = lab("cli-once", 1) else { return };
    let name = &unique("once");
    let _gateway = gateway(lab.server(), name);
    let _flood = flood(&lab);
    let attacker = v4(lab.client(0)).to_string();
    let watch = |rest: &[&str]| {
        let args = ["gateway", "watch", "--gateway", name, "--interval", "300ms", "--once"];
        // Run in the namespace of the interface, where its name is known.
        equic_in(lab.server(), &[&args[..], rest].concat())
    };
    eventually("the flood is on", || watch(&["--json"]).json()["sources"].get(0).cloned());
    let picture = watch(&["--json", "--sort", "drops"]).json();
    assert_eq!(picture["schema"], "equic.gateway.watch/1");
    assert_eq!((&picture["name"], &picture["sort"]), (&name.as_str().into(), &"drops".into()));
    let row = &picture["sources"][0];
    assert_eq!(row["source"], attacker.as_str());
    for rate in [&row["packets_per_s"], &row["drops_per_s"], &picture["dropped_per_s"]] {
        let rate = rate.as_f64().expect("a rate");
        assert!(rate > 50.0 && rate < 1_000.0, "{picture}");
    }
    assert_eq!(picture["interfaces"][0], "eth0 native");
    let text = watch(&[]).ok();
    assert!(text.contains(&attacker) && text.contains("rate_new_source"), "{text}");
    assert!(
        !text.contains('\u{1b}') && text.lines().all(|line| line.chars().count() <= 120),
        "{text}"
    );
}
