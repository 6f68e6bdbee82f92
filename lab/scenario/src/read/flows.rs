//! Reads the tables `[[flow]]` and `[[traffic]]` of a scenario description.

use std::collections::HashSet;
use std::time::Duration;

use equic_sim::{Ecn, OnOffConfig, Period, ShortFlowsConfig, SizeDistribution, Time};

use super::applications::application;
use super::table::{Reader, Table, boolean, bytes, duration, name, names, number, rate};
use crate::keys::{FLOW, QUIC, TCP, TLS, TRAFFIC};
use crate::model::{
    Controller, ECN, Flow, PluginFile, Protection, Protocol, QuicOptions, Route, Scheduler,
    TcpOptions, Tls, TlsVersion, Traffic, TrafficKind,
};

/// Largest number of connections of one scenario.
pub(crate) const MAX_FLOWS: usize = 100_000;

/// Largest number of plugins at one end of a connection.
const MAX_PLUGINS: usize = 16;

const CONTROLLERS: [(&str, Controller); 9] = [
    ("newreno", Controller::NewReno),
    ("cubic", Controller::Cubic),
    ("bbr", Controller::Bbr),
    ("bic", Controller::Bic),
    ("vegas", Controller::Vegas),
    ("westwood", Controller::Westwood),
    ("gquic-cubic", Controller::GoogleQuic),
    ("lia", Controller::Lia),
    ("olia", Controller::Olia),
];

const SCHEDULERS: [(&str, Scheduler); 4] = [
    ("lowest-rtt", Scheduler::LowestRtt),
    ("round-robin", Scheduler::RoundRobin),
    ("redundant", Scheduler::Redundant),
    ("backup", Scheduler::Backup),
];

/// Reads the flows. Returns each with its offset in the text.
pub(super) fn flows(reader: &mut Reader, top: &Table<'_, '_>) -> Vec<(usize, Flow)> {
    let tables = top.inners(reader, "flow", &FLOW);
    if !top.has("flow") || (tables.is_empty() && reader.is_clean()) {
        top.complain(reader, "flow", "a scenario needs at least one flow: write [[flow]]");
    }
    let mut names = HashSet::new();
    let mut flows = Vec::new();
    for table in &tables {
        let flow = flow(reader, table);
        if !names.insert(flow.name.clone()) {
            let message =
                format!("two flows are called {}: give each a different `name`", flow.name);
            table.complain(reader, "name", message);
        }
        flows.push((table.offset, flow));
    }
    let count: usize = flows.iter().map(|(_, flow)| flow.count).sum();
    if count > MAX_FLOWS {
        top.complain(
            reader,
            "flow",
            format!("the scenario has {count} connections, but at most {MAX_FLOWS} are permitted"),
        );
    }
    flows
}

fn flow(reader: &mut Reader, table: &Table<'_, '_>) -> Flow {
    let protocols = [("quic", Protocol::Quic), ("tcp", Protocol::Tcp)];
    let protocol = table.choice(reader, "protocol", &protocols).unwrap_or(Protocol::Quic);
    let controller = table.choice(reader, "controller", &CONTROLLERS).unwrap_or(Controller::Cubic);
    let application = application(reader, table);
    let size = table.read(reader, "size", bytes);
    if size == Some(0) {
        table.complain(reader, "size", "the size must be 1 B or more");
    }
    for (key, of) in [("quic", Protocol::Quic), ("tcp", Protocol::Tcp)] {
        if table.has(key) && of != protocol {
            let message = format!(
                "these options have no effect, because this flow uses {}: remove them",
                protocol.name()
            );
            table.complain(reader, key, message);
        }
    }
    if protocol == Protocol::Tcp && matches!(controller, Controller::Lia | Controller::Olia) {
        let message = "this congestion control couples the paths of a QUIC connection, but TCP has only one path: choose another one";
        table.complain(reader, "controller", message);
    }
    let named = table.read(reader, "name", name);
    Flow {
        name: named.unwrap_or_else(|| format!("{} {}", protocol.name(), controller.name())),
        count: table.whole(reader, "count").unwrap_or(1) as usize,
        route: route(reader, table),
        protocol,
        controller,
        application,
        size,
        start: table.read(reader, "start", duration).unwrap_or_default(),
        stagger: table.read(reader, "stagger", duration).unwrap_or_default(),
        quic: quic(reader, table),
        tcp: tcp(reader, table),
    }
}

fn route(reader: &mut Reader, table: &Table<'_, '_>) -> Route {
    let pair = table.whole(reader, "pair");
    let (from, to) = (table.read(reader, "from", name), table.read(reader, "to", name));
    if table.has("pair") && (table.has("from") || table.has("to")) {
        table.complain(reader, "pair", "set either `pair`, or both `from` and `to`");
    }
    match (pair, from, to) {
        (_, Some(from), Some(to)) => Route::Nodes { from, to },
        (Some(pair), ..) => Route::Pair(pair as usize - 1),
        (None, None, None) => Route::NextPair,
        (None, from, _) => {
            let key = if from.is_some() { "to" } else { "from" };
            if !table.has(key) {
                table.complain(reader, key, "this key is missing: set both `from` and `to`");
            }
            Route::NextPair
        }
    }
}

