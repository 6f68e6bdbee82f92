//! Writes the result of a complete sweep: all rows as CSV and Parquet, and a summary of each cell.

use std::path::Path;
use std::sync::Arc;

use equic_report::number::{self, MISSING};
use equic_report::stats::{Interval, Sample};
use equic_report::table::{Column, Table};
use equic_scenario::Grid;
use equic_scenario::play::Figure;
use parquet::basic::{Compression, ConvertedType, GzipLevel, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::rows::{COLUMNS, Kind, column, columns, join, split};
use super::store::{RUNS, Runs, sorted};
use crate::failure::{Failure, Result};
use crate::output;

/// Number of rows in a row group of a Parquet file.
const GROUP: usize = 100_000;

/// Writes all files of the result. The same runs always give the same bytes.
pub(crate) fn finish(folder: &Path, grid: &Grid, runs: &Runs) -> Result {
    equic_report::file::write(&folder.join(RUNS), &sorted(runs)?)?;
    let axes: Vec<&str> = grid.axes().iter().map(|axis| axis.name.as_str()).collect();
    // All rows of a grid have the same number of fields. So the first row shows whether the rows
    // have columns for applications.
    let fields = runs.values().flatten().next().map_or(0, |row| split(row).len());
    let columns = columns(fields > axes.len() + COLUMNS.len());
    let names: Vec<&str> =
        axes.iter().copied().chain(columns.iter().map(|(name, _)| *name)).collect();
    let kinds = columns.iter().map(|(_, kind)| *kind);
    let kinds: Vec<Kind> = std::iter::repeat_n(Kind::Text, axes.len()).chain(kinds).collect();
    let mut csv = join(&names) + "\n";
    for row in runs.values().flatten() {
        csv += row;
        csv.push('\n');
    }
    equic_report::file::write(&folder.join("rows.csv"), csv.as_bytes())?;
    drop(csv);
    let wrong = |error| Failure::new(format!("cannot make rows.parquet: {error}"));
    let parquet = parquet(&names, &kinds, runs).map_err(wrong)?;
    equic_report::file::write(&folder.join("rows.parquet"), &parquet)?;
    Ok(equic_report::file::write(&folder.join("summary.csv"), summary(&axes, runs).as_bytes())?)
}

/// The files of the result, with their content.
const FILES: [(&str, &str); 3] = [
    ("rows.csv", "a row for each connection of each run"),
    ("rows.parquet", "the same as rows.csv, compressed"),
    ("summary.csv", "a row for each flow of each cell"),
];
/// Largest number of rows that the printed table has.
const MOST_ROWS: usize = 60;

/// Prints the table of the result and the names of its files. `what` is a text with the number of
/// cells and runs.
pub(super) fn print(folder: &Path, grid: &Grid, runs: &Runs, what: &str) -> Result {
    let axes: Vec<&str> = grid.axes().iter().map(|axis| axis.name.as_str()).collect();
    let groups = groups(axes.len(), runs);
    let mut columns: Vec<Column> = axes.iter().map(|axis| Column::text(*axis)).collect();
    columns.extend([
        Column::text("flow"),
        Column::number("completed"),
        Column::number("completion"),
        Column::number("95 % interval"),
        Column::number("goodput"),
        Column::number("95 % interval"),
        Column::number("lost"),
    ]);
    let mut table = Table::new(columns);
    for group in groups.iter().take(MOST_ROWS) {
        let mut cells = group.labels.clone();
        cells.extend([group.flow[0].clone(), format!("{} of {}", group.completed, group.rows)]);
        cells.extend(shown(&group.completion, number::seconds));
        cells.extend(shown(&group.goodput, number::bit_rate));
        let [lost, _] = shown(&group.loss, number::percent);
        cells.push(lost);
        table.row(cells);
    }
    output::table(&table)?;
    if groups.len() > MOST_ROWS {
        let rest = groups.len() - MOST_ROWS;
        output::text(format_args!("the file summary.csv contains {rest} more rows\n"))?;
    }
    let mut text = format!("{what}; means over seeds, with their intervals\n");
    for (name, content) in FILES {
        text += &format!("{}: {content}\n", folder.join(name).display());
    }
    output::text(text)
}

/// Returns the mean over the seeds and its confidence interval, as text.
fn shown(values: &[(u64, f64)], how: fn(f64) -> String) -> [String; 2] {
    let missing = || MISSING.to_owned();
    let Some(figure) = Figure::of(values.iter().map(|(_, value)| *value)) else {
        return [missing(), missing()];
    };
    let range = |ends: Interval| format!("{} to {}", how(ends.low), how(ends.high));
    let interval = figure.within(0.0, f64::INFINITY).interval.map(range);
    [how(figure.mean), interval.unwrap_or_else(missing)]
}

fn parquet(names: &[&str], kinds: &[Kind], runs: &Runs) -> parquet::errors::Result<Vec<u8>> {
    let fields = names.iter().zip(kinds).map(|(name, kind)| {
        let (physical, converted) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
            Kind::Whole => (Physical::INT64, ConvertedType::NONE),
            Kind::Number => (Physical::DOUBLE, ConvertedType::NONE),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_converted_type(converted)
            .with_repetition(Repetition::OPTIONAL);
        field.build().map(Arc::new)
    });
    let fields = fields.collect::<parquet::errors::Result<Vec<_>>>()?;
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build()?);
    let properties = WriterProperties::builder()
        .set_created_by("eQUIC".to_owned())
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .build();
    let properties = Arc::new(properties);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let rows: Vec<&String> = runs.values().flatten().collect();
    for group in rows.chunks(GROUP) {
        let cells: Vec<Vec<String>> = group.iter().map(|row| split(row)).collect();
        let mut out = writer.next_row_group()?;
        for (index, kind) in kinds.iter().enumerate() {
            let values = || cells.iter().map(|cells| cells.get(index).map_or("", String::as_str));
            // An empty field means that there is no value.
            let levels: Vec<i16> = values().map(|value| i16::from(!value.is_empty())).collect();
            let present = values().filter(|value| !value.is_empty());
            let Some(mut column) = out.next_column()? else { break };
            match kind {
                Kind::Text => {
                    let values: Vec<ByteArray> = present.map(ByteArray::from).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
                }
                Kind::Whole => {
                    let values: Vec<i64> = present.map(|text| text.parse().unwrap_or(-1)).collect();
                    column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
                }
                Kind::Number => {
                    let values: Vec<f64> =
                        present.map(|text| text.parse().unwrap_or(f64::NAN)).collect();
                    column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
                }
            }
            column.close()?;
        }
        out.close()?;
    }
    writer.into_inner()
}

