//! A made-up run that resembles a real one: seven QUIC implementations and TCP with TLS in all
//! pairs, with sweeps, failures, a pair with two modes, and hostile texts. Its figures are
//! invented.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use equic_bench::result::profile::{Group, Split};
use equic_bench::result::profiles::Profiled;
use equic_bench::{Effective, End, Exchanges, Failure, Figures, Key, Latency, Noise, Record};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

/// Implementations, each with its goodput in Gbit/s, and its CPU seconds per GB as client and as
/// server.
pub const QUIC: [(&str, f64, f64, f64); 7] = [
    ("equic", 6.3, 1.05, 1.2),
    ("noq", 4.9, 1.3, 1.4),
    ("quic-go", 2.9, 2.35, 2.2),
    ("quiche", 5.4, 1.06, 1.5),
    ("quinn", 5.9, 1.13, 1.33),
    ("s2n-quic", 3.7, 2.2, 0.81),
    ("tquic", 5.8, 1.31, 0.98),
];
/// Hostile text, which must have no effect on any page.
pub const HOSTILE: &str = "</script><script>alert(1)</script> \"&' \u{1b}[2J too many gaps";

/// Parameters of a made-up run.
pub struct Fixture {
    /// Factors by which the speed of an implementation is multiplied, by its name, to simulate a
    /// regression.
    pub factors: BTreeMap<String, f64>,
    /// Number of rounds, without the round of warm-up.
    pub rounds: i64,
    /// Seed of the figures.
    pub seed: u64,
    /// True for a smaller run: only downloads on one path, and fewer implementations.
    pub small: bool,
    /// Time at which the run began, in seconds since 1970-01-01 UTC.
    pub start: f64,
}

impl Fixture {
    /// Returns the parameters of a full run with this number of rounds.
    pub fn new(rounds: i64, seed: u64) -> Fixture {
        let start = 1_795_250_000.0;
        Fixture { factors: BTreeMap::new(), rounds, seed, small: false, start }
    }

    /// Returns the records in the order in which a run writes them.
    pub fn records(&self) -> Vec<Record> {
        let mut rng = SmallRng::seed_from_u64(self.seed);
        let keys = self.keys();
        let mut records = Vec::new();
        let mut now = self.start;
        for round in -1..self.rounds {
            let mut order: Vec<&Key> = keys.iter().collect();
            order.shuffle(&mut rng);
            for key in order {
                // Workloads other than downloads have only half as many rounds.
                if key.workload != "download" && round >= (self.rounds + 1) / 2 {
                    continue;
                }
                let mut attempts = 1;
                if rng.random_bool(0.02) {
                    // This attempt was disturbed by a busy machine, and is repeated.
                    let end = End::Failed {
                        failure: Failure::Noisy,
                        why: "12 % of CPU time went elsewhere".to_owned(),
                    };
                    records.push(record(key, round, records.len(), 1, now, end));
                    attempts = 2;
                    now += 2.0;
                }
                let end = self.end(key, round, &mut rng);
                records.push(record(key, round, records.len(), attempts, now, end));
                now += 2.5;
            }
        }
        records
    }

    fn keys(&self) -> Vec<Key> {
        let few = ["equic", "noq", "quinn", "s2n-quic"];
        let names = QUIC.iter().map(|one| one.0).filter(|name| !self.small || few.contains(name));
        let names: Vec<&str> = names.collect();
        let mut keys = Vec::new();
        let mut add = |workload: &str, protocol: &str, path: &str, pair: (&str, &str), point| {
            keys.push(Key {
                workload: workload.to_owned(),
                protocol: protocol.to_owned(),
                path: path.to_owned(),
                client: pair.0.to_owned(),
                server: pair.1.to_owned(),
                point,
            });
        };
        for path in ["loopback", "veth-plain"] {
            if self.small && path == "loopback" {
                continue;
            }
            for client in &names {
                for server in &names {
                    add("download", "perf", path, (client, server), BTreeMap::new());
                }
            }
            add("download", "perf-tcp", path, ("tcp-tls", "tcp-tls"), BTreeMap::new());
        }
        if self.small {
            return keys;
        }
        for workload in ["handshakes", "ttfb", "loaded", "upload"] {
            for name in &names {
                add(workload, "perf", "veth-plain", (name, name), BTreeMap::new());
            }
            add(workload, "perf-tcp", "veth-plain", ("tcp-tls", "tcp-tls"), BTreeMap::new());
        }
        for name in ["equic", "quinn", "quiche"] {
            add("requests", "h3", "veth-plain", (name, name), BTreeMap::new());
        }
        for name in &names {
            for value in [106_496, 212_992, 425_984, 851_968, 1_703_936, 3_407_872, 6_815_744] {
                let point = BTreeMap::from([("rcvbuf".to_owned(), f64::from(value).to_string())]);
                add("download", "perf", "veth", (name, name), point);
            }
            for value in ["on", "off"] {
                let point = BTreeMap::from([("gso".to_owned(), value.to_owned())]);
                add("download", "perf", "veth", (name, name), point);
            }
        }
        keys
    }

