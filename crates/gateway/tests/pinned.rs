//! Tests of gateways that outlive their process, and of processes that take them over. Needs root.
//!
//! Every test has its own network and mount namespaces, with a BPF file system mounted in a
//! temporary directory.

mod resets;
mod support;

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use equic_gateway::{
    Action, Config, Control, Error, Gateway, JoinEvent, ListAction, LoadOptions, Mode,
    ObjectSource, Reason, RunningGateway, TakenOver, abi, remove_pinned,
};
use support::{Child, Initial, await_that, config, in_namespace, ip};

const A: &str = "192.0.2.1:4000";
/// Timeout of a step. It is much longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted BPF file system. Dropping it unmounts it.
struct BpfFs {
    root: tempfile::TempDir,
}

impl BpfFs {
    fn mount() -> BpfFs {
        let root = tempfile::tempdir().expect("a directory");
        let path = CString::new(root.path().to_str().expect("UTF-8")).expect("no NUL");
        // SAFETY: this thread, which ends with the test, gets its own mounts. The strings are
        // NUL-terminated.
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
            let (none, all) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
            assert_eq!(libc::mount(none, c"/".as_ptr(), none, all, none.cast()), 0);
            let bpf = c"bpf".as_ptr();
            assert_eq!(libc::mount(bpf, path.as_ptr(), bpf, 0, none.cast()), 0);
        }
        BpfFs { root }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("gateway")
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        let path = CString::new(self.root.path().to_str().expect("UTF-8")).expect("no NUL");
        // SAFETY: the path is NUL-terminated, and this process uses no file in it.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

fn load(config: &Config, dir: &Path) -> equic_gateway::Result<(Gateway, Option<TakenOver>)> {
    Gateway::load_pinned(config, &ObjectSource::Embedded, dir, LoadOptions::default())
}

/// Leaves a gateway pinned in `dir`, attached to veth0, without a process. Returns the ID of its
/// program.
fn left_behind(config: &Config, dir: &Path) -> u32 {
    let (gateway, taken) = load(config, dir).unwrap();
    assert_eq!(taken, None);
    gateway.attach("veth0", Mode::Native).unwrap();
    gateway.program_id()
}

fn program_on(interface: &str) -> Option<u32> {
    let text = ip(&["-d", "link", "show", interface]);
    let (_, behind) = text.split_once("prog/xdp id ")?;
    behind.split_whitespace().next()?.parse().ok()
}

fn pinned(path: &Path) -> OwnedFd {
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name is NUL-terminated. The kernel just returned this descriptor, and nothing
    // else owns it.
    unsafe {
        let fd = libbpf_sys::bpf_obj_get(name.as_ptr());
        assert!(fd >= 0, "{}", path.display());
        OwnedFd::from_raw_fd(fd)
    }
}

/// Overwrites bytes of the pinned gateway's control data, beginning at offset `at`.
fn patch_control(dir: &Path, at: usize, bytes: &[u8]) {
    let map = pinned(&dir.join("maps/control"));
    let (key, mut value) = (0u32, [0u8; 4096]);
    // SAFETY: the buffer is at least as large as a value of the map.
    unsafe {
        let (fd, key) = (map.as_raw_fd(), (&raw const key).cast());
        assert_eq!(libbpf_sys::bpf_map_lookup_elem(fd, key, value.as_mut_ptr().cast()), 0);
        value[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(libbpf_sys::bpf_map_update_elem(fd, key, value.as_ptr().cast(), 0), 0);
    }
}

/// Returns the gateway's program, compiled with other compiler options.
fn other_object() -> ObjectSource {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let out = tempfile::NamedTempFile::new().unwrap();
    let named = std::env::var("CLANG").ok();
    let usual = (16..=21).rev().map(|version| format!("clang-{version}"));
    let names = named.into_iter().chain(usual).chain(["clang".to_owned()]);
    let arch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    for clang in names {
        let mut command = std::process::Command::new(clang);
        command.args(["-target", "bpf", "-Os", "-g", "-mcpu=v3", "-I", &arch]);
        command.arg("-I").arg(&bpf).arg("-c").arg(bpf.join("gateway.bpf.c"));
        if command.arg("-o").arg(out.path()).status().is_ok_and(|status| status.success()) {
            return ObjectSource::Bytes(std::fs::read(out.path()).unwrap());
        }
    }
    panic!("no clang compiles the program");
}

#[test]
fn pinned_gateway_outlives_its_process_and_is_taken_over() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let config = config("kept");
        let child =
            Child::start("pinned", &format!("{}@{}", config.gateway.name, fs.dir().display()));
        child.ready();
        let owner = child.id();
        let control = Control::open(Some(&config.gateway.name)).unwrap();
        let program = control.program_id();
        assert_eq!(control.pin().as_deref(), Some(fs.dir().as_path()));
        control.deny("198.51.100.0/24".parse().unwrap(), None).unwrap();
        let ledger = control.join("a server").unwrap();
        let guard = ledger.service_at(0).unwrap().opened(A.parse().unwrap());
        drop(control);
        child.kill();
        assert_eq!(program_on("veth0"), Some(program), "SIGKILL takes nothing off");

        let mut next = config.clone();
        next.services[0].max_connections = 1;
        next.services[0].listen.push("192.0.2.7:9999".parse().unwrap());
        next.deny.push("203.0.113.0/24".parse().unwrap());
        let (gateway, taken) = load(&next, &fs.dir()).unwrap();
        let taken = taken.expect("there was one");
        assert_eq!((taken.owner.pid, taken.owner.alive), (owner, false));
        assert_eq!((taken.program_before, taken.replaced, taken.servers), (program, false, 1));
        assert_eq!((gateway.program_id(), program_on("veth0")), (program, Some(program)));
        let attached = gateway.attached();
        assert_eq!((attached.len(), attached[0].interface.as_str()), (1, "veth0"));
        assert!(attached[0].native);
        let again = gateway.attach("veth0", Mode::Auto).unwrap_err();
        assert!(matches!(again, Error::AlreadyAttached { .. }), "{again}");
        // Counts, lists and ledgers must survive the takeover. Settings and listeners must be those
        // of the new configuration.
        let control = gateway.control();
        assert_eq!(control.owner().pid, std::process::id());
        let lists: Vec<_> =
            control.lists().unwrap().iter().map(|e| (e.prefix.to_string(), e.action)).collect();
        let denied = |net: &str| (net.to_owned(), ListAction::Deny);
        assert_eq!(lists, [denied("198.51.100.0/24"), denied("203.0.113.0/24")]);
        let rows = control.counters().unwrap();
        assert_eq!((rows.len(), rows[0].reason, rows[0].packets), (1, Reason::New, 1));
        let run = |from: &str| gateway.test_run(&Initial::from(from).next(), None).unwrap().action;
        let again = "192.0.2.1:4001";
        assert_eq!(
            (run(again), run("192.0.2.2:1")),
            (Action::Drop, Action::Pass),
            "the quota holds"
        );
        drop(guard);
        assert_eq!(run(again), Action::Pass);
        let services = control.services().unwrap();
        assert_eq!(services[0].listen, next.services[0].listen);
        assert_eq!(control.listeners().unwrap().len(), 3);

        drop(gateway);
        assert_eq!(program_on("veth0"), Some(program), "neither does an orderly end");
        let control = Control::open(Some(&config.gateway.name)).unwrap();
        control.detach(None).unwrap();
        assert_eq!(program_on("veth0"), None);
        assert!(!fs.dir().exists(), "no pin is left");
    });
}

