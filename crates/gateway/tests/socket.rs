//! Tests of servers at the gateway's socket: well-behaved servers without any privilege, hostile
//! servers, and servers whose gateway is replaced. Needs root.

mod hostile;
mod support;

use std::io::IoSlice;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use equic_gateway::{
    Action, Config, Control, Error, Gateway, ID_FORMAT, JoinOptions, JoinedServer, Ledger,
    LedgerStatus, ObjectSource, OverrideConfig, SocketConfig, SocketHost, TokenCheck,
};
use equic_token::IdFormat;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    connect, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use support::{Child, Initial, await_that, config, in_namespace};

const A: &str = "192.0.2.1:4000";
const NOBODY: u32 = 65_534;

/// Returns a directory that every user may enter, and the path of a socket in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("sock");
    (dir, path)
}

/// Returns a gateway with a quota of 1, and its socket, which every user may open.
fn at_socket(
    what: &str,
    path: &Path,
    change: impl FnOnce(&mut Config),
) -> (Gateway, SocketHost, Config) {
    let mut config = config(what);
    config.services[0].max_connections = 1;
    // The lease is long, so that the counts end because the server exits, not because the lease
    // expires.
    config.gateway.lease = Duration::from_secs(30);
    let socket = SocketConfig::at(path.to_str().unwrap());
    config.gateway.socket = Some(SocketConfig { mode: "0666".to_owned(), ..socket });
    change(&mut config);
    let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
    let host = SocketHost::start(gateway.control(), &config, false).unwrap();
    (gateway, host, config)
}

fn action(gateway: &Gateway, from: &str) -> Action {
    gateway.test_run(&Initial::from(from).next(), None).unwrap().action
}

fn servers(gateway: &Gateway) -> Vec<LedgerStatus> {
    gateway.control().ledgers().unwrap()
}

/// A client that sends arbitrary bytes.
struct Raw(OwnedFd);

impl Raw {
    fn connect(path: &Path) -> Raw {
        let fd =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(10, 0)).unwrap();
        connect(fd.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        Raw(fd)
    }

    fn say(&self, bytes: &[u8], with: &[i32]) {
        let rights = [ControlMessage::ScmRights(with)];
        let rights = if with.is_empty() { &[][..] } else { &rights[..] };
        // The gateway may have closed the connection already.
        let _ = sendmsg::<()>(
            self.0.as_raw_fd(),
            &[IoSlice::new(bytes)],
            rights,
            MsgFlags::MSG_NOSIGNAL,
            None,
        );
    }

    /// Returns the answer's status, message and descriptors. Returns `None` if the gateway closed
    /// the connection.
    fn hear(&self) -> Option<(u32, String, Vec<OwnedFd>)> {
        let mut buffer = [0u8; 512];
        let mut space = nix::cmsg_space!([i32; 16]);
        loop {
            let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let got = match recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut space), flags) {
                // The gateway closed the connection before it read the message, but it may have
                // sent an answer.
                Err(nix::Error::ECONNRESET) => continue,
                other => other.unwrap(),
            };
            let mut with = Vec::new();
            for part in got.cmsgs().unwrap() {
                if let ControlMessageOwned::ScmRights(raw) = part {
                    // SAFETY: the kernel just created these descriptors for this process.
                    with.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                }
            }
            let length = got.bytes;
            if length == 0 {
                return None;
            }
            let status = u32::from_ne_bytes(buffer[12..16].try_into().unwrap());
            let text = String::from_utf8_lossy(&buffer[64..length]);
            return Some((status, text.trim_end_matches('\0').to_owned(), with));
        }
    }
}

