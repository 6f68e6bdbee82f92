//! Tests of `equic-lab bench run` with failures outside the measured programs: a full disk, and a
//! machine that does not answer. Also tests implementations in containers, with a script in place
//! of docker.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{EQUIC_LAB, ROOT, eventually, finish, finish_within, root};
use crate::scene::{Scene, liar};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};

/// A disk of 80 MB. It is unmounted when the value is dropped.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn new(path: &'a Path) -> Disk<'a> {
        std::fs::create_dir(path).unwrap();
        let options = Some("size=80m");
        mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), options).unwrap();
        Disk(path)
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        let block = vec![7; 4096];
        while file.write_all(&block).is_ok() {}
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn disk_that_is_full_ends_a_run_that_can_continue_later() {
    if !root("disk_that_is_full_ends_a_run_that_can_continue_later") {
        return;
    }
    let scene = Scene::new(&json!({ "honest": liar("honest") }));
    let out = scene.out();
    let disk = Disk::new(&out);
    // The disk has only a few megabytes more than a run requires, so it fills up during the run.
    let mut command = scene.bench(&["--runs", "60", "--no-warmup", "--path", "veth"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let runner = child.id();
    eventually("samples", || (scene.samples().len() >= 2).then_some(()));
    disk.fill();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write") && said.contains("No space left"), "{said}");
    assert!(said.contains("--resume"), "{said}");
    let before = scene.samples();
    assert!(before.len() < 60, "it was over before the disk was full");
    for role in ["server", "client"] {
        let file = out.join(format!("certificates/usual/{role}.pid"));
        // If the disk was full when the file was written, the file is incomplete.
        let Ok(pid) = std::fs::read_to_string(file).unwrap().trim().parse::<u32>() else {
            continue;
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!stat.contains("liar.sh"), "{stat}");
    }
    let ours = |lab: &equic_netns::LabRecord| lab.pid == runner;
    assert!(!equic_netns::Lab::list().unwrap().iter().any(ours), "a lab is left behind");

    let resume = || {
        let mut command = Command::new(EQUIC_LAB);
        command.args(["bench", "run", "--resume"]).arg(&out).current_dir(ROOT);
        finish_within(command, Duration::from_secs(120))
    };
    let full = resume();
    assert!(full.code == Some(1) && full.stderr.contains("0 MB free"), "{full:?}");
    assert_eq!(scene.samples(), before);
    std::fs::remove_file(out.join("filler")).unwrap();
    resume().ok();
    let after = scene.samples();
    assert_eq!(after[..before.len()], before[..]);
    let sequences: Vec<u64> = after.iter().map(|one| one["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, (0..60).collect::<Vec<_>>());
}

#[test]
fn machine_that_does_not_answer_is_reported_before_anything_runs() {
    let scene = Scene::new(&json!({ "honest": liar("honest") }));
    let bed = scene.path().join("bed.toml");
    let machine = |name: &str, ssh: &str| {
        format!("[{name}]\nssh = {ssh}\naddress = \"192.0.2.1\"\nfolder = \"/x\"\ncpus = [0]\n")
    };
    let test = format!("testbed:{}", bed.display());
    // An ssh that ends after a greeting, one that does not exist, and one that prints nothing.
    for (ssh, why) in [
        (r#"["sh", "-c", "echo Welcome; exit 255"]"#, "the agent on the machine does not answer"),
        (r#"["/nowhere/ssh"]"#, "/nowhere/ssh: "),
        (
            r#"["sh", "-c", "exec sleep 100"]"#,
            "the agent on the machine did not answer within 30 s",
        ),
    ] {
        std::fs::write(&bed, machine("server", ssh) + &machine("client", ssh)).unwrap();
        let out = finish_within(scene.bench(&["--path", &test]), Duration::from_secs(120));
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.stderr.contains(&format!("the testbed's server: {why}")), "{out:?}");
        assert!(!scene.out().join("samples.jsonl").exists());
        std::fs::remove_dir_all(scene.out()).unwrap();
    }
}

/// Imitates docker without containers. Writes the arguments of each call to a separate file.
const DOCKER: &str = r#"
here=$(dirname "$0")
printf '%s\n' "$@" >"$here/$1.$$"
case $1 in
info) exit 0 ;;
rm)
	[ ! -e "$here/$3.pid" ] || kill -KILL "$(cat "$here/$3.pid")" 2>/dev/null
	exit 1
	;;
esac
while [ $# -gt 0 ]; do
	case $1 in
	--env) export "$2" ;;
	--add-host=*) address=${1#--add-host=server:} ;;
	--name=*) echo $$ >"$here/${1#--name=}.pid" ;;
	--mount)
		source=${2#*source=} source=${source%%,*}
		case $2 in
		*target=/www) export WWW=$source ;;
		*target=/downloads) export DOWNLOADS=$source ;;
		*target=/certs) export CERTS=$source ;;
		*target=/logs) export LOGS=$source ;;
		esac
		;;
	esac
	image=$1
	shift