#[test]
fn pinned_gateway_can_be_replaced_by_another_program() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let config = config("upgrade");
        let (gateway, _) = load(&config, &fs.dir()).unwrap();
        gateway.attach("veth0", Mode::Native).unwrap();
        gateway.attach("veth1", Mode::Generic).unwrap();
        let before = gateway.program_id();
        let ledger = gateway.control().join("a server").unwrap();
        let guard = ledger.service_at(0).unwrap().opened(A.parse().unwrap());
        gateway.test_run(&Initial::from(A).next(), None).unwrap();
        drop(gateway);

        let options = LoadOptions::default();
        let upgrade = || Gateway::load_pinned(&config, &other_object(), fs.dir(), options).unwrap();
        let (gateway, taken) = upgrade();
        let taken = taken.unwrap();
        assert!(taken.replaced && taken.program_before == before && taken.servers == 1);
        let program = gateway.program_id();
        assert_ne!(program, before);
        assert_eq!((program_on("veth0"), program_on("veth1")), (Some(program), Some(program)));
        gateway.control().set("max_connections", "1").unwrap();
        let run = |gateway: &Gateway| {
            gateway.test_run(&Initial::from("192.0.2.1:99").next(), None).unwrap().action
        };
        assert_eq!(run(&gateway), Action::Drop, "the new program reads the old ledger");
        let news = gateway.control().counters().unwrap();
        assert_eq!(news.iter().find(|row| row.reason == Reason::New).unwrap().packets, 1);
        assert_eq!(ledger.slot(), Some(0));
        // A takeover with the same settings must keep the XDP program. A takeover with another load
        // setting must replace it.
        drop(gateway);
        let (gateway, taken) = upgrade();
        assert_eq!((taken.unwrap().replaced, gateway.program_id()), (false, program));
        let mut other = config.clone();
        other.gateway.drop_deep_headers = false;
        let (third, taken) = load(&other, &fs.dir()).unwrap();
        assert!(taken.unwrap().replaced);
        assert!(gateway.taken_over().is_none(), "it is the same process");
        drop((guard, gateway));
        assert_eq!(remove_pinned(fs.dir()).unwrap().len(), 2);
        drop(third);
        assert_eq!((program_on("veth0"), program_on("veth1")), (None, None));
    });
}

