//! Decides how much of each grid runs: all of it, or fewer seeds and values.

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::part::Part;

/// Size of the experiment, which decides how many values and seeds run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Size {
    Quick,
    Medium,
    Full,
}

/// Parameters that decide how much of the experiment runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Scale {
    /// Size of the experiment, which determines the values of the axes.
    pub size: Size,
    /// Number of seeds of each cell, instead of the default of `size`.
    pub seeds: Option<u64>,
    /// Number of seeds of each cell in the two grids of 210 MB, instead of that of all grids.
    #[serde(default)]
    pub large_seeds: Option<u64>,
    /// Parts of the experiment to run.
    pub parts: Vec<Part>,
}

/// An axis of a grid: its values here, and the number of values in the complete grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Axis {
    pub name: String,
    pub values: Vec<String>,
    pub of: usize,
}

/// A grid, possibly with fewer values than the complete one.
pub(super) struct Grid {
    /// The file.
    pub text: String,
    /// Number of runs of this grid. `of` is the number of runs of the complete grid.
    pub runs: usize,
    pub of: usize,
    /// The axes with their values in this grid, and the number of values in the complete grid.
    pub axes: Vec<Axis>,
}

/// The name of an axis, and those of its values that are kept.
type Kept = (&'static str, &'static [&'static str]);

/// Axis values of the two large grids that are kept for a run of a few seconds. `MEDIUM` is for a
/// run of some minutes.
const QUICK: [Kept; 5] = [
    ("arm", &["QUIC CUBIC", "Google QUIC", "TCP CUBIC", "TCP BBR", "ns-3 NewReno"]),
    ("flow.size", &["100 KB", "1 MB"]),
    ("network.link.rate", &["5 Mb/s", "10 Mb/s"]),
    ("network.link.delay", &["50 ms", "200 ms"]),
    ("network.link.loss", &["0 %", "1 %"]),
];
const MEDIUM: [Kept; 4] = [
    ("flow.size", &["10 KB", "100 KB", "1 MB", "10 MB"]),
    ("network.link.rate", &["5 Mb/s", "10 Mb/s", "100 Mb/s", "1 Gb/s"]),
    ("network.link.delay", &["10 ms", "50 ms", "200 ms"]),
    ("network.link.loss", &["0 %", "0.1 %", "1 %", "10 %"]),
];
/// Axis values of the dumbbell grid that are kept for a run of some minutes. The flow size that
/// takes most of the time is left out.
const MEDIUM_DUMBBELL: [Kept; 4] =
    [("flow.size", &["10 KB", "100 KB", "1 MB"]), MEDIUM[1], MEDIUM[2], MEDIUM[3]];

impl Scale {
    /// Returns the number of seeds of a part, and the axes that have fewer values. Returns `None`
    /// if the part is omitted.
    fn of(&self, part: Part) -> Option<(Option<u64>, &'static [Kept])> {
        const FEW_NODES: &[Kept] = &[
            ("nodes", &["4", "10"]),
            ("arm", &["QUIC CUBIC", "Google QUIC", "TCP CUBIC", "ns-3 NewReno"]),
        ];
        const SMALL: &[Kept] = &[("flow.size", &["100 KB", "1 MB"])];
        if !self.parts.contains(&part) {
            return None;
        }
        let (seeds, kept): (Option<u64>, &[Kept]) = match (self.size, part) {
            (Size::Full, _) => (None, &[]),
            (_, Part::SimpleLarge | Part::DumbbellLarge) => return None,
            (Size::Quick, Part::Simple | Part::Dumbbell) => (Some(3), &QUICK),
            (Size::Quick, Part::Nodes) => (Some(3), FEW_NODES),
            (Size::Quick, _) => (Some(3), SMALL),
            (Size::Medium, Part::Simple) => (Some(5), &MEDIUM),
            (Size::Medium, Part::Dumbbell) => (Some(5), &MEDIUM_DUMBBELL),
            (Size::Medium, Part::Nodes) => (Some(5), &[]),
            (Size::Medium, Part::Fairness | Part::Within | Part::Imc17) => (Some(10), &[]),
            (Size::Medium, _) => (None, &[]),
        };
        let large = matches!(part, Part::SimpleLarge | Part::DumbbellLarge);
        let chosen = self.large_seeds.filter(|_| large).or(self.seeds);
        Some((chosen.or(seeds), kept))
    }

    /// Returns the grid of a part, or `None` if it is omitted.
    pub(super) fn grid(&self, part: Part) -> Option<Grid> {
        let (seeds, kept) = self.of(part)?;
        let mut table: Table = part.grid().parse().expect("a test reads all grids");
        let whole_seeds = table.get("seeds").and_then(Value::as_integer).unwrap_or(0);
        let seeds = seeds.map_or(whole_seeds, |seeds| seeds.cast_signed());
        table.insert("seeds".to_owned(), Value::Integer(seeds));
        let (mut cells, mut of, mut axes) = (1, 1, Vec::new());
        let grid = table.get_mut("grid").and_then(Value::as_table_mut)?;
        for (name, values) in grid.iter_mut() {
            let Some(values) = values.as_array_mut() else { continue };
            let all = values.len();
            if let Some((_, kept)) = kept.iter().find(|(axis, _)| axis == name) {
                values.retain(|value| kept.contains(&label(value).as_str()));
            }
            (cells, of) = (cells * values.len(), of * all);
            let values = values.iter().map(label).collect();
            axes.push(Axis { name: name.clone(), values, of: all });
        }
        let seeds = usize::try_from(seeds).unwrap_or(0);
        let whole_seeds = usize::try_from(whole_seeds).unwrap_or(0);
        axes.push(Axis {
            name: "seeds".to_owned(),
            values: vec![seeds.to_string()],
            of: whole_seeds,
        });
        let text = toml::to_string(&table).expect("the grid was read from a text of this kind");
        Some(Grid { text, runs: cells * seeds, of: of * whole_seeds, axes })
    }
}

/// Returns the name of an axis value in results.
fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Table(several) => {
            several.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nsquic_scale_keeps_values_of_the_grid() {
        for size in [Size::Quick, Size::Medium, Size::Full] {
            let scale = Scale { size, seeds: None, large_seeds: None, parts: Part::ALL.to_vec() };
            for part in Part::ALL {
                let Some((_, kept)) = scale.of(part) else { continue };
                let grid = scale.grid(part).unwrap();
                for (axis, values) in kept {
                    let found = grid.axes.iter().find(|one| one.name == *axis);
                    // Small grids lack some axes of the large ones.
                    let Some(found) = found else { continue };
                    assert_eq!(found.values.len(), values.len(), "{size:?} {part:?} {axis}");
                }
                assert!(grid.runs == grid.of || size != Size::Full, "{part:?}");
            }
        }
    }

    #[test]
    fn nsquic_scale_full_is_the_grid_of_the_thesis() {
        let scale =
            Scale { size: Size::Full, seeds: None, large_seeds: None, parts: Part::ALL.to_vec() };
        let count = |part| scale.grid(part).unwrap().runs;
        // The two grids have six sizes and the largest one, six rates, five delays, five loss
        // rates, ten arms, and 30 seeds.
        assert_eq!(count(Part::Simple) + count(Part::SimpleLarge), 7 * 6 * 5 * 5 * 10 * 30);
        assert_eq!(count(Part::Dumbbell) + count(Part::DumbbellLarge), 7 * 6 * 5 * 5 * 10 * 30);
        let seeds = Scale { seeds: Some(2), parts: vec![Part::Errors], ..scale };
        assert_eq!(seeds.grid(Part::Errors).unwrap().runs, 2 * 5 * 10 * 2);
        assert!(seeds.grid(Part::Simple).is_none());
        let large = Scale { seeds: None, large_seeds: Some(3), parts: Part::ALL.to_vec(), ..seeds };
        assert_eq!(large.grid(Part::SimpleLarge).unwrap().runs, 3 * 6 * 5 * 5 * 10);
        assert_eq!(large.grid(Part::Simple).unwrap().runs, 6 * 6 * 5 * 5 * 10 * 30);
    }
}
