//! Tests which clients get stateless resets (docs/policy.md s.14). Only clients of servers that are
//! known to be dead may get them, whichever process manages the gateway.

use equic_gateway::{
    Action, Config, Control, Gateway, ID_FORMAT, JoinOptions, Listen, LoadOptions, Reason,
    TokenCheck,
};
use equic_token::{IdFormat, IdGenerator};

use crate::support::{self, Child, await_that, config, in_namespace, udp};
use crate::{BpfFs, load};

/// Returns the configuration of a gateway that answers for dead servers.
fn resetting(what: &str) -> Config {
    let mut config = config(what);
    config.services[0].stateless_reset = true;
    // The gateway answers for addresses of other hosts only if the service names them.
    config.services[0].listen = vec![Listen::Addr(support::SERVER_V4.parse().unwrap())];
    config
}

/// A client that has a connection to a server. The server made its IDs with the gateway's keys.
struct Client {
    frame: Vec<u8>,
}

impl Client {
    fn of(gateway: &Gateway) -> Client {
        Client::at(gateway, 0)
    }

    /// Returns a client whose server has, or had, the slot `place`.
    fn at(gateway: &Gateway, place: u8) -> Client {
        let format = IdFormat::new(ID_FORMAT.0, ID_FORMAT.1).unwrap();
        let ring = gateway.control().key_ring().unwrap();
        let id = IdGenerator::new(format, &[place, 0], ring).unwrap().generate();
        let payload = [&[0x41], id.as_bytes(), &[7; 30]].concat();
        let (from, to) = ("192.0.2.1:4000", support::SERVER_V4);
        Client { frame: udp(from.parse().unwrap(), to.parse().unwrap(), &payload) }
    }

    fn gets_reset(&self, gateway: &Gateway) -> bool {
        let run = gateway.test_run(&self.frame, None).unwrap();
        assert!(matches!(run.action, Action::Pass | Action::Answer), "{run:?}");
        run.action == Action::Answer
    }
}

/// Starts a server that joins and makes connection IDs. It runs until it is killed.
fn server(config: &Config) -> Child {
    let server = Child::start("maker", &config.gateway.name);
    server.ready();
    server
}

/// Starts a server that joins, leaves its slot, and continues to run.
fn leaver(config: &Config, control: &Control) -> Child {
    let leaver = Child::start("leaver", &config.gateway.name);
    leaver.ready();
    // With this call, the gateway sees the server in its slot.
    control.sweep().unwrap();
    control.set("max_connections", LEAVE).unwrap();
    leaver.ready();
    leaver
}

/// A quota with this value tells the server in the child process to leave its slot.
const LEAVE: &str = "77";

/// Runs a child process. Returns false if `role` is not a role of this file.
pub(crate) fn child(role: &str, name: &str) -> bool {
    let join = || {
        let control = Control::open(Some(name)).unwrap();
        let options = JoinOptions::new(role).token_check(TokenCheck::GatewayKeys).issue_ids(true);
        let ledger = control.join(options).unwrap();
        (control, ledger)
    };
    match role {
        "maker" => {
            let _joined = join();
            support::say_ready_and_wait();
        }
        "stranger" => {
            let control = Control::open(Some(name)).unwrap();
            let options = JoinOptions::new(role).token_check(TokenCheck::OwnKeys);
            let _joined = control.join(options).unwrap();
            support::say_ready_and_wait();
        }
        "leaver" => {
            let (control, ledger) = join();
            println!("READY");
            let limit = || control.services().unwrap()[0].max_connections;
            await_that("it is told to leave", || limit().to_string() == LEAVE);
            drop(ledger);
            support::say_ready_and_wait();
        }
        _ => return false,
    }
    true
}

/// Kills a server. Waits until the gateway has removed it from its slot and knows that it is dead.
fn kill(gateway: &Gateway, server: &Child) {
    let control = gateway.control();
    control.sweep().unwrap();
    let before = control.swept().ledgers;
    server.kill();
    await_that("its place is free", || control.swept().ledgers > before);
    control.sweep().unwrap();
}

