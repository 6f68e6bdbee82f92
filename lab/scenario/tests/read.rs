//! Tests of the parser of scenario descriptions: each mistake must be reported with its line.

use equic_scenario::{Grid, Scenario, ScenarioError, sections};

/// A scenario description without mistakes.
const GOOD: &str = r#"[network]
topology = "dumbbell"
link = { rate = "10 Mb/s", delay = "50 ms" }
[[flow]]
size = "1 MB"
"#;

/// Returns all mistakes of a text: line, key and message.
fn wrong(text: &str) -> Vec<(usize, String, String)> {
    match Scenario::parse(text) {
        Ok(scenario) => panic!("it was read: {scenario:?}"),
        Err(ScenarioError::Problems { problems, .. }) => {
            problems.into_iter().map(|one| (one.line, one.key, one.message)).collect()
        }
        Err(other) => panic!("{other}"),
    }
}

/// Returns the only mistake of a text.
fn one(text: &str) -> (usize, String, String) {
    let mut all = wrong(text);
    assert_eq!(all.len(), 1, "{text}: {all:?}");
    all.remove(0)
}

#[test]
fn read_error_names_an_unknown_key_its_line_and_a_similar_key() {
    for (text, line, key, near) in [
        (format!("sedes = 3\n{GOOD}"), 1, "sedes", "`seeds`"),
        (GOOD.replace("delay", "dealy"), 3, "network.link.dealy", "`delay`"),
        (format!("{GOOD}controler = \"cubic\""), 6, "flow[1].controler", "`controller`"),
        (
            format!("{GOOD}[flow.quic]\nmtu_discover = true"),
            7,
            "flow[1].quic.mtu_discover",
            "`mtu_discovery`",
        ),
        (format!("{GOOD}[flow.quic]\npath = 2"), 7, "flow[1].quic.path", "`paths`"),
        (format!("{GOOD}zzzz = 1"), 6, "flow[1].zzzz", "there is name, count"),
    ] {
        let all = wrong(&text);
        let told = all.iter().any(|one| one.0 == line && one.1 == key && one.2.contains(near));
        assert!(told, "{text}: {all:?}");
    }
    let (line, key, message) = one(&format!("{GOOD}controller = \"cubik\""));
    assert_eq!((line, &*key), (6, "flow[1].controller"));
    assert!(message.contains("`cubic`"), "{message}");
}

#[test]
fn read_reports_all_errors_at_once() {
    let text = GOOD.replace("10 Mb/s", "10").replace("1 MB", "1 Mb") + "start = 5\nseeds = 1";
    let lines: Vec<usize> = wrong(&text).iter().map(|one| one.0).collect();
    assert_eq!(lines, [3, 5, 6, 7]);
}

