//! Simulates TCP transfers at several loss rates, like `lab/sim-cli/oracle/ns3_tcp.py` with ns-3.
//! Run `cargo run --release -p equic-sim --features tcp --example tcp_bulk [megabytes] [seeds]`.

#![allow(clippy::disallowed_methods, reason = "it measures how long runs take")]

use std::time::{Duration, Instant};

use equic_sim::tcp::{Algorithm, Classic, TcpBulk, TcpBulkReceiver, TcpControllerFactory, bulk};
use equic_sim::{Direction, Limit, Queue, Simulation, Time, simple};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let megabytes = arguments.next().transpose()?.unwrap_or(10);
    let seeds = arguments.next().transpose()?.unwrap_or(30);
    println!("{megabytes} MB at 10 Mb/s, 50 ms, queue of 1,000 packets; {seeds} seeds each");
    let transfer = TcpBulk::new(1_000_000 * megabytes);
    for algorithm in [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Bbr] {
        study(&transfer, algorithm, seeds)?;
    }
    for classic in [Classic::Bic, Classic::Vegas, Classic::Westwood] {
        study(&transfer, classic, seeds)?;
    }
    Ok(())
}

/// Prints a line of results for a loss rate: mean completion time, standard deviation, and
/// computing time per run.
fn study(
    transfer: &TcpBulk,
    congestion: impl TcpControllerFactory + Copy + std::fmt::Display + 'static,
    seeds: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let transfer = transfer.clone().congestion(congestion);
    for percent in [0.0, 0.1, 0.5, 1.0] {
        let mut times = Vec::new();
        let (mut events, begun) = (0, Instant::now());
        for seed in 1..=seeds {
            let link = Direction::new(10_000_000, Duration::from_millis(50))
                .queue(Queue::DropTail(Limit::Packets(1_000)));
            let mut named = simple(link.clone());
            // Only data is lost, not acknowledgments, as in the ns-3 scenario.
            let there = named.bottlenecks[0].there();
            *named.topology.direction_mut(there) = link.loss_percent(percent);
            let mut run = Simulation::new(named.topology, seed)?;
            let ids = bulk(&mut run, named.clients[0], named.servers[0], &transfer)?;
            run.run(Time::from_secs(100_000))?;
            events += run.events();
            let outcome = run.agent::<TcpBulkReceiver>(ids.receiver).map(TcpBulkReceiver::outcome);
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
            "{:8} {percent:3} %: {mean:6.1} s, spread {spread:4.1} s; {:.4} s of this machine a run, {:.2} M events/s",
            congestion.to_string(),
            wall / seeds as f64,
            events as f64 / wall / 1e6,
        );
    }
    Ok(())
}
