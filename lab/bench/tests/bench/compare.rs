//! Tests of comparisons: which differences count as better or worse.

use std::collections::BTreeMap;

use equic_bench::result::compare::{Compared, Comparison, ComparisonVerdict, Rule, compare, load};
use equic_bench::result::read::Run;
use equic_bench::result::{self, Summary, comparison, summarise};
use equic_bench::{End, Failure, Figures, Key, Noise, Record};
use equic_report::table::Style;
use equic_test_kit::bench::Fixture;
use rand::{Rng as _, SeedableRng as _};

/// Returns a run of one cell with one figure per round. `None` stands for a failed round.
fn run(name: &str, unit: &str, values: &[Option<f64>], start: f64) -> Vec<Record> {
    let end = |value: &Option<f64>| match value {
        Some(value) => End::Measured {
            figures: Box::new(Figures {
                value: *value,
                unit: unit.to_owned(),
                bytes: 1_000_000_000,
                count: 1,
                server_cpu_seconds: 1.0,
                client_cpu_seconds: 1.0,
                ..Figures::default()
            }),
        },
        None => End::Failed { failure: Failure::Stalled, why: "stalled".to_owned() },
    };
    let key = Key {
        workload: "download".to_owned(),
        protocol: "perf".to_owned(),
        path: "veth".to_owned(),
        client: name.to_owned(),
        server: name.to_owned(),
        point: BTreeMap::new(),
    };
    values
        .iter()
        .enumerate()
        .map(|(round, value)| Record {
            key: key.clone(),
            round: i64::try_from(round).unwrap(),
            sequence: 0,
            attempt: 1,
            started: start + 10.0 * round as f64,
            wall_seconds: 1.0,
            end: end(value),
            schema: String::new(),
            counts: None,
            why_not: None,
            noise: Noise::default(),
            logs: None,
        })
        .collect()
}

fn summary(records: Vec<Record>) -> Summary {
    summarise(&Run { records, ..Run::default() })
}

fn made(fixture: &Fixture) -> Summary {
    summary(fixture.records())
}

fn small(seed: u64) -> Fixture {
    let start = 1_795_250_000.0 + 1e6 * seed as f64;
    Fixture { small: true, start, ..Fixture::new(20, seed) }
}

fn cell<'a>(comparison: &'a Comparison, client: &str, server: &str) -> &'a Compared {
    let found =
        comparison.cells.iter().find(|cell| cell.key.client == client && cell.key.server == server);
    found.expect("a cell")
}

/// Returns `n` different values that are evenly distributed from 5 % below to 5 % above `middle`.
fn around(middle: f64, n: u32) -> Vec<Option<f64>> {
    (0..n)
        .map(|i| Some(middle * (0.95 + 0.1 * f64::from((i * 7 + 3) % n) / f64::from(n - 1))))
        .collect()
}

fn verdict(old: &[Option<f64>], new: &[Option<f64>], unit: &str) -> Compared {
    let (old, new) = (run("a", unit, old, 0.0), run("a", unit, new, 1e6));
    compare(&summary(old), &summary(new), None, Rule::default()).cells.remove(0)
}

#[test]
fn compare_seldom_finds_a_difference_between_equal_results() {
    let (mut called, mut all) = (0, 0);
    for seed in 1..=3 {
        let compared =
            compare(&made(&small(seed)), &made(&small(seed + 100)), None, Rule::default());
        assert!(!compared.paired);
        called +=
            compared.count(ComparisonVerdict::Worse) + compared.count(ComparisonVerdict::Better);
        all += compared.cells.len();
    }
    // By chance, about 5 % of the 51 cells may be called different, or fewer because of the minimum
    // effect. The bound adds three standard errors, which are 9 %.
    assert!(called <= all * 14 / 100, "{called} of {all}");
    // A comparison of a result with itself finds no difference.
    let one = made(&small(1));
    let compared = compare(&one, &one, None, Rule::default());
    assert!(compared.paired && compared.notes.is_empty());
    assert_eq!(
        compared.count(ComparisonVerdict::Worse) + compared.count(ComparisonVerdict::Better),
        0
    );
}

