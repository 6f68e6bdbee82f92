//! Measures the speed of the network simulation for several numbers of flows. Run `cargo run
//! --release -p equic-sim --example events [flows ...]`.

#![allow(clippy::disallowed_methods, reason = "it measures how long runs take")]

use std::time::{Duration, Instant};

use equic_sim::{
    CoDel, Direction, FqCoDel, OnOff, OnOffConfig, Queue, Red, Simulation, Sink, Time, dumbbell,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Result<Vec<usize>, _> = std::env::args().skip(1).map(|text| text.parse()).collect();
    let given = Some(given?).filter(|given| !given.is_empty() && !given.contains(&0));
    for pairs in given.unwrap_or_else(|| vec![1, 100, 10_000]) {
        for (name, queue) in [
            ("drop-tail", Queue::default()),
            ("RED", Queue::Red(Red::default())),
            ("CoDel", Queue::CoDel(CoDel::default())),
            ("FQ-CoDel", Queue::FqCoDel(FqCoDel::default())),
        ] {
            // The bottleneck is slightly slower than the traffic. The run has two million datagrams
            // in total.
            let rate = 10_000_000 * pairs as u64;
            let delay = Duration::from_millis(20);
            let named = dumbbell(pairs, Direction::new(rate, delay).queue(queue));
            let begun = Instant::now();
            let mut run = Simulation::new(named.topology, 1)?;
            let millis = 2_000_000 / pairs as u64;
            for (index, (client, server)) in named.clients.iter().zip(&named.servers).enumerate() {
                let (from, to) = (run.address(*client)?, run.address(*server)?);
                let flow = run.flow(from, to)?;
                // The start times are spread over one millisecond.
                let start = Time::from_nanos(1_000_000 * index as u64 / pairs as u64);
                let stop = Some(Time::from_millis(millis));
                let config = OnOffConfig { start, stop, ..OnOffConfig::steady(9_600_000) };
                run.attach(from, Box::new(OnOff::new(config, to, flow, run.agent_seed(from))?));
                run.attach(to, Box::new(Sink::default()));
            }
            let prepared = begun.elapsed().as_secs_f64();
            run.run(Time::END)?;
            let took = begun.elapsed().as_secs_f64() - prepared;
            println!(
                "{pairs:6} flows, {name:9} {:9} events in {took:.2} s: {:.2} M/s; {prepared:.3} s to prepare",
                run.events(),
                run.events() as f64 / took / 1e6,
            );
        }
    }
    Ok(())
}