/// Columns of settings that may differ between protocols.
const SETTINGS: [&str; 4] = ["tls", "ecn", "pacing", "acknowledgements"];

/// The results of a flow in one cell, over all seeds. A cell is one combination of the grid's
/// values.
pub(super) struct Group {
    /// The values that the axes of the grid have in the cell.
    pub(super) labels: Vec<String>,
    /// Name, protocol and congestion controller of the flow.
    pub(super) flow: [String; 3],
    /// Settings that may differ between protocols: TLS, ECN, pacing and acknowledgements.
    settings: [String; 4],
    /// For each seed: the share of the flow's time in which flow control or the limit on
    /// unacknowledged data held back data.
    window_limited: Vec<(u64, f64)>,
    pub(super) rows: usize,
    pub(super) completed: usize,
    pub(super) failed: usize,
    /// For each seed with at least one completed connection, in order: the mean completion time of
    /// the completed connections, in seconds.
    pub(super) completion: Vec<(u64, f64)>,
    pub(super) goodput: Vec<(u64, f64)>,
    pub(super) loss: Vec<(u64, f64)>,
}

/// Returns all flows of all cells, in the order of the cells.
pub(super) fn groups(axes: usize, runs: &Runs) -> Vec<Group> {
    let at = |name| column(axes, name);
    let rows: Vec<Vec<String>> = runs.values().flatten().map(|row| split(row)).collect();
    let cell = |row: &Vec<String>| row[at("cell")].clone();
    let mut groups = Vec::new();
    for cell in rows.chunk_by(|one, other| cell(one) == cell(other)) {
        let mut names: Vec<&String> = Vec::new();
        for row in cell {
            if !names.contains(&&row[at("flow")]) {
                names.push(&row[at("flow")]);
            }
        }
        for name in names {
            let own: Vec<&Vec<String>> =
                cell.iter().filter(|row| row[at("flow")] == *name).collect();
            let value = |row: &[String], name| row[at(name)].parse::<f64>().ok();
            let per_seed = |value: &dyn Fn(&[String]) -> Option<f64>| -> Vec<(u64, f64)> {
                let seeds = own.chunk_by(|one, other| one[at("seed")] == other[at("seed")]);
                let means = seeds.filter_map(|rows| {
                    let mean =
                        rows.iter().filter_map(|row| value(row)).collect::<Sample>().mean()?;
                    Some((rows[0][at("seed")].parse().ok()?, mean))
                });
                means.collect()
            };
            groups.push(Group {
                labels: own[0][..axes].to_vec(),
                flow: ["flow", "protocol", "controller"].map(|name| own[0][at(name)].clone()),
                settings: SETTINGS.map(|name| own[0][at(name)].clone()),
                window_limited: per_seed(&|row| value(row, "window_limited")),
                rows: own.len(),
                completed: own.iter().filter(|row| !row[at("completion_s")].is_empty()).count(),
                failed: own.iter().filter(|row| !row[at("failure")].is_empty()).count(),
                completion: per_seed(&|row| value(row, "completion_s")),
                goodput: per_seed(&|row| value(row, "goodput_bit_s")),
                loss: per_seed(&|row| {
                    let sent = value(row, "packets_sent").filter(|sent| *sent > 0.0)?;
                    Some(value(row, "packets_lost")? / sent)
                }),
            });
        }
    }
    groups
}

