//! Simulates a transfer over a lossy link, and measures the speed of the simulation. Run `cargo run
//! --release -p equic-sim --features quic --example bulk [megabytes] [runs]`.

#![allow(clippy::disallowed_methods, reason = "it measures how long runs take")]

use std::time::{Duration, Instant};

use equic_sim::quic::{Algorithm, Bulk, BulkReceiver, bulk};
use equic_sim::{Direction, Simulation, Time, simple};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let megabytes = arguments.next().transpose()?.unwrap_or(10);
    let runs = arguments.next().transpose()?.unwrap_or(5);
    println!("{megabytes} MB at 10 Mb/s, 50 ms, 1 % loss; {runs} seeds each");
    for congestion in [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Bbr] {
        let mut times = Vec::new();
        let (mut events, begun) = (0, Instant::now());
        for seed in 1..=runs {
            let link = Direction::new(10_000_000, Duration::from_millis(50)).loss_percent(1.0);
            let named = simple(link);
            let mut run = Simulation::new(named.topology, seed)?;
            let transfer = Bulk::new(1_000_000 * megabytes).congestion(congestion);
            let ids = bulk(&mut run, named.clients[0], named.servers[0], &transfer)?;
            run.run(Time::from_secs(100_000))?;
            events += run.events();
            let outcome = run.agent::<BulkReceiver>(ids.receiver).map(BulkReceiver::outcome);
            match outcome.map(|outcome| (outcome.completed, &outcome.failure)) {
                Some((Some(completed), None)) => times.push(completed.as_secs_f64()),
                other => println!("seed {seed}: {other:?}"),
            }
        }
        let wall = begun.elapsed().as_secs_f64();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>();
        let spread = (variance / (times.len() as f64 - 1.0).max(1.0)).sqrt();
        println!(
            "{:8} {mean:6.1} s, spread {spread:4.1} s; {:.4} s of this machine a run, {:.2} M events/s",
            congestion.to_string(),
            wall / runs as f64,
            events as f64 / wall / 1e6,
        );
    }
    Ok(())
}
