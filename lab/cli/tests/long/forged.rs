//! Runs `equic-lab gateway-bench --forged` with the smallest possible size. Checks its results and
//! files, and that it leaves nothing behind.

use crate::common::{PATIENCE, finish_within, root, unique};
use crate::marked::{assert_ended, marked, number};
use serde_json::Value;

const ARMS: [&str; 8] = [
    "elsewhere",
    "nothing",
    "nftables",
    "nftables_in_all",
    "server_retry",
    "quinn_retry",
    "gateway",
    "gateway_retry",
];

#[test]
fn gateway_bench_measures_every_protection_under_forged_sources() {
    if !root("gateway_bench_measures_every_protection_under_forged_sources") {
        return;
    }
    let _alone = crate::alone();
    let (mark, out) = (unique("bench-forged"), tempfile::tempdir().unwrap());
    let mut command = marked(&mark);
    command.args(["gateway-bench", "--forged", "--rounds", "1", "--seconds", "1"]);
    command.args(["--flood", "10000", "--json", "--out"]).arg(out.path());
    let report = finish_within(command, 10 * PATIENCE).json();
    assert_eq!(report["schema"], "equic.lab.bench.forged/1");
    let written = std::fs::read_to_string(out.path().join("forged.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), report);
    assert!(!out.path().join("flood.json").exists());

    let data = &report["data"];
    let rows = data["rows"].as_array().unwrap();
    let arms: Vec<&str> = rows.iter().map(|row| row["arm"].as_str().unwrap()).collect();
    assert_eq!(arms, ARMS);
    let cells = data["cells"].as_array().unwrap();
    assert_eq!(cells.len(), ARMS.len());
    for cell in cells {
        let arm = cell["arm"].as_str().unwrap();
        let [came, served] = ["newcomers", "newcomers_served"].map(|name| number(&cell[name]));
        assert!(came > 0.0 && served <= came, "{cell}");
        assert!(number(&cell["sent_pps"]) > 0.0, "{cell}");
        let guarded = ["gateway", "gateway_retry", "nftables", "nftables_in_all"].contains(&arm);
        assert_eq!(cell["dropped"].is_u64(), guarded, "{cell}");
        if arm == "elsewhere" {
            assert!(served > 0.0 && number(&cell["established_bytes_per_s"]) > 0.0, "{cell}");
            assert!(number(&cell["server_cpu_percent"]) > 0.0, "{cell}");
        }
        if arm == "gateway_retry" {
            assert!(served > 0.0, "{cell}");
        }
    }
    assert_ended(&mark);
}