fn request(protocol: u32, abi: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [equic_gateway::abi::EQUIC_ABI_MAGIC, protocol, abi, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(b"raw");
    bytes.resize(96, 0);
    bytes
}

/// Returns a request for a slot and the key ring.
fn with_keys() -> Vec<u8> {
    let mut bytes = good();
    bytes[48] = 1;
    bytes
}

fn good() -> Vec<u8> {
    request(4, equic_gateway::abi::EQUIC_ABI_VERSION)
}

#[test]
fn socket_server_without_privileges_counts_until_it_ends() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, config) = at_socket("nobody", &path, |config| {
            let own = OverrideConfig {
                prefixes: vec!["198.51.100.0/24".parse().unwrap()],
                max_connections: Some(7),
                ..OverrideConfig::default()
            };
            config.services[0].overrides = vec![own];
        });
        assert_eq!(action(&gateway, "192.0.2.1:1"), Action::Pass);
        let child = Child::start("server", path.to_str().unwrap());
        child.ready();
        assert_eq!(action(&gateway, A), Action::Drop);
        let seen = servers(&gateway);
        let one = &seen[0];
        assert_eq!((seen.len(), one.pid, one.uid, one.connections), (1, child.id(), NOBODY, 3));
        assert!(one.socket && one.alive && one.counts && one.name == "child");
        assert_eq!(one.services, None);
        // The second server runs as another user. The counts of both servers must be added up.
        let ledger = Ledger::connect(&path, "root's").unwrap();
        assert_eq!(ledger.gateway_name(), config.gateway.name);
        let service = ledger.service("quic").unwrap();
        let guard = service.opened(A.parse().unwrap());
        assert_eq!((service.limit(), guard.over_limit(), ledger.slot()), (1, false, Some(1)));
        let limit = || service.limit_for("198.51.100.9:1".parse().unwrap());
        assert_eq!((limit(), service.limit_for(A.parse().unwrap())), (7, 1));
        let mut changed = config.services.clone();
        changed[0].overrides[0].max_connections = Some(8);
        gateway.control().set_overrides(&changed).unwrap();
        await_that("the server sees the other limit", || limit() == 8);
        assert!(ledger.gateway_alive());
        let by_all = gateway.control().sources(1, equic_gateway::SortBy::Connections).unwrap();
        assert_eq!(by_all[0].connections, 4);
        // When a server dies, its counts must end at once, without waiting for the lease to expire.
        child.kill();
        await_that("its place is empty", || servers(&gateway).len() == 1);
        assert_eq!(action(&gateway, A), Action::Drop);
        drop(guard);
        assert_eq!(action(&gateway, A), Action::Pass);
        drop((service, ledger));
        await_that("the other left", || servers(&gateway).is_empty());
    });
}

/// Returns the options of a server that requests the key ring to check tokens.
fn checking(name: &str) -> JoinOptions {
    JoinOptions::new(name).token_check(TokenCheck::GatewayKeys)
}

/// A server that requests the key ring must always have the current one. A server that does not
/// request it must have none.
#[test]
fn socket_server_gets_the_current_key_ring_if_it_requests_it() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, config) = at_socket("keys", &path, |_| {});
        let control = gateway.control();
        let take = Ledger::connect(&path, checking("takes")).unwrap();
        let has_file = JoinOptions::new("has a file").token_check(TokenCheck::OwnKeys);
        let own = Ledger::connect(&path, has_file).unwrap();
        let none = Ledger::connect(&path, "none").unwrap();
        let privileged = Control::open(Some(&config.gateway.name)).unwrap();
        let maps = privileged.join(checking("with privileges")).unwrap();
        let bytes = |ledger: &Ledger| Some(ledger.key_ring().unwrap()?.to_bytes().to_vec());
        for _ in 0..4 {
            let ring = Some(control.key_ring().unwrap().to_bytes().to_vec());
            assert_eq!((bytes(&take), bytes(&maps)), (ring.clone(), ring));
            assert_eq!((bytes(&own), bytes(&none)), (None, None));
            control.rotate_keys().unwrap();
        }
        let keys: Vec<_> = servers(&gateway).into_iter().map(|one| (one.name, one.keys)).collect();
        let expected =
            [("takes", true), ("has a file", true), ("none", false), ("with privileges", true)];
        assert_eq!(keys, expected.map(|(name, keys)| (name.to_owned(), keys)));
        let without = || -> Vec<String> {
            let servers = control.servers_without_keys("quic").unwrap();
            servers.into_iter().map(|server| server.name).collect()
        };
        assert_eq!(without(), ["none"]);
        drop(none);
        await_that("it left", || without().is_empty());

        let child = Child::start("checking", path.to_str().unwrap());
        child.ready();
        assert!(without().is_empty(), "without privileges, too");
    });
}