#[test]
fn compare_finds_a_regression_in_the_cell_that_has_it() {
    let factors = BTreeMap::from([("quinn".to_owned(), 0.93)]);
    let slower = Fixture { factors, ..small(2) };
    let (usual, slower) = (made(&small(1)), made(&slower));
    let compared = compare(&usual, &slower, None, Rule::default());
    let quinn = cell(&compared, "quinn", "quinn");
    assert_eq!(quinn.verdict, ComparisonVerdict::Worse, "{quinn:?}");
    let ratio = quinn.ratio.unwrap();
    assert!((ratio.value - 0.93).abs() < 0.03, "{ratio:?}");
    let ends = ratio.interval.unwrap();
    assert!(ends.low < 0.93 && ends.high < 1.0, "{ratio:?}");
    // The CPU time of server and client together rises by the factor 1 / 0.93.
    assert!((quinn.cpu.unwrap() - 1.075).abs() < 0.03, "{quinn:?}");
    let back = compare(&slower, &usual, None, Rule::default());
    assert_eq!(cell(&back, "quinn", "quinn").verdict, ComparisonVerdict::Better);
    // The difference is also found if the p-values are corrected for the number of cells.
    let corrected = Rule { corrected: true, ..Rule::default() };
    let compared = compare(&usual, &slower, None, corrected);
    assert_eq!(cell(&compared, "quinn", "quinn").verdict, ComparisonVerdict::Worse);
    assert!(compared.count(ComparisonVerdict::Worse) < 10);
    let text: String =
        comparison(&compared).iter().map(|table| table.render(Style::plain())).collect();
    assert!(text.contains("worse") && text.contains("inconclusive"), "{text}");
}

#[test]
fn compare_verdict_needs_a_low_p_value_and_a_minimum_effect() {
    // A difference of half a percent is certain here, but too small to matter.
    let same = |value: f64, n: u32| -> Vec<Option<f64>> {
        (0..n).map(|i| Some(value + 1e-6 * f64::from(i))).collect()
    };
    let little = verdict(&same(1000.0, 20), &same(995.0, 20), "bit/s");
    assert!(little.p.unwrap() < 1e-6);
    assert_eq!(little.verdict, ComparisonVerdict::Same, "{little:?}");
    assert_eq!(
        verdict(&same(1000.0, 20), &same(989.0, 20), "bit/s").verdict,
        ComparisonVerdict::Worse
    );
    // A difference of 2 % may be chance if the figures of one result vary by 10 %.
    let chance = verdict(&around(1000.0, 8), &around(980.0, 8), "bit/s");
    assert!(chance.p.unwrap() > 0.05);
    assert_eq!(chance.verdict, ComparisonVerdict::Inconclusive, "{chance:?}");
    // For latency and memory, less is better.
    for unit in ["s", "B"] {
        let more = verdict(&around(1.0, 20), &around(1.2, 20), unit);
        assert_eq!(more.verdict, ComparisonVerdict::Worse, "{unit}");
        let less = verdict(&around(1.2, 20), &around(1.0, 20), unit);
        assert_eq!(less.verdict, ComparisonVerdict::Better, "{unit}");
    }
}

/// Returns a run in which each value of `new` is `factor` times the value of `old` in the same
/// round.
fn paired(rounds: u32, factor: f64) -> Summary {
    let old = around(1000.0, rounds);
    let new: Vec<Option<f64>> = old.iter().map(|value| value.map(|one| one * factor)).collect();
    summary([run("old", "bit/s", &old, 0.0), run("new", "bit/s", &new, 5.0)].concat())
}

