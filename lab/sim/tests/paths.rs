//! Tests of connections over two paths. Needs the feature `quic`.

use std::time::Duration;

use equic_sim::quic::{Bulk, BulkReceiver, BulkSender, QuicError, bulk};
use equic_sim::{Direction, Named, Simulation, Time, simple, two_path};

fn named() -> Named {
    let link = |rate, delay| Direction::new(rate, Duration::from_millis(delay)).loss_percent(0.5);
    two_path(link(5_000_000, 10), link(10_000_000, 25))
}

fn transfer() -> Bulk {
    let mut transfer = Bulk::new(2_000_000);
    transfer.transport.max_paths = 2;
    transfer
}

#[test]
fn paths_seed_determines_the_run() {
    let sum = |seed| {
        let named = named();
        let mut run = Simulation::new(named.topology, seed).unwrap();
        run.sum_up();
        let ids = bulk(&mut run, named.clients[0], named.servers[0], &transfer()).unwrap();
        run.run(Time::from_secs(100)).unwrap();
        let outcome = run.agent::<BulkReceiver>(ids.receiver).unwrap().outcome();
        assert_eq!((outcome.bytes, &outcome.failure), (2_000_000, &None));
        let paths = run.agent::<BulkSender>(ids.sender).unwrap().paths();
        let interfaces: Vec<u16> = paths.iter().map(|path| path.interface).collect();
        assert_eq!(interfaces, [0, 1]);
        for link in &named.bottlenecks {
            assert!(run.port(link.there()).sent_bytes > 200_000);
        }
        (run.digest(), run.now())
    };
    assert_eq!(sum(1), sum(1));
    assert_ne!(sum(1), sum(2));
}

#[test]
fn paths_need_an_interface_each_at_both_ends() {
    let named = simple(Direction::new(5_000_000, Duration::from_millis(1)));
    let mut run = Simulation::new(named.topology, 1).unwrap();
    let made = bulk(&mut run, named.clients[0], named.servers[0], &transfer());
    assert!(matches!(made, Err(QuicError::TooFewInterfaces(2))), "{made:?}");
}
