//! Tests of runs in virtual time. Needs the feature `play`.

use equic_scenario::play::{Part, Summary, jain, play, play_all, record};
use equic_scenario::results::Report;
use equic_scenario::{BuiltIn, Scenario};

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

const LOSSY: &str = r#"
    seeds = 4
    [network]
    topology = "simple"
    link = { rate = "10 Mb/s", delay = "20 ms", loss = "1 %" }
    [[flow]]
    size = "300 KB"
    "#;

#[test]
fn threads_do_not_change_the_result() {
    let scenario = scenario(LOSSY);
    let one = play_all(&scenario, Part::All, 1, &|_| ()).unwrap();
    let calls = std::sync::Mutex::new(Vec::new());
    let several =
        play_all(&scenario, Part::All, 3, &|done| calls.lock().unwrap().push(done)).unwrap();
    assert_eq!(one, several);
    assert_eq!(one.iter().map(|run| run.seed).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let mut calls = calls.into_inner().unwrap();
    calls.sort_unstable();
    assert_eq!(calls, [1, 2, 3, 4]);
    // Another seed must give another run.
    assert_ne!(one[0].flows[0].completion, one[1].flows[0].completion);
    assert_eq!(play(&scenario, 3, Part::All).unwrap(), one[2]);
}

#[test]
fn transfer_takes_the_expected_time() {
    let clean = scenario(&LOSSY.replace(", loss = \"1 %\"", ""));
    let run = play(&clean, 1, Part::All).unwrap();
    let flow = &run.flows[0];
    // The transfer takes 40 ms for the handshake, 240 ms for 300 KB at 10 Mb/s with headers, and
    // the time of slow start.
    let took = flow.completion.unwrap();
    assert!((0.3..0.5).contains(&took), "{took} s");
    assert_eq!((flow.bytes, flow.packets_lost, flow.lost, flow.dropped), (300_000, 0, 0, 0));
    assert!((flow.goodput - 2_400_000.0 / took).abs() < 1.0);
    assert!((0.04..0.042).contains(&flow.min_rtt.unwrap()), "{:?}", flow.min_rtt);
    let [there, back] = &run.ports[..] else { panic!("{:?}", run.ports) };
    assert_eq!((&*there.name, &*back.name), ("bottleneck, there", "bottleneck, back"));
    assert!(there.utilisation.unwrap() > 2.0 * back.utilisation.unwrap());
}

#[test]
fn quic_options_reach_the_transport() {
    let took = |options: &str| {
        let text = format!("{LOSSY}quic = {{ {options} }}").replace(", loss = \"1 %\"", "");
        play(&scenario(&text), 1, Part::All).unwrap().flows[0].clone()
    };
    let usual = took("");
    let wide = took("initial_window = \"400 KB\"");
    assert!(wide.completion < usual.completion, "{wide:?} {usual:?}");
    // A smaller MTU must cause more packets, and a small window must cost additional round trips.
    assert!(took("mtu = 1200").packets_sent > usual.packets_sent);
    assert!(took("window = \"16 KiB\"").completion.unwrap() > 2.0 * usual.completion.unwrap());
    assert!(took("mtu_discovery = true").packets_sent > usual.packets_sent);
}

#[test]
fn flows_share_a_link_and_are_summed_up() {
    let text = r#"
        seeds = 2
        limit = "4 s"
        [network]
        topology = "dumbbell"
        pairs = 3
        link = { rate = "6 Mb/s", delay = "10 ms", queue = "60 packets" }
        [[flow]]
        name = "long"
        count = 2
        stagger = "100 ms"
        [[flow]]
        name = "short"
        controller = "newreno"
        size = "20 KB"
        start = "1 s"
        [[traffic]]
        kind = "on-off"
        pair = 3
        rate = "1 Mb/s"
    "#;
    let scenario = scenario(text);
    let runs = play_all(&scenario, Part::All, 2, &|_| ()).unwrap();
    let summary = Summary::new(&scenario, &runs);
    let [long, short] = &summary.flows[..] else { panic!("{summary:?}") };
    assert_eq!((long.connections, long.completed, long.failed), (2, 0, 0));
    assert_eq!((long.completion, short.completed), (None, 2));
    assert!(short.completion.unwrap().mean < 1.0);
    // The two flows and the UDP traffic must fill the link. The UDP traffic takes 6 Mb/s with
    // headers.
    let both = 2.0 * long.goodput.unwrap().mean;
    assert!((3_600_000.0..5_000_000.0).contains(&both), "{both}");
    assert!(runs[0].ports[0].utilisation.unwrap() > 0.85, "{:?}", runs[0].ports);
    assert!(runs[0].traffic[0].sent > 400 && runs[0].traffic[0].delivered > 300);
    let jain = summary.jain.unwrap().mean;
    assert!((0.3..=1.0).contains(&jain), "{jain}");
    assert!(runs.iter().all(|run| run.ended == 4.0));
}

#[test]
fn flows_over_a_dead_link_fail() {
    let text = LOSSY.replace("1 %", "100 %") + "\nquic = { idle_timeout = \"2 s\" }";
    let run = play(&scenario(&text), 1, Part::All).unwrap();
    assert_eq!((run.flows[0].completion, run.flows[0].bytes), (None, 0));
    assert!(run.flows[0].failure.is_some(), "{run:?}");
}

#[test]
fn topology_of_each_kind_carries_flows() {
    for topology in [
        r#"topology = "two-path"
        links = [{ rate = "5 Mb/s", delay = "5 ms" }, { rate = "1 Mb/s", delay = "50 ms" }]"#,
        r#"topology = "parking-lot"
        access = { rate = "50 Mb/s", delay = "1 ms", back = { delay = "2 ms" } }
        links = [{ rate = "5 Mb/s", delay = "5 ms" }, { rate = "5 Mb/s", delay = "5 ms" }]"#,
        r#"topology = "graph"
        ip = "v6"
        node = [{ name = "client 1" }, { name = "r", router = true }, { name = "server 1" }]
        links = [
            { from = "client 1", to = "r", rate = "5 Mb/s", delay = "5 ms" },
            { from = "r", to = "server 1", rate = "5 Mb/s", delay = "5 ms", queue = { kind = "codel" } },
        ]"#,
    ] {
        let ends = if topology.contains("two-path") {
            r#"from = "client"
            to = "server""#
        } else {
            r#"from = "client 1"
            to = "server 1""#
        };
        let text = format!("[network]\n{topology}\n[[flow]]\nsize = \"50 KB\"\n{ends}");
        let run = play(&scenario(&text), 1, Part::All).unwrap();
        assert_eq!(run.flows[0].bytes, 50_000, "{topology}");
        assert!(run.flows[0].completion.unwrap() < 1.0, "{topology}");
    }
}

#[test]
fn builtin_scenarios_run() {
    // Runs only the short scenarios. A unit test of the library parses all of them.
    for name in ["simple", "wireless"] {
        let scenario = BuiltIn::find(name).unwrap().scenario();
        let run = play(&scenario, 1, Part::All).unwrap();
        assert!(run.flows.iter().all(|flow| flow.completion.is_some()), "{name}: {run:?}");
    }
}

#[test]
fn tcp_shares_a_link_with_quic() {
    let text = r#"
        limit = "5 s"
        [network]
        topology = "dumbbell"
        link = { rate = "6 Mb/s", delay = "10 ms", queue = "40 packets" }
        [[flow]]
        protocol = "quic"
        [[flow]]
        protocol = "tcp"
    "#;
    let scenario = scenario(text);
    let (run, series) = record(&scenario, 1, None).unwrap();
    // Recording time series must change only the number of events.
    let unseen = play(&scenario, 1, Part::All).unwrap();
    assert_eq!(run, unseen);
    assert!(run.flows.iter().all(|flow| flow.goodput > 500_000.0), "{run:?}");
    let shares = series.shares();
    let sums = shares.chunk_by(|one, other| one.time == other.time);
    for moment in sums {
        let sum: f64 = moment.iter().filter_map(|one| one.share).sum();
        assert!(moment.iter().all(|one| one.share.is_none()) || (sum - 1.0).abs() < 1e-9);
    }
    // Without the other flows, the flow must have more goodput.
    let alone = play(&scenario, 1, Part::Flow(1)).unwrap();
    assert_eq!((alone.flows.len(), &*alone.flows[0].name), (1, "tcp cubic"));
    assert!(alone.flows[0].goodput > 1.2 * run.flows[1].goodput);
    let mut summary = Summary::new(&scenario, std::slice::from_ref(&run));
    summary.harm(1, std::slice::from_ref(&run), std::slice::from_ref(&alone));
    let harm = summary.flows[1].harm.unwrap();
    let expected = 1.0 - run.flows[1].goodput / alone.flows[0].goodput;
    assert!((harm.goodput.unwrap().mean - expected).abs() < 1e-12);
    assert_eq!((harm.completion, summary.flows[0].harm), (None, None));
    assert_eq!(
        summary.jain.unwrap().mean,
        jain(&[run.flows[0].goodput, run.flows[1].goodput]).unwrap()
    );
}

#[test]
fn tcp_options_reach_the_connection() {
    let took = |options: &str| {
        let text = LOSSY.replace(", loss = \"1 %\"", "");
        let text = format!("{text}protocol = \"tcp\"\ntcp = {{ {options} }}");
        play(&scenario(&text), 1, Part::All).unwrap().flows[0].clone()
    };
    let usual = took("");
    assert_eq!((usual.bytes, usual.packets_lost, &usual.failure), (300_000, 0, &None));
    assert!(took("initial_window = 1").completion > usual.completion);
    assert!(took("mss = 536").packets_sent > 2 * usual.packets_sent);
    assert!(took("window = \"16 KiB\"").completion.unwrap() > 2.0 * usual.completion.unwrap());
    assert!(took("timestamps = false").packets_sent < usual.packets_sent);
}

/// Counts the round trips of a handshake, of 40 ms each. QUIC needs one, and with early data none.
/// TCP needs one. TLS over TCP adds one round trip with TLS 1.3, and two with TLS 1.2. Early data
/// saves one.
#[test]
fn handshake_round_trips_of_quic_tcp_and_tls() {
    let clean = LOSSY.replace(", loss = \"1 %\"", "").replace("300 KB", "1 KB");
    let trips = |options: &str| {
        let run = play(&scenario(&format!("{clean}{options}")), 1, Part::All).unwrap();
        let seconds = run.flows[0].completion.unwrap();
        // The data itself takes another half round trip.
        ((seconds - 0.02) / 0.04).floor()
    };
    assert_eq!(trips("protocol = \"quic\""), 1.0);
    assert_eq!(trips("quic = { resumption = true, early_data = true }"), 0.0);
    assert_eq!(trips("protocol = \"tcp\""), 1.0);
    assert_eq!(trips("protocol = \"tcp\"\ntcp = { tls = { version = \"1.3\" } }"), 2.0);
    assert_eq!(
        trips("protocol = \"tcp\"\ntcp = { tls = { resumption = true, early_data = true } }"),
        1.0
    );
    assert_eq!(trips("protocol = \"tcp\"\ntcp = { tls = { version = \"1.2\" } }"), 3.0);
}

/// The initial window of Google QUIC must be 32 packets, and that of CUBIC ten.
#[test]
fn controller_of_the_past_is_chosen_by_its_name() {
    for name in ["bic", "vegas", "westwood", "gquic-cubic"] {
        for protocol in ["quic", "tcp"] {
            let text = format!("{LOSSY}protocol = \"{protocol}\"\ncontroller = \"{name}\"");
            let run = play(&scenario(&text), 1, Part::All).unwrap();
            assert!(run.flows[0].completion.is_some(), "{text}");
            assert_eq!(run.flows[0].name, format!("{protocol} {name}"));
        }
    }
    let with = |name: &str| {
        let text = format!("{}controller = \"{name}\"", LOSSY.replace(", loss = \"1 %\"", ""));
        play(&scenario(&text), 1, Part::All).unwrap().flows[0].completion.unwrap()
    };
    assert!(with("gquic-cubic") < with("cubic"));
}

/// Both protocols share a queue that marks packets. By default, both must use ECN.
#[test]
fn ecn_default_is_the_same_for_quic_and_tcp() {
    let shared = |options: [&str; 2]| {
        let [quic, tcp] = options;
        let text = format!(
            "limit = \"5 s\"\n[network]\ntopology = \"dumbbell\"\n\
             link = {{ rate = \"10 Mb/s\", delay = \"10 ms\", queue = {{ kind = \"fq-codel\" }} }}\n\
             [[flow]]\n{quic}\n[[flow]]\nprotocol = \"tcp\"\n{tcp}\n"
        );
        let run = play(&scenario(&text), 1, Part::All).unwrap();
        let [quic, tcp] = &run.flows[..] else { panic!("{run:?}") };
        [quic.marked > 0, tcp.marked > 0]
    };
    assert_eq!(shared(["", ""]), [true, true]);
    assert_eq!(shared(["quic = { ecn = false }", "tcp = { ecn = false }"]), [false, false]);
    // The default of an option must not depend on whether the table of options exists.
    assert_eq!(shared(["quic = { paths = 1 }", "tcp = { sack = true }"]), [true, true]);
}

/// The result must show exactly the settings in which the flows of a run differ.
#[test]
fn report_shows_settings_that_differ_between_flows() {
    let report = |tcp: &str| {
        let text = format!("{LOSSY}[[flow]]\nprotocol = \"tcp\"\nsize = \"300 KB\"\n{tcp}");
        let scenario = scenario(&text);
        let runs = play_all(&scenario, Part::All, 1, &|_| ()).unwrap();
        let summary = Summary::new(&scenario, &runs);
        let parts = Report::of("name", &scenario, &summary, &runs).into_iter();
        let text = parts.map(|part| match part {
            Report::Table(table) => table.markdown(),
            Report::Text(text) | Report::Notice(text) => text,
        });
        text.collect::<String>()
    };
    let usual = report("");
    for word in ["TLS", "none", "1.3", "pacing", "acknowledgements", "every 2 segments or 40 ms"] {
        assert!(usual.contains(word), "{word}: {usual}");
    }
    assert!(!usual.contains("ECN"), "{usual}");
    let other = report("tcp = { ecn = false, pacing = true, tls = { version = \"1.3\" } }");
    assert!(
        other.contains("ECN") && !other.contains("TLS") && !other.contains("pacing"),
        "{other}"
    );
}

/// A run ends during the transmission of a packet. Only the part that has been sent may count.
#[test]
fn utilisation_is_at_most_1() {
    for (link, options) in [
        ("rate = \"1 kb/s\", delay = \"20 ms\"", "size = \"10 KB\""),
        ("rate = \"10 kb/s\", delay = \"1 ms\"", "protocol = \"tcp\"\nsize = \"10 KB\""),
        ("rate = \"64 kb/s\", delay = \"1 ms\", framing = \"ethernet\"", "controller = \"bbr\""),
    ] {
        for limit in [1, 7, 13, 100] {
            let text = format!(
                "limit = \"{limit} s\"\ninterval = \"333 ms\"\n[network]\ntopology = \"simple\"\n\
                 link = {{ {link} }}\n[[flow]]\n{options}"
            );
            let (run, series) = record(&scenario(&text), 1, None).unwrap();
            for port in &run.ports {
                let used = port.utilisation.unwrap();
                assert!((0.0..=1.0).contains(&used), "{link}, {limit} s: {used}");
            }
            let there = run.ports[0].utilisation.unwrap();
            assert!(limit != 7 || there > 0.5, "{link}: {there}");
            let most = series.ports.iter().map(|point| point.rate).fold(0.0, f64::max);
            assert!(most <= 64_000.0 * 1.001, "{link}: {most}");
        }
    }
}

#[test]
fn tcp_fails_if_its_syn_never_arrives() {
    let failure = |link: &str, application: &str| {
        let text = format!(
            "limit = \"300 s\"\n[network]\ntopology = \"simple\"\n\
             link = {{ rate = \"10 Mb/s\", delay = \"10 ms\", {link} }}\n\
             [[flow]]\nprotocol = \"tcp\"\n{application}"
        );
        play(&scenario(&text), 1, Part::All).unwrap().flows[0].failure.clone()
    };
    let requests = "application = \"requests\"\nrequests = { count = 1, response = \"1 KB\" }";
    for application in ["size = \"1 MB\"", requests] {
        let never = failure("loss = \"100 %\"", application);
        assert!(never.as_ref().is_some_and(|why| why.contains("no SYN was answered")), "{never:?}");
        let back = "back = { rate = \"10 Mb/s\", delay = \"10 ms\", loss = \"100 %\" }";
        assert!(failure(back, application).is_some());
        assert_eq!(failure("loss = \"0 %\"", application), None);
    }
}

/// A path of 100 Mb/s with a round trip of 120 ms has room for 1.5 MB in flight. A flow with a
/// smaller window must be reported as limited by its window.
#[test]
fn window_limit_is_reported_in_the_result() {
    let share = |options: &str| {
        let text = format!(
            "limit = \"5 s\"\n[network]\ntopology = \"simple\"\n\
             link = {{ rate = \"100 Mb/s\", delay = \"60 ms\" }}\n[[flow]]\n{options}"
        );
        let flow = play(&scenario(&text), 1, Part::All).unwrap().flows[0].clone();
        (flow.window, flow.window_limited.unwrap())
    };
    for protocol in ["quic", "tcp"] {
        for controller in ["cubic", "bbr"] {
            let with = |window: &str| {
                share(&format!(
                    "protocol = \"{protocol}\"\ncontroller = \"{controller}\"\n{protocol} = {{ {window} }}"
                ))
            };
            let (window, limited) = with("window = \"256 KiB\"");
            assert_eq!(window, 256 << 10);
            assert!((0.2..=1.0).contains(&limited), "{protocol} {controller}: {limited}");
            let (_, limited) = with("window = \"64 MB\"");
            assert!(limited < 0.01, "{protocol} {controller}: {limited}");
        }
    }
}