#[test]
fn pinned_gateway_is_taken_over_from_a_living_process() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let config = config("living");
        let child =
            Child::start("pinned", &format!("{}@{}", config.gateway.name, fs.dir().display()));
        child.ready();
        let (gateway, taken) = load(&config, &fs.dir()).unwrap();
        let taken = taken.unwrap();
        assert_eq!((taken.owner.pid, taken.owner.alive), (child.id(), true));
        let said = child.output();
        let wanted = format!("LEFT to {}", std::process::id());
        assert!(said.contains(&wanted), "{said}");
        await_that("it ends", || !child.runs());
        assert_eq!(program_on("veth0"), Some(gateway.program_id()));
        assert_eq!(gateway.interfaces().unwrap()[0].name.as_deref(), Some("veth0"));
        gateway.detach("veth0").unwrap();
        assert_eq!(program_on("veth0"), None);
        assert!(gateway.interfaces().unwrap().is_empty());
        // A detached gateway must be able to be taken over, too.
        drop(gateway);
        let (gateway, taken) = load(&config, &fs.dir()).unwrap();
        assert!(taken.is_some() && gateway.attached().is_empty());
        gateway.attach("veth0", Mode::Native).unwrap();
        remove_pinned(fs.dir()).unwrap();
    });
}

#[test]
fn pinned_gateway_names_settings_that_cannot_change() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let config = config("fixed");
        let program = left_behind(&config, &fs.dir());
        let change = |change: fn(&mut Config)| {
            let mut changed = config.clone();
            change(&mut changed);
            changed
        };
        type Case = (fn(&mut Config), &'static str);
        let cases: [Case; 8] = [
            (
                |c| c.gateway.sources = 2048,
                "`sources` is 1024 in the running gateway and 2048 in this configuration",
            ),
            (
                |c| c.gateway.handshakes = 64,
                "`handshakes` is 1024 in the running gateway and 64 in",
            ),
            (
                |c| c.gateway.acl_entries = 7,
                "`acl_entries` is 16384 in the running gateway and 7 in",
            ),
            (|c| c.gateway.ledger_sources = 60_000, "`ledger_sources"),
            (
                |c| c.gateway.source_prefix_v6 = 56,
                "`source_prefix_v6` is 64 in the running gateway and 56 in",
            ),
            (|c| c.gateway.name += "x", "the running gateway's name is"),
            (
                |c| c.services[0].name = "web".to_owned(),
                "has the services quic, but this configuration has web",
            ),
            (
                |c| {
                    let mut first = c.services[0].clone();
                    first.name = "first".to_owned();
                    first.listen = vec!["1".parse().unwrap()];
                    c.services.insert(0, first);
                },
                "keep the order of the services",
            ),
        ];
        for (apply, says) in cases {
            let error = load(&change(apply), &fs.dir()).unwrap_err();
            assert!(matches!(error, Error::PinMismatch { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(says) && text.contains("detach --pin"), "{text}");
            assert_eq!(program_on("veth0"), Some(program), "as before");
        }
        let more = change(|c| {
            let mut more = c.services[0].clone();
            more.name = "more".to_owned();
            more.listen = vec!["5555".parse().unwrap()];
            c.services.push(more);
        });
        let (gateway, _) = load(&more, &fs.dir()).unwrap();
        assert_eq!(gateway.control().service_names(), ["quic", "more"]);
        assert_eq!(gateway.control().listeners().unwrap().len(), 4);
        remove_pinned(fs.dir()).unwrap();
    });
}