fn quic(reader: &mut Reader, table: &Table<'_, '_>) -> QuicOptions {
    let usual = QuicOptions {
        protection: Protection::None,
        initial_window: None,
        mtu: None,
        mtu_discovery: false,
        window: None,
        ecn: ECN,
        ack_frequency: true,
        idle_timeout: Duration::from_secs(30),
        resumption: false,
        early_data: false,
        paths: 1,
        scheduler: Scheduler::default(),
        client_plugins: Vec::new(),
        server_plugins: Vec::new(),
    };
    let Some(table) = table.inner(reader, "quic", &QUIC) else { return usual };
    let initial_window = table.read(reader, "initial_window", bytes);
    if initial_window.is_some_and(|window| !(2_400..=1 << 30).contains(&window)) {
        let message = "an initial window must be from two packets of 1,200 bytes to 1 GiB";
        table.complain(reader, "initial_window", message);
    }
    let window = window(reader, &table);
    let mtu = table.whole(reader, "mtu");
    let (resumption, early_data) = sessions(reader, &table);
    let paths = table.whole(reader, "paths").unwrap_or(1);
    let scheduler = table.choice(reader, "scheduler", &SCHEDULERS);
    if scheduler.is_some() && paths == 1 {
        table.complain(reader, "scheduler", "a scheduler needs two paths: write paths = 2");
    }
    let protections = [("none", Protection::None), ("tls", Protection::Tls)];
    QuicOptions {
        protection: table.choice(reader, "protection", &protections).unwrap_or_default(),
        initial_window,
        mtu: mtu.and_then(|mtu| u16::try_from(mtu).ok()),
        mtu_discovery: table.read(reader, "mtu_discovery", boolean).unwrap_or(false),
        window,
        ecn: table.read(reader, "ecn", boolean).unwrap_or(usual.ecn),
        ack_frequency: table.read(reader, "ack_frequency", boolean).unwrap_or(usual.ack_frequency),
        idle_timeout: table.read(reader, "idle_timeout", duration).unwrap_or(usual.idle_timeout),
        resumption,
        early_data,
        paths: paths as usize,
        scheduler: scheduler.unwrap_or_default(),
        client_plugins: plugins(reader, &table, "client_plugins"),
        server_plugins: plugins(reader, &table, "server_plugins"),
    }
}

/// Reads the plugins of the client or of the server of a flow.
fn plugins(reader: &mut Reader, table: &Table<'_, '_>, key: &'static str) -> Vec<PluginFile> {
    let mut plugins = Vec::new();
    for name in table.read(reader, key, names).unwrap_or_default() {
        match reader.bundle(&name) {
            Ok(bundle) => plugins.push(PluginFile { name, bundle }),
            Err(message) => table.complain(reader, key, message),
        }
    }
    if plugins.len() > MAX_PLUGINS {
        table.complain(
            reader,
            key,
            format!("each end of a connection can have at most {MAX_PLUGINS} plugins"),
        );
    }
    plugins
}

fn tcp(reader: &mut Reader, table: &Table<'_, '_>) -> TcpOptions {
    let Some(table) = table.inner(reader, "tcp", &TCP) else { return TcpOptions::default() };
    let window = window(reader, &table);
    let segments = table.whole(reader, "initial_window");
    let mss = table.whole(reader, "mss");
    TcpOptions {
        initial_window: segments.and_then(|segments| u32::try_from(segments).ok()),
        mss: mss.and_then(|mss| u16::try_from(mss).ok()),
        sack: table.read(reader, "sack", boolean),
        timestamps: table.read(reader, "timestamps", boolean),
        window_scaling: table.read(reader, "window_scaling", boolean),
        ecn: table.read(reader, "ecn", boolean).unwrap_or(ECN),
        pacing: table.read(reader, "pacing", boolean),
        tail_loss_probe: table.read(reader, "tail_loss_probe", boolean),
        min_rto: table.read(reader, "min_rto", duration),
        delayed_ack: table.read(reader, "delayed_ack", duration),
        window,
        fast_open: table.read(reader, "fast_open", boolean).unwrap_or(false),
        tls: tls(reader, &table),
    }
}

/// Reads two options: whether the client resumes a session, and whether it sends early data with
/// it.
fn sessions(reader: &mut Reader, table: &Table<'_, '_>) -> (bool, bool) {
    let resumption = table.read(reader, "resumption", boolean).unwrap_or(false);
    let early_data = table.read(reader, "early_data", boolean).unwrap_or(false);
    if early_data && !resumption {
        table.complain(reader, "early_data", "early data needs a session: write resumption = true");
    }
    (resumption, early_data)
}