/// Connection IDs must name the server's slot and use the gateway's current key. After a move, they
/// must use the next gateway's slot and key. A server that declares verifiable IDs must be
/// recorded, whether or not it checks tokens.
#[test]
fn socket_server_ids_follow_the_gateway_keys() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (first, host, _) = at_socket("first-ids", &path, |_| {});
        let none = Ledger::connect(&path, "none").unwrap();
        assert!(none.connection_ids(0).unwrap().is_none());
        let only = Ledger::connect(&path, JoinOptions::new("only").issue_ids(true)).unwrap();
        let both = Ledger::connect(&path, checking("both").issue_ids(true)).unwrap();
        let own = JoinOptions::new("own").token_check(TokenCheck::OwnKeys).issue_ids(true);
        let own = Ledger::connect(&path, own).unwrap();
        assert!(own.connection_ids(0).unwrap().is_some(), "it has the ring, too");
        let said: Vec<_> = servers(&first).iter().map(|one| (one.keys, one.ids)).collect();
        assert_eq!(said, [(false, false), (false, true), (true, true), (true, true)]);
        drop(own);

        let holds = |gateway: &Gateway, id: &[u8]| {
            let format = IdFormat::new(ID_FORMAT.0, ID_FORMAT.1).unwrap();
            format.open(&gateway.control().key_ring().unwrap(), id)
        };
        let ids = only.connection_ids(7).unwrap().expect("it has the ring");
        let own = first.ledger().unwrap().connection_ids(0).unwrap();
        assert!(holds(&first, own.expect("it is its own").generate().as_bytes()).is_ok());
        let old = ids.generate();
        // `reset_token` must return the token that the gateway would send for this server's ID. It
        // must fail for another server's ID.
        let other = only.connection_ids(8).unwrap().expect("it has the ring").generate();
        let format = IdFormat::new(ID_FORMAT.0, ID_FORMAT.1).unwrap();
        let token =
            format.reset_token(&first.control().key_ring().unwrap(), "quic", old.as_bytes());
        assert_eq!(ids.reset_token("quic", old.as_bytes()).unwrap(), token.unwrap());
        assert!(
            ids.open(other.as_bytes()).is_ok()
                && ids.reset_token("quic", other.as_bytes()).is_err()
        );
        let mut marks = vec![ids.mark()];
        assert_eq!(ids.mark(), marks[0], "nothing has changed");
        for _ in 0..5 {
            let id = ids.generate();
            let epoch = first.control().key_ring().unwrap().epoch();
            let proven = holds(&first, id.as_bytes()).unwrap();
            assert_eq!((proven.epoch, proven.server_id[..2].to_vec()), (epoch, vec![1, 7]));
            assert_eq!(only.slot(), Some(1));
            assert!(ids.open(old.as_bytes()).is_ok());
            for _ in 0..2 {
                first.control().rotate_keys().unwrap();
            }
            assert!(!marks.contains(&ids.mark()), "IDs are to be replaced");
            marks.push(ids.mark());
        }
        for _ in 0..4 {
            first.control().rotate_keys().unwrap();
        }
        assert!(ids.open(old.as_bytes()).is_err(), "its key is gone");

        drop((none, both, host, first));
        let (second, _host, _) = at_socket("second-ids", &path, |_| {});
        await_that("it makes the next one's", || {
            holds(&second, ids.generate().as_bytes()).is_ok_and(|id| id.server_id[..2] == [0, 7])
        });
        await_that("and is known to", || servers(&second).iter().any(|one| one.ids && !one.keys));
    });
}

/// Drops CAP_SYS_ADMIN in this thread, as a gateway with a socket does.
fn give_up_sys_admin() {
    const CAP_SYS_ADMIN: u32 = 1 << 21;
    /// Version 3 of capget(2), whose sets have two words each.
    const VERSION: u32 = 0x2008_0522;
    let mut header = [VERSION, 0];
    // The effective, permitted and inheritable sets: first of the lower 32 capabilities, then of
    // the upper 32.
    let mut sets = [0u32; 6];
    // SAFETY: this version requires a header and two groups of three words, which are valid during
    // the calls.
    unsafe {
        let (header, sets) = (header.as_mut_ptr(), sets.as_mut_ptr());
        assert_eq!(libc::syscall(libc::SYS_capget, header, sets), 0);
        *sets &= !CAP_SYS_ADMIN;
        assert_eq!(libc::syscall(libc::SYS_capset, header, sets), 0);
    }
}

/// A gateway that has dropped its privileges cannot read the ledgers of servers that joined with
/// privileges. It must report these servers anyway, because their clients could be cut off.
#[test]
fn socket_knows_servers_without_keys_without_reading_ledgers() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (_gateway, _host, config) = at_socket("unseen", &path, |_| {});
        let privileged = Control::open(Some(&config.gateway.name)).unwrap();
        let takes = privileged.join(checking("takes")).unwrap();
        let none = privileged.join("none").unwrap();
        // This handle has not read any ledger.
        let control = Control::open(Some(&config.gateway.name)).unwrap();
        give_up_sys_admin();
        assert!(control.ledgers().unwrap().is_empty(), "it may not look");
        let names = |servers: Vec<JoinedServer>| {
            servers.into_iter().map(|server| server.name).collect::<Vec<_>>()
        };
        assert_eq!(names(control.unreadable_servers().unwrap()), ["takes", "none"]);
        assert_eq!(control.servers().unwrap().len(), 2);
        assert!(privileged.unreadable_servers().unwrap().is_empty());
        let without = || control.servers_without_keys("quic").unwrap();
        let unready = JoinedServer { slot: 1, pid: std::process::id(), name: "none".to_owned() };
        assert_eq!(without(), [unready]);
        let without_ids = control.servers_without_ids("quic").unwrap();
        assert_eq!(without_ids.len(), 2, "{without_ids:?}");
        drop((takes, none));
        assert!(without().is_empty());
        assert!(control.unreadable_servers().unwrap().is_empty());
    });
}