#[test]
fn compare_reports_too_few_rounds_for_a_verdict() {
    let renamed = ("old".to_owned(), "new".to_owned());
    for rounds in 2..=8 {
        let both = paired(rounds, 0.2);
        let compared = compare(&both, &both, Some(&renamed), Rule::default());
        let [one] = &compared.cells[..] else { panic!("{:?}", compared.cells) };
        let (wanted, needed) = match rounds {
            ..6 => (ComparisonVerdict::TooFewRounds, Some(6)),
            _ => (ComparisonVerdict::Worse, None),
        };
        assert_eq!((one.verdict, one.rounds_needed), (wanted, needed), "{rounds} {one:?}");
        assert_eq!(one.ratio.unwrap().interval.is_some(), rounds >= 6, "{rounds}");
    }
    for rounds in 2..=6 {
        let one = verdict(&around(1000.0, rounds), &around(200.0, rounds), "bit/s");
        let (wanted, needed) = match rounds {
            ..4 => (ComparisonVerdict::TooFewRounds, Some(4)),
            _ => (ComparisonVerdict::Worse, None),
        };
        assert_eq!((one.verdict, one.rounds_needed), (wanted, needed), "{rounds} {one:?}");
        assert_eq!(one.ratio.unwrap().interval.is_some(), rounds >= 4, "{rounds}");
    }
    // More rounds are needed for a stricter bound, and for a correction for several cells.
    let both = paired(7, 0.2);
    let strict = Rule { p: 0.01, ..Rule::default() };
    let one = &compare(&both, &both, Some(&renamed), strict).cells[0];
    assert_eq!((one.verdict, one.rounds_needed), (ComparisonVerdict::TooFewRounds, Some(8)));
    let of = |factor: f64, start: f64| {
        let names = ["a", "b", "c"];
        let values: Vec<Option<f64>> = around(1000.0 * factor, 4);
        summary(names.iter().flat_map(|name| run(name, "bit/s", &values, start)).collect())
    };
    let corrected = Rule { corrected: true, ..Rule::default() };
    let compared = compare(&of(1.0, 0.0), &of(0.2, 1e6), None, corrected);
    assert_eq!(compared.count(ComparisonVerdict::TooFewRounds), 3, "{:?}", compared.cells);
    // With three cells, the smallest corrected p-value is 3 * 2 / 252 for five rounds, and 3 * 2 /
    // 70 for four.
    assert!(compared.cells.iter().all(|one| one.rounds_needed == Some(5)));
    let compared = compare(&of(1.0, 0.0), &of(0.2, 1e6), None, Rule::default());
    assert_eq!(compared.count(ComparisonVerdict::Worse), 3);
    let tables = comparison(&compare(&both, &both, Some(&renamed), strict));
    let text: String = tables.iter().map(|table| table.render(Style::plain())).collect();
    assert!(text.contains("too few rounds: a verdict needs 8"), "{text}");
}