    fn end(&self, key: &Key, round: i64, rng: &mut SmallRng) -> End {
        let gso_off = key.point.get("gso").is_some_and(|value| value == "off");
        if gso_off && key.client == "quic-go" {
            return End::Unsupported { why: "client: GSO cannot be turned off".to_owned() };
        }
        if (key.client == "noq" || key.server == "noq")
            && key.workload == "download"
            && (rng.random_bool(0.8) || key.server == "quic-go")
        {
            let who = if key.client == "noq" { "client" } else { "server" };
            let why = format!("{who}: {HOSTILE} in stream buffer ({})", rng.random_range(1..99));
            return End::Failed { failure: Failure::Crashed, why };
        }
        if key.client == "tquic" && key.server == "s2n-quic" && round == 3 {
            let why = "client: 999 of 1000 bytes".to_owned();
            return End::Failed { failure: Failure::Truncated, why };
        }
        End::Measured { figures: Box::new(self.figures(key, round, rng)) }
    }

    fn figures(&self, key: &Key, round: i64, rng: &mut SmallRng) -> Figures {
        let of = |name: &str| {
            let own = QUIC.iter().find(|one| one.0 == name);
            let (_, speed, client, server) = own.copied().unwrap_or(("", 24.0, 0.31, 0.31));
            let factor = self.factors.get(name).copied().unwrap_or(1.0);
            (speed * factor, client / factor, server / factor)
        };
        let (client, server) = (of(&key.client), of(&key.server));
        let mut speed = client.0.min(server.0);
        // The first factor is a drift of the machine, which is the same for all cells of a round.
        // The second factor differs between runs.
        speed *= 1.0 + 0.03 * (round as f64 * 0.7).sin() + rng.random_range(-0.04..0.04);
        if key.client == "quiche" && key.server == "quinn" && rng.random_bool(0.45) {
            speed *= 0.55;
        }
        if let Some(buffer) = key.point.get("rcvbuf") {
            let buffer: f64 = buffer.parse().expect("a number");
            speed *= (buffer / 6.8e6).powf(0.12);
        }
        if key.point.get("gso").is_some_and(|value| value == "off") {
            speed *= 0.6;
        }
        let (value, unit, bytes, count) = match &*key.workload {
            "handshakes" => (speed * 700.0, "1/s", 16_000, 2_000),
            "requests" => (speed * 9_000.0, "1/s", 102_400_000, 100_000),
            "loaded" => (0.003 / speed, "s", 6_000_000_000 + 1024 * 3_000, 3_000),
            "ttfb" => (0.004 / speed, "s", 3_000, 3_000),
            _ => (speed * 1e9, "bit/s", 1_000_000_000, 1),
        };
        let cpu = if unit == "bit/s" { 1.0 } else { count as f64 * 2e-4 };
        let seconds = if unit == "bit/s" { 8.0 / speed } else { 3.0 };
        Figures {
            value,
            unit: unit.to_owned(),
            bytes,
            count,
            seconds,
            process_seconds: seconds + 0.02,
            handshake_seconds: (unit == "bit/s").then(|| rng.random_range(0.0012..0.0030)),
            server_cpu_seconds: cpu * server.2 * rng.random_range(0.97..1.03),
            client_cpu_seconds: cpu * client.1 * rng.random_range(0.97..1.03),
            server_peak_rss: rng.random_range(20_000_000..40_000_000),
            client_peak_rss: rng.random_range(20_000_000..40_000_000),
            server_udp_drops: Some(0),
            client_udp_drops: Some(if speed < 3.0 { rng.random_range(0..3000) } else { 0 }),
            softnet_drops: Some(0),
            server_packets_per_send: Some(8.5),
            client_packets_per_receive: Some(17.0),
            chains_verified: (key.workload == "handshakes").then_some(1),
            latency: (key.workload == "loaded").then(|| latency(value)),
            client_effective: Some(effective(&key.client, &key.point)),
            server_effective: Some(effective(&key.server, &key.point)),
            ..Figures::default()
        }
    }