/// The next gateway has new token keys, which the server must read after its move. Tokens of the
/// previous gateway must become invalid.
#[test]
fn socket_server_gets_the_keys_of_the_next_gateway() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (first, host, _) = at_socket("first-keys", &path, |_| {});
        let ledger = Ledger::connect(&path, checking("server")).unwrap();
        let ring = |gateway: &Gateway| gateway.control().key_ring().unwrap().to_bytes().to_vec();
        let has = || ledger.key_ring().unwrap().map(|ring| ring.to_bytes().to_vec());
        let before = ring(&first);
        assert_eq!(has().as_ref(), Some(&before));
        drop((host, first));
        let (second, _host, _) = at_socket("second-keys", &path, |_| {});
        assert_ne!(ring(&second), before);
        await_that("it has the next one's", || has() == Some(ring(&second)));
        await_that("and is known to", || servers(&second).iter().any(|one| one.keys));
    });
}

/// Returns the key rings among this process's descriptors. A process can still read these after it
/// has lost its slot.
fn rings_of_descriptors() -> Vec<std::fs::File> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_ring = |path: &Path| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:equic"))
    };
    all.map(|entry| entry.unwrap().path())
        .filter(|path| is_ring(path))
        .map(|path| std::fs::File::open(path).unwrap())
        .collect()
}

/// Withdraws keys that an attacker may know. Servers with a slot must get the new key and keep
/// their counts. No other process must get the new key.
#[test]
fn socket_key_renewal_reaches_only_servers_with_a_slot() {
    use std::os::unix::fs::FileExt as _;
    in_namespace(|| {
        let (dir, path) = place();
        let file = dir.path().join("keys");
        let (gateway, _host, config) = at_socket("renewed", &path, |config| {
            config.gateway.retry_keys = Some(file.to_str().unwrap().to_owned());
        });
        let control = gateway.control();
        let ledger = Ledger::connect(&path, checking("server").issue_ids(true)).unwrap();
        let mute = Ledger::connect(&path, "mute").unwrap();
        let ids = ledger.connection_ids(0).unwrap().expect("it has the ring");
        let service = ledger.service("quic").unwrap();
        let client = A.parse().unwrap();
        let open = service.opened(client);
        let (slot, opened) = (ledger.slot(), service.count(client));
        // An intruder in the server's process keeps these descriptors.
        let leaked = rings_of_descriptors();
        assert!(!leaked.is_empty(), "servers get a copy by a descriptor");
        let (old, old_id) = (control.key_ring().unwrap(), ids.generate());
        let other = Control::open(Some(&config.gateway.name)).unwrap();
        let epoch = other.renew_keys().unwrap();
        let new = control.key_ring().unwrap();
        assert_eq!((epoch, new.epoch()), (old.newest().next(), old.newest().next()));
        assert!(!new.knows(old.epoch()) && !new.announced(), "{new:?}");
        assert_eq!(*std::fs::read(&file).unwrap(), *new.to_bytes(), "servers with the file");

        let has = || ledger.key_ring().unwrap().map(|ring| ring.to_bytes());
        await_that("the server has the new key", || {
            has().is_some_and(|ring| *ring == *new.to_bytes())
        });
        assert_eq!((ledger.slot(), service.count(client)), (slot, opened));
        await_that("both have their places", || servers(&gateway).len() == 2);
        let id = ids.generate();
        assert!(ids.open(id.as_bytes()).is_ok() && ids.open(old_id.as_bytes()).is_err());
        assert_eq!(ids.open(id.as_bytes()).unwrap().epoch, epoch);
        // `at` is the position of the new key in the ring.
        let bytes = new.to_bytes();
        let at = 16 + usize::from(epoch.number()) * 16;
        for ring in leaked {
            let mut there = [0; 128];
            ring.read_exact_at(&mut there, 0).unwrap();
            assert!(
                !there.windows(16).any(|key| *key == bytes[at..at + 16]),
                "it sees the new key"
            );
            assert!(ring.write_at(&[0], 0).is_err(), "it can only read");
        }
        drop((open, mute));
    });
}

/// The ring is valid for all services. A server of only some services could make tokens for the
/// others, so it must not get the ring.
#[test]
fn socket_gives_no_key_ring_to_a_server_of_some_services() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, _) = at_socket("tenant-keys", &path, |config| {
            let mut other = config.services[0].clone();
            other.name = "other".to_owned();
            other.listen = vec!["5555".parse().unwrap()];
            other.users = vec!["root".to_owned()];
            config.services.push(other);
        });
        let child = Child::start("turned down", path.to_str().unwrap());
        child.ready();
        let without = |service: &str| gateway.control().servers_without_keys(service).unwrap();
        assert_eq!((without("quic").len(), without("other").len()), (1, 0));
    });
}

