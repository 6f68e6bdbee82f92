//! Measures the cost of the XDP program and of counting a connection. This is the first half of
//! `make bench-gateway`.
//!
//! Measures nanoseconds per packet of the real program with BPF_PROG_TEST_RUN on each path through
//! the program. They are compared with a program that only passes packets, and with the reference
//! program (`reference.rs`). Both run just before, in the same round. Also measures
//! nanoseconds per open/close pair of the ledger, the table of a server's connections. Rounds are
//! interleaved in random order. TEST_RUN skips the driver, so these ratios do not predict packets
//! per second. The other half of `make bench-gateway` is `equic-lab gateway-bench`: it measures how
//! much of a server's capacity remains during a flood.
//!
//! The options `--quick`, `--markdown` and `--json` have the same meaning as in `equic-lab
//! gateway-bench`. The result is also written to out/bench-gateway/program.json. `--object FILE`
//! also measures each path through the program in that file, in the same rounds, to show the effect
//! of a change. The file must have the same version of `abi.h`.

mod packets;
mod program;
mod reference;

use std::error::Error;
use std::hint::black_box;
use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use equic_gateway::{Config, Gateway, ObjectSource};
use equic_report::number::MISSING;
use equic_report::schema::{Machine, Report, Timestamp};
use equic_report::stats::effect::Ratio;
use equic_report::stats::{Interval, Sample};
use equic_report::table::{Column, Style, Table};
use nix::time::{ClockId, clock_gettime};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::Serialize;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SCHEMA: &str = "equic.bench.gateway/2";
const ROUNDS: usize = 40;
const QUICK_ROUNDS: usize = 6;
/// Number of open/close pairs per round.
const PAIRS: u32 = 200_000;
/// Target: maximum nanoseconds per open/close pair.
const PAIR_AIM: f64 = 200.0;

/// A median over the rounds with its 95 % interval. With fewer than 6 rounds, there is no interval.
#[derive(Serialize)]
struct Figure {
    median: f64,
    interval: Option<Interval>,
}

impl Figure {
    fn of(values: impl IntoIterator<Item = f64>) -> Result<Figure> {
        let sample: Sample = values.into_iter().collect();
        Ok(Figure { median: sample.median().ok_or("no rounds")?, interval: sample.median_95() })
    }

    /// Returns the ratio second / first of values that were measured in the same round.
    fn ratio(pairs: impl IntoIterator<Item = (f64, f64)>) -> Result<Figure> {
        let ratio = Ratio::of_pairs(pairs).ok_or("no rounds")?;
        Ok(Figure { median: ratio.value, interval: ratio.interval })
    }

    fn cells(&self, digits: usize) -> [String; 2] {
        let range = |ends: Interval| format!("{:.digits$} to {:.digits$}", ends.low, ends.high);
        let interval = self.interval.map_or_else(|| MISSING.to_owned(), range);
        [format!("{:.digits$}", self.median), interval]
    }
}

/// Cost of opening and closing a connection in the ledger.
#[derive(Serialize)]
struct Pair {
    sources: u32,
    nanos: Figure,
    aim: f64,
}

#[derive(Serialize)]
struct Costs {
    rounds: usize,
    program: program::Costs,
    ledger: Vec<Pair>,
}

/// Measures open/close pairs in one thread. The pairs cycle through `sources` source addresses.
fn ledger(sources: u32, rounds: usize) -> Result<Pair> {
    let gateway = Gateway::load(&Config::for_port(443), ObjectSource::Embedded)?;
    let service = gateway.ledger()?.service_at(0)?;
    let peer = |n: u32| SocketAddr::new(IpAddr::from(Ipv4Addr::from(0x0a00_0000 + n % sources)), 9);
    // Nothing in this loop waits, so the thread's CPU time is the cost, whatever else is running.
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let round = || {
        let start = now()?;
        for n in 0..PAIRS {
            drop(black_box(service.opened(black_box(peer(n)))));
        }
        Ok((now()? - start).as_secs_f64() * 1e9 / f64::from(PAIRS))
    };
    let nanos = (0..rounds).map(|_| round()).collect::<Result<Vec<f64>>>()?;
    let nanos = Figure::of(nanos)?;
    Ok(Pair { sources, nanos, aim: PAIR_AIM })
}

