//! Tests that profiles are added line by line.

use std::collections::BTreeMap;

use super::*;
use crate::result::profile::Group;

#[test]
fn profiles_are_appended_and_a_cut_line_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let key = Key {
        workload: "download".to_owned(),
        protocol: "perf".to_owned(),
        path: "veth".to_owned(),
        client: "a".to_owned(),
        server: "b".to_owned(),
        point: BTreeMap::new(),
    };
    let split = Split { crypto: 1, packet_io: 2, protocol: 3, other: 4 };
    assert_eq!(split.total(), 10);
    let groups = Groups::from([(Group::HeaderProtection, 1), (Group::Rest, 9)]);
    let profiled = Profiled {
        key,
        server_split: split,
        client_split: split,
        server_groups: groups,
        client_groups: Groups::new(),
    };
    append(dir.path(), &profiled).unwrap();
    append(dir.path(), &profiled).unwrap();
    let text = fs::read_to_string(dir.path().join(PROFILES)).unwrap();
    let read: Vec<Profiled> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, [profiled.clone(), profiled.clone()]);
    assert!(text.contains(r#""server_groups":{"header_protection":1,"rest":9}"#), "{text}");
    // A full disk leaves an incomplete line.
    let path = dir.path().join(PROFILES);
    fs::write(&path, format!("{text}{{\"workload\":\"do")).unwrap();
    append(dir.path(), &profiled).unwrap();
    let after = fs::read_to_string(&path).unwrap();
    assert_eq!(after, format!("{text}{}\n", text.lines().next().unwrap()));
    assert!(append(&dir.path().join("absent"), &read[0]).is_err());
}
