//! Trials of plugins for forward error correction. The application uses such a plugin at both ends.

use std::time::Duration;

use equic_net::{Chance, Link};
use equic_transport::TransportConfig;

use super::{PATIENCE, Run, Setup, milliseconds};
use crate::network::{End, Network, sent_hash};
use crate::pair::TrialError;

/// Size of an answer, in bytes. Its seven packets and their repair frames fit into the initial
/// congestion window.
const ANSWER: u64 = 7_000;

/// Maximum number of answers on one connection.
const ANSWERS: usize = 5;

/// Returns the number of packets that the server declared lost.
fn lost(network: &mut Network) -> Result<u64, TrialError> {
    let server = network.connection(End::Server);
    let server = server.ok_or_else(|| TrialError::of("there is no connection"))?;
    Ok(server.stats().packets_lost)
}

/// Measures the percentage of answers that are late if the path loses `percent` percent of the
/// packets. Each connection ends after its first loss. The congestion window shrinks after a loss,
/// with and without the plugin, which would affect the later answers.
fn answers(setup: &Setup, percent: f64) -> Result<Run, TrialError> {
    let drop = Chance::percent(percent);
    let link = Link { delay: milliseconds(20), drop, ..Link::default() };
    let mut run = Run { value: 0.0, times: Vec::new(), lost: 0, intact: true };
    for number in 0..(200 / setup.part).max(60) {
        let one = Setup { push: None, own: None, seed: setup.seed + number, part: 1 };
        let mut network = one.connect(&link, &TransportConfig::default())?.network;
        if let Some(plugin) = &setup.own {
            for end in [End::Server, End::Client] {
                let connection = network.connection(end);
                let connection =
                    connection.ok_or_else(|| TrialError::of("there is no connection"))?;
                plugin.attach(connection).map_err(TrialError::of)?;
            }
        }
        let before = lost(&mut network)?;
        for _ in 0..ANSWERS {
            let carried = network.transfer_hashed(End::Server, ANSWER, PATIENCE);
            let carried = carried.map_err(TrialError::of)?;
            run.times.push(carried.took.as_secs_f64() * 1e3);
            run.intact &= carried.sha256 == sent_hash(ANSWER);
            // Wait until the connection has detected its losses.
            network.pass(Duration::from_millis(300)).map_err(TrialError::of)?;
            if lost(&mut network)? > before {
                break;
            }
        }
        run.lost += lost(&mut network)? - before;
        for end in [End::Client, End::Server] {
            if let Some((_, error)) = network.failures(end).pop() {
                return Err(TrialError::of(error));
            }
        }
    }
    let usual = run.times.iter().copied().fold(f64::INFINITY, f64::min);
    let late = run.times.iter().filter(|time| **time > usual + 20.0).count();
    run.value = 100.0 * late as f64 / run.times.len() as f64;
    Ok(run)
}

/// Runs the trial of the plugin `fec-xor` on a path that mostly loses single packets.
pub(super) fn xor(setup: &Setup) -> Result<Run, TrialError> {
    answers(setup, 3.0)
}

/// Runs the trial of the plugin `fec-rlc` on a path that often loses two packets in a row.
pub(super) fn rlc(setup: &Setup) -> Result<Run, TrialError> {
    answers(setup, 8.0)
}
