//! Tests with thousands of flows in one run.

use std::time::Duration;

use equic_sim::{
    Direction, End, FqCoDel, OnOff, OnOffConfig, Queue, Simulation, Sink, Time, dumbbell,
};

/// Simulates this number of host pairs over one link, each with a flow of 20 datagrams. Returns the
/// number of events.
fn events(pairs: usize) -> u64 {
    let queue = Queue::FqCoDel(FqCoDel::default());
    let bottleneck = Direction::new(200_000_000_000, Duration::from_millis(10)).queue(queue);
    let named = dumbbell(pairs, bottleneck);
    let mut run = Simulation::new(named.topology, 1).expect("there can be such a network");
    let stop = Some(Time::from_millis(20));
    let config = OnOffConfig { stop, ..OnOffConfig::steady(9_600_000) };
    let flows: Vec<_> = (named.clients.iter().zip(&named.servers))
        .map(|(client, server)| {
            let (from, to) = (run.address(*client).unwrap(), run.address(*server).unwrap());
            let flow = run.flow(from, to).expect("there is a way");
            let source = OnOff::new(config, to, flow, run.agent_seed(from)).expect("it can be");
            run.attach(from, Box::new(source));
            run.attach(to, Box::new(Sink::default()));
            flow
        })
        .collect();
    assert_eq!(run.run(Time::from_secs(100)), Ok(End::Idle));
    for flow in flows {
        let stats = run.flow_stats(flow);
        assert_eq!((stats.sent, stats.delivered), (20, 20));
    }
    run.events()
}

/// A run with ten thousand flows must have a hundred times as many events as a run with a hundred
/// flows, except for effects of queueing.
#[test]
fn simulation_events_grow_linearly_to_ten_thousand_flows() {
    let (few, many) = (events(100), events(10_000));
    assert!(many > 800_000 && many < 110 * few, "{few} {many}");
}
