use super::*;
use std::fs;
use std::time::Duration;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Demo {
    requests: u64,
    p99_seconds: Option<f64>,
}

fn machine() -> Machine {
    Machine {
        kernel: "6.1.0-18-amd64".to_owned(),
        architecture: "x86_64".to_owned(),
        cpu_model: "Example CPU".to_owned(),
        cores: 2,
        memory_bytes: 8_350_000_000,
    }
}

fn report() -> Report<Demo> {
    Report {
        schema: "equic.demo/1".parse().unwrap(),
        created: "2024-05-06T07:08:09Z".parse().unwrap(),
        machine: machine(),
        command: vec!["equic".to_owned(), "demo".to_owned()],
        data: Demo { requests: 12, p99_seconds: None },
    }
}

#[test]
fn schema_names_are_validated() {
    for good in ["equic.demo/1", "equic.bench.run/12", "equic.gateway-status/4294967295"] {
        assert_eq!(good.parse::<SchemaName>().unwrap().to_string(), good);
    }
    for bad in [
        "",
        "demo/1",
        "equic.demo",
        "equic./1",
        "equic.demo/",
        "equic.demo/0",
        "equic.demo/01",
        "equic.demo/+1",
        "equic.Demo/1",
        "equic.demo/1/2",
        "equic.demo/4294967296",
        "equic.de mo/1",
    ] {
        assert!(bad.parse::<SchemaName>().is_err(), "{bad}");
    }
}

#[test]
fn timestamp_is_formatted_and_validated() {
    let epoch = SystemTime::UNIX_EPOCH;
    let at = |seconds| Timestamp::new(epoch + Duration::from_secs(seconds)).map(String::from);
    // The expected value is the output of `date -u -d @1714979289 +%FT%TZ`.
    assert_eq!(at(1_714_979_289).unwrap(), "2024-05-06T07:08:09Z");
    assert_eq!(at(253_402_300_799).unwrap(), "9999-12-31T23:59:59Z");
    assert_eq!(at(253_402_300_800), None);
    assert_eq!(Timestamp::new(epoch - Duration::from_secs(1)), None);
    for bad in ["", "yesterday", "2024-05-06", "2024-13-06T07:08:09Z", "2024-05-06 07:08:09"] {
        assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
    }
}

#[test]
fn report_json_round_trip() {
    let text = report().to_json().unwrap();
    assert!(text.ends_with("}\n"));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["schema"], "equic.demo/1");
    assert_eq!(value["created"], "2024-05-06T07:08:09Z");
    assert_eq!(value["machine"]["memory_bytes"], 8_350_000_000_u64);
    assert_eq!(value["command"][1], "demo");
    let read = Report::<Demo>::from_json(&text, &"equic.demo/1".parse().unwrap()).unwrap();
    assert_eq!(read, report());
}

#[test]
fn report_of_another_schema_or_version_is_an_error() {
    let text = report().to_json().unwrap();
    // The data is not a string either, but the error must be about the schema.
    let error = Report::<String>::from_json(&text, &"equic.demo/2".parse().unwrap()).unwrap_err();
    assert!(matches!(error, SchemaError::Mismatch { .. }), "{error}");
    assert!(error.to_string().contains("`equic.demo/1`"), "{error}");
    for bad in ["", "[]", "{\"schema\": \"other/1\"}", "{\"schema\": \"equic.demo/1\"}"] {
        let error = Report::<Demo>::from_json(bad, &"equic.demo/1".parse().unwrap()).unwrap_err();
        assert!(matches!(error, SchemaError::Decode(_)), "{error}");
    }
}

#[test]
fn report_data_without_a_json_form_is_an_error() {
    let with_tuple_keys = std::collections::BTreeMap::from([((1, 2), 3)]);
    let Report { schema, created, machine, command, .. } = report();
    let report = Report { schema, created, machine, command, data: with_tuple_keys };
    assert!(matches!(report.to_json(), Err(SchemaError::Encode(_))));
}

#[test]
fn report_is_written_to_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("demo.json");
    report().write(&path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), report().to_json().unwrap());
    assert!(matches!(report().write(path.join("no")), Err(SchemaError::Write(_))));
}

#[test]
fn machine_of_the_test_can_be_read() {
    let machine = Machine::read().unwrap();
    assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 20, "{machine:?}");
    assert!(machine.kernel.contains('.'), "{machine:?}");
}

fn proc(cpuinfo: &str, meminfo: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
    fs::write(dir.path().join("sys/kernel/osrelease"), "6.1.0\n").unwrap();
    fs::write(dir.path().join("cpuinfo"), cpuinfo).unwrap();
    fs::write(dir.path().join("meminfo"), meminfo).unwrap();
    dir
}

#[test]
fn machine_is_parsed_from_linux_files() {
    let x86 = "processor\t: 0\nmodel name\t: Some   CPU @ 2.0GHz\n\nprocessor\t: 1\nmodel name\t: Some CPU\n";
    let dir = proc(x86, "MemFree: 1 kB\nMemTotal:       16384 kB\n");
    let machine = Machine::read_from(dir.path()).unwrap();
    assert_eq!((machine.cores, machine.memory_bytes), (2, 16_777_216));
    assert_eq!(machine.cpu_model, "Some CPU @ 2.0GHz");
    assert_eq!(
        machine.to_string(),
        format!("2 x Some CPU @ 2.0GHz, 16.8 MB, Linux 6.1.0 ({})", std::env::consts::ARCH)
    );
    let arm = proc("processor\t: 0\nBogoMIPS\t: 50.00\nCPU part\t: 0xd0c\n", "MemTotal: 1 kB\n");
    assert_eq!(Machine::read_from(arm.path()).unwrap().cpu_model, "unknown");
}

#[test]
fn machine_error_names_the_missing_field_and_file() {
    let empty = tempfile::tempdir().unwrap();
    let error = Machine::read_from(empty.path()).unwrap_err().to_string();
    assert!(error.contains("osrelease") && error.contains("mounted"), "{error}");
    let no_cpu = proc("", "MemTotal: 1 kB\n");
    let error = Machine::read_from(no_cpu.path()).unwrap_err().to_string();
    assert!(error.contains("cpuinfo") && error.contains("processor"), "{error}");
    let no_memory = proc("processor: 0\n", "MemTotal: lots\n");
    assert!(Machine::read_from(no_memory.path()).unwrap_err().to_string().contains("MemTotal"));
}
