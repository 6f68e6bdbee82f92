//! Tests of the applications that flows can have, over QUIC and TCP. Needs the feature `play`.

use equic_scenario::Scenario;
use equic_scenario::play::{
    ApplicationOutcome, FlowOutcome, Part, Summary, play, play_all, record,
};

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a `[network]` table with this rate and further link options.
fn network(rate: &str, more: &str) -> String {
    format!(
        "seeds = 3\n[network]\ntopology = \"simple\"\n\
         link = {{ rate = \"{rate}\", delay = \"20 ms\"{more} }}\n"
    )
}

/// Runs a scenario with one seed, and returns its flow.
fn flow(network: &str, protocol: &str, application: &str) -> FlowOutcome {
    let text = format!("{network}[[flow]]\nprotocol = \"{protocol}\"\n{application}");
    let run = play(&scenario(&text), 1, Part::All).unwrap();
    assert_eq!(run.flows[0].failure, None, "{text}");
    run.flows[0].clone()
}

fn application(flow: &FlowOutcome) -> &ApplicationOutcome {
    flow.application.as_ref().expect("it has one")
}

fn near(value: f64, expected: f64, by: f64) {
    assert!((value - expected).abs() <= by, "{value} is not {expected}");
}

/// On a link with only a delay, each request takes one round trip, and the handshake takes one
/// more.
#[test]
fn requests_take_one_round_trip_each() {
    let fast = network("10 Gb/s", "");
    let requests = "application = \"requests\"\nrequests = { count = 20, response = \"1 KB\" }";
    for protocol in ["quic", "tcp"] {
        let flow = flow(&fast, protocol, requests);
        let outcome = application(&flow);
        assert_eq!((outcome.kind, outcome.wanted, outcome.done), ("requests", 20, 20));
        let latency = outcome.latency.unwrap();
        near(latency.p50, 0.040, 0.001);
        near(latency.p95, 0.040, 0.001);
        // The slowest request includes the handshake, which takes one round trip with QUIC and with
        // TCP.
        near(latency.max, 0.080, 0.002);
        near(flow.completion.unwrap(), 21.0 * 0.040, 0.01);
        assert_eq!(flow.bytes, 20_000);
    }
}

#[test]
fn requests_follow_think_time_and_concurrency() {
    let fast = network("10 Gb/s", "");
    let took = |more: &str| {
        let requests = format!(
            "application = \"requests\"\nrequests = {{ count = 10, response = \"1 KB\"{more} }}"
        );
        ["quic", "tcp"].map(|protocol| flow(&fast, protocol, &requests).completion.unwrap())
    };
    for completion in took(", think = \"1 s\"") {
        near(completion, 9.0 + 11.0 * 0.040, 0.02);
    }
    // At most five requests are in progress, so the ten requests take two round trips.
    for completion in took(", concurrent = 5") {
        near(completion, 3.0 * 0.040, 0.01);
    }
}

/// Sends requests with responses of one packet, six at a time. A lost segment must delay all later
/// responses on a TCP connection, but only one stream of a QUIC connection.
#[test]
fn requests_over_tcp_suffer_head_of_line_blocking() {
    let lossy = network("20 Mb/s", ", back = { loss = \"1 %\" }");
    let requests = "application = \"requests\"\n\
                    requests = { count = 1000, response = \"1 KB\", concurrent = 6 }";
    let late = |protocol: &str| {
        let text = format!("{lossy}[[flow]]\nprotocol = \"{protocol}\"\n{requests}");
        let scenario = scenario(&text);
        let units = (1..=4).flat_map(|seed| record(&scenario, seed, None).unwrap().1.units);
        let took: Vec<f64> = units.map(|one| one.took).collect();
        assert_eq!(took.len(), 4_000);
        // Counts the requests that took at least half a round trip longer than necessary.
        took.iter().filter(|took| **took > 0.060).count()
    };
    let (quic, tcp) = (late("quic"), late("tcp"));
    assert!(quic > 20 && tcp > 2 * quic, "late of 4000: QUIC {quic}, TCP {tcp}");
}

#[test]
fn streams_share_a_connection() {
    let clean = network("8 Mb/s", "");
    let streams = "application = \"streams\"\nstreams = { count = 150, size = \"10 KB\" }";
    for protocol in ["quic", "tcp"] {
        let flow = flow(&clean, protocol, streams);
        let outcome = application(&flow);
        assert_eq!((outcome.done, flow.bytes), (150, 1_500_000));
        // A transfer of 1.5 MB at 8 Mb/s takes this time with headers, plus the handshake and slow
        // start. The streams take turns, so half of them end near the end of the transfer.
        let completion = flow.completion.unwrap();
        assert!((1.55..2.2).contains(&completion), "{protocol}: {completion} s");
        let latency = outcome.latency.unwrap();
        assert!((latency.max - completion).abs() < 1e-9 && latency.p50 > 0.5 * completion);
    }
}