/// Restarts must not delay the next rotation of the keys.
#[test]
fn pinned_gateway_keys_keep_their_age_over_restarts() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let config = config("aged");
        let (gateway, _) = load(&config, &fs.dir()).unwrap();
        gateway.attach("veth0", Mode::Native).unwrap();
        let (ring, made) = (gateway.control().key_ring().unwrap(), std::time::Instant::now());
        drop(gateway);
        for _ in 0..2 {
            let (gateway, taken) = load(&config, &fs.dir()).unwrap();
            assert!(taken.is_some());
            assert!(gateway.control().keys_age().unwrap() >= made.elapsed(), "it is not new");
            assert_eq!(gateway.control().key_ring().unwrap().to_bytes(), ring.to_bytes());
            drop(gateway);
        }
        // The process that manages the gateway withdraws the keys.
        let (gateway, _) = load(&config, &fs.dir()).unwrap();
        let epoch = gateway.control().renew_keys().unwrap();
        assert!(
            epoch == ring.newest().next() && gateway.control().keys_age() < Some(made.elapsed())
        );
        remove_pinned(fs.dir()).unwrap();
    });
}

/// With `wait`, an interface may be missing at the start, even for a takeover.
#[test]
fn pinned_gateway_is_taken_over_while_an_interface_is_away() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let mut config = config("away");
        config.gateway.interfaces = vec!["veth0".to_owned(), "away0".to_owned()];
        config.gateway.wait = true;
        let program = left_behind(&config, &fs.dir());
        let (gateway, taken) = load(&config, &fs.dir()).unwrap();
        assert!(taken.is_some_and(|taken| !taken.replaced));
        let on: Vec<String> = gateway.attached().into_iter().map(|one| one.interface).collect();
        assert_eq!((on, gateway.program_id()), (vec!["veth0".to_owned()], program));
        drop(gateway);
        config.gateway.wait = false;
        let error = load(&config, &fs.dir()).unwrap_err();
        assert!(matches!(error, Error::NoSuchInterface { .. }), "{error}");
        assert_eq!(program_on("veth0"), Some(program), "refused, and all as before");
        remove_pinned(fs.dir()).unwrap();
    });
}

/// One interface was moved to another namespace. The takeover must detach the gateway from it, and
/// continue on the others.
#[test]
fn pinned_gateway_is_taken_over_without_an_interface_that_was_moved() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let mut config = config("moved");
        let program = left_behind(&config, &fs.dir());
        let (gateway, _) = load(&config, &fs.dir()).unwrap();
        ip(&["link", "add", "moved0", "type", "veth", "peer", "name", "moved1"]);
        gateway.attach("moved0", Mode::Native).unwrap();
        drop(gateway);
        let namespace = support::unique("moved");
        ip(&["netns", "add", &namespace]);
        ip(&["link", "set", "moved0", "netns", &namespace]);
        ip(&["link", "add", "moved0", "type", "veth", "peer", "name", "moved2"]);
        config.gateway.interfaces = vec!["veth0".to_owned(), "moved0".to_owned()];
        let taken = load(&config, &fs.dir());
        let there = ip(&["-n", &namespace, "-d", "link", "show", "moved0"]);
        ip(&["netns", "del", &namespace]);
        let (gateway, taken) = taken.unwrap();
        assert_eq!(taken.unwrap().moved.len(), 1);
        assert!(!there.contains("prog/xdp"), "{there}");
        assert_eq!(program_on("veth0"), Some(program));
        gateway.attach("moved0", Mode::Native).unwrap();
        let links = std::fs::read_dir(fs.dir().join("links")).unwrap().count();
        assert_eq!(links, 2, "one pin for each interface");
        remove_pinned(fs.dir()).unwrap();
    });
}

#[test]
fn pinned_gateway_of_another_version_does_not_affect_other_namespaces() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        left_behind(&config("elsewhere"), &fs.dir());
        patch_control(&fs.dir(), 4, &99u32.to_ne_bytes());
        // The interfaces in this namespace have the same names and indices, as in containers.
        in_namespace(|| {
            let config = config("here");
            let attached = || {
                let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
                gateway.attach("veth0", Mode::Native).unwrap();
                gateway
            };
            let first = attached();
            let ledger = Control::open(Some("veth0")).unwrap().join("server").unwrap();
            let (sender, events) = channel();
            ledger.notify(move |event| drop(sender.send(event.clone())));
            drop(first);
            let lost = events.recv_timeout(PATIENCE).unwrap();
            assert_eq!(lost, JoinEvent::Lost { gateway: config.gateway.name.clone() });
            let second = attached();
            let joined = events.recv_timeout(PATIENCE).unwrap();
            assert!(matches!(joined, JoinEvent::Joined { .. }), "{joined}");
            assert_eq!(ledger.program_id(), Some(second.program_id()));
        });
        remove_pinned(fs.dir()).unwrap();
    });
}