fn tables(costs: &Costs) -> [Table; 2] {
    let mut columns = vec![
        Column::text("path"),
        Column::number("per packet").unit("ns"),
        Column::number("times null"),
        Column::number("95 % interval"),
        Column::number("times reference"),
        Column::number("95 % interval"),
        Column::number("aim"),
    ];
    let compared = costs.program.paths.iter().any(|row| row.times_other.is_some());
    if compared {
        columns.extend([Column::number("times other"), Column::number("95 % interval")]);
    }
    let mut program = Table::new(columns).title("XDP program, BPF_PROG_TEST_RUN");
    for row in costs.program.references.iter().chain(&costs.program.paths) {
        let [nanos, _] = row.nanos.cells(0);
        let [null, null_interval] = row.times_null.cells(1);
        let [times, interval] = row.times_reference.cells(2);
        let aim = row.aim.map_or_else(String::new, |aim| format!("<= {aim}"));
        let mut cells = vec![row.what.to_owned(), nanos, null, null_interval, times, interval, aim];
        if compared {
            cells.extend(row.times_other.as_ref().map_or_else(Default::default, |f| f.cells(2)));
        }
        program.row(cells);
    }
    let columns = [
        Column::text("open and close a connection"),
        Column::number("per pair").unit("ns"),
        Column::number("95 % interval").unit("ns"),
        Column::number("aim").unit("ns"),
    ];
    let mut ledger = Table::new(columns).title("Ledger, one thread");
    for pair in &costs.ledger {
        let what = format!("{} source{}", pair.sources, if pair.sources == 1 { "" } else { "s" });
        let [nanos, interval] = pair.nanos.cells(0);
        ledger.row([what, nanos, interval, format!("<= {:.0}", pair.aim)]);
    }
    [program, ledger]
}

/// Returns the directory in which the workspace stores results.
fn out() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/bench-gateway")
}

fn main() -> Result<()> {
    // Cargo adds the argument `--bench`, so remove it.
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let mut other = None;
    if let Some(at) = arguments.iter().position(|argument| argument == "--object") {
        arguments.remove(at);
        if at == arguments.len() {
            return Err("`--object` wants a file".into());
        }
        other = Some(ObjectSource::Path(arguments.remove(at).into()));
    }
    let known = ["--quick", "--markdown", "--json"];
    if let Some(unknown) = arguments.iter().find(|argument| !known.contains(&argument.as_str())) {
        return Err(format!("`{unknown}` is none of {}", known.join(", ")).into());
    }
    let asked = |name: &str| arguments.iter().any(|argument| argument == name);
    let rounds = if asked("--quick") { QUICK_ROUNDS } else { ROUNDS };
    let created = Timestamp::new(SystemTime::now()).ok_or("the clock is before 1970")?;
    let mut rng = SmallRng::seed_from_u64(1);
    let tell = |round: usize| {
        if std::io::stderr().is_terminal() {
            let end = if round == rounds { "\r\x1b[K" } else { "" };
            eprint!("\rround {round} of {rounds}{end}");
        }
    };
    let program = program::measure(rounds, other.as_ref(), &mut rng, &tell)?;
    let ledger = [1, 50_000].map(|sources| ledger(sources, rounds));
    let ledger = ledger.into_iter().collect::<Result<_>>()?;
    let report = Report {
        schema: SCHEMA.parse()?,
        created,
        machine: Machine::read()?,
        command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        data: Costs { rounds, program, ledger },
    };
    std::fs::create_dir_all(out())?;
    report.write(out().join("program.json"))?;
    if asked("--json") {
        print!("{}", report.to_json()?);
        return Ok(());
    }
    for table in tables(&report.data) {
        let plain = || table.render(Style::stdout());
        println!("{}", if asked("--markdown") { table.markdown() } else { plain() });
    }
    let [call, interval] = report.data.program.call_nanos.cells(1);
    println!("a call that returns, of a function that does nothing: {call} ns ({interval})\n");
    println!("{}\n", report.machine);
    Ok(())
}
