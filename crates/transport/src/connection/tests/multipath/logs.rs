//! Logs of a connection with several paths.

use serde_json::Value;

use super::super::qlog::{Shared, events, log, named};
use super::*;

/// Returns the data of the events with this name on a path.
fn on<'a>(events: &'a [Value], path: &str, name: &str) -> Vec<&'a Value> {
    let name = format!("quic:{name}");
    // The first path has no name.
    let tuple = if path == "0" { Value::Null } else { path.into() };
    let of =
        events.iter().filter(|event| event["name"] == name.as_str() && event["tuple"] == tuple);
    of.map(|event| &event["data"]).collect()
}

fn has_frame(packets: &[&Value], kind: &str) -> bool {
    let frames = packets.iter().filter_map(|packet| packet["frames"].as_array()).flatten();
    frames.into_iter().any(|frame| frame["frame_type"] == kind)
}

/// The log has a tuple with its own metrics for each path, from the beginning of the path to its
/// end. It reports no migration.
#[test]
fn multipath_qlog_has_each_path() {
    let mut pair = Pair::new(1, &[link(10), link(30)]);
    let (json, text) = (Shared::default(), Shared::default());
    log(&mut pair.client, json.clone(), text);
    pair.connect();
    pair.open(1);
    pair.exchange(200_000, |_, _| {});
    let now = pair.now;
    pair.client.close_path(now, PathId::ZERO, TransportErrorCode::NO_ERROR).unwrap();
    pair.exchange(20_000, |_, _| {});
    pair.wait(Duration::from_secs(5));
    let events = events(&json);
    for (path, address) in [("0", None), ("1", local(1))] {
        let told = on(&events, path, "tuple_assigned");
        let ip = told[0]["tuple_local"]["ip_v4"].as_str().map(|ip| ip.parse().unwrap());
        assert_eq!(ip, address, "{told:?}");
        assert_eq!(
            told.len(),
            if path == "0" { 2 } else { 1 },
            "the end of the path is not logged: {told:?}"
        );
        let metrics = on(&events, path, "recovery_metrics_updated");
        let least = metrics.iter().rev().find_map(|one| one["min_rtt"].as_f64()).unwrap();
        let range = if path == "0" { 20.0..25.0 } else { 60.0..65.0 };
        assert!(range.contains(&least), "{least}");
        let (sent, received) =
            (on(&events, path, "packet_sent"), on(&events, path, "packet_received"));
        assert!(
            sent.len() > 20 && received.len() > 20,
            "{path}: {} {}",
            sent.len(),
            received.len()
        );
        assert!(has_frame(&sent, "path_ack") && has_frame(&received, "path_ack"));
    }
    assert!(has_frame(&on(&events, "1", "packet_sent"), "path_challenge"));
    assert!(has_frame(&on(&events, "1", "packet_sent"), "path_abandon"));
    assert!(has_frame(&on(&events, "1", "packet_received"), "path_abandon"));
    let states = named(&events, "migration_state_updated");
    let states: Vec<&str> = states.iter().map(|one| one["new"].as_str().unwrap()).collect();
    assert_eq!(states, ["probing_started", "probing_successful"]);
}