#[test]
fn pinned_gateway_of_another_version_is_reported_to_servers() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let config = config("upgraded");
        let first = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        first.attach("veth0", Mode::Native).unwrap();
        let ledger = Control::open(Some("veth0")).unwrap().join("server").unwrap();
        let (sender, events) = channel();
        ledger.notify(move |event| drop(sender.send(event.clone())));
        drop(first);
        assert!(matches!(events.recv_timeout(PATIENCE).unwrap(), JoinEvent::Lost { .. }));
        // This gateway is attached only after its control data was changed to those of another
        // release.
        let (gateway, _) = load(&config, &fs.dir()).unwrap();
        patch_control(&fs.dir(), 4, &99u32.to_ne_bytes());
        gateway.attach("veth0", Mode::Native).unwrap();
        match events.recv_timeout(PATIENCE).unwrap() {
            JoinEvent::Unreachable { why, .. } => assert!(why.contains("version 99"), "{why}"),
            other => panic!("{other}"),
        }
        drop(gateway);
        remove_pinned(fs.dir()).unwrap();
    });
}

#[test]
fn pinned_gateway_of_another_version_is_refused() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let config = config("version");
        let program = left_behind(&config, &fs.dir());
        patch_control(&fs.dir(), 4, &99u32.to_ne_bytes());
        match load(&config, &fs.dir()).unwrap_err() {
            Error::AbiVersion { found: 99, expected: abi::EQUIC_ABI_VERSION, what } => {
                assert!(what.contains("detach --pin"), "{what}");
            }
            other => panic!("{other}"),
        }
        let opened = Control::open(Some(&program.to_string())).unwrap_err();
        assert!(matches!(opened, Error::AbiVersion { found: 99, .. }), "{opened}");
        let opened = Control::open(Some("veth0")).unwrap_err();
        assert!(matches!(opened, Error::AbiVersion { found: 99, .. }), "{opened}");
        assert!(opened.to_string().contains("the gateway on veth0"), "{opened}");
        assert_eq!(program_on("veth0"), Some(program), "it goes on");
        patch_control(&fs.dir(), 0, b"abcd");
        let error = load(&config, &fs.dir()).unwrap_err();
        assert!(matches!(error, Error::ForeignProgram { .. }), "{error}");
        // An object of another version must not take over a gateway of this version.
        let magic = [abi::EQUIC_ABI_MAGIC.to_ne_bytes(), abi::EQUIC_ABI_VERSION.to_ne_bytes()];
        let magic = magic.concat();
        patch_control(&fs.dir(), 0, &magic);
        let mut bytes = equic_gateway::embedded_object().to_vec();
        let at = bytes.windows(8).position(|window| window == magic).expect("control is in it");
        bytes[at + 4] = 99;
        let source = ObjectSource::Bytes(bytes);
        let error = Gateway::load_pinned(&config, &source, fs.dir(), LoadOptions::default());
        assert!(matches!(error, Err(Error::AbiVersion { found: 99, .. })));
        // A gateway of any version must be detachable.
        patch_control(&fs.dir(), 4, &99u32.to_ne_bytes());
        let off = remove_pinned(fs.dir()).unwrap();
        assert_eq!(off[0].name.as_deref(), Some("veth0"));
        assert!(program_on("veth0").is_none() && !fs.dir().exists());
    });
}

/// During an upgrade, gateways of both releases run. A search must return the gateway that this
/// release can use, and report the other one.
#[test]
fn pinned_gateway_of_another_release_hides_no_other() {
    in_namespace(|| {
        let fs = BpfFs::mount();
        let (old, new) = (config("old"), config("new"));
        let program = left_behind(&old, &fs.dir());
        patch_control(&fs.dir(), 4, &99u32.to_ne_bytes());
        let gateway = Gateway::load(&new, ObjectSource::Embedded).unwrap();
        gateway.attach("veth1", Mode::Generic).unwrap();
        let is_new = |found: &RunningGateway| found.program_id == gateway.program_id();
        let found = Control::find().unwrap();
        assert!(found.iter().any(is_new) && found.iter().all(|one| one.program_id != program));
        let survey = Control::survey().unwrap();
        assert!(survey.gateways.iter().any(is_new));
        let other = survey.others.iter().find(|one| one.program_id == program);
        let other = other.expect("it is named");
        assert_eq!((other.version, other.interfaces[0].name.as_deref()), (99, Some("veth0")));
        assert!(other.describe().contains("on veth0 is a gateway of another release"), "{other:?}");
        remove_pinned(fs.dir()).unwrap();
    });
}

