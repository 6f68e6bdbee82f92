//! Tests of the transport with TLS in virtual time. Needs the feature `tls`.

mod common;

use std::time::Duration;

use equic_sim::quic::{Bulk, BulkIds, BulkReceiver, Protection, Resumption, bulk};
use equic_sim::{Direction, End, Simulation, Time, simple};

/// Runs a transfer with TLS over a lossy link.
fn play(resumption: Resumption, seed: u64) -> (Simulation, BulkIds) {
    let link = Direction::new(10_000_000, Duration::from_millis(50)).loss_percent(1.0);
    let named = simple(link);
    let mut run = Simulation::new(named.topology, seed).expect("there can be such a network");
    run.sum_up();
    let transfer = Bulk { protection: Protection::Tls, resumption, ..Bulk::new(200_000) };
    let ids = bulk(&mut run, named.clients[0], named.servers[0], &transfer).expect("it can be");
    run.run(Time::from_secs(1_000)).expect("time goes on");
    let outcome = run.agent::<BulkReceiver>(ids.receiver).expect("it is the receiver").outcome();
    assert_eq!((outcome.failure.as_deref(), outcome.bytes), (None, 200_000));
    (run, ids)
}

const ALL: [Resumption; 3] = [Resumption::None, Resumption::Session, Resumption::EarlyData];

/// Keys, signatures and ciphertext must depend only on the seed, so two runs with the same seed
/// must be identical.
#[test]
fn tls_seed_determines_the_run() {
    for resumption in ALL {
        let sum = |seed| play(resumption, seed).0.digest();
        assert!(sum(1).is_some());
        assert_eq!(sum(1), sum(1), "{resumption:?}");
        assert_ne!(sum(1), sum(2), "{resumption:?}");
    }
}

#[test]
fn tls_seed_determines_the_run_in_another_process() {
    let test = "tls_seed_determines_the_run_in_another_process";
    common::same_in_another_process(test, &["None", "Session", "EarlyData"], |name| {
        let resumption = ALL.into_iter().find(|one| format!("{one:?}") == name);
        play(resumption.expect("it is one of them"), 3).0
    });
}

/// Two runs alternate on one thread. They must not use each other's random numbers.
#[test]
fn tls_runs_on_one_thread_are_independent() {
    let alone = play(Resumption::None, 5).0.digest();
    let named = simple(Direction::new(10_000_000, Duration::from_millis(50)).loss_percent(1.0));
    let transfer = Bulk { protection: Protection::Tls, ..Bulk::new(200_000) };
    let mut runs: Vec<Simulation> = [5, 6]
        .map(|seed| {
            let mut run = Simulation::new(named.topology.clone(), seed).unwrap();
            run.sum_up();
            bulk(&mut run, named.clients[0], named.servers[0], &transfer).unwrap();
            run
        })
        .into();
    // The runs alternate during their handshakes. Then each continues to its end, which must be the
    // same as that of `alone`.
    let mut over = [false; 2];
    for millis in (0..1_000).step_by(7).chain([1_000_000]) {
        for (run, over) in runs.iter_mut().zip(&mut over) {
            *over = *over || run.run(Time::from_millis(millis)).unwrap() == End::Finished;
        }
    }
    assert_eq!(over, [true; 2]);
    assert_eq!(runs[0].digest(), alone);
}
