//! Tests of bans. A source that continues to send although it is refused must be banned, but only
//! if its address is validated.

use std::time::Duration;

use serde_json::Value;

use crate::common::{Running, equic_lab_in, eventually};
use crate::stage::{Peer, TestStage};

fn config(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let head = "[gateway]\ninterfaces = [\"eth0\"]\n";
    std::fs::write(file.path(), format!("{head}{text}")).expect("it can be written");
    file
}

fn start(stage: &TestStage, file: &tempfile::NamedTempFile) -> Running {
    stage.gateway_with(&["--config", file.path().to_str().expect("a path")]).0
}

fn bans(stage: &TestStage) -> Vec<Value> {
    let lists = stage.equic(&["lists", "--json"]).json();
    let entries = lists["entries"].as_array().expect("entries").iter();
    entries.filter(|entry| entry["origin"] == "ban").cloned().collect()
}

/// Makes connection attempts that the gateway refuses, until it bans the source.
fn provoke(stage: &TestStage, peer: &Peer<'_>) -> Value {
    eventually("the source is banned", || {
        let _ = peer.attempt_at(443, Duration::from_millis(300));
        bans(stage).into_iter().next()
    })
}

#[test]
fn ban_lasts_longer_each_time() {
    let Some(stage) = TestStage::new("ban", 2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("bans.json");
    let file = config(&format!(
        "[ban]\ntimes = 3\nwithin = \"1m\"\nfor = \"1s\"\ngrowth = 100\nmax = \"1h\"\n\
         state = {state:?}\n[[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 1\n"
    ));
    let gateway = start(&stage, &file);
    let server = stage.serve(&[]);
    let (host, other) = (stage.host(0), stage.host(1));
    let peer = host.peer(host.v4());
    let link = peer.connect();
    stage.await_connections(host.v4(), 1);
    provoke(&stage, &peer);
    let ban = gateway.event("ban");
    assert_eq!((&ban["prefix"], &ban["count"]), (&format!("{}/32", host.v4()).into(), &1.into()));
    assert_eq!(gateway.event("unban")["why"], "over");
    // The source continues at once, so its next ban must be a hundred times as long.
    let listed = provoke(&stage, &peer);
    assert_eq!(listed["bans"], 2, "{listed}");
    assert!((90..=100).contains(&listed["expires_in"]["secs"].as_u64().unwrap()), "{listed}");
    let text = stage.equic(&["lists"]).ok();
    assert!(text.contains("ban 2"), "{text}");
    // All packets of the banned source must be dropped, but none of other sources.
    assert!(!link.answers());
    other.peer(other.v4()).connect().fetch(10_000);
    assert_eq!(bans(&stage).len(), 1);
    let status = stage.status();
    let totals = &status["report"]["bans"];
    assert_eq!((&totals["active"], &totals["imposed"]), (&1.into(), &2.into()), "{status}");
    assert!(stage.equic(&["status"]).ok().contains("bans: 1 in force, 2 imposed"));

    // The next gateway process must continue the ban.
    assert!(gateway.terminate().success());
    drop(server);
    let gateway = start(&stage, &file);
    let again = bans(&stage);
    assert_eq!((again.len(), &again[0]["bans"]), (1, &2.into()), "{again:?}");
    // An operator removes the entry, which must end the ban.
    stage.equic(&["forget", &host.v4().to_string()]).ok();
    assert_eq!(gateway.event("unban")["why"], "forgotten by an operator");
    assert_eq!(bans(&stage), Vec::<Value>::new());
    let _server = stage.serve(&[]);
    let link = host.peer(host.v4()).connect();
    stage.await_connections(host.v4(), 1);
    let listed = provoke(&stage, &peer);
    assert_eq!(listed["bans"], 1, "it began anew: {listed}");
    assert_eq!(gateway.event("unban")["why"], "over");
    assert_eq!(provoke(&stage, &peer)["bans"], 2);
    // Allowing a shorter prefix that contains the source must also end the ban.
    stage.equic(&["allow", "10.77.0.0/16"]).ok();
    assert_eq!(gateway.event("unban")["why"], "allowed by an operator");
    eventually("it is let in again", || link.answers().then_some(()));
}

/// Sends enough Initial packets with another host's address to cause a ban. Nothing
/// may be banned, because forged packets do not validate an address.
#[test]
fn ban_is_not_caused_by_forged_packets() {
    let Some(stage) = TestStage::new("ban-forged", 2) else { return };
    let file = config(
        "[ban]\ntimes = 50\nreasons = [\"quota\", \"rate_new_source\"]\n\
         [[service]]\nname = \"web\"\nlisten = [\"443\"]\nnew_per_source = \"1/h burst 3\"\n",
    );
    let gateway = start(&stage, &file);
    let _server = stage.serve(&[]);
    let (attacker, victim) = (stage.host(0), stage.host(1));
    let target = stage.target(attacker.v4()).to_string();
    let flood = |rest: &[&str]| {
        let args = ["net", "flood", "initial", "--target", &target, "--packets", "200"];
        let args = [&args[..], &["--duration", "30s"], rest].concat();
        equic_lab_in(&attacker.namespace, &args).ok();
    };
    flood(&["--spoof", &format!("{}/32", victim.v4())]);
    eventually("the forged ones are refused", || {
        (stage.verdict("rate_new_source").dropped >= 190).then_some(())
    });
    // The attacker holds a connection from its own address.
    let _link = attacker.peer(attacker.v4()).connect();
    stage.await_connections(attacker.v4(), 1);
    flood(&[]);
    let ban = gateway.event("ban");
    assert_eq!(ban["prefix"], format!("{}/32", attacker.v4()).as_str());
    assert_eq!(bans(&stage).len(), 1, "only who was proven to be it");
    let totals = stage.status()["report"]["bans"].clone();
    assert_eq!((&totals["active"], &totals["watched"]), (&1.into(), &1.into()), "{totals}");
}

#[test]
fn ban_dry_run_only_reports_bans() {
    let Some(stage) = TestStage::new("ban-dry", 1) else { return };
    let file = config(
        "[ban]\ntimes = 3\ndry_run = true\n\
         [[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 1\n",
    );
    let gateway = start(&stage, &file);
    let _server = stage.serve(&[]);
    let host = stage.host(0);
    let peer = host.peer(host.v4());
    let link = peer.connect();
    stage.await_connections(host.v4(), 1);
    eventually("it would be banned", || {
        let _ = peer.attempt_at(443, Duration::from_millis(300));
        (stage.status()["report"]["bans"]["active"] == 1).then_some(())
    });
    assert_eq!(gateway.event("ban")["dry_run"], true);
    assert_eq!(bans(&stage), Vec::<Value>::new());
    link.fetch(10_000);
}