#[test]
fn series_has_the_units_of_an_application() {
    let text = format!(
        "{}[[flow]]\napplication = \"requests\"\nrequests = {{ count = 3, response = \"1 KB\" }}",
        network("10 Mb/s", "")
    );
    let scenario = scenario(&text);
    let (run, series) = record(&scenario, 1, None).unwrap();
    assert_eq!(run, play(&scenario, 1, Part::All).unwrap());
    let units: Vec<&str> = series.units.iter().map(|one| one.unit.as_str()).collect();
    assert_eq!(units, ["1", "2", "3"]);
    assert!(series.units[1].began >= series.units[0].began + series.units[0].took);
    let summary = Summary::new(&scenario, &play_all(&scenario, Part::All, 1, &|_| ()).unwrap());
    let application = summary.flows[0].application.clone().unwrap();
    assert_eq!((application.wanted, application.done), (9, 9));
    assert!(application.p99.unwrap().mean >= application.p50.unwrap().mean);
    assert_eq!((application.startup, application.late), (None, None));
    let received: f64 = series.flows.iter().map(|point| point.goodput * 0.1 / 8.0).sum();
    assert!(received > 0.0 && received < 4_000.0, "{received}");
}

/// Two runs with the same seed must give the same numbers, with loss and over both protocols.
#[test]
fn seed_determines_the_run() {
    let text = format!(
        "{}[[flow]]\napplication = \"requests\"\n\
         requests = {{ count = 50, response = \"20 KB\", concurrent = 4 }}\n\
         [[flow]]\nprotocol = \"tcp\"\napplication = \"streams\"\n\
         streams = {{ count = 5, size = \"50 KB\" }}",
        network("10 Mb/s", ", loss = \"2 %\"")
    );
    let scenario = scenario(&text);
    assert_eq!(play(&scenario, 2, Part::All).unwrap(), play(&scenario, 2, Part::All).unwrap());
    assert_ne!(
        play(&scenario, 1, Part::All).unwrap().flows[0].completion,
        play(&scenario, 2, Part::All).unwrap().flows[0].completion
    );
}

/// Objects that depend on each other must be requested one after the other. All others must be
/// requested at the same time.
#[test]
fn page_requests_objects_after_their_dependencies() {
    let fast = network("10 Gb/s", "");
    let page = "application = \"page\"\n[flow.page]\nobject = [\n\
        { name = \"html\", size = \"10 KB\" },\n\
        { name = \"late\", size = \"1 KB\", after = [\"script\", \"style\"] },\n\
        { name = \"style\", size = \"5 KB\", after = [\"html\"] },\n\
        { name = \"script\", size = \"5 KB\", after = [\"html\"] },\n]";
    for protocol in ["quic", "tcp"] {
        let text = format!("{fast}[[flow]]\nprotocol = \"{protocol}\"\n{page}");
        let (run, series) = record(&scenario(&text), 1, None).unwrap();
        // The page takes four round trips: the handshake, the HTML page, style and script together,
        // and the late object.
        near(run.flows[0].completion.unwrap(), 4.0 * 0.040, 0.005);
        assert_eq!(run.flows[0].bytes, 21_000);
        let names: Vec<&str> = series.units.iter().map(|one| one.unit.as_str()).collect();
        assert_eq!((names[0], names[3]), ("html", "late"), "{names:?}");
    }
}

#[test]
fn video_stalls_only_if_the_link_is_too_slow() {
    let video = "application = \"video\"\n\
        video = { rate = \"2 Mb/s\", length = \"20 s\", segment = \"1 s\", buffer = \"2 s\", ahead = \"6 s\" }";
    for protocol in ["quic", "tcp"] {
        let fast = flow(&network("10 Mb/s", ""), protocol, video);
        let playing = application(&fast).playing.unwrap();
        assert_eq!((playing.stalls, playing.stalled), (0, 0.0));
        // Playback needs two segments of 250 KB at 10 Mb/s, plus a few round trips.
        let startup = playing.startup.unwrap();
        assert!((0.4..0.9).contains(&startup), "{protocol}: {startup} s");
        // The client requests the last segment when the buffer has room for it, which is five
        // seconds of playback before the end of the video.
        let completion = fast.completion.unwrap();
        near(completion, startup + 14.0, 1.0);
        let slow = flow(&network("1.5 Mb/s", ""), protocol, video);
        let playing = application(&slow).playing.unwrap();
        assert!(playing.stalls >= 2 && playing.stalled > 3.0, "{protocol}: {playing:?}");
        // At 2 Mb/s, transferring the video takes 20 s. Startup delay and stalls are subtracted
        // from that.
        let late = slow.completion.unwrap() - playing.startup.unwrap() - playing.stalled;
        assert!((14.0..20.0).contains(&late), "{protocol}: {late} s, {playing:?}");
    }
}