#[test]
fn socket_server_sees_exemptions() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, _) = at_socket("exempt", &path, |_| {});
        let ledger = Ledger::connect(&path, "server").unwrap();
        let (control, exempts) =
            (gateway.control(), |ip: &str| ledger.exempts(ip.parse().unwrap()));
        assert!(!exempts("192.0.2.1"));
        control.allow("192.0.2.0/24".parse().unwrap(), None).unwrap();
        control.deny("192.0.2.7".parse::<std::net::IpAddr>().unwrap().into(), None).unwrap();
        control.allow("2001:db8::/32".parse().unwrap(), None).unwrap();
        assert!(exempts("192.0.2.1") && exempts("::ffff:192.0.2.1") && exempts("2001:db8::1"));
        assert!(!exempts("192.0.2.7") && !exempts("198.51.100.1") && !exempts("2001:db9::1"));
        control
            .allow(
                "198.51.100.1".parse::<std::net::IpAddr>().unwrap().into(),
                Some(Duration::from_millis(1)),
            )
            .unwrap();
        await_that("it expires", || !exempts("198.51.100.1"));
    });
}

/// Mounts a BPF file system for this thread and its children, with the command from the operator's
/// guide.
fn mount_as_printed() {
    let guide = include_str!("../../../docs/how-to/upgrades.md");
    let (_, line) = guide.split_once("Needs a BPF file system: `").unwrap();
    let (command, _) = line.split_once('`').unwrap();
    // SAFETY: this thread, which ends with the test, gets its own mounts. The strings are
    // NUL-terminated.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
        let (none, all) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
        assert_eq!(libc::mount(none, c"/".as_ptr(), none, all, none.cast()), 0);
    }
    let mounted = std::process::Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(mounted.success(), "{command}");
}

#[test]
fn socket_descriptors_cannot_be_used_against_the_gateway() {
    in_namespace(|| {
        mount_as_printed();
        let (_dir, path) = place();
        let (gateway, _host, _) = at_socket("rights", &path, |_| {});
        let child = Child::start("prying", path.to_str().unwrap());
        let said = child.output();
        assert!(said.contains("HARMLESS"), "{said}");
        assert_eq!(gateway.control().status().unwrap().services[0].config.max_connections, 1);
    });
}

#[test]
fn socket_server_counts_only_for_services_of_its_user() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, _) = at_socket("tenants", &path, |config| {
            let mut other = config.services[0].clone();
            other.name = "other".to_owned();
            other.listen = vec!["5555".parse().unwrap()];
            config.services[0].users = vec!["root".to_owned()];
            other.users = vec![NOBODY.to_string()];
            config.services.push(other);
        });
        // The server counts connections for a service of another user, which it may not serve.
        let child = Child::start("server", path.to_str().unwrap());
        child.ready();
        let seen = servers(&gateway);
        assert_eq!(seen[0].services.as_deref(), Some(&["other".to_owned()][..]));
        assert_eq!(seen[0].connections, 3, "so it says");
        assert_eq!(action(&gateway, A), Action::Pass, "the program does not believe it");
        let rows = gateway.control().sources(9, equic_gateway::SortBy::Connections).unwrap();
        assert!(rows.iter().all(|row| row.connections == 0), "{rows:?}");
    });
}

#[test]
fn socket_refusal_tells_the_server_why() {
    in_namespace(|| {
        let (_dir, path) = place();
        let users = |users: &'static [&str]| {
            move |config: &mut Config| {
                let socket = config.gateway.socket.as_mut().unwrap();
                socket.users = users.iter().map(|user| (*user).to_owned()).collect();
            }
        };
        let refused = |says: &str| {
            let said = Child::start("refused", path.to_str().unwrap()).output();
            assert!(said.contains(says), "{said}");
        };
        let (_gateway, host, _) = at_socket("users", &path, users(&["daemon"]));
        refused("user 65534 may not join");
        drop(host);
        assert!(!path.exists(), "the socket goes with its gateway");
        refused("no gateway listens at");
        let (_gateway, host, _) = at_socket("mode", &path, |config| {
            config.gateway.socket.as_mut().unwrap().mode = "0600".to_owned();
        });
        refused("may not open the socket");
        drop(host);
        let (_gateway, host, _) = at_socket("service", &path, |config| {
            config.services[0].users = vec!["daemon".to_owned()];
        });
        refused("may not serve any service");
        drop(host);
        let mut config = config("unknown");
        let socket = SocketConfig::at(path.to_str().unwrap());
        config.gateway.socket =
            Some(SocketConfig { owner: Some("no-such-user".to_owned()), ..socket });
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let error = SocketHost::start(gateway.control(), &config, false).unwrap_err().to_string();
        assert!(error.contains("no user `no-such-user`"), "{error}");
        assert!(!path.exists());
    });
}

