//! Tests that start `equic-sim` as a user does.

use std::path::Path;
use std::process::{Command, Output};

use equic_report::plot::PNG;

const EQUIC_SIM: &str = env!("CARGO_BIN_EXE_equic-sim");

const SCENARIO: &str = r#"
seeds = 3
[network]
topology = "simple"
link = { rate = "10 Mb/s", delay = "10 ms", loss = "2 %" }
[[flow]]
size = "100 KB"
"#;

fn run(program: &Path, args: &[&str]) -> Output {
    Command::new(program).args(args).output().expect("it starts")
}

fn sim(args: &[&str]) -> Output {
    run(Path::new(EQUIC_SIM), args)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Checks that a command succeeded without messages, and returns its standard output.
fn ok(output: Output) -> Vec<u8> {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    output.stdout
}

fn file(folder: &tempfile::TempDir, content: &str) -> String {
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, content).unwrap();
    path.into_os_string().into_string().unwrap()
}

#[test]
fn run_gives_the_same_bytes_with_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, SCENARIO);
    let first = ok(sim(&["run", &path, "--json", "--threads", "1"]));
    assert_eq!(text(&first), text(&ok(sim(&["run", &path, "--json", "--threads", "3"]))));
    let value: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(value["schema"], "equic.sim.run/1");
    assert_eq!(value["summary"]["flows"][0]["completed"], 3);
    assert_eq!(value["runs"].as_array().unwrap().len(), 3);
    let fewer = ok(sim(&["run", &path, "--json", "--seeds", "2"]));
    let fewer: serde_json::Value = serde_json::from_slice(&fewer).unwrap();
    assert_eq!(fewer["runs"][1], value["runs"][1]);
    assert_eq!(fewer["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn schema_output_is_that_of_the_library() {
    let json =
        |args: &[&str]| -> serde_json::Value { serde_json::from_slice(&ok(sim(args))).unwrap() };
    assert_eq!(json(&["run", "--schema"]), equic_scenario::schema());
    assert_eq!(json(&["sweep", "--schema"]), equic_scenario::grid_schema());
    for wrong in [&["run"][..], &["run", "--schema", "lossy"], &["sweep", "grid.toml"], &["sweep"]]
    {
        assert_eq!(sim(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn run_prints_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, SCENARIO);
    let table = ok(sim(&["run", &path]));
    let table = text(&table);
    for word in ["quic cubic", "3 of 3", "completion", "95 % interval", "Mbit/s", "3 seeds"] {
        assert!(table.contains(word), "{word}: {table}");
    }
}

#[test]
fn list_prints_built_in_scenarios_that_run() {
    let list = ok(sim(&["list", "--json"]));
    let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
    let names: Vec<&str> = list["scenarios"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"lossy") && names.contains(&"dumbbell"), "{names:?}");
    // The scenario that `list` prints must give the same result as the built-in scenario.
    let folder = tempfile::tempdir().unwrap();
    let printed = ok(sim(&["list", "simple"]));
    let path = file(&folder, text(&printed));
    let value = |bytes: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
    let by_name = value(ok(sim(&["run", "simple", "--json", "--seeds", "1"])));
    let by_file = value(ok(sim(&["run", &path, "--json", "--seeds", "1"])));
    assert_eq!(
        (&by_name["runs"], by_name["scenario"].as_str()),
        (&by_file["runs"], Some("simple"))
    );
    let unknown = sim(&["run", "dumbell"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    assert!(text(&unknown.stderr).contains("did you mean dumbbell?"), "{unknown:?}");
}

#[test]
fn run_reports_scenario_errors_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, &SCENARIO.replace("delay", "dealy"));
    let refused = sim(&["run", &path]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(said.contains(&format!("{path}:5: network.link.dealy")), "{said}");
    assert!(said.contains("did you mean `delay`?") && refused.stdout.is_empty(), "{said}");
    let missing = sim(&["run", "no/such.toml"]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    // Control characters in a file must not reach the terminal.
    let path = file(&folder, "\"\\u001b[31m\" = 1");
    assert!(!sim(&["run", &path]).stderr.contains(&0x1b));
}

/// A scenario in which a QUIC flow and a TCP flow share a link.
const SHARED: &str = r#"
seeds = 2
limit = "3 s"
interval = "50 ms"
[network]
topology = "dumbbell"
link = { rate = "4 Mb/s", delay = "10 ms", queue = "30 packets" }
[[flow]]
protocol = "quic"
[[flow]]
protocol = "tcp"
start = "500 ms"
"#;

#[test]
fn run_writes_time_series_plots_and_logs() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, SHARED);
    let [out, qlog] = ["out", "qlog"].map(|name| folder.path().join(name));
    let places = ["--out", out.to_str().unwrap(), "--qlog-dir", qlog.to_str().unwrap()];
    let with = ok(sim(&[&["run", &path, "--json"][..], &places].concat()));
    // Recording time series must not change the result.
    assert_eq!(text(&with), text(&ok(sim(&["run", &path, "--json"]))));
    let read = |name: &str| {
        std::fs::read(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let csv = String::from_utf8(read("flows.csv")).unwrap();
    let mut lines = csv.lines();
    assert_eq!(
        lines.next(),
        Some(
            "time,flow,copy,protocol,window,slow_start_threshold,in_flight,rtt,pacing_rate,goodput,lost"
        )
    );
    // There is a sample every 0.05 s up to 3 s. The TCP flow starts at 0.5 s.
    assert_eq!(lines.filter(|line| line.contains(",tcp cubic,")).count(), 51);
    assert!(csv.lines().any(|line| line.starts_with("0.05,quic cubic,1,quic,")), "{csv}");
    let series: serde_json::Value = serde_json::from_slice(&read("series.json")).unwrap();
    assert_eq!(series["schema"], "equic.sim.series/1");
    let goodput = |protocol: &str| -> f64 {
        let flows = series["flows"].as_array().unwrap().iter();
        let own = flows.filter(|point| point["protocol"] == protocol);
        own.map(|point| point["goodput"].as_f64().unwrap() * 0.05).sum()
    };
    // The goodput of all samples must add up to the bytes in the result.
    let result: serde_json::Value = serde_json::from_slice(&with).unwrap();
    for (index, protocol) in ["quic", "tcp"].into_iter().enumerate() {
        let bytes = result["runs"][0]["flows"][index]["bytes"].as_f64().unwrap();
        assert!((goodput(protocol) - 8.0 * bytes).abs() < 1.0, "{protocol}");
    }
    let shares = String::from_utf8(read("shares.csv")).unwrap();
    assert!(shares.lines().any(|line| line.starts_with("0.15,quic,1")), "{shares}");
    for plot in ["window", "in-flight", "rtt", "pacing", "goodput", "queue", "shares"] {
        assert!(read(&format!("{plot}.svg")).starts_with(b"<svg"), "{plot}");
        if PNG {
            assert!(read(&format!("{plot}.png")).starts_with(b"\x89PNG"), "{plot}");
        }
    }
    for side in ["client", "server"] {
        let log = std::fs::read(qlog.join(format!("quic-cubic-1_{side}.sqlog"))).unwrap();
        let records: Vec<&[u8]> = log.split(|byte| *byte == 0x1e).skip(1).collect();
        assert!(records.len() > 100);
        for record in records {
            serde_json::from_slice::<serde_json::Value>(record).unwrap();
        }
    }
}

/// In a graph of ten links, the last one is the bottleneck. The plot of queues must show it, and
/// the ports that the user selects.
#[test]
fn queue_plot_of_a_graph_shows_the_bottleneck() {
    let folder = tempfile::tempdir().unwrap();
    let mut graph = "seeds = 1\nlimit = \"2 s\"\n[network]\ntopology = \"graph\"\n".to_owned();
    for node in ["l", "r", "a", "b", "c", "d", "e", "f"] {
        let router = node == "l" || node == "r";
        graph += &format!("[[network.node]]\nname = \"{node}\"\nrouter = {router}\n");
    }
    let mut link = |from: &str, to: &str, rate: &str| {
        graph += &format!(
            "[[network.links]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate}\"\ndelay = \"2 ms\"\n"
        );
    };
    for node in ["a", "b", "c"] {
        link(node, "l", "1 Gb/s");
    }
    for node in ["d", "e", "f"] {
        link("r", node, "1 Gb/s");
    }
    link("l", "r", "5 Mb/s");
    for (from, to) in [("a", "d"), ("b", "e"), ("c", "f")] {
        graph += &format!("[[flow]]\nname = \"{from}\"\nfrom = \"{from}\"\nto = \"{to}\"\n");
    }
    let path = file(&folder, &graph);
    let plot = folder.path().join("queue.svg");
    let draw = |more: &[&str]| {
        let usual = ["run", &path, "--plot", plot.to_str().unwrap(), "--plot-of", "queue"];
        let ran = sim(&[&usual[..], more].concat());
        (ran, std::fs::read_to_string(&plot).unwrap_or_default())
    };
    let (ran, svg) = draw(&[]);
    ok(ran);
    assert!(svg.contains("l - r, there") && svg.contains("the 8 busiest of 14 ports"), "{svg}");
    let (ran, svg) = draw(&["--plot-port", "r - f", "--plot-port", "l - r, back"]);
    ok(ran);
    for (port, shown) in [
        ("r - f, there", true),
        ("r - f, back", true),
        ("l - r, back", true),
        ("l - r, there", false),
    ] {
        assert_eq!(svg.contains(port), shown, "{port}: {svg}");
    }
    let (ran, _) = draw(&["--plot-port", "r-f"]);
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    assert!(text(&ran.stderr).contains("`r - f, there`"), "{ran:?}");
    let (ran, _) = draw(
        &["a - l", "b - l", "c - l", "r - d", "r - e"].map(|one| ["--plot-port", one]).concat(),
    );
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    assert!(text(&ran.stderr).contains("at most 8 ports"), "{ran:?}");
}

/// The names of these flows differ only in characters that a file name replaces. Each connection
/// must have its own logs.
#[test]
fn qlog_names_of_flows_never_collide() {
    let folder = tempfile::tempdir().unwrap();
    let mut flows =
        SCENARIO.replace("size", "name = \"x y\"\nsize").replace("seeds = 3", "seeds = 1");
    for name in ["x.y", "x-y-2", "\u{3b1}", "\u{3b2}", "X y"] {
        flows += &format!("[[flow]]\nname = \"{name}\"\nsize = \"10 KB\"\n");
    }
    let path = file(&folder, &flows);
    let logs = folder.path().join("logs");
    ok(sim(&["run", &path, "--qlog-dir", logs.to_str().unwrap()]));
    assert_eq!(std::fs::read_dir(&logs).unwrap().count(), 12);
    assert!(logs.join("x-y-1_client.sqlog").is_file());
}

/// A scenario with an application of each kind, over QUIC and TCP.
const APPLICATIONS: &str = r#"
seeds = 2
limit = "30 s"
[network]
topology = "dumbbell"
pairs = 4
link = { rate = "20 Mb/s", delay = "10 ms" }
[[flow]]
name = "asks"
application = "requests"
requests = { count = 10, response = "10 KB", concurrent = 2 }
[[flow]]
name = "many"
protocol = "tcp"
application = "streams"
streams = { count = 5, size = "20 KB" }
[[flow]]
name = "watches"
application = "video"
video = { rate = "1 Mb/s", length = "6 s", segment = "1 s", buffer = "2 s" }
[[flow]]
name = "talks"
application = "call"
call = { length = "1 s" }
"#;

#[test]
fn run_reports_applications_in_table_json_and_series() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, APPLICATIONS);
    let out = folder.path().join("out");
    let table = ok(sim(&["run", &path, "--out", out.to_str().unwrap()]));
    let table = text(&table);
    for words in ["p50", "p99", "requests", "20 of 20", "start-up", "stalled", "late", "100 of 100"]
    {
        assert!(table.contains(words), "{words}: {table}");
    }
    let result = ok(sim(&["run", &path, "--json"]));
    let result: serde_json::Value = serde_json::from_slice(&result).unwrap();
    let run = &result["runs"][0]["flows"];
    assert_eq!(run[0]["application"]["done"], 10);
    assert_eq!(run[2]["application"]["playing"]["stalls"], 0);
    assert_eq!(run[3]["application"]["messages"]["lost"], 0);
    assert_eq!(result["summary"]["flows"][1]["application"]["kind"], "streams");
    assert!(result["summary"]["flows"][1]["application"]["p95"]["mean"].as_f64().unwrap() > 0.0);
    let units = std::fs::read_to_string(out.join("units.csv")).unwrap();
    assert!(units.starts_with("flow,copy,protocol,unit,began,took\n"), "{units}");
    assert_eq!(units.lines().filter(|line| line.starts_with("asks,1,quic,")).count(), 10);
    assert_eq!(units.lines().filter(|line| line.starts_with("talks,1,quic,")).count(), 50);
    let playing = std::fs::read_to_string(out.join("playing.csv")).unwrap();
    assert!(playing.starts_with("time,flow,copy,protocol,buffered,stalls,stalled\n"), "{playing}");
    assert!(playing.lines().count() > 10);
    assert!(out.join("units.svg").is_file());
    assert_eq!(out.join("playing.png").is_file(), PNG);
}

#[test]
fn plot_is_drawn_into_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, SHARED);
    let plot = |name: &str, more: &[&str]| {
        let plot = folder.path().join(name);
        let ran = sim(
            &[&["run", &path, "--seeds", "1", "--plot", plot.to_str().unwrap()], more].concat()
        );
        (ran, plot)
    };
    let (ran, png) = plot("goodput.png", &[]);
    if PNG {
        ok(ran);
        assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
    } else {
        let (said, instead) = (text(&ran.stderr), png.with_extension("svg"));
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        assert!(said.contains("goodput.svg is written instead of"), "{said}");
        assert!(said.contains("--features png"), "{said}");
        assert!(std::fs::read(instead).unwrap().starts_with(b"<svg") && !png.exists());
    }
    let (ran, svg) = plot("rtt.svg", &["--plot-of", "rtt"]);
    ok(ran);
    assert!(std::fs::read_to_string(svg).unwrap().contains("smoothed round-trip time"));
    let (ran, other) = plot("goodput.pdf", &[]);
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    assert!(text(&ran.stderr).contains(".svg or .png") && !other.exists(), "{ran:?}");
}