#[test]
fn read_rejects_contradictions() {
    let link =
        |more: &str| GOOD.replace("delay = \"50 ms\"", &format!("delay = \"50 ms\", {more}"));
    for (text, line, key, message) in [
        (GOOD.replace("10 Mb/s", "0 Mb/s"), 3, "network.link.rate", "no packet would be sent"),
        (link("queue = \"1499 B\""), 3, "network.link.queue", "no room for a single packet"),
        (link("queue = \"0 packets\""), 3, "network.link.queue", "no room for a single packet"),
        (link("queue = { kind = \"red\", min_threshold = 20 }"), 3, "network.link.queue", "min_threshold"),
        (link("queue = { kind = \"codel\", quantum = 3 }"), 3, "network.link.queue.quantum", "fq-codel"),
        (link("queue = { kind = \"codel\", target = \"1 s\" }"), 3, "network.link.queue", "target"),
        (link("loss = \"101 %\""), 3, "network.link.loss", "percentage"),
        (link("loss = { bit_error_rate = 1e-6, to_bad = 0.1 }"), 3, "network.link.loss.bit_error_rate", "cannot have both bit errors"),
        (link("mtu = 1000"), 1, "network", "1228"),
        (link("from = \"client 1\""), 3, "network.link.from", "graph"),
        (GOOD.replace("dumbbell\"", "dumbbell\"\nlinks = []"), 3, "network.links", "not of dumbbell"),
        (format!("{GOOD}pair = 3"), 4, "flow", "no pair 3"),
        (format!("{GOOD}from = \"client 1\"\nto = \"client 9\""), 4, "flow", "client 9"),
        (format!("{GOOD}from = \"client 1\"\nto = \"client 1\""), 4, "flow", "both ends of the connection are the node client 1"),
        (format!("{GOOD}from = \"client 1\""), 4, "flow[1].to", "missing"),
        (format!("{GOOD}[[flow]]\nsize = \"1 B\""), 6, "flow[2].name", "two flows"),
        (GOOD.replace("size = \"1 MB\"", ""), 1, "limit", "never end"),
        (GOOD.replace("1 MB", "0 B"), 5, "flow[1].size", "1 B or more"),
        (format!("seeds = [3, 3]\n{GOOD}"), 1, "seeds", "twice"),
        (format!("seeds = 0\n{GOOD}"), 1, "seeds", "1 to"),
        (format!("limit = \"0 s\"\n{GOOD}"), 1, "limit", "above 0 s"),
        (link("mtu = 100"), 1, "network", "QUIC (RFC 9000 s.14) needs an MTU of 1228 bytes, and a link has 100"),
        (link("mtu = 100").replace("[[flow]]", "[[flow]]\nprotocol = \"tcp\""), 1, "network", "TCP needs an MTU of 168 bytes, and a link has 100"),
        (link("queue = \"99999999999 packets\""), 3, "network.link.queue", "at most 4294967295 packets"),
        (link("queue = \"99999999999 GB\""), 3, "network.link.queue", "at most 18446744073 GB"),
        (link("queue = \"many packets\""), 3, "network.link.queue", "not a number of packets"),
        (GOOD.replace("50 ms", "-50 ms"), 3, "network.link.delay", "below 0"),
        (format!("limit = \"10 s\"\n{GOOD}start = \"10 s\""), 7, "flow[1].start", "this flow would begin at 10 s, but the run ends at 10 s"),
        (format!("{GOOD}start = \"3 h\""), 6, "flow[1].start", "the run ends at 10000 s"),
        (format!("limit = \"10 s\"\n{GOOD}count = 5\nstart = \"2 s\"\nstagger = \"2 s\""), 9, "flow[1].stagger", "the last connection of this flow would begin at 10 s"),
        (format!("limit = \"10 s\"\n{GOOD}[[traffic]]\nkind = \"on-off\"\nrate = \"1 b/s\"\nstart = \"11 s\""), 10, "traffic[1].start", "begin at 11 s"),
        (format!("{GOOD}quic = {{ mtu = 1473 }}"), 4, "flow", "1472"),
        (format!("{GOOD}tcp = {{ sack = true }}"), 6, "flow[1].tcp", "this flow uses quic"),
        (format!("{GOOD}protocol = \"tcp\"\ntcp = {{ mss = 1461 }}"), 4, "flow", "1460"),
        (format!("{GOOD}quic = {{ early_data = true }}"), 6, "flow[1].quic.early_data", "resumption"),
        (format!("{GOOD}protocol = \"tcp\"\ntcp = {{ tls = {{ version = \"1.1\" }} }}"), 7, "flow[1].tcp.tls.version", "`1.2`"),
        (format!("{GOOD}protocol = \"tcp\"\ntcp = {{ tls = {{ version = \"1.2\", resumption = true, early_data = true }} }}"), 7, "flow[1].tcp.tls.early_data", "1.3"),
        (format!("{GOOD}protocol = \"tcp\"\ntcp = {{ tls = {{ false_start = true }} }}"), 7, "flow[1].tcp.tls.false_start", "1.2"),
        (format!("{GOOD}[[traffic]]\nkind = \"on-off\"\nrate = \"0 b/s\""), 8, "traffic[1].rate", "above 0"),
        (format!("{GOOD}[[traffic]]\nkind = \"on-off\"\nrate = \"1 b/s\"\nper_second = 1"), 9, "traffic[1].per_second", "short-flows"),
        ("[network]\ntopology = \"simple\"\nlink = { rate = \"1 Mb/s\" }\n[[flow]]\nsize = \"1 B\"".to_owned(), 3, "network.link.delay", "missing"),
    ] {
        let told = one(&text);
        assert_eq!((told.0, &*told.1), (line, key), "{text}: {told:?}");
        assert!(told.2.contains(message), "{text}: {told:?}");
    }
    // Hosts do not forward packets, so these two nodes have no route to each other.
    let graph = r#"[network]
        topology = "graph"
        node = [{ name = "a" }, { name = "b" }, { name = "c" }]
        links = [
            { from = "a", to = "b", rate = "1 Mb/s", delay = "1 ms" },
            { from = "b", to = "c", rate = "1 Mb/s", delay = "1 ms" },
        ]
        [[flow]]
        from = "a"
        to = "c"
        size = "1 MB""#;
    let (line, _, message) = one(graph);
    assert_eq!(
        (line, &*message),
        (
            8,
            "there is no route from a to c: connect them through routers, because hosts do not forward packets"
        )
    );
    assert!(Scenario::parse(&graph.replace("\"b\" }", "\"b\", router = true }")).is_ok());
    let (line, key, _) = one(&graph.replace("to = \"b\"", "to = \"x\""));
    assert_eq!((line, &*key), (5, "network.links[1].to"));
}