#[test]
fn reset_waits_until_a_server_that_left_has_ended() {
    in_namespace(|| {
        let config = resetting("left");
        let gateway = Gateway::load(&config, equic_gateway::ObjectSource::Embedded).unwrap();
        let (client, control) = (Client::of(&gateway), gateway.control());
        assert!(!client.gets_reset(&gateway), "nobody has died yet");
        let left = leaver(&config, control);
        let dies = server(&config);
        control.sweep().unwrap();
        assert!(!client.gets_reset(&gateway), "one has a place");

        kill(&gateway, &dies);
        for _ in 0..3 {
            control.sweep().unwrap();
            assert!(!client.gets_reset(&gateway), "the one that left may serve still");
        }
        left.kill();
        control.sweep().unwrap();
        assert!(client.gets_reset(&gateway), "now all are dead");

        // As soon as another server joins, the gateway must send no more resets.
        let next = server(&config);
        assert!(!client.gets_reset(&gateway));
        next.kill();
        await_that("it is dead, too", || client.gets_reset(&gateway));
        let counters = control.counters().unwrap();
        let sent = counters.iter().find(|row| row.reason == Reason::ResetSent);
        assert!(sent.is_some_and(|row| row.packets >= 2), "{counters:?}");
    });
}

#[test]
fn reset_is_sent_only_for_slots_of_dead_servers() {
    in_namespace(|| {
        let config = resetting("places");
        let gateway = Gateway::load(&config, equic_gateway::ObjectSource::Embedded).unwrap();
        let control = gateway.control();
        let lives = server(&config);
        let [first, second, third] = [0, 1, 2].map(|place| Client::at(&gateway, place));
        let dies = server(&config);
        kill(&gateway, &dies);
        assert!(second.gets_reset(&gateway), "one of several servers has died");
        assert!(!first.gets_reset(&gateway), "this one lives");
        assert!(!third.gets_reset(&gateway), "nobody had that place");

        // The connection IDs of this server do not contain its slot, so they may look like those of
        // any slot.
        let stranger = Child::start("stranger", &config.gateway.name);
        stranger.ready();
        for _ in 0..3 {
            assert!(!second.gets_reset(&gateway), "a server lives that may have made any ID");
            control.sweep().unwrap();
        }
        kill(&gateway, &stranger);
        assert!(second.gets_reset(&gateway));
        kill(&gateway, &lives);
        assert!(first.gets_reset(&gateway) && second.gets_reset(&gateway));
    });
}

#[test]
fn reset_waits_for_a_server_that_came_and_left_between_sweeps() {
    in_namespace(|| {
        let config = resetting("unseen");
        let options = LoadOptions { unswept: true, ..LoadOptions::default() };
        let object = equic_gateway::ObjectSource::Embedded;
        let gateway = Gateway::load_with(&config, object, options).unwrap();
        let (client, control) = (Client::of(&gateway), gateway.control());
        control.sweep().unwrap();
        let left = Child::start("leaver", &config.gateway.name);
        left.ready();
        control.set("max_connections", LEAVE).unwrap();
        left.ready();
        // The server has already left its slot, but its process is alive.
        control.sweep().unwrap();
        let dies = server(&config);
        control.sweep().unwrap();
        dies.kill();
        await_that("its place is free", || control.sweep().unwrap().ledgers > 0);
        control.sweep().unwrap();
        assert!(!client.gets_reset(&gateway), "it may have made the ID");
        left.kill();
        control.sweep().unwrap();
        assert!(client.gets_reset(&gateway));
    });
}

#[test]
fn reset_continues_after_a_takeover() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let config = resetting("gone");
        let (first, _) = load(&config, &fs.dir()).unwrap();
        let client = Client::of(&first);
        let dies = server(&config);
        assert!(!client.gets_reset(&first));
        dies.kill();
        await_that("it is known to be dead", || client.gets_reset(&first));

        drop(first);
        let (second, taken) = load(&config, &fs.dir()).unwrap();
        assert!(taken.is_some(), "it is the same gateway");
        for _ in 0..3 {
            second.control().sweep().unwrap();
            assert!(
                client.gets_reset(&second),
                "this process has seen nobody, and believes the other"
            );
        }
    });
}

#[test]
fn reset_stays_off_after_a_takeover_if_a_server_is_unknown() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let config = resetting("unsure");
        let (first, _) = load(&config, &fs.dir()).unwrap();
        let client = Client::of(&first);
        let left = leaver(&config, first.control());
        let dies = server(&config);
        kill(&first, &dies);
        assert!(!client.gets_reset(&first));

        drop(first);
        let (second, taken) = load(&config, &fs.dir()).unwrap();
        assert!(taken.is_some(), "it is the same gateway");
        // The new process does not know which server left, so it cannot watch that server. It must
        // assume that the server is alive.
        let dies = server(&config);
        kill(&second, &dies);
        assert!(!client.gets_reset(&second));
        left.kill();
        second.control().sweep().unwrap();
        assert!(!client.gets_reset(&second), "nobody can tell");
    });
}
