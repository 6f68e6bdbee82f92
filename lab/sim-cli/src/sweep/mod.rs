//! `equic-lab sim sweep` and `equic-lab sim merge`: run every cell of a grid with every seed, and
//! join the parts of a sweep. A cell is one combination of the values of a grid.
//!
//! * `store.rs`: the directory of a sweep;
//! * `rows.rs`: the rows of results;
//! * `finish.rs`: the files of the result, and the table that is printed;
//! * `compare.rs`: compares two sweeps; `differ.rs`: finds the keys in which their scenarios
//!   differ.

mod compare;
mod differ;
mod finish;
mod rows;
mod store;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use equic_report::number;
use equic_scenario::command::{Merge, Shard, Sweep};
use equic_scenario::play::{Part, play};
use equic_scenario::{Grid, Scenario};
use indicatif::ProgressBar;

use crate::failure::{Failure, Result};
use crate::{memory, output, run};
pub(crate) use compare::run as compare;
use store::{About, Runs, Store};

/// Fixed cost of simulating a connection, expressed as the number of bytes whose transfer costs the
/// same.
const FIXED: u64 = 50_000;

/// All runs of a grid. Each run simulates one cell with one seed.
struct SweepPlan<'a> {
    cells: &'a [Scenario],
    /// For each cell, the number of its first run. The last entry is the number of all runs.
    first: Vec<usize>,
    /// True if a flow of any cell has an application other than a single transfer.
    applications: bool,
}

impl SweepPlan<'_> {
    fn new(grid: &Grid) -> SweepPlan<'_> {
        let (cells, mut first) = (grid.scenarios(), vec![0]);
        for (cell, scenario) in cells.iter().enumerate() {
            first.push(first[cell] + scenario.seeds.len());
        }
        let applications = cells.iter().any(rows::has_applications);
        SweepPlan { cells, first, applications }
    }

    fn runs(&self) -> usize {
        self.first[self.cells.len()]
    }

    /// Returns the cell and the seed of a run.
    fn find(&self, run: usize) -> (usize, u64) {
        let cell = self.first.partition_point(|first| *first <= run) - 1;
        (cell, self.cells[cell].seeds[run - self.first[cell]])
    }

    /// Returns a rough estimate of a run's cost, in bytes: the bytes that it transfers, and a fixed
    /// number for each connection.
    fn cost(&self, run: usize) -> u64 {
        let flows = self.cells[self.find(run).0].flows.iter();
        let unlimited = 10_000_000;
        let bytes = flows
            .map(|flow| flow.count as u64 * flow.size.unwrap_or(unlimited).saturating_add(FIXED));
        bytes.fold(0, u64::saturating_add)
    }
}

pub(crate) fn sweep(args: &Sweep) -> Result {
    // The command line requires both, unless it has --schema.
    let (Some(grid), Some(out)) = (&args.grid, &args.out) else {
        return output::text(format_args!("{:#}\n", equic_scenario::grid_schema()));
    };
    let grid = Grid::load(grid)?;
    let plan = SweepPlan::new(&grid);
    let about = About::new(args.shard, plan.runs());
    let own = (0..plan.runs()).filter(|run| about.has(*run)).count();
    let shown = format!(
        "{} cells, {} runs",
        number::count(plan.cells.len() as u64),
        number::count(own as u64)
    );
    if args.dry_run {
        return output::text(format_args!("{shown}\n"));
    }
    let threads = memory::threads(plan.cells, run::threads(args.threads).min(own.max(1)))?;
    let (mut store, mut runs) = Store::open(out, &grid, &about)?;
    let missing: Vec<usize> =
        (0..plan.runs()).filter(|run| about.has(*run) && !runs.contains_key(run)).collect();
    if !runs.is_empty() {
        output::notice(format_args!("{} of {own} runs are already complete", runs.len()));
    }
    play_missing(threads, &plan, &grid, &missing, &mut store, &mut runs)?;
    finish::finish(out, &grid, &runs)?;
    if about.shards > 1 {
        let out = out.display();
        return output::text(format_args!(
            "{shown}, part {}/{} of the sweep: {out}\n`equic-lab sim merge OUT {out} ...` joins all parts\n",
            about.shard, about.shards
        ));
    }
    finish::print(out, &grid, &runs, &shown)
}