#[test]
fn read_rejects_invalid_toml_with_its_line() {
    let all = wrong(&format!("{GOOD}]]]"));
    assert!(all.iter().all(|one| one.0 == 6), "{all:?}");
    for text in ["", "x", "[[", "[network]", "flow = 3", "[[flow]]\n[[flow]]", "\u{0}"] {
        assert!(!wrong(text).is_empty(), "{text}");
    }
    let error = Scenario::load("/nonexistent/x.toml".as_ref()).unwrap_err().to_string();
    assert!(error.contains("cannot read /nonexistent/x.toml"), "{error}");
}

/// A scenario description with every key except those of graphs and of two paths. Tests add these
/// where they need them.
const ALL: &str = r#"
        description = "all"
        seeds = [1, 2]
        limit = "1 s"
        interval = "10 ms"
        [network]
        topology = "dumbbell"
        ip = "v6"
        pairs = 3
        access = { rate = "1 Gb/s", delay = "1 ms" }
        [network.link]
        rate = "10 Mb/s"
        delay = "5 ms"
        loss = { packets = [1], to_bad = 0.1, to_good = 0.5, loss_bad = 1, loss_good = 0.0 }
        mtu = 1500
        framing = "ppp"
        jitter = "1 ms"
        duplicate = "1 %"
        reorder = "1 %"
        reorder_by = "1 ms"
        corrupt = "1 %"
        queue = { kind = "red", limit = "50 KB", ecn = true, min_threshold = 5000, max_threshold = 15000, weight = 0.01, max_probability = 0.2, gentle = false }
        back = { trace = "tests/lte.trace", loss = { bit_error_rate = 1e-7 }, queue = { kind = "fq-codel", target = "1 ms", interval = "50 ms", flows = 16, quantum = 300 } }
        [[flow]]
        name = "one"
        count = 2
        pair = 1
        protocol = "quic"
        controller = "bbr"
        application = "bulk"
        size = "1 KB"
        start = "1 ms"
        stagger = "1 ms"
        quic = { protection = "tls", initial_window = "20 KB", mtu = 1300, mtu_discovery = true, window = "1 MiB", ecn = false, ack_frequency = false, idle_timeout = "1 s", resumption = true, early_data = true }
        [[flow]]
        protocol = "tcp"
        size = "1 KB"
        tcp = { initial_window = 4, mss = 536, sack = false, timestamps = false, window_scaling = false, ecn = true, pacing = true, tail_loss_probe = false, min_rto = "1 s", delayed_ack = "1 ms", window = "64 KiB", fast_open = true, tls = { version = "1.2", resumption = false, false_start = true, certificates = "2 KB" } }
        [[flow]]
        name = "asks"
        application = "requests"
        requests = { count = 3, request = "1 KB", response = "5 KB", think = "1 s", concurrent = 2 }
        [[flow]]
        name = "many"
        application = "streams"
        streams = { count = 3, size = "1 KB" }
        [[flow]]
        name = "reads"
        application = "page"
        [[flow.page.object]]
        name = "a"
        size = "1 KB"
        [[flow.page.object]]
        name = "b"
        size = "1 KB"
        after = ["a"]
        [[flow]]
        name = "watches"
        protocol = "tcp"
        application = "video"
        video = { rate = "1 Mb/s", length = "10 s", segment = "1 s", buffer = "2 s", ahead = "5 s", request = "1 KB" }
        [[flow]]
        name = "talks"
        application = "call"
        call = { length = "1 s", every = "10 ms", message = "100 B", deadline = "50 ms" }
        [[traffic]]
        name = "udp"
        kind = "on-off"
        from = "client 2"
        to = "server 2"
        rate = "1 Mb/s"
        datagram = 500
        start = "0 s"
        stop = "1 s"
        on = "1 s"
        off = "1 s"
        random = true
        [[traffic]]
        kind = "short-flows"
        rate = "1 Mb/s"
        per_second = 2.5
        size = "1 KB"
        most = "10 KB"
        shape = 1.5
    "#;

