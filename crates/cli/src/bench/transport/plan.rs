//! Plan of the measurements: workloads, sizes, rounds, and routes.

use equic_bench::transport::Route;
use equic_bench::{Size, Workload};
use equic_harness::allowed_cpus;
use serde::Serialize;

use super::Args;
use crate::failure::{Done, Failure};

/// Choices for the measurements.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TransportPlan {
    /// Number of rounds, in each of which everything is measured once.
    pub rounds: usize,
    /// Routes between client and server.
    pub routes: Vec<Route>,
    pub workloads: Vec<Workload>,
    pub size: Size,
    /// The CPUs of servers and of clients.
    pub cpus: (usize, usize),
    /// Seed of the order of the measurements and of the intervals.
    pub seed: u64,
}

/// Reads the name of a path.
pub(super) fn route(name: &str) -> Result<Route, String> {
    let known = [Route::Loopback, Route::Veth];
    known
        .into_iter()
        .find(|route| route.name() == name)
        .ok_or_else(|| "there are loopback and veth".to_owned())
}

/// Reads the name of a workload.
pub(super) fn workload(name: &str) -> Result<Workload, String> {
    Workload::named(name).ok_or_else(|| {
        let names: Vec<&str> = Workload::TRANSPORT.iter().map(|one| one.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

impl TransportPlan {
    pub(super) fn new(args: &Args) -> Done<TransportPlan> {
        let [server, client, ..] = allowed_cpus()?[..] else {
            return Err(Failure::new(
                "one CPU cannot tell what a server costs and what its client: \
                 the benchmark needs two",
            ));
        };
        let root = nix::unistd::geteuid().is_root();
        let routes = match &args.path[..] {
            [] if root => vec![Route::Loopback, Route::Veth],
            [] => vec![Route::Loopback],
            chosen => {
                let mut chosen = chosen.to_vec();
                chosen.sort_unstable();
                chosen.dedup();
                chosen
            }
        };
        if routes.contains(&Route::Veth) && !root {
            return Err(Failure::new("veth needs root, to make network namespaces")
                .mend("run it with sudo, or with `--path loopback`"));
        }
        let chosen = |one: &Workload| args.only.is_empty() || args.only.contains(one);
        let (rounds, bytes, seconds, connections) =
            if args.quick { (2, 100_000_000, 1.0, 500) } else { (7, 1_000_000_000, 3.0, 10_000) };
        Ok(TransportPlan {
            rounds: args.runs.map_or(rounds, usize::from),
            routes,
            workloads: Workload::TRANSPORT.into_iter().filter(chosen).collect(),
            size: Size {
                bytes: args.bytes.unwrap_or(bytes),
                streams: 100,
                seconds: args.seconds.map_or(seconds, f64::from),
                handshakes: 8,
                requests: 32,
                connections: args.connections.map_or(connections, u64::from),
                parallel: 1,
                grace: f64::from(args.grace),
            },
            cpus: (server, client),
            seed: args.seed,
        })
    }

    /// Whether the routes need network namespaces.
    pub(super) fn needs_lab(&self) -> bool {
        self.routes.contains(&Route::Veth)
    }
}