/// A flow can use TLS, and two runs with the same seed must still give the same result.
#[test]
fn run_uses_tls_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let with = format!("{SCENARIO}quic = {{ protection = \"tls\" }}\n");
    let path = file(&folder, &with);
    let result = ok(sim(&["run", &path, "--json"]));
    assert_eq!(result, ok(sim(&["run", &path, "--json"])));
    let result: serde_json::Value = serde_json::from_slice(&result).unwrap();
    for run in result["runs"].as_array().unwrap() {
        assert!(run["flows"][0]["completion"].as_f64().is_some(), "{run:#}");
    }
}

#[test]
fn harm_is_measured_against_each_flow_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, SHARED);
    let result = ok(sim(&["run", &path, "--json", "--harm"]));
    let result: serde_json::Value = serde_json::from_slice(&result).unwrap();
    for flow in result["summary"]["flows"].as_array().unwrap() {
        let harm = flow["harm"]["goodput"]["mean"].as_f64().unwrap();
        assert!((0.05..0.9).contains(&harm), "{flow:#}");
        assert_eq!(flow["harm"]["equal_share"], 0.5);
    }
    let table = ok(sim(&["run", &path, "--harm"]));
    for header in ["harm to goodput", "equal share = 0.5"] {
        assert!(text(&table).contains(header), "{}", text(&table));
    }
    // The two flows have different equal shares, because one has one connection and the other has
    // three.
    let path =
        file(&folder, &SHARED.replace("protocol = \"tcp\"", "protocol = \"tcp\"\ncount = 3"));
    let table = ok(sim(&["run", &path, "--harm"]));
    let (_, harm) = text(&table).split_once("Harm that the other flows do").unwrap();
    let has = |flow: &str, share: &str| {
        harm.lines().any(|line| {
            line.trim_start().starts_with(flow) && line.split_whitespace().any(|word| word == share)
        })
    };
    assert!(has("quic", "0.75") && has("tcp", "0.25"), "{harm}");
}