#[test]
fn socket_refuses_malformed_requests_and_keeps_no_state() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, _) = at_socket("nonsense", &path, |_| {});
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let honest = Ledger::connect(&path, "honest").unwrap();
        let guard = honest.service_at(0).unwrap().opened(A.parse().unwrap());
        await_that("it is at work", || servers(&gateway).len() == 1);
        let before = open();
        let whole = good();
        let garbage: Vec<u8> = (0..4096u32).map(|n| (n * 7 % 251) as u8).collect();
        for bytes in [&garbage[..], &garbage[..64], &whole[..63], &whole[..12], b"x"] {
            let raw = Raw::connect(&path);
            raw.say(bytes, &[]);
            let (status, said, _) = raw.hear().expect("an answer");
            assert_eq!((status, said.as_str()), (2, "the message is not a valid request"));
            assert!(raw.hear().is_none(), "it hung up");
        }
        for (protocol, abi) in [(1, 99), (7, 1)] {
            let raw = Raw::connect(&path);
            raw.say(&request(protocol, abi), &[]);
            let (status, said, with) = raw.hear().expect("an answer");
            assert!(status == 2 && said.contains("version") && with.is_empty(), "{said}");
        }
        // These clients send half a request, or nothing, and then close the connection.
        for bytes in [&whole[..30], &[]] {
            let raw = Raw::connect(&path);
            raw.say(bytes, &[]);
            drop(raw);
        }
        // Descriptors that were not requested must never be opened, whatever they refer to.
        let (pipe, _writer) = std::io::pipe().unwrap();
        let many = [pipe.as_raw_fd(); 200];
        let raw = Raw::connect(&path);
        raw.say(&whole, &many);
        let (status, _, with) = raw.hear().expect("a place");
        assert_eq!((status, with.len()), (0, 6));
        await_that("two are there", || servers(&gateway).len() == 2);
        // A server with a slot that sends another message must lose the slot.
        raw.say(&whole, &many);
        await_that("one is left", || servers(&gateway).len() == 1);
        drop((raw, pipe, _writer, with));
        await_that("no descriptor stays", || open() <= before);
        // Names are shown in terminals, so they must not contain control characters.
        let mut odd = good();
        odd[16..24].copy_from_slice(b"\x1b[2J\xff\xfe\x07n");
        let raw = Raw::connect(&path);
        raw.say(&odd, &[]);
        raw.hear().expect("a place");
        await_that("it is there", || servers(&gateway).len() == 2);
        let named = servers(&gateway);
        assert!(named.iter().all(|one| !one.name.contains(|c: char| c.is_control())), "{named:?}");
        assert!(honest.gateway_alive());
        assert_eq!(action(&gateway, A), Action::Drop, "the honest one counts all the time");
        drop(guard);
    });
}

#[test]
fn socket_flood_of_one_user_does_not_affect_others() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, _) = at_socket("flood", &path, |config| {
            config.gateway.socket.as_mut().unwrap().max_per_user = 3;
        });
        let honest = Ledger::connect(&path, "honest").unwrap();
        let _guard = honest.service_at(0).unwrap().opened(A.parse().unwrap());
        let flooder = Child::start("flooder", path.to_str().unwrap());
        flooder.ready();
        let of_user = |uid| servers(&gateway).iter().filter(|one| one.uid == uid).count();
        await_that("the flooder has all its places", || of_user(NOBODY) == 3);
        // During the flood, a server with a slot must still count, and new servers must be able to
        // join.
        for _ in 0..10 {
            let another = Ledger::connect(&path, "another").unwrap();
            let guard = another.service_at(0).unwrap().opened("192.0.2.9:1".parse().unwrap());
            assert_eq!(action(&gateway, "192.0.2.9:5"), Action::Drop);
            assert_eq!(action(&gateway, A), Action::Drop);
            drop((guard, another));
            let of_flooder = of_user(NOBODY);
            assert!(of_flooder <= 3, "{of_flooder} places for one user");
            await_that("the place is free again", || of_user(0) == 1);
        }
        assert!(flooder.runs());
        flooder.kill();
        await_that("nothing of it is left", || servers(&gateway).len() == 1);
    });
}

/// Runs `work` in a thread of another user. The other threads of the process remain root's.
fn as_user<T: Send + 'static>(uid: u32, work: impl FnOnce() -> T + Send + 'static) -> T {
    let work = move || {
        // SAFETY: the call takes three numbers. Unlike libc's function, this system call changes
        // only this thread, which ends with the work.
        let set = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
        assert_eq!(set, 0, "setresuid: {}", std::io::Error::last_os_error());
        work()
    };
    std::thread::spawn(work).join().expect("it does not panic")
}

#[test]
fn socket_users_who_send_nothing_keep_no_other_user_out() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, _) = at_socket("silent", &path, |_| {});
        for round in 0..5 {
            // Each of ten users has as many connections without a request as one user may have.
            let silent: Vec<Raw> = (0..10)
                .flat_map(|user| {
                    let path = path.clone();
                    as_user(70_000 + user, move || {
                        (0..8).map(|_| Raw::connect(&path)).collect::<Vec<_>>()
                    })
                })
                .collect();
            let before = servers(&gateway).len();
            let path = path.clone();
            // This sends a single request, because `Ledger::connect` would repeat it.
            let (status, said, _) = as_user(NOBODY, move || {
                let raw = Raw::connect(&path);
                raw.say(&good(), &[]);
                raw.hear().expect("an answer")
            });
            assert_eq!((status, said.as_str()), (0, ""), "round {round}, {before} servers");
            assert_eq!(silent.len(), 80);
        }
    });
}

