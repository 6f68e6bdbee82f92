//! Draws one plot of each kind from invented data. The files are written to FOLDER, or to the
//! folder for temporary files if none is given: `cargo run -p equic-report --example gallery --
//! FOLDER`.

use std::path::PathBuf;

use equic_report::plot::{Axis, Bar, BarPlot, EcdfPlot, LinePlot, Phase, PlotError, Series, Shade};
use equic_report::stats::{Interval, Sample};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    let mut rng = StdRng::seed_from_u64(2);
    let plots = [
        ("lines", lines(&mut rng, false)?),
        ("lines-log", lines(&mut rng, true)?),
        ("ecdf", ecdf(&mut rng)?),
        ("bars", bars()?),
    ];
    for (name, plot) in plots {
        plot.write_into(&folder, name, 1.0)?;
    }
    Ok(())
}

/// Returns a noisy rate over time, in windows of 200 ms. It has one level in each of four phases of
/// 15 s.
fn rate(rng: &mut StdRng, levels: [f64; 4]) -> Vec<(f64, f64)> {
    let mut point = |window: u32| {
        let level = levels[window as usize / 75];
        (f64::from(window) / 5.0 + 0.1, level * rng.random_range(0.94..1.06))
    };
    (0..300).map(&mut point).collect()
}

fn lines(rng: &mut StdRng, log: bool) -> Result<equic_report::plot::Svg, PlotError> {
    let y = Axis::new("requests or packets", "/s");
    let mut plot = LinePlot::new(
        "Requests answered to well-behaved clients under a flood of Initials",
        Axis::new("time since the start", "s"),
        if log { y.log() } else { y },
    )
    .subtitle("made-up data: 4 clients, a flood from 3 sources, windows of 200 ms")
    .phase(Phase::new("clients alone", 0.0, 15.0))
    .phase(Phase::new("attack, no gateway", 15.0, 30.0).shade(Shade::Alarm))
    .phase(Phase::new("attack, user-space quotas", 30.0, 45.0).shade(Shade::Caution))
    .phase(Phase::new("attack, gateway", 45.0, 60.0).shade(Shade::Safe))
    .series(Series::new("requests answered", rate(rng, [3200.0, 120.0, 1400.0, 3100.0])));
    if log {
        plot = plot.series(Series::new("packets dropped", rate(rng, [0.0, 0.0, 0.0, 220_000.0])));
    }
    plot.draw()
}

fn ecdf(rng: &mut StdRng) -> Result<equic_report::plot::Svg, PlotError> {
    // A product of uniform random numbers has a long tail, like a latency.
    let mut sample = |least: f64| -> Sample {
        let mut value =
            || least / rng.random_range(0.05_f64..1.0).sqrt() / rng.random_range(0.1..1.0);
        (0..5000).map(|_| value()).collect()
    };
    EcdfPlot::new("Duration of requests", Axis::new("request duration", "s").log())
        .subtitle("made-up data: from the first Initial to the last byte")
        .sample("clients alone", sample(0.002))
        .sample("attack, no gateway", sample(0.15))
        .sample("attack, gateway", sample(0.0023))
        .draw()
}

fn bars() -> Result<equic_report::plot::Svg, PlotError> {
    let bar = |v: f64| Bar::new(v).interval(Interval { low: v * 0.93, high: v * 1.08 });
    let series = ["no gateway", "user-space quotas", "gateway"];
    BarPlot::new("Requests per second by scenario", Axis::new("requests per second", "/s"), series)
        .subtitle("made-up data: median of 10 runs with its 95 % interval")
        .group("clients alone", [bar(3200.0), bar(3150.0), bar(3190.0)])
        .group("parallel clients of the paper", [bar(420.0), bar(1400.0), bar(3000.0)])
        .group("Initial flood, spoofed", [bar(12.0), Bar::missing(), bar(2900.0)])
        .group("short-header garbage", [bar(2000.0), bar(2100.0), bar(3100.0)])
        .draw()
}
