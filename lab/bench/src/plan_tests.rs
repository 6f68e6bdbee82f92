use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

pub(crate) fn options() -> Options {
    Options {
        workloads: vec![Workload::Download, Workload::Idle],
        paths: vec!["loopback".to_owned(), "veth".to_owned()],
        sweeps: vec!["rcvbuf=1k,2k".to_owned()],
        protocol: None,
        same: false,
        size: Size::quick(),
        rounds: 3,
        warmup: true,
        seed: 1,
        server_cpus: vec![0],
        client_cpus: vec![1],
        attempts: 3,
        bounds: Bounds { steal: 0.05, foreign: 0.1 },
        extras: Extras::default(),
        certificates: None,
        registry: None,
        built: "built".into(),
    }
}

fn one(name: &str, program: &Path) -> Implementation {
    Implementation {
        name: name.to_owned(),
        command: vec![program.to_string_lossy().into_owned()],
        speaks: vec!["perf".to_owned()],
        ..Implementation::default()
    }
}

fn places() -> Places {
    Places { dir: "/".into(), built: "/".into(), equic: "/".into() }
}

fn plan(options: &Options, program: &Path) -> Result<RunPlan, BenchError> {
    let both = [one("a", program), one("b", program)];
    RunPlan::new(options.clone(), &both, &places())
}

#[test]
fn plan_has_every_cell_in_every_round_in_another_order() {
    let plan = |options| plan(&options, Path::new("/bin/sh")).unwrap();
    let first = plan(options());
    // There are 4 pairs and 2 sweep points. `download` runs on two paths, and `idle` only on one.
    assert_eq!((first.cells.keys.len(), first.cells.order.len(), first.len()), (24, 4, 96));
    let cells: BTreeSet<&Key> = first.cells.keys.iter().collect();
    assert_eq!(cells.len(), 24);
    for round in -1..3 {
        let of: BTreeSet<&Key> =
            first.turns().filter(|turn| turn.round == round).map(|turn| turn.key).collect();
        assert_eq!(of, cells, "{round}");
    }
    let sequences: Vec<u64> = first.turns().map(|turn| turn.sequence).collect();
    assert_eq!(sequences, (0..96).collect::<Vec<_>>());
    assert_ne!(first.cells.order[0], first.cells.order[1]);
    assert_eq!(plan(options()), first);
    assert_ne!(plan(Options { seed: 2, ..options() }).cells.order, first.cells.order);
    assert_eq!(first.extra_turns().count(), 0);
    let extras = Extras { qlog: true, ..Extras::default() };
    let extra = plan(Options { extras, ..options() });
    let sequences: Vec<u64> = extra.extra_turns().map(|turn| turn.sequence).collect();
    assert_eq!(sequences, (96..120).collect::<Vec<_>>());
    assert!(extra.extra_turns().all(|turn| turn.round == -1));
    // Sampling needs separate attempts, because the samples would otherwise include the work of
    // writing the other files.
    let extras = Extras { keylog: true, flamegraph: true, ..Extras::default() };
    let extra = plan(Options { extras, ..options() });
    let purposes: Vec<Purpose> = extra.extra_turns().map(|turn| turn.purpose).collect();
    assert_eq!(purposes, [[Purpose::Files; 24], [Purpose::Profile; 24]].concat());
    assert_eq!(extra.extra_turns().last().unwrap().sequence, 143);
    let extras = Extras { pcap: Some(128), ..extras };
    assert!(extras.of(Purpose::Profile).pcap.is_none());
    assert!(extra.turns().all(|turn| extras.of(turn.purpose) == Extras::default()));
    assert!(!extras.of(Purpose::Files).samples() && !extras.of(Purpose::Profile).keylog);
    let cold = plan(Options { warmup: false, ..options() });
    assert_eq!((cold.len(), cold.turns().next().unwrap().round), (72, 0));
}

#[test]
fn plan_difference_names_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::write(&program, "one").unwrap();
    // Only a file with execute permission is a program.
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let then = plan(&options(), &program).unwrap();
    then.write(folder.path()).unwrap();
    let read = RunPlan::read(folder.path()).unwrap();
    assert_eq!(read, then);
    assert_eq!(read.difference(&plan(&options(), &program).unwrap()), None);
    std::fs::write(&program, "two").unwrap();
    let now = plan(&options(), &program).unwrap();
    assert_eq!(read.difference(&now).unwrap(), "the program of a has changed");
    std::fs::write(&program, "one").unwrap();
    let mut now = plan(&options(), &program).unwrap();
    now.implementations[1].implementation.solo = true;
    assert_eq!(
        read.difference(&now).unwrap(),
        "the entry of b in the list of implementations has changed"
    );
    let mut now = plan(&options(), &program).unwrap();
    now.cells.order[0].swap(0, 1);
    assert!(read.difference(&now).unwrap().contains("another order"));
}

#[test]
fn plan_errors_name_the_invalid_option() {
    let said = |change: fn(&mut Options)| {
        let mut options = options();
        change(&mut options);
        plan(&options, Path::new("/bin/sh")).unwrap_err().to_string()
    };
    let none = said(|options| options.workloads = vec![Workload::Requests]);
    assert!(none.contains("no two of a, b share a protocol of requests"), "{none}");
    assert!(said(|options| options.paths.push("moon".to_owned())).contains("moon"));
    assert!(said(|options| options.paths.push("veth".to_owned())).contains("twice"));
    assert!(said(|options| options.sweeps.push("x=1".to_owned())).contains("x=1"));
    let missing = RunPlan::read(Path::new("/nowhere")).unwrap_err().to_string();
    assert!(missing.contains("plan.json"), "{missing}");
}

#[test]
fn plan_digest_is_sha_256() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "abc").unwrap();
    // This is the SHA-256 example of FIPS 180-4.
    let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(sha256(&file).unwrap(), known);
    assert!(sha256(&folder.path().join("none")).is_err());
}