    /// Writes the complete folder of a run.
    pub fn write(&self, dir: &Path) {
        fs::create_dir_all(dir).expect("a folder");
        let mut lines = String::new();
        for record in self.records() {
            lines += &serde_json::to_string(&record).expect("JSON");
            lines.push('\n');
        }
        fs::write(dir.join("samples.jsonl"), lines).expect("samples.jsonl");
        let implementation =
            |name: &str| json!({"name": name, "url": format!("https://example.org/{name}")});
        let plan = json!({
            "schema": "equic.bench.plan/1",
            "options": {"seed": self.seed, "rounds": self.rounds, "paths": ["veth-plain", "loopback"]},
            "implementations": QUIC.map(|one| implementation(one.0)),
            "cells": {"keys": [], "order": [[1, 2, 3]]},
        });
        fs::write(dir.join("plan.json"), plan.to_string()).expect("plan.json");
        fs::write(dir.join("manifest.json"), manifest(self.seed).to_string()).expect("manifest");
        let mut profiles = String::new();
        for (name, ..) in QUIC {
            let profiled = Profiled {
                key: Key {
                    workload: "download".to_owned(),
                    protocol: "perf".to_owned(),
                    path: "veth-plain".to_owned(),
                    client: name.to_owned(),
                    server: name.to_owned(),
                    point: BTreeMap::new(),
                },
                server_split: Split { crypto: 2100, packet_io: 5200, protocol: 2400, other: 300 },
                client_split: Split { crypto: 1800, packet_io: 6100, protocol: 1900, other: 200 },
                server_groups: [(Group::Aead, 2100), (Group::Send, 5200), (Group::Rest, 2700)]
                    .into(),
                client_groups: [(Group::Aead, 1800), (Group::Rest, 8200)].into(),
            };
            profiles += &serde_json::to_string(&profiled).expect("JSON");
            profiles.push('\n');
        }
        fs::write(dir.join("profiles.jsonl"), profiles).expect("profiles.jsonl");
    }
}

/// Returns latencies of small exchanges during a bulk download of 6 GB, with this 99th percentile.
fn latency(p99: f64) -> Latency {
    Latency {
        unloaded: Exchanges { median: p99 / 8.0, p99: p99 / 4.0 },
        loaded: Exchanges { median: p99 / 2.0, p99 },
        bulk_bytes: 6_000_000_000,
    }
}

fn effective(name: &str, point: &BTreeMap<String, String>) -> Effective {
    let buffer = point.get("rcvbuf").map_or(4_194_304, |value| value.parse().expect("a number"));
    Effective {
        implementation: format!("{name} 1.2.3"),
        io: if name == "quiche" { "shared" } else { "native" }.to_owned(),
        receive_buffer: 2 * buffer,
        send_buffer: 8_388_608,
        stream_window: 16 << 20,
        connection_window: 32 << 20,
        congestion: if name == "quic-go" { "newreno" } else { "cubic" }.to_owned(),
        cipher: (name != "quiche").then(|| "TLS_AES_128_GCM_SHA256".to_owned()),
        max_payload: 1452,
        gso: point.get("gso").is_none_or(|value| value == "on"),
        gro: true,
    }
}

fn manifest(seed: u64) -> serde_json::Value {
    json!({
        "schema": "equic.bench.manifest/1",
        "created": "2026-11-21T08:33:20Z",
        "version": "0.1.0",
        "seed": seed,
        "command": ["equic-lab", "bench", "run", "--impl", "tier1", "--path", "veth-plain,loopback"],
        "machine": {"kernel": "6.18.5", "architecture": "x86_64", "cpu_model": "AMD EPYC 7543",
                    "cores": 2, "memory_bytes": 8_589_934_592_u64},
        "cpu_flags": ["sse2", "aes", "pclmulqdq", "avx2", "vaes"],
        "sysctls": {"net.core.rmem_max": "212992", "net.ipv4.tcp_congestion_control": "bbr"},
        "programs": {"quinn": [["target/servers/release/bench-quinn", "0123abcd"]]},
        "locks": {"Cargo.lock": "4567cdef"},
        "findings": [
            {"what": "net.core.rmem_max", "serious": true,
             "found": "212992: sockets get less than they ask for",
             "help": "sysctl -w net.core.rmem_max=8388608"},
            {"what": "steal", "serious": false, "found": "0.4 % of CPU time", "help": ""},
        ],
    })
}

fn record(key: &Key, round: i64, sequence: usize, attempt: u32, started: f64, end: End) -> Record {
    Record {
        key: key.clone(),
        round,
        sequence: sequence as u64,
        attempt,
        started,
        wall_seconds: 2.2,
        end,
        schema: String::new(),
        counts: None,
        why_not: None,
        noise: Noise { steal: 0.004, foreign: 0.01, too_much: false },
        logs: Some(format!("logs/{}_{}/{}/{round}", key.server, key.client, key.workload)),
    }
}