#[test]
fn socket_server_name_and_pid_are_fixed_at_joining() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, _) = at_socket("forger", &path, |_| {});
        let raw = Raw::connect(&path);
        let mut request = good();
        request[16..48].copy_from_slice(b"a\x1b[2Jb\r\nc\xc2\x9b\xe2\x80\xaed 3456789012345678");
        raw.say(&request, &[]);
        let (_, _, with) = raw.hear().expect("a place");
        let joined = servers(&gateway).remove(0);
        let printable = |name: &str| name.chars().all(|c| (' '..='~').contains(&c));
        assert!(printable(&joined.name) && joined.name.len() <= 31, "{joined:?}");
        // The server can write to its ledger, including its name and process ID.
        let header =
            hostile::map(&with[0], libc::PROT_READ | libc::PROT_WRITE).expect("its ledger");
        let header = header.cast::<equic_gateway::abi::equic_ledger_header>();
        // SAFETY: `header` is the first element of the ledger, which is mapped for writing.
        unsafe {
            (*header).pid = 1;
            (*header).name = [0x1b; 32];
        }
        let now = servers(&gateway).remove(0);
        assert_eq!((now.pid, &now.name), (std::process::id(), &joined.name));
        let told = gateway.control().servers().unwrap();
        assert_eq!(told, [(0, std::process::id(), joined.name)]);
    });
}

#[test]
fn socket_heartbeat_from_the_future_does_not_count() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, _) = at_socket("future", &path, |_| {});
        let ledger = gateway.control().join("server").unwrap();
        let service = ledger.service("quic").unwrap();
        let _guard = service.opened(A.parse().unwrap());
        let raw = Raw::connect(&path);
        raw.say(&good(), &[]);
        let (_, _, with) = raw.hear().expect("a place");
        let header =
            hostile::map(&with[0], libc::PROT_READ | libc::PROT_WRITE).expect("its ledger");
        let header = header.cast::<equic_gateway::abi::equic_ledger_header>();
        let set = |ahead: u64| {
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the call writes `now`, and the header is mapped for writing.
            unsafe {
                libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
                let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
                (*header).heartbeat_ns = now + ahead;
            }
        };
        let counts = || servers(&gateway).iter().filter(|one| one.counts).count();
        // The lease is 30 s. So a heartbeat 20 s in the future is valid, and one two hours in the
        // future is not.
        set(20_000_000_000);
        assert_eq!(counts(), 2);
        set(7_200_000_000_000);
        assert_eq!(counts(), 1);
        let stale = || gateway.control().tallies().unwrap().stale_ledger;
        let before = stale();
        assert_eq!(action(&gateway, A), Action::Drop);
        assert_eq!(stale(), before + 1, "the program leaves it out as well");
    });
}

#[test]
fn socket_false_counts_end_with_their_server() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, _host, _) = at_socket("liar", &path, |_| {});
        let child = Child::start("liar", path.to_str().unwrap());
        child.ready();
        // The server has set every byte of its ledger to 0xff. Reading the ledger must do no harm.
        let status = gateway.control().status().unwrap();
        let one = &status.ledgers[0];
        assert_eq!((one.pid, one.uid), (child.id(), NOBODY), "what the kernel says holds");
        assert!(!one.counts, "a sign of life from the future is none");
        let sum: u64 = status.ledgers.iter().map(|ledger| ledger.connections).sum();
        assert!(sum <= u64::from(u32::MAX), "{sum}: bounded, whatever it says");
        gateway.control().sources(10, equic_gateway::SortBy::Connections).unwrap();
        gateway.control().sweep().unwrap();
        action(&gateway, A);
        assert_eq!(servers(&gateway).len(), 1, "while it is there, it keeps its place");
        child.kill();
        await_that("its place is empty", || servers(&gateway).is_empty());
        assert_eq!(action(&gateway, A), Action::Pass);
    });
}

