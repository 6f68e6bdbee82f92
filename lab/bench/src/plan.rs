//! The plan of a run, `plan.json`: all cells of the run in their order, fixed before the first
//! attempt.

use std::path::{Path, PathBuf};

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};

use crate::digest::sha256;
use crate::extras::{Extras, Purpose};
use crate::pair::pairs;
use crate::sweep::{Sweep, SweepPoint, points};
use crate::watch::Bounds;
use crate::{BenchError, Implementation, Key, NetPath, Places, Size, Workload};

/// Version of the schema of a plan.
pub const PLAN: &str = "equic.bench.plan/1";
/// Name of the plan in the folder of a run.
pub const FILE: &str = "plan.json";

/// Options of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Workloads to measure.
    pub workloads: Vec<Workload>,
    /// Paths between client and server, as [`NetPath::read`] reads them.
    pub paths: Vec<String>,
    /// Settings that vary, as [`Sweep::read`] reads them.
    pub sweeps: Vec<String>,
    /// The only protocol to use. With `None`, a pair uses the first protocol that client and server
    /// share.
    pub protocol: Option<String>,
    /// True if each implementation runs only with itself.
    pub same: bool,
    /// Size of each workload.
    pub size: Size,
    /// Number of rounds in which every cell is measured.
    pub rounds: u32,
    /// True if a warm-up round, which does not count, comes first.
    pub warmup: bool,
    /// Seed of the order of the cells, and of all other random choices.
    pub seed: u64,
    /// The CPUs on which servers run.
    pub server_cpus: Vec<usize>,
    /// The CPUs on which clients run.
    pub client_cpus: Vec<usize>,
    /// Maximum number of attempts that a disturbed cell gets in a round.
    pub attempts: u32,
    /// Limits of other activity on the machine. Above them, an attempt counts as disturbed.
    pub bounds: Bounds,
    /// Extra recordings. They are made in an additional attempt at each cell, which does not count.
    #[serde(default)]
    pub extras: Extras,
    /// Folder of existing certificates. With `None`, certificates are created in the folder of the
    /// run.
    pub certificates: Option<PathBuf>,
    /// File with the list of implementations. `None` means the built-in list.
    pub registry: Option<PathBuf>,
    /// Folder of the built implementations.
    pub built: PathBuf,
}

/// An implementation with the digests of its files at the time when the plan was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frozen {
    /// Entry of the implementation in the registry.
    #[serde(flatten)]
    pub implementation: Implementation,
    /// The files of the implementation's commands, with their SHA-256.
    pub files: Vec<(PathBuf, String)>,
}

/// A plan, which no longer changes during the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// [`PLAN`].
    pub schema: String,
    /// Options from which the plan was made.
    pub options: Options,
    /// Implementations that take part.
    pub implementations: Vec<Frozen>,
    /// Cells to run, and their order.
    pub cells: Cells,
}

/// All cells of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cells {
    /// The cells, without duplicates.
    pub keys: Vec<Key>,
    /// The order in each round, as indices of `keys`. The warm-up round comes first, if there is
    /// one.
    pub order: Vec<Vec<usize>>,
}

/// A turn: one scheduled measurement of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn<'a> {
    /// Position in the order of the whole plan, counted from 0.
    pub sequence: u64,
    /// Number of the round, counted from 0. The warm-up round, whose figures do not count, is -1.
    pub round: i64,
    /// Purpose of the turn.
    pub purpose: Purpose,
    /// The cell.
    pub key: &'a Key,
}

impl RunPlan {
    /// Makes a plan. The same options and implementations always give the same plan.
    ///
    /// # Errors
    /// Fails if a sweep or a path is invalid, if there is no cell to run, or if a program cannot be
    /// read.
    pub fn new(
        options: Options,
        implementations: &[Implementation],
        places: &Places,
    ) -> Result<RunPlan, BenchError> {
        let keys = keys(&options, implementations)?;
        if keys.is_empty() {
            let names: Vec<&str> = implementations.iter().map(|one| one.name.as_str()).collect();
            let workloads: Vec<&str> = options.workloads.iter().map(|one| one.name()).collect();
            return Err(BenchError::Plan(format!(
                "nothing to run: no two of {} share a protocol of {}",
                names.join(", "),
                workloads.join(", ")
            )));
        }
        let taking_part = |one: &&Implementation| {
            keys.iter().any(|key| key.client == one.name || key.server == one.name)
        };
        let frozen = implementations
            .iter()
            .filter(taking_part)
            .map(|one| Frozen::new(one, places))
            .collect::<Result<_, _>>()?;
        let order = order(keys.len(), &options);
        let schema = PLAN.to_owned();
        Ok(RunPlan { schema, options, implementations: frozen, cells: Cells { keys, order } })
    }

