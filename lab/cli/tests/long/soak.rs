//! Runs a short soak test. Every kind of disturbance must happen at least once, and none may leave
//! anything behind.

use crate::common::{EQUIC_LAB, root};
use serde_json::Value;
use std::process::{Command, Stdio};

/// Duration that is long enough for every kind of disturbance. The flood rate is the same as in a
/// run of ten minutes.
const DURATION: &str = "30s";

#[test]
fn soak_of_a_short_time_finds_nothing() {
    if !root("soak_of_a_short_time_finds_nothing") {
        return;
    }
    let _alone = crate::alone();
    let mut command = Command::new(EQUIC_LAB);
    // Use fewer sources than by default, because the test machine has other work to do.
    command.args(["soak", "--json", "--duration", DURATION, "--sources", "100000"]);
    let output = command.stdin(Stdio::null()).output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let soak: Value = serde_json::from_str(&said).unwrap_or_else(|error| {
        panic!("{error}: {said}{}", String::from_utf8_lossy(&output.stderr))
    });
    assert_eq!(soak["schema"], "equic.lab.soak/1");
    let failed: Vec<&Value> =
        soak["checks"].as_array().unwrap().iter().filter(|check| check["passed"] != true).collect();
    assert!(failed.is_empty() && output.status.success(), "{failed:#?}");
    for (what, times) in soak["churn"].as_object().unwrap() {
        assert!(times.as_u64() > Some(0), "never: {what}");
    }
    assert!(soak["requests"].as_u64() > Some(100), "{}", soak["requests"]);
    assert!(soak["tallies"]["sources_evicted"].as_u64() > Some(0), "{}", soak["tallies"]);
}

#[test]
fn soak_refuses_a_duration_that_is_too_short() {
    let output = Command::new(EQUIC_LAB).args(["soak", "--duration", "1s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
