//! Tests of `equic-lab reproduce plugins`: a small run, its stored result, and plots that are drawn
//! again from the stored result.

use std::path::Path;
use std::process::Command;

use crate::common::{EQUIC_LAB, Out, finish, root};

fn plugins(out: &Path, args: &[&str]) -> Out {
    let mut command = Command::new(EQUIC_LAB);
    command.args(["reproduce", "plugins", "--out"]).arg(out).args(args);
    finish(command)
}

#[test]
fn reproduce_plugins_plays_stores_and_draws_again() {
    let folder = tempfile::tempdir().unwrap();
    let readme = folder.path().join("README.md");
    std::fs::write(&readme, "kept\n<!-- results: begin -->\n<!-- results: end -->\n").unwrap();
    let out = folder.path().join("out");
    let into = ["--quick", "--json", "--readme", readme.to_str().unwrap()];
    let report = plugins(&out, &into).json();
    assert_eq!(report["schema"], "equic.reproduce.plugins/1");
    let data = &report["data"];
    // Without jitter, a request takes the time of the timer and a round trip. The normal timer is
    // at least 50 ms. With tail loss probes, it is 1.5 round trips and the maximum ACK delay (WDT).
    let first = &data["figure3"][0];
    assert_eq!((&first["jitter_ms"], &first["ack_delay_ms"]), (&0.into(), &10.into()));
    for (arm, timer, expected) in [(0, "picoquic", 60.0), (1, "picoquic-probe", 35.0)] {
        let arm = &first["arms"][arm];
        assert_eq!(arm["timer"], timer);
        let times = arm["completion_ms"].as_array().unwrap();
        assert!(!times.is_empty());
        for time in times {
            let time = time.as_f64().unwrap();
            assert!((time - expected).abs() < 1.5, "{timer}: {time}");
        }
    }
    // With ECN marks, no packets may be lost because of a full queue.
    for one in data["figure4"].as_array().unwrap() {
        let lost = |arm: usize| one["arms"][arm]["lost"][0].as_u64().unwrap();
        assert!(lost(1) <= lost(0) && lost(2) <= lost(0), "{one}");
    }
    let sent = |one: &serde_json::Value, arm: &str| one[arm]["sent"][0][1].as_u64().unwrap();
    let first = &data["figure5"][0];
    // In the variant `first`, a plugin sends all acknowledgements on the first path. Only the few
    // datagrams that open and validate the second path use that path.
    assert!(4 * sent(first, "first") < sent(first, "same"), "{first}");
    let rates = data["figure6"]["rates"].as_array().unwrap();
    // Take the average over half a second, because a tenth of a second has only three or four
    // packets.
    let last = &rates[rates.len() - 5..];
    let mean = last.iter().map(|rate| rate[1].as_f64().unwrap()).sum::<f64>() / 5.0;
    assert!(
        (20_000.0..55_000.0).contains(&mean),
        "the last cap is 50,000 bytes a second: {last:?}"
    );
    let sizes = data["table2"].as_array().unwrap();
    assert!(sizes.iter().all(|one| one["object"].as_u64() > Some(500)), "{sizes:?}");
    let costs = &data["costs"];
    for (arms, count) in [("schedulers", 4), ("extensions", 6)] {
        let arms = costs[arms].as_array().unwrap();
        assert_eq!(arms.len(), count);
        assert!(arms.iter().all(|arm| arm["seconds"].as_array().unwrap().len() == 2), "{costs}");
    }
    assert!(costs["loading"][0]["again_us"][0].as_f64() > Some(0.0), "{costs}");
    assert!(data["real_time"].is_null(), "only if it is asked for");
    let text = std::fs::read_to_string(&readme).unwrap();
    for words in
        ["kept\n", "This is the small version of the experiment", "Table 2", "(figure3-wdt10.svg)"]
    {
        assert!(text.contains(words), "{words} is missing in {text}");
    }
    // Evaluating the stored result must give the same output.
    let stored = out.join("result.json");
    let again = folder.path().join("again");
    let shown = plugins(&again, &["--markdown", "--plot-only", stored.to_str().unwrap()]).ok();
    assert!(text.contains(shown.trim_end()), "{text}\n{shown}");
    let plot = |folder: &Path| std::fs::read(folder.join("figure3-wdt10.svg")).unwrap();
    assert_eq!(plot(&out), plot(&again));
}

/// Checks only bounds that hold on any machine, because timers, links and rate caps enforce them.
#[test]
fn reproduce_plugins_plays_points_in_real_time() {
    if !root("reproduce_plugins_plays_points_in_real_time") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let part = ["--quick", "--part", "real-time,figure6", "--json"];
    let data = plugins(folder.path(), &part).json()["data"].clone();
    let points = &data["real_time"];
    let arms = points["figure3"]["arms"].as_array().unwrap();
    for (timer, least) in [("picoquic", 60.0), ("picoquic-probe", 35.0), ("tail-loss-probe", 35.0)]
    {
        let arm = arms.iter().find(|arm| arm["timer"] == timer).unwrap();
        let times = arm["completion_ms"].as_array().unwrap();
        assert_eq!(times.len(), 2);
        assert!(times.iter().all(|time| time.as_f64() >= Some(least)), "{arm}");
    }
    let time = |arm: &serde_json::Value| arm["completion_s"][0].as_f64().unwrap();
    // At 4 Mb/s, 300 KB take at least this time.
    assert!(
        points["figure4"]["arms"].as_array().unwrap().iter().all(|arm| time(arm) > 0.6),
        "{points}"
    );
    let sent = |arm: &str, path: usize| points["figure5"][arm]["sent"][0][path].as_u64().unwrap();
    assert!(sent("first", 1) < sent("same", 1), "{points}");
    // The last rate cap is 50,000 bytes per second and lasts one second. The rate needs some of
    // that time to fall, because the previous cap is ten times as high.
    let rates = points["figure6"]["rates"].as_array().unwrap();
    let last: f64 = rates.iter().rev().take(3).map(|rate| rate[1].as_f64().unwrap()).sum();
    assert!(last / 3.0 < 150_000.0, "{rates:?}");
    let shown = plugins(folder.path(), &["--markdown", "--plot-only", &stored(folder.path())]).ok();
    assert!(shown.contains("In real time, Figure 6"), "{shown}");
    assert!(shown.contains("| 6 | capped to 0.05 MB/s | 0.05 MB/s |"), "{shown}");
}

fn stored(folder: &Path) -> String {
    folder.join("result.json").to_str().unwrap().to_owned()
}

#[test]
fn reproduce_plugins_gives_the_same_part_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let out = folder.path().join(name);
        let part = ["--quick", "--part", "table2,figure6", "--json"];
        plugins(&out, &part).json()["data"].clone()
    };
    let first = run("first");
    assert_eq!(first, run("second"));
    assert_eq!(first["figure3"], serde_json::json!([]));
    // The other parts of the stored result must not change.
    let stored = folder.path().join("first/result.json");
    let out = folder.path().join("third");
    let more = ["--part", "figure5", "--json", "--keep", stored.to_str().unwrap()];
    let both = plugins(&out, &[&["--quick"], &more[..]].concat()).json()["data"].clone();
    assert_eq!((&both["figure6"], &both["table2"]), (&first["figure6"], &first["table2"]));
    assert_eq!(both["figure5"].as_array().unwrap().len(), 2);
    let other = plugins(&out, &more);
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.stderr.contains("another size of the experiment"), "{other:?}");
    let wrong = plugins(folder.path(), &["--part", "figure9"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}