    /// Returns one turn for each cell in each round, in order.
    pub fn turns(&self) -> impl Iterator<Item = Turn<'_>> {
        let first = if self.options.warmup { -1 } else { 0 };
        let rounds = (first..).zip(&self.cells.order);
        let cells = rounds.flat_map(|(round, order)| order.iter().map(move |cell| (round, *cell)));
        let keyed = cells.filter_map(|(round, cell)| Some((round, self.cells.keys.get(cell)?)));
        let purpose = Purpose::Figures;
        (0..).zip(keyed).map(move |(sequence, (round, key))| Turn { sequence, round, purpose, key })
    }

    /// Returns the number of turns.
    pub fn len(&self) -> usize {
        self.cells.order.iter().map(Vec::len).sum()
    }

    /// Returns the additional turns of all cells that are made for extra recordings.
    pub fn extra_turns(&self) -> impl Iterator<Item = Turn<'_>> {
        let purposes = self.options.extras.purposes().into_iter();
        let turns =
            purposes.flat_map(|purpose| self.cells.keys.iter().map(move |key| (purpose, key)));
        let sequences = self.len() as u64..;
        sequences.zip(turns).map(|(sequence, (purpose, key))| Turn {
            sequence,
            round: -1,
            purpose,
            key,
        })
    }

    /// Returns true if there are no turns.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the implementation with this name.
    pub fn implementation(&self, name: &str) -> Option<&Implementation> {
        self.implementations.iter().map(|one| &one.implementation).find(|one| one.name == name)
    }

    /// Returns the paths of the run, each with its name in records.
    ///
    /// # Errors
    /// [`BenchError::Path`].
    pub fn paths(&self) -> Result<Vec<(String, NetPath)>, BenchError> {
        paths(&self.options)
    }

    /// Writes the plan into the folder of a run.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn write(&self, folder: &Path) -> Result<(), BenchError> {
        let path = folder.join(FILE);
        let failed = |source| BenchError::Write { path: path.clone(), source };
        let text = serde_json::to_string_pretty(self).map_err(|e| failed(e.into()))?;
        std::fs::write(&path, text + "\n").map_err(failed)
    }

    /// Reads the plan from the folder of a run.
    ///
    /// # Errors
    /// [`BenchError::Resume`].
    pub fn read(folder: &Path) -> Result<RunPlan, BenchError> {
        let wrong = |why: String| BenchError::Resume { path: folder.to_owned(), why };
        let text = std::fs::read_to_string(folder.join(FILE))
            .map_err(|error| wrong(format!("{FILE}: {error}")))?;
        let plan: RunPlan =
            serde_json::from_str(&text).map_err(|error| wrong(format!("{FILE}: {error}")))?;
        if plan.schema == PLAN {
            Ok(plan)
        } else {
            Err(wrong(format!("{FILE} has the unexpected schema {}", plan.schema)))
        }
    }

    /// Describes how this plan differs from a new plan with the same options. Returns `None` if
    /// both are equal.
    pub fn difference(&self, now: &RunPlan) -> Option<String> {
        for then in &self.implementations {
            let name = &then.implementation.name;
            let found = now.implementations.iter().find(|one| one.implementation.name == *name);
            match found {
                None => return Some(format!("the implementation {name} is no longer available")),
                Some(found) if found.files != then.files => {
                    return Some(format!("the program of {name} has changed"));
                }
                Some(found) if found != then => {
                    return Some(format!(
                        "the entry of {name} in the list of implementations has changed"
                    ));
                }
                Some(_) => {}
            }
        }
        (self != now)
            .then(|| "this version of the program would run the cells in another order".to_owned())
    }
}

impl Frozen {
    fn new(one: &Implementation, places: &Places) -> Result<Frozen, BenchError> {
        let mut files = Vec::new();
        for command in [&one.command, &one.endpoint] {
            let Ok(program) = places.program(command) else { continue };
            let words = places.fill(command).into_iter().skip(1).map(PathBuf::from);
            for path in std::iter::once(program).chain(words) {
                if path.is_file() && !files.iter().any(|(known, _)| *known == path) {
                    let digest = sha256(&path)?;
                    files.push((path, digest));
                }
            }
        }
        Ok(Frozen { implementation: one.clone(), files })
    }
}

fn paths(options: &Options) -> Result<Vec<(String, NetPath)>, BenchError> {
    let mut paths: Vec<(String, NetPath)> = Vec::new();
    for text in &options.paths {
        let path = NetPath::read(text)?;
        let name = path.name();
        if paths.iter().any(|(known, _)| *known == name) {
            let why = "the path occurs twice".to_owned();
            return Err(BenchError::Path { text: text.clone(), why });
        }
        paths.push((name, path));
    }
    Ok(paths)
}

/// Returns the cells of a run: every workload on every path at every sweep point, for every pair of
/// client and server. The workload `idle` measures memory, which does not depend on the path, so it
/// runs only on the first path.
fn keys(options: &Options, all: &[Implementation]) -> Result<Vec<Key>, BenchError> {
    let sweeps =
        options.sweeps.iter().map(|text| Sweep::read(text)).collect::<Result<Vec<_>, _>>()?;
    let points: Vec<SweepPoint> = points(&sweeps)?;
    let paths = paths(options)?;
    let mut keys = Vec::new();
    for (index, (path, _)) in paths.iter().enumerate() {
        for workload in &options.workloads {
            if *workload == Workload::Idle && index > 0 {
                continue;
            }
            for pair in pairs(all, *workload, options.protocol.as_deref(), options.same) {
                keys.extend(points.iter().map(|point| Key {
                    workload: workload.name().to_owned(),
                    protocol: pair.protocol.to_owned(),
                    path: path.clone(),
                    client: pair.client.name.clone(),
                    server: pair.server.name.clone(),
                    point: point.clone(),
                }));
            }
        }
    }
    Ok(keys)
}

/// Returns the order of the cells. Every round has each cell once, in random order, so that changes
/// of the machine affect all cells equally.
fn order(cells: usize, options: &Options) -> Vec<Vec<usize>> {
    let mut rng = SmallRng::seed_from_u64(options.seed);
    let rounds = options.rounds + u32::from(options.warmup);
    let round = |_| {
        let mut order: Vec<usize> = (0..cells).collect();
        order.shuffle(&mut rng);
        order
    };
    (0..rounds).map(round).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