/// Each key of the list in docs/simulator.md must be accepted with a value that the list names.
#[test]
fn keys_of_the_list_are_accepted() {
    let graph = r#"
        [network]
        topology = "graph"
        node = [{ name = "a", router = true }, { name = "b" }]
        links = [{ from = "a", to = "b", rate = "1 Mb/s", delay = "1 ms" }]
        [[flow]]
        from = "a"
        to = "b"
        size = "1 B"
    "#;
    let two = r#"
        [network]
        topology = "two-path"
        links = [{ rate = "1 Mb/s", delay = "1 ms" }, { rate = "1 Mb/s", delay = "1 ms" }]
        [[flow]]
        size = "1 B"
        [flow.quic]
        paths = 2
        scheduler = "backup"
        client_plugins = []
        server_plugins = []
    "#;
    let schema = jsonschema::draft202012::new(&equic_scenario::schema()).unwrap();
    for text in [ALL, graph, two] {
        Scenario::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let values: serde_json::Value = toml::from_str(text).unwrap();
        schema
            .validate(&values)
            .unwrap_or_else(|error| panic!("{}: {error}", error.instance_path()));
    }
    // Together, these texts have each key of the list. Each key must be rejected with a value of a
    // wrong type.
    let all = format!("{ALL}{graph}{two}");
    for key in sections().iter().flat_map(|section| section.keys) {
        assert!(
            all.contains(&format!("{} = ", key.name))
                || all.contains(&format!("[{}", key.name))
                || all.contains(&format!(".{}.", key.name))
                || all.contains(&format!(".{}]", key.name)),
            "{}",
            key.name
        );
    }
}

/// docs/simulator.md must contain the current list of keys, which `cargo run -p equic-scenario
/// --example keys` prints.
#[test]
fn keys_are_documented() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulator.md");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(
        text.contains(&equic_scenario::markdown()),
        "docs/simulator.md has another list of keys"
    );
}

