//! Tests of flows over two paths, in virtual time. Needs the feature `play`.

use equic_scenario::play::{Part, PathPoint, Series, play, record};
use equic_scenario::{Scenario, ScenarioError};

/// A network with two paths: links of 5 and 10 Mb/s.
const TWO: &str = r#"
    seeds = 2
    [network]
    topology = "two-path"
    links = [{ rate = "5 Mb/s", delay = "10 ms" }, { rate = "10 Mb/s", delay = "25 ms" }]
    [[flow]]
    size = "4 MB"
    quic = { paths = 2 }
    "#;

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the goodput in Mb/s of the completed transfer.
fn goodput(text: &str) -> f64 {
    let run = play(&scenario(text), 1, Part::All).unwrap();
    let flow = &run.flows[0];
    assert_eq!(flow.failure, None, "{text}");
    assert!(flow.completion.is_some(), "{text}");
    flow.goodput / 1e6
}

fn with(quic: &str) -> String {
    TWO.replace("paths = 2", quic)
}

#[test]
fn paths_reach_nearly_the_sum_of_their_rates() {
    let first = goodput(&with("paths = 1"));
    assert!((4.0..5.0).contains(&first), "{first}");
    for quic in ["paths = 2", "paths = 2, scheduler = \"round-robin\""] {
        let both = goodput(&with(quic));
        assert!((11.5..15.0).contains(&both), "{quic}: {both}");
    }
    let coupled = TWO.replace("size", "controller = \"lia\"\nsize");
    let coupled = goodput(&coupled);
    assert!((8.0..15.0).contains(&coupled), "{coupled}");
}

#[test]
fn scheduler_backup_uses_one_path_and_redundant_both() {
    // The scheduler `backup` uses one path at a time, and `redundant` sends all data on both.
    let backup = goodput(&with("paths = 2, scheduler = \"backup\""));
    assert!((4.0..5.0).contains(&backup), "{backup}");
    let redundant = goodput(&with("paths = 2, scheduler = \"redundant\""));
    assert!((4.0..10.0).contains(&redundant), "{redundant}");
}

/// Returns the samples of one link after this time.
fn on(series: &Series, link: u16, after: f64) -> impl Iterator<Item = &PathPoint> {
    series.paths.iter().filter(move |point| point.link == link && point.time > after)
}

#[test]
fn series_has_each_path() {
    let scenario = scenario(TWO);
    let (run, series) = record(&scenario, 1, None).unwrap();
    assert_eq!(run, play(&scenario, 1, Part::All).unwrap(), "recording changes nothing");
    for (link, rtt) in [(1, 0.02), (2, 0.05)] {
        assert!(on(&series, link, 0.5).count() > 10, "link {link}");
        let is_its_own =
            |point: &PathPoint| point.validated && point.rtt >= rtt && point.window > 0;
        assert!(on(&series, link, 0.5).all(is_its_own), "link {link}");
        assert!(on(&series, link, 0.5).any(|point| point.in_flight > 0), "link {link}");
    }
    assert!(on(&series, 1, 0.5).all(|point| point.path == 0));
    // The counters of the ports show how much each link carried.
    let carried = |port: &str| {
        let own = series.ports.iter().filter(|point| point.port == port);
        own.map(|point| point.rate).fold(0.0, f64::max)
    };
    assert!(carried("bottleneck 1, there") > 4e6 && carried("bottleneck 2, there") > 8e6);
    let one = record(&self::scenario(&with("paths = 1")), 1, None).unwrap().1;
    assert!(one.paths.is_empty());
}

#[test]
fn seed_determines_the_run() {
    let lossy = TWO.replace("\"25 ms\"", "\"25 ms\", loss = \"1 %\"");
    let scenario = scenario(&lossy);
    let run = |seed| record(&scenario, seed, None).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0.flows[0].completion, run(2).0.flows[0].completion);
}

#[test]
fn paths_that_fail_are_abandoned() {
    for (link, kept) in [("10 ms", 10.0), ("25 ms", 5.0)] {
        // This loss model drops all packets after a random one, in both directions, so the link is
        // dead from then on.
        let dead = "loss = { to_bad = 0.005, to_good = 0 }";
        let text = TWO.replace(&format!("\"{link}\""), &format!("\"{link}\", {dead}"));
        let scenario = scenario(&text);
        let (run, series) = record(&scenario, 1, None).unwrap();
        let flow = &run.flows[0];
        assert_eq!((flow.failure.as_deref(), flow.bytes), (None, 4_000_000), "{text}");
        assert!(flow.lost > 10, "{flow:?}");
        let rate = flow.goodput / 1e6;
        assert!(rate > 0.6 * kept && rate < 15.0, "{link}: {rate}");
        assert!(!series.paths.is_empty());
    }
    // With a single path over the dead link, the connection must time out.
    let text = with("paths = 1, idle_timeout = \"5 s\"");
    let dead = "\"10 ms\", loss = { to_bad = 0.005, to_good = 0 }";
    let run = play(&scenario(&text.replace("\"10 ms\"", dead)), 1, Part::All).unwrap();
    assert!(run.flows[0].failure.is_some(), "{run:?}");
}

#[test]
fn paths_are_both_used_for_responses() {
    let text = TWO.replace(
        "size = \"4 MB\"",
        "application = \"requests\"\nrequests = { count = 1, response = \"4 MB\" }",
    );
    let scenario = scenario(&text);
    let (run, series) = record(&scenario, 1, None).unwrap();
    let rate = run.flows[0].goodput / 1e6;
    assert!((10.0..15.0).contains(&rate), "{rate}");
    for link in [1, 2] {
        assert!(on(&series, link, 0.5).any(|point| point.in_flight > 0), "the server's, {link}");
    }
}

#[test]
fn paths_reject_invalid_options() {
    let link = "{ rate = \"5 Mb/s\", delay = \"1 ms\" }";
    let simple = format!(
        "[network]\ntopology = \"simple\"\nlink = {link}\n[[flow]]\nsize = \"1 MB\"\nquic = {{ paths = 2 }}"
    );
    let cases = [
        (simple, "`two-path`"),
        (with("paths = 3"), "1 to 2"),
        (with("paths = 1, scheduler = \"backup\""), "paths = 2"),
        (with("paths = 2, scheduler = \"bakup\""), "`backup`"),
        (with("path = 2"), "`paths`"),
        (with("paths = 2, sheduler = \"backup\""), "`scheduler`"),
        (
            TWO.replace("quic = { paths = 2 }", "protocol = \"tcp\"\ncontroller = \"olia\""),
            "TCP has only one path",
        ),
    ];
    for (text, words) in cases {
        match Scenario::parse(&text) {
            Err(ScenarioError::Problems { problems, .. }) => {
                assert!(problems.iter().any(|one| one.message.contains(words)), "{problems:?}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}
