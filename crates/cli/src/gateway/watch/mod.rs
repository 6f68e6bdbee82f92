//! `equic gateway watch`: a dashboard on the terminal.
//!
//! [`sample`] reads the gateway, [`model`] turns samples into a picture, and [`view`] draws it.
//! [`keys`] holds the user's choices. [`screen`] takes over the terminal and restores it. [`live`]
//! connects these modules. Only `sample`, `screen` and `live` do I/O.
//!
//! The dashboard reads drop events without removing them from the ring buffer (`Control::observe`).
//! Any number of dashboards can run, and another process still gets every event. If no process
//! removes events, and the ring was more than half full for two seconds, the dashboard removes old
//! events.

use std::time::Duration;

use equic_gateway::{Control, parse_duration};
use equic_report::table::Style;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::Target;
use crate::failure::{Failure, Result};
use crate::output;

mod keys;
mod live;
mod model;
mod sample;
mod screen;
mod view;

use keys::Choices;
use model::{Model, Picture, Sort};
use sample::Reader;
use view::Scene;
use view::theme::Theme;

/// Shows rates, sources and drops as they happen. Denies and allows sources with single keys.
#[derive(clap::Args)]
#[command(after_help = "Keys: arrows or j k select, d deny, a allow, f forget, s sort, p pause,
tab next panel, ? help, q quit.
This command does not consume drop events, so other readers still get them all.")]
pub(crate) struct Args {
    /// Interval at which the gateway is read
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1s")]
    interval: Duration,
    /// Quantity by which the sources are sorted
    #[arg(long, value_enum, default_value = "packets")]
    sort: Sort,
    /// Read the gateway twice, print the dashboard once, and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    target: Target,
    /// Print JSON (schema equic.gateway.watch/1): one line per sample, or one document with --once
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).map_err(|error| error.to_string())?;
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    if range.contains(&interval) {
        return Ok(interval);
    }
    Err(format!("`{text}` is out of range: from 100ms to 1h"))
}

pub(super) fn run(args: &Args) -> Result {
    if args.once || args.json {
        return report(args);
    }
    if !screen::is_there() {
        return Err(Failure::new("`watch` needs a terminal, and standard output is not one").help(
            "`equic gateway watch --once` prints the dashboard once, `equic gateway watch --json` prints a line every second, and `equic gateway status --json` prints totals",
        ));
    }
    live::run(args)
}

/// Prints pictures as text or JSON. This needs no terminal.
fn report(args: &Args) -> Result {
    let mut reader = Reader::new(args.target.open()?)?;
    let mut model = Model::default();
    loop {
        let gone = || Failure::new("the gateway has ended");
        model.push(reader.read()?.ok_or_else(gone)?);
        let picture = picture(&model, args.sort, reader.control());
        if picture.measured {
            match (args.once, args.json) {
                (true, true) => return output::json(SCHEMA, &picture),
                (true, false) => return output::text(text(&picture, args.sort)?),
                _ => output::json_line(SCHEMA, &picture)?,
            }
        }
        std::thread::sleep(args.interval);
    }
}

const SCHEMA: &str = "equic.gateway.watch/1";

/// Builds the picture of the model, and adds to each source the list that it is on.
fn picture(model: &Model, sort: Sort, control: &Control) -> Picture {
    let mut picture = model.picture(sort);
    for line in &mut picture.sources {
        // If the gateway has just ended, its lists cannot be read. The next sample reports that it
        // has ended.
        line.listed = control.listed(line.key.prefix).ok().flatten().map(|entry| entry.action);
    }
    picture
}

/// Renders the dashboard as text. The variables `COLUMNS` and `LINES` give its size.
fn text(picture: &Picture, sort: Sort) -> Result<String> {
    let size = |name: &str, usual: u16, least: u16| {
        let given = std::env::var(name).ok().and_then(|text| text.parse().ok());
        given.unwrap_or(usual).clamp(least, 1000)
    };
    let backend = TestBackend::new(size("COLUMNS", 120, 40), size("LINES", 36, 10));
    let mut terminal = Terminal::new(backend)?;
    let choices = Choices { sort, ..Choices::default() };
    let theme = Theme { colour: false, ..theme() };
    let scene = Scene { picture, choices: &choices, theme, gone: None, message: None };
    terminal.draw(|frame| view::draw(frame, &scene))?;
    Ok(lines_of(terminal.backend()))
}

/// Returns the text on a terminal that exists only in memory.
fn lines_of(backend: &TestBackend) -> String {
    let buffer = backend.buffer();
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the colours and signs of the dashboard. As for tables, they depend on the terminal,
/// `NO_COLOR` and the locale.
fn theme() -> Theme {
    let Style { colour, unicode, .. } = Style::stdout();
    Theme { colour, unicode }
}