#[test]
fn pinned_folder_errors_tell_damage_from_foreign_files() {
    in_namespace(|| {
        let plain = tempfile::tempdir().unwrap();
        let config = config("damage");
        let error = load(&config, &plain.path().join("gateway")).unwrap_err().to_string();
        assert!(error.contains("mount -t bpf -o mode=0700 bpf"), "{error}");
        assert!(plain.path().read_dir().unwrap().next().is_none(), "nothing was made");

        let fs = BpfFs::mount();
        let says = |what: &str| {
            let error = load(&config, &fs.dir()).unwrap_err();
            assert!(matches!(error, Error::Pin { .. }), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        };
        std::fs::create_dir_all(fs.dir().join("theirs")).unwrap();
        says("which does not belong to a gateway");
        assert!(fs.dir().join("theirs").exists());
        std::fs::remove_dir(fs.dir().join("theirs")).unwrap();

        let program = left_behind(&config, &fs.dir());
        // Missing pins must be created again.
        std::fs::remove_file(fs.dir().join("program")).unwrap();
        std::fs::remove_file(fs.dir().join("maps/sources")).unwrap();
        let (gateway, taken) = load(&config, &fs.dir()).unwrap();
        assert_eq!((taken.unwrap().program_before, gateway.program_id()), (program, program));
        assert!(fs.dir().join("program").exists() && fs.dir().join("maps/sources").exists());
        drop(gateway);
        // A map is pinned at the path of a link.
        let stranger = fs.dir().join("links/77");
        std::fs::rename(fs.dir().join("maps/sources"), &stranger).unwrap();
        says("is not an XDP link");
        assert_eq!(program_on("veth0"), Some(program));
        std::fs::remove_file(&stranger).unwrap();
        // The takeover is tried in another namespace, where the link's index may belong to another
        // interface.
        let (there, dir) = (config.clone(), fs.dir());
        let elsewhere = std::thread::spawn(move || {
            // SAFETY: the call moves only this thread into a new namespace.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            load(&there, &dir).map(drop).unwrap_err().to_string()
        });
        let said = elsewhere.join().unwrap();
        assert!(said.contains("another network namespace"), "{said}");
        // Deleting the interface also detaches the link.
        ip(&["link", "del", "veth0"]);
        ip(&["link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]);
        let (gateway, taken) = load(&config, &fs.dir()).unwrap();
        assert!(taken.is_some() && gateway.attached().is_empty());
        assert_eq!(fs.dir().join("links").read_dir().unwrap().count(), 0);
        drop(gateway);
        // The pins are only partly removed, and nothing is attached. So a new gateway must be
        // loaded.
        std::fs::remove_file(fs.dir().join("program")).unwrap();
        let (gateway, taken) = load(&config, &fs.dir()).unwrap();
        assert!(taken.is_none());
        gateway.attach("veth0", Mode::Native).unwrap();
        remove_pinned(fs.dir()).unwrap();
        let gone = remove_pinned(fs.dir()).unwrap_err().to_string();
        assert!(gone.contains("nothing is pinned in this directory"), "{gone}");
    });
}

/// Entry point of the child processes that other tests start. In a normal test run, it does
/// nothing.
#[test]
fn child() {
    let Some((role, name)) = support::role() else { return };
    if resets::child(&role, &name) {
        return;
    }
    assert_eq!(role, "pinned");
    let (name, dir) = name.split_once('@').unwrap();
    let mut config = config("child");
    config.gateway.name = name.to_owned();
    let (gateway, _) = load(&config, Path::new(dir)).unwrap();
    gateway.attach("veth0", Mode::Native).unwrap();
    gateway.test_run(&Initial::from(A).next(), None).unwrap();
    println!("READY");
    let owner = support::await_some("somebody takes over", || gateway.taken_over());
    println!("LEFT to {}", owner.pid);
}