#[test]
fn run_reports_paths_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, SHARED);
    for option in ["--out", "--qlog-dir"] {
        let failed = sim(&["run", &path, option, "/dev/null/x"]);
        assert_eq!(failed.status.code(), Some(1), "{failed:?}");
        assert!(text(&failed.stderr).contains("/dev/null/x"), "{failed:?}");
    }
}

#[test]
fn run_refuses_a_scenario_that_does_not_fit_into_memory() {
    let folder = tempfile::tempdir().unwrap();
    let flows = "size = \"100 GB\"\ncount = 50000\nquic = { window = \"1 GiB\" }";
    // The memory estimate includes the bytes in flight, up to the windows. This path has more bytes
    // in flight than fit into memory.
    let long =
        SCENARIO.replace("delay = \"10 ms\"", "delay = \"100000 s\"").replace("10 Mb/s", "10 Gb/s");
    let path = file(&folder, &long.replace("size = \"100 KB\"", flows));
    let out = folder.path().join("out");
    let refused = sim(&["run", &path, "--out", out.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(said.contains("of memory") && said.contains("`window`"), "{said}");
    assert!(refused.stdout.is_empty() && !out.exists());
}

/// If the file system is full, the command must report an error, both for the result and for a qlog
/// file.
#[test]
fn run_reports_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, SCENARIO);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output =
        Command::new(EQUIC_SIM).args(["run", &path, "--json"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("No space left"), "{output:?}");
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    std::os::unix::fs::symlink("/dev/full", logs.join("quic-cubic-1_server.sqlog")).unwrap();
    let output = sim(&["run", &path, "--qlog-dir", logs.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("No space left") && said.contains("_server.sqlog"), "{said}");
}

/// `equic-lab sim` must start `equic-sim`. `make build` puts both into the same directory.
#[test]
fn lab_sim_command_starts_this_program() {
    let lab = Path::new(EQUIC_SIM).with_file_name("equic-lab");
    assert!(lab.is_file(), "{} is built first: `make build`, or cargo build above", lab.display());
    assert_eq!(ok(run(&lab, &["sim", "list"])), ok(sim(&["list"])));
}

/// `make test` sets EQUIC_ASSERTIONS. This test then checks that assertions and overflow checks are
/// enabled.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "without debug assertions");
        let sum = std::panic::catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "without overflow checks");
    }
}