#[test]
fn compare_reports_that_no_difference_exceeds_the_bound() {
    let renamed = ("old".to_owned(), "new".to_owned());
    let called = |factor: f64, same: f64| {
        let both = paired(20, factor);
        let compared = compare(&both, &both, Some(&renamed), Rule { same, ..Rule::default() });
        compared.cells[0].verdict
    };
    assert_eq!(called(1.0, 0.05), ComparisonVerdict::Same);
    // A significant difference that is large enough to matter is never called equal, however wide
    // the bound for equal cells is.
    assert_eq!(called(0.97, 0.05), ComparisonVerdict::Worse);
    assert_eq!(called(1.03, 0.05), ComparisonVerdict::Better);
    assert_eq!(called(1.005, 0.01), ComparisonVerdict::Same);
    assert_eq!(called(1.005, 0.004), ComparisonVerdict::Inconclusive);
    // With too few rounds there is no interval, so the figures are never called equal.
    let both = paired(5, 1.0);
    let few = compare(&both, &both, Some(&renamed), Rule::default());
    assert_eq!(few.cells[0].verdict, ComparisonVerdict::TooFewRounds);
    // In each of these 200 cells, the difference is exactly the bound. At most 5 % of the cells may
    // be called equal, because each of the two one-sided tests has 2.5 %.
    let mut rng = rand::rngs::SmallRng::seed_from_u64(7);
    let mut same = 0;
    for _ in 0..200 {
        let mut draw = |middle: f64| -> Vec<Option<f64>> {
            (0..12).map(|_| Some(middle * rng.random_range(0.98..1.02))).collect()
        };
        let (old, new) = (draw(1000.0), draw(1050.0));
        let rule = Rule { effect: 10.0, ..Rule::default() };
        let (old, new) = (run("a", "bit/s", &old, 0.0), run("a", "bit/s", &new, 1e6));
        let compared = compare(&summary(old), &summary(new), None, rule);
        same += compared.count(ComparisonVerdict::Same);
    }
    assert!(same <= 10, "{same} of 200");
    let both = paired(20, 1.0);
    let tables = comparison(&compare(&both, &both, Some(&renamed), Rule::default()));
    let text: String = tables.iter().map(|table| table.render(Style::plain())).collect();
    assert!(text.contains("no difference larger than 5 %"), "{text}");
    assert!(text.contains("median of the rounds' quotients"), "{text}");
    let apart =
        compare(&paired(8, 1.0), &Summary { ended: 0.0, ..paired(8, 1.0) }, None, Rule::default());
    let text: String =
        comparison(&apart).iter().map(|table| table.render(Style::plain())).collect();
    assert!(text.contains("median of all quotients"), "{text}");
}

#[test]
fn compare_calls_more_failures_worse_regardless_of_figures() {
    let whole = around(1000.0, 20);
    let mut half = around(2000.0, 20);
    half.iter_mut().take(10).for_each(|value| *value = None);
    let worse = verdict(&whole, &half, "bit/s");
    assert_eq!(worse.verdict, ComparisonVerdict::Worse);
    assert_eq!(worse.why, "0 of 20 failed, now 10 of 20");
    assert_eq!(verdict(&half, &whole, "bit/s").verdict, ComparisonVerdict::Better);
    // One failure in twenty rounds may be chance. The reason of the verdict mentions it.
    let mut once = whole.clone();
    once[3] = None;
    let chance = verdict(&whole, &once, "bit/s");
    assert_eq!(chance.verdict, ComparisonVerdict::Inconclusive);
    assert_eq!(chance.why, "0 of 20 failed, now 1 of 20");
    // A cell that no longer has any figure is worse, even with few rounds.
    assert_eq!(verdict(&around(1.0, 2), &[None, None], "bit/s").verdict, ComparisonVerdict::Worse);
    let never = verdict(&[None, None], &[None, None], "bit/s");
    assert_eq!(
        (never.verdict, never.p, never.ratio),
        (ComparisonVerdict::Incomparable, None, None)
    );
}

#[test]
fn compare_ignores_rounds_on_a_busy_machine() {
    let mut busy = run("a", "bit/s", &[None; 20], 1e6);
    for record in &mut busy {
        record.end = End::Failed { failure: Failure::Noisy, why: "load".to_owned() };
    }
    let whole = run("a", "bit/s", &around(1000.0, 20), 0.0);
    let compared = compare(&summary(whole.clone()), &summary(busy.clone()), None, Rule::default());
    let one = &compared.cells[0];
    assert_eq!(one.verdict, ComparisonVerdict::Incomparable, "{one:?}");
    assert!(one.why.contains("too busy"), "{one:?}");
    // If the machine was busy in half of the rounds, the other half decides.
    let half = [&run("a", "bit/s", &around(1000.0, 20), 1e6)[..10], &busy[10..]].concat();
    let compared = compare(&summary(whole), &summary(half), None, Rule::default());
    let one = &compared.cells[0];
    assert_ne!(one.verdict, ComparisonVerdict::Worse, "{one:?}");
    assert_eq!((one.why.as_str(), one.new_count), ("", 10));
}