fn play_missing(
    threads: usize,
    plan: &SweepPlan<'_>,
    grid: &Grid,
    missing: &[usize],
    store: &mut Store,
    runs: &mut Runs,
) -> Result {
    let progress = progress(missing.iter().map(|run| plan.cost(*run)).sum(), missing.len());
    let next = AtomicUsize::new(0);
    let shared = Mutex::new((store, runs, None::<Failure>));
    let work = || {
        while let Some(run) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (cell, seed) = plan.find(*run);
            let played = play(&plan.cells[cell], seed, Part::All);
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let (store, runs, failure) = &mut *shared;
            let kept = played.map_err(Failure::from).and_then(|outcome| {
                let (labels, scenario) = (grid.labels(cell), &plan.cells[cell]);
                let rows = rows::lines(&labels, cell, scenario, &outcome, plan.applications);
                store.add(*run, &rows)?;
                runs.insert(*run, rows);
                Ok(())
            });
            if let Err(error) = kept {
                // Makes all threads stop after their current runs.
                next.store(missing.len(), Ordering::Relaxed);
                failure.get_or_insert(error);
            }
            progress.inc(plan.cost(*run));
            progress.set_message(format!(
                "{} of {} runs",
                next.load(Ordering::Relaxed).min(missing.len()),
                missing.len()
            ));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, missing.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    progress.finish_and_clear();
    let (_, runs, failure) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure {
        None => Ok(()),
        Some(Failure::Failed(message)) => Err(Failure::new(format!(
            "{message}\n {} completed runs are stored: repeat the same command to continue",
            runs.len()
        ))),
        Some(other) => Err(other),
    }
}

/// Returns a progress bar, which is hidden if standard error is not a terminal. It counts
/// transferred bytes instead of runs, because some runs cost far more than others.
fn progress(cost: u64, runs: usize) -> ProgressBar {
    let bar = run::bar(cost, "{bar:40} {percent} %, {msg}, {eta} left");
    bar.set_message(format!("{runs} runs"));
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

pub(crate) fn merge(args: &Merge) -> Result {
    let mut first: Option<(Grid, About)> = None;
    let mut seen = Vec::new();
    let mut all = Runs::new();
    for part in &args.parts {
        let (grid, about, runs) = store::read(part)?;
        let shown = part.display();
        match &first {
            None => first = Some((grid, about.clone())),
            Some((other, one)) => {
                let same = about.is_part_of_the_same(one);
                let grids = other.text() == grid.text() && other.traces() == grid.traces();
                if !grids || !same {
                    return Err(Failure::new(format!(
                        "{shown} and {} are not parts of the same sweep: their grids, releases or numbers of parts differ",
                        args.parts[0].display()
                    )));
                }
            }
        }
        if seen.contains(&about.shard) {
            return Err(Failure::new(format!(
                "{shown}: part {}/{} was given twice",
                about.shard, about.shards
            )));
        }
        seen.push(about.shard);
        all.extend(runs);
    }
    let Some((grid, about)) = first else { return Ok(()) };
    if let Some(lacking) = (1..=about.shards).find(|shard| !seen.contains(shard)) {
        return Err(Failure::new(format!(
            "part {lacking}/{} of the sweep is missing: give the directories of all parts",
            about.shards
        )));
    }
    let whole = About::new(Shard { index: 1, count: 1 }, about.runs);
    let (_store, there) = Store::open(&args.out, &grid, &whole)?;
    if !there.is_empty() && there != all {
        return Err(Failure::new(format!(
            "{} already contains other results: use another directory",
            args.out.display()
        )));
    }
    finish::finish(&args.out, &grid, &all)?;
    let count = number::count(all.len() as u64);
    finish::print(&args.out, &grid, &all, &format!("{count} runs"))
}