done
export REQUESTS=${REQUESTS//server:/$address:}
[ "$image$ROLE" = hangs:latestclient ] && exec sleep 100
"#;

#[test]
fn docker_runs_images() {
    let scene = Scene::new(&json!({
        "image": { "image": "quic/image:latest", "solo": true },
        "hangs": { "image": "hangs:latest", "solo": true },
    }));
    scene.script("bin/docker", &format!("{DOCKER}exec {EQUIC_LAB} interop-endpoint\n"));
    let bin = scene.path().join("bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let run = |args: &[&str]| {
        let usual = ["--workload", "transfer", "--runs", "1", "--no-warmup", "--grace", "3"];
        let mut command = scene.bench(&[&usual, args].concat());
        command.env("PATH", &path);
        finish_within(command, Duration::from_secs(120))
    };
    run(&["--path", "loopback", "--path", "relay:delay=15ms"]).ok();
    let samples = scene.samples();
    let of = |name: &str, path: &str| {
        let is = |one: &&Value| one["client"] == name && one["path"] == path;
        samples.iter().find(is).unwrap_or_else(|| panic!("{samples:#?}"))
    };
    for path in ["loopback", "relay-delay=15ms"] {
        let image = of("image", path);
        assert_eq!((&image["outcome"], &image["bytes"]), (&json!("measured"), &json!(3001)));
        assert_eq!(of("hangs", path)["failure"], "stalled");
    }
    // The transfer takes at least two round trips of 30 ms.
    assert!(of("image", "relay-delay=15ms")["seconds"].as_f64().unwrap() >= 0.06);
    let mut calls: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for file in std::fs::read_dir(&bin).unwrap().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some((what, number)) = name.split_once('.') else { continue };
        if number.parse::<u32>().is_ok() {
            let text = std::fs::read_to_string(file.path()).unwrap();
            calls
                .entry(what.to_owned())
                .or_default()
                .push(text.lines().map(str::to_owned).collect());
        }
    }
    // Two cells on two paths: each must start two containers and remove both.
    let counts: Vec<(&str, usize)> = calls.iter().map(|(what, all)| (&**what, all.len())).collect();
    assert_eq!(counts, [("info", 1), ("rm", 8), ("run", 8)]);
    for words in &calls["run"] {
        let has = |word: &str| words.iter().any(|one| one == word);
        for word in ["--rm", "--init", "--network=host", "--add-host=server:127.0.0.1"] {
            assert!(has(word), "{word}: {words:?}");
        }
        assert!(has("TESTCASE=transfer") && (has("ROLE=server") || has("ROLE=client")));
        for target in ["/www", "/downloads", "/certs", "/logs"] {
            let end = format!(",target={target}");
            assert!(
                words
                    .iter()
                    .any(|word| word.starts_with("type=bind,source=/") && word.ends_with(&end))
            );
        }
        // Inside the container, these paths are fixed, so they must not be passed.
        assert!(!words.iter().any(|word| word.starts_with("WWW=") || word.starts_with("CERTS=")));
        assert!(words.last().unwrap().ends_with(":latest"));
    }
    // No process may keep running. A container does not end together with `docker run`, so it must
    // be removed.
    for role in ["server", "client"] {
        let name =
            calls["run"].iter().flatten().find(|w| w.ends_with(&format!("-{role}"))).unwrap();
        let name = name.strip_prefix("--name=").unwrap();
        let pid = std::fs::read_to_string(bin.join(format!("{name}.pid"))).unwrap();
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }

    std::fs::remove_dir_all(scene.out()).unwrap();
    if root("docker_runs_images, with namespaces") {
        let out = run(&["--path", "veth"]);
        assert!(
            out.code == Some(1)
                && out.stdout.contains("cannot use the network namespaces of this program"),
            "{out:?}"
        );
        std::fs::remove_dir_all(scene.out()).unwrap();
    }
    scene.script("bin/docker", "echo 'Cannot connect to the daemon' >&2\nexit 1\n");
    let out = run(&["--path", "loopback"]);
    assert!(out.stderr.contains("docker does not work: Cannot connect to the daemon"), "{out:?}");
}

#[test]
fn disk_that_is_too_small_is_reported_before_anything_runs() {
    if !root("disk_that_is_too_small_is_reported_before_anything_runs") {
        return;
    }
    let scene = Scene::new(&json!({ "honest": liar("honest") }));
    let out = scene.out();
    let disk = Disk::new(&out);
    disk.fill();
    let out = finish(scene.bench(&["--path", "loopback"]));
    assert!(out.code == Some(1) && out.stderr.contains("0 MB free"), "{out:?}");
    assert!(!scene.out().join("samples.jsonl").exists());
}