/// All grids in the directory lab/results/ must be free of mistakes.
#[test]
fn grid_files_of_the_experiments_can_be_parsed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../results/nsquic");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let grids: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|it| it == "toml")).collect();
    assert!(grids.len() >= 4, "{grids:?}");
    for path in grids {
        let grid = Grid::load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(grid.cells() > 10, "{}", path.display());
    }
}

#[test]
fn read_rejects_invalid_applications_with_their_line() {
    let flow = |more: &str| GOOD.replace("size = \"1 MB\"\n", more);
    let page = |objects: &str| {
        flow(&format!("application = \"page\"\npage = {{ object = [{objects}] }}\n"))
    };
    for (text, line, key, message) in [
        (flow("application = \"request\""), 5, "flow[1].application", "`requests`"),
        (flow("application = \"requests\""), 4, "flow[1].requests", "missing"),
        (
            flow("application = \"requests\"\nrequests = { count = 3 }"),
            6,
            "flow[1].requests.response",
            "missing",
        ),
        (
            flow(
                "application = \"requests\"\nrequests = { respones = \"1 B\", response = \"1 B\" }",
            ),
            6,
            "flow[1].requests.respones",
            "`response`",
        ),
        (
            flow("application = \"requests\"\nrequests = { response = \"0 B\" }"),
            6,
            "flow[1].requests.response",
            "from 1 B",
        ),
        (
            flow("size = \"1 B\"\nstreams = { count = 3, size = \"1 B\" }"),
            6,
            "flow[1].streams",
            "application = \"streams\"",
        ),
        (
            flow(
                "size = \"1 B\"\napplication = \"streams\"\nstreams = { count = 3, size = \"1 B\" }",
            ),
            5,
            "flow[1].size",
            "bulk",
        ),
        (
            page("{ name = \"a\", size = \"1 B\", after = [\"b\"] }"),
            6,
            "flow[1].page.object[1].after",
            "no object `b`",
        ),
        (
            page("{ name = \"a\", size = \"1 B\" }, { name = \"a\", size = \"1 B\" }"),
            6,
            "flow[1].page.object[2].name",
            "two objects",
        ),
        (
            page(
                "{ name = \"a\", size = \"1 B\", after = [\"b\"] }, { name = \"b\", size = \"1 B\", after = [\"a\"] }",
            ),
            6,
            "flow[1].page.object[1].after",
            "cycle",
        ),
        (page(""), 6, "flow[1].page.object", "from 1"),
        (
            flow("application = \"video\"\nvideo = { rate = \"0 b/s\", length = \"1 s\" }"),
            6,
            "flow[1].video.rate",
            "above 0",
        ),
        (
            flow(
                "application = \"video\"\nvideo = { rate = \"1 Mb/s\", length = \"1 s\", ahead = \"1 s\" }",
            ),
            6,
            "flow[1].video.ahead",
            "`segment` or `buffer`",
        ),
        (
            flow("application = \"call\"\ncall = { length = \"1 s\", message = \"15 B\" }"),
            6,
            "flow[1].call.message",
            "16",
        ),
        (
            flow("application = \"call\"\ncall = { length = \"1 s\", every = \"0 s\" }"),
            6,
            "flow[1].call.every",
            "above 0 s",
        ),
        (
            flow("application = \"call\"\ncall = { length = \"1 s\", message = \"1450 B\" }"),
            4,
            "flow",
            "at most 1428 bytes",
        ),
    ] {
        let told = one(&text);
        assert_eq!((told.0, &*told.1), (line, key), "{text}: {told:?}");
        assert!(told.2.contains(message), "{text}: {told:?}");
    }
}

#[test]
fn read_accepts_large_messages_over_tcp() {
    let large = "protocol = \"tcp\"\napplication = \"call\"\ncall = { length = \"1 s\", message = \"1450 B\" }";
    assert!(Scenario::parse(&GOOD.replace("size = \"1 MB\"\n", large)).is_ok());
}