#[test]
fn call_loses_datagrams_over_quic_and_is_late_over_tcp() {
    let lossy = network("10 Mb/s", ", loss = \"3 %\"");
    let call = "application = \"call\"\ncall = { length = \"20 s\", deadline = \"50 ms\" }";
    let quic = flow(&lossy, "quic", call);
    let messages = application(&quic).messages.unwrap();
    // Some of the thousand messages are lost. A message that arrives takes 20 ms, so none is late.
    assert!((10..60).contains(&messages.lost) && messages.late == 0, "{messages:?}");
    near(application(&quic).latency.unwrap().max, 0.0203, 0.002);
    let tcp = flow(&lossy, "tcp", call);
    let messages = application(&tcp).messages.unwrap();
    assert!(messages.lost == 0 && messages.late > 30, "{messages:?}");
    assert!(application(&tcp).latency.unwrap().p99 > 0.05);
    assert_eq!((quic.bytes, tcp.bytes), (160 * application(&quic).done, 160_000));
}

/// Counts the round trips until the response to one request has arrived. The number depends on
/// whether the client resumes a session or has a cookie from an earlier connection.
#[test]
fn handshake_round_trips_of_quic_tcp_and_tls() {
    let fast = network("10 Gb/s", "");
    let trips = |protocol: &str, options: &str| {
        let request = "application = \"requests\"\nrequests = { count = 1, response = \"1 KB\" }";
        let text = format!("{request}\n{options}");
        (flow(&fast, protocol, &text).completion.unwrap() / 0.040).floor() as u64
    };
    for (protocol, options, expected) in [
        ("quic", "", 2),
        ("quic", "quic = { resumption = true }", 2),
        ("quic", "quic = { resumption = true, early_data = true }", 1),
        ("tcp", "", 2),
        ("tcp", "tcp = { fast_open = true }", 1),
        ("tcp", "tcp = { tls = {} }", 3),
        ("tcp", "tcp = { tls = { version = \"1.2\" } }", 4),
        ("tcp", "tcp = { tls = { version = \"1.2\", resumption = true } }", 3),
        ("tcp", "tcp = { tls = { resumption = true, early_data = true } }", 2),
        ("tcp", "tcp = { fast_open = true, tls = { resumption = true, early_data = true } }", 1),
    ] {
        assert_eq!(trips(protocol, options), expected, "{protocol} {options}");
    }
}

/// Resumption must save bytes of the server's handshake for single transfers, too.
#[test]
fn transfer_resumes_a_session() {
    let clean = network("10 Mb/s", "");
    let transfer = |options: &str| {
        flow(&clean, "quic", &format!("size = \"10 KB\"\n{options}")).completion.unwrap()
    };
    let (full, early) = (transfer(""), transfer("quic = { resumption = true, early_data = true }"));
    near(full - early, 0.040, 0.005);
    let tcp = |options: &str| {
        let text = format!("size = \"10 KB\"\ntcp = {{ {options} }}");
        flow(&clean, "tcp", &text).completion.unwrap()
    };
    near(tcp("tls = {}") - tcp(""), 0.040, 0.005);
}

#[test]
fn controllers_bic_vegas_and_westwood_differ() {
    let lossy = network("10 Mb/s", ", loss = \"0.5 %\"");
    let mut times: Vec<u64> = ["bic", "vegas", "westwood"]
        .iter()
        .map(|controller| {
            let text = format!("controller = \"{controller}\"\nsize = \"2 MB\"");
            let (quic, tcp) = (flow(&lossy, "quic", &text), flow(&lossy, "tcp", &text));
            assert_eq!((quic.bytes, tcp.bytes), (2_000_000, 2_000_000));
            tcp.completion.unwrap().to_bits()
        })
        .collect();
    times.sort_unstable();
    times.dedup();
    assert_eq!(times.len(), 3, "they are not the same");
}