#[test]
fn socket_ledger_moves_to_the_next_gateway() {
    in_namespace(|| {
        let (_dir, path) = place();
        let (gateway, host, _) = at_socket("before", &path, |_| {});
        let ledger = Ledger::connect(&path, "server").unwrap();
        let service = ledger.service("quic").unwrap();
        let mut guards: Vec<_> = (0..3).map(|_| service.opened(A.parse().unwrap())).collect();
        let elsewhere = service.opened("[2001:db8::1]:5".parse().unwrap());
        drop((host, gateway));
        // While there is no gateway, the ledger must continue to count.
        guards.push(service.opened(A.parse().unwrap()));
        assert_eq!((service.count(A.parse().unwrap()), ledger.connections()), (4, 5));
        // The next gateway has another seed and another size, and its configuration has the service
        // at another index.
        let (gateway, host, _) = at_socket("after", &path, |config| {
            let mut first = config.services[0].clone();
            first.name = "first".to_owned();
            first.listen = vec!["1234".parse().unwrap()];
            config.services.insert(0, first);
            config.gateway.ledger_sources = 64;
            config.gateway.source_prefix_v6 = 48;
        });
        await_that("it is in", || servers(&gateway).len() == 1);
        await_that("with what is open", || service.index() == 1);
        assert_eq!(servers(&gateway)[0].connections, 5);
        assert_eq!(action(&gateway, A), Action::Drop);
        assert_eq!(action(&gateway, "[2001:db8:0:7::1]:9"), Action::Drop, "the same /48 now");
        assert_eq!((service.limit(), guards[0].current()), (1, 4));
        guards.truncate(1);
        assert_eq!((service.count(A.parse().unwrap()), guards[0].current()), (1, 1));
        guards[0].moved("192.0.2.77:1".parse().unwrap());
        assert_eq!((action(&gateway, A), ledger.connections()), (Action::Pass, 2));
        assert_eq!(action(&gateway, "192.0.2.77:3"), Action::Drop);
        drop((guards, elsewhere));
        assert_eq!(ledger.connections(), 0);
        assert_eq!(action(&gateway, "192.0.2.77:3"), Action::Pass);

        // With longer source prefixes, the old counts cannot be split. The old connections must not
        // be counted, and closing them must not change another count.
        let old = service.opened("[2001:db8::1]:5".parse().unwrap());
        drop((host, gateway));
        let (gateway, _host, _) = at_socket("finer", &path, |_| {});
        await_that("it is in", || servers(&gateway).len() == 1);
        await_that("it has moved", || service.index() == 0);
        assert_eq!((old.current(), ledger.connections()), (0, 0));
        let new = service.opened("[2001:db8::1]:5".parse().unwrap());
        drop(old);
        assert_eq!((new.current(), ledger.connections()), (1, 1));
        drop(new);
    });
}

#[test]
fn socket_in_use_is_left_alone() {
    in_namespace(|| {
        let (dir, path) = place();
        let (_gateway, host, mut config) = at_socket("first", &path, |_| {});
        config.gateway.name += "-2";
        let second = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let error = SocketHost::start(second.control(), &config, false).unwrap_err();
        assert!(error.to_string().contains("another process listens at this path"), "{error}");
        let replaced = SocketHost::start(second.control(), &config, true).unwrap();
        let ledger = Ledger::connect(&path, "server").unwrap();
        assert_eq!(ledger.gateway_name(), config.gateway.name);
        // When the first gateway ends, it must not remove the second gateway's socket.
        drop(host);
        assert!(path.exists());
        // One path has a socket without a listener, as after SIGKILL. Another path has a file that
        // is not a socket.
        std::mem::forget(std::os::unix::net::UnixListener::bind(dir.path().join("dead")).map(drop));
        config.gateway.socket.as_mut().unwrap().path =
            dir.path().join("dead").to_str().unwrap().to_owned();
        drop(SocketHost::start(second.control(), &config, false).unwrap());
        std::fs::write(dir.path().join("file"), "precious").unwrap();
        config.gateway.socket.as_mut().unwrap().path =
            dir.path().join("file").to_str().unwrap().to_owned();
        let error = SocketHost::start(second.control(), &config, true).unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(std::fs::read_to_string(dir.path().join("file")).unwrap(), "precious");
        drop(replaced);
    });
}

/// Entry point of the child processes that other tests start. In a normal test run, it does
/// nothing.
#[test]
fn child() {
    let Some((role, path)) = support::role() else { return };
    let path = PathBuf::from(path);
    support::drop_privileges();
    match role.as_str() {
        "server" => {
            let ledger = Ledger::connect(&path, "child").unwrap();
            let service = ledger.service("quic").unwrap();
            let _guards: Vec<_> = (0..3).map(|_| service.opened(A.parse().unwrap())).collect();
            support::say_ready_and_wait();
        }
        "refused" => {
            let error = Ledger::connect(&path, "child").unwrap_err();
            assert!(matches!(
                error,
                Error::SocketRefused { busy: false, .. } | Error::NoGatewaySocket { .. }
            ));
            println!("{error}");
        }
        "checking" | "turned down" => {
            let ledger = Ledger::connect(&path, checking("child")).unwrap();
            assert_eq!(ledger.key_ring().unwrap().is_some(), role == "checking");
            support::say_ready_and_wait();
        }
        "prying" => hostile::pry(&path),
        "flooder" => hostile::flood(&path),
        "liar" => hostile::lie(&path),
        other => panic!("no role {other}"),
    }
}