#[test]
fn compare_pairs_the_rounds_of_one_run() {
    // The machine's speed drifts by half over the run. In each round, `new` is 3 % slower.
    let drift = |round: u32| 1000.0 * (1.0 + 0.5 * f64::from(round) / 19.0);
    let small = |round: u32| 1.0 + 0.002 * f64::from(round * 7 % 20) / 20.0;
    let old: Vec<Option<f64>> = (0..20).map(|round| Some(drift(round))).collect();
    let new: Vec<Option<f64>> =
        (0..20).map(|round| Some(0.97 * drift(round) * small(round))).collect();
    let records = [run("old", "bit/s", &old, 0.0), run("new", "bit/s", &new, 5.0)].concat();
    let both = summary(records);
    let renamed = ("old".to_owned(), "new".to_owned());
    let compared = compare(&both, &both, Some(&renamed), Rule::default());
    assert!(compared.paired);
    let [one] = &compared.cells[..] else { panic!("{:?}", compared.cells) };
    assert_eq!(one.verdict, ComparisonVerdict::Worse, "{one:?}");
    assert!((one.ratio.unwrap().value - 0.971).abs() < 0.001);
    // The unpaired test does not find the difference, because the drift is larger.
    assert!(one.p.unwrap() < 0.001 && one.mann_whitney_p.unwrap() > 0.05, "{one:?}");
    let apart = verdict(&old, &new, "bit/s");
    assert_eq!(apart.verdict, ComparisonVerdict::Inconclusive);
    // A comparison of unknown names has no cells.
    let nobody = ("x".to_owned(), "y".to_owned());
    assert!(compare(&both, &both, Some(&nobody), Rule::default()).cells.is_empty());
}

#[test]
fn compare_reports_cells_that_only_one_result_has() {
    let old = summary(
        [run("a", "bit/s", &around(1.0, 5), 0.0), run("b", "bit/s", &around(1.0, 5), 0.0)].concat(),
    );
    let new = summary(
        [run("a", "bit/s", &around(1.0, 5), 1e6), run("c", "s", &around(1.0, 5), 1e6)].concat(),
    );
    let compared = compare(&old, &new, None, Rule::default());
    assert_eq!(compared.cells.len(), 3);
    assert_eq!(cell(&compared, "b", "b").why, "the cell exists only in the old result");
    assert_eq!(cell(&compared, "c", "c").verdict, ComparisonVerdict::Incomparable);
    assert_eq!(compared.notes.len(), 1, "{:?}", compared.notes);
    // Figures in different units cannot be compared.
    let changed = verdict(&around(1.0, 5), &around(1.0, 5), "s");
    assert_eq!(changed.unit, "s");
    let (old, new) = (run("a", "bit/s", &around(1.0, 5), 0.0), run("a", "s", &around(1.0, 5), 0.0));
    let compared = compare(&summary(old), &summary(new), None, Rule::default());
    assert_eq!(compared.cells[0].verdict, ComparisonVerdict::Incomparable);
}

#[test]
fn compare_loads_the_same_result_from_folders_and_files() {
    let dir = tempfile::tempdir().unwrap();
    small(1).write(dir.path());
    let written = result::write(dir.path()).unwrap();
    for path in
        [dir.path().to_owned(), dir.path().join("result.json"), dir.path().join("samples.jsonl")]
    {
        assert!(load(&path).unwrap() == written, "{}", path.display());
    }
    let other = dir.path().join("other.json");
    std::fs::write(&other, r#"{"start_time": 1, "measurements": []}"#).unwrap();
    let error = load(&other).unwrap_err().to_string();
    assert!(error.contains("other.json") && error.contains("equic-lab bench"), "{error}");
    assert!(load(&dir.path().join("absent")).is_err());
}