fn summary(axes: &[&str], runs: &Runs) -> String {
    let mut names: Vec<String> = axes.iter().map(|name| (*name).to_owned()).collect();
    let more = ["flow", "protocol", "controller", "connections", "completed", "failed"];
    names.extend(more.map(str::to_owned));
    for figure in ["completion_s", "goodput_bit_s", "loss"] {
        names.extend(["mean", "deviation", "low", "high"].map(|part| format!("{figure}_{part}")));
    }
    names.extend(SETTINGS.map(str::to_owned));
    names.push("window_limited_mean".to_owned());
    let mut text = join(&names) + "\n";
    for group in groups(axes.len(), runs) {
        let mut fields = group.labels;
        fields.extend(group.flow);
        fields.extend([group.rows, group.completed, group.failed].map(|count| count.to_string()));
        let most = f64::INFINITY;
        for (values, most) in
            [(&group.completion, most), (&group.goodput, most), (&group.loss, 1.0)]
        {
            let figure = Figure::of(values.iter().map(|(_, value)| *value));
            let figure = figure.map(|figure| figure.within(0.0, most));
            let parts = [
                figure.map(|figure| figure.mean),
                figure.and_then(|figure| figure.deviation),
                figure.and_then(|figure| figure.interval).map(|interval| interval.low),
                figure.and_then(|figure| figure.interval).map(|interval| interval.high),
            ];
            let shown = |part: Option<f64>| part.map(|part| part.to_string()).unwrap_or_default();
            fields.extend(parts.map(shown));
        }
        fields.extend(group.settings);
        let limited = Figure::of(group.window_limited.iter().map(|(_, share)| *share));
        fields.push(limited.map(|figure| figure.mean.to_string()).unwrap_or_default());
        text += &(join(&fields) + "\n");
    }
    text
}