fn tls(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Tls> {
    let table = table.inner(reader, "tls", &TLS)?;
    let versions = [("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];
    let version = table.choice(reader, "version", &versions).unwrap_or(TlsVersion::Tls13);
    let (resumption, early_data) = sessions(reader, &table);
    if early_data && version == TlsVersion::Tls12 {
        table.complain(reader, "early_data", "early data needs TLS 1.3");
    }
    let false_start = table.read(reader, "false_start", boolean).unwrap_or(false);
    if false_start && (version == TlsVersion::Tls13 || resumption) {
        table.complain(reader, "false_start", "false start needs TLS 1.2 without resumption");
    }
    let certificates = table.read(reader, "certificates", bytes).unwrap_or(3_000);
    if certificates > 1 << 24 {
        table.complain(reader, "certificates", "certificates can have at most 16 MiB");
    }
    Some(Tls { version, resumption, early_data, false_start, certificates })
}

/// Reads the largest window of a connection.
fn window(reader: &mut Reader, table: &Table<'_, '_>) -> Option<u64> {
    let window = table.read(reader, "window", bytes);
    if window.is_some_and(|window| !(16 << 10..=1 << 30).contains(&window)) {
        table.complain(reader, "window", "a window must be from 16 KiB to 1 GiB");
    }
    window
}

/// Reads the background traffic. Returns each source with its offset in the text.
pub(super) fn traffic(reader: &mut Reader, top: &Table<'_, '_>) -> Vec<(usize, Traffic)> {
    let mut names = HashSet::new();
    let mut all = Vec::new();
    for table in &top.inners(reader, "traffic", &TRAFFIC) {
        let Some(one) = one_traffic(reader, table) else { continue };
        if !names.insert(one.name.clone()) {
            let message = format!(
                "two traffic sources are called {}: give each a different `name`",
                one.name
            );
            table.complain(reader, "name", message);
        }
        all.push((table.offset, one));
    }
    all
}

fn one_traffic(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Traffic> {
    const ON_OFF: &str = "on-off";
    const SHORT: &str = "short-flows";
    if !table.has("kind") {
        table.complain(reader, "kind", "this key is missing");
    }
    let short = table.choice(reader, "kind", &[(ON_OFF, false), (SHORT, true)])?;
    let of: [(&'static str, bool); 6] = [
        ("on", false),
        ("off", false),
        ("per_second", true),
        ("size", true),
        ("most", true),
        ("shape", true),
    ];
    for (key, of) in of {
        if table.has(key) && of != short {
            let kind = if of { SHORT } else { ON_OFF };
            table.complain(reader, key, format!("this is a key of {kind}"));
        }
    }
    let rate = table.need(reader, "rate", rate)?;
    if rate == 0 {
        table.complain(reader, "rate", "the rate must be above 0");
        return None;
    }
    let datagram = table.whole(reader, "datagram").unwrap_or(1_200) as u32;
    let start = Time::START + table.read(reader, "start", duration).unwrap_or_default();
    let stop = table.read(reader, "stop", duration).map(|stop| Time::START + stop);
    if stop.is_some_and(|stop| stop <= start) {
        table.complain(reader, "stop", "`stop` must be after `start`");
    }
    let kind = if short {
        let per_second = table.need(reader, "per_second", number);
        let sizes = sizes(reader, table);
        let per_second = per_second?;
        if !(per_second > 0.0 && per_second <= 1e6) {
            table.complain(reader, "per_second", "above 0, and at most 1000000");
        }
        let most = 100_000;
        let sizes = sizes?;
        TrafficKind::ShortFlows(ShortFlowsConfig {
            per_second,
            sizes,
            rate,
            datagram,
            most,
            start,
            stop,
        })
    } else {
        let random = table.read(reader, "random", boolean).unwrap_or(false);
        let period = if random { Period::Exponential } else { Period::Constant };
        let on = table.read(reader, "on", duration).unwrap_or(Duration::from_secs(1));
        if on.is_zero() {
            table.complain(reader, "on", "`on` must be above 0 s");
        }
        let off = table.read(reader, "off", duration).unwrap_or_default();
        let (on, off) = (period(on), period(off));
        TrafficKind::OnOff(OnOffConfig { rate, datagram, on, off, start, stop, ecn: Ecn::NotEct })
    };
    let named = table.read(reader, "name", name);
    let name = named.unwrap_or_else(|| if short { SHORT } else { ON_OFF }.to_owned());
    Some(Traffic { name, route: route(reader, table), kind })
}

fn sizes(reader: &mut Reader, table: &Table<'_, '_>) -> Option<SizeDistribution> {
    let size = table.need(reader, "size", bytes)?;
    let most = table.read(reader, "most", bytes);
    let shape = table.read(reader, "shape", number).unwrap_or(1.2);
    let random = table.read(reader, "random", boolean).unwrap_or(false);
    if size == 0 {
        table.complain(reader, "size", "a flow must have at least 1 byte");
    }
    if shape <= 0.0 {
        table.complain(reader, "shape", "above 0");
    }
    Some(match most {
        Some(most) => {
            if most < size {
                table.complain(reader, "most", "`most` must not be smaller than `size`");
            }
            SizeDistribution::Pareto { shape, least: size, most }
        }
        None if random => SizeDistribution::Exponential { mean: size },
        None => SizeDistribution::Constant(size),
    })
}
