//! Draws the three tables of the dashboard. If there is no room for all columns of a table, the
//! least important ones are omitted.

use equic_gateway::Reason;
use equic_report::number;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table, TableState};

use super::super::keys::Panel;
use super::super::model::SourceLine;
use super::Scene;

/// A column of a table, with its width and rank. Columns with a high rank are omitted first, and
/// those with rank 0 never. Width 0 stands for all the remaining width.
struct Column {
    title: &'static str,
    width: u16,
    rank: u8,
    right: bool,
}

const fn text(title: &'static str, width: u16, rank: u8) -> Column {
    Column { title, width, rank, right: false }
}

const fn figure(title: &'static str, width: u16, rank: u8) -> Column {
    Column { title, width, rank, right: true }
}

/// Returns the indices of the columns for which there is room.
fn fitting(columns: &[Column], flexible: u16, room: u16) -> Vec<usize> {
    let mut ranked: Vec<usize> = (0..columns.len()).collect();
    ranked.sort_by_key(|index| columns[*index].rank);
    let mut left = room;
    let mut chosen: Vec<usize> = Vec::new();
    for index in ranked {
        let width = if columns[index].width == 0 { flexible } else { columns[index].width };
        let needed = width + u16::from(!chosen.is_empty());
        if needed > left && columns[index].rank > 0 {
            break;
        }
        left = left.saturating_sub(needed);
        chosen.push(index);
    }
    chosen.sort_unstable();
    chosen
}

/// Text of a cell, and its style.
type Content = (String, Style);

struct Panelled<'a> {
    title: Line<'a>,
    columns: &'a [Column],
    /// Minimum width of the column that takes the remaining width.
    flexible: u16,
    rows: Vec<Vec<Content>>,
    selected: usize,
    empty: &'a str,
}

fn render(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect, panel: Panel, table: Panelled<'_>) {
    let (theme, focused) = (scene.theme, scene.choices.panel == panel);
    let mut block = theme.frame(focused).title(table.title);
    let inner = block.inner(area);
    let visible = usize::from(inner.height.saturating_sub(1)).max(1);
    if table.rows.len() > visible {
        let position = format!(" {} of {} ", table.selected + 1, table.rows.len());
        block =
            block.title_bottom(Line::styled(position, theme.faint()).alignment(Alignment::Right));
    }
    frame.render_widget(block, area);
    if table.rows.is_empty() {
        frame.render_widget(Line::styled(format!(" {}", table.empty), theme.faint()), inner);
        return;
    }
    let shown = fitting(table.columns, table.flexible, inner.width.saturating_sub(1));
    let align = |index: &usize| {
        if table.columns[*index].right { Alignment::Right } else { Alignment::Left }
    };
    let header = Row::new(shown.iter().map(|index| {
        let title = Line::styled(table.columns[*index].title, theme.faint());
        Cell::from(title.alignment(align(index)))
    }));
    let widths = shown.iter().map(|index| match table.columns[*index].width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(width),
    });
    let rows = table.rows.iter().map(|row| {
        Row::new(shown.iter().map(|index| {
            let (text, style) = &row[*index];
            Cell::from(Line::styled(text.as_str(), *style).alignment(align(index)))
        }))
    });
    let drawn = Table::new(rows, widths)
        .header(header)
        .column_spacing(1)
        .row_highlight_style(if focused { theme.chosen() } else { Style::new() });
    let mut state = TableState::default().with_selected(Some(table.selected));
    // Leave an empty column on the right, as the names do on the left.
    let inside = Rect { width: inner.width.saturating_sub(1), ..inner };
    frame.render_stateful_widget(drawn, inside, &mut state);
}

/// Formats a rate per second for a quick look: zero has no unit, and small values have no decimals.
pub(super) fn rate(measured: bool, rate: f64) -> String {
    match rate {
        _ if !measured => number::MISSING.to_owned(),
        ..=0.0 => "0".to_owned(),
        ..1.0 => "<1 /s".to_owned(),
        _ => number::rate(rate),
    }
}

/// Formats an age in whole seconds. Decimals would not be accurate, because the screen is not
/// updated that often.
fn ago(seconds: f64) -> String {
    match seconds {
        ..1.0 => "now".to_owned(),
        ..60.0 => format!("{} s ago", seconds.floor()),
        _ => format!("{} ago", number::seconds(seconds.floor())),
    }
}

fn of_reason(scene: &Scene<'_>, reason: Reason) -> Style {
    match (reason.drops(), scene.picture.dry_run) {
        (false, _) => scene.theme.good(),
        (true, true) => scene.theme.warning(),
        (true, false) => scene.theme.bad(),
    }
}

/// Removes characters that change the direction of writing. The text may come from another process.
/// The screen removes control characters itself.
pub(super) fn clean(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| !c.is_control() && !turns(*c)).collect()
}

pub(super) fn sources(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
    const COLUMNS: [Column; 9] = [
        text(" source", 0, 0),
        text("service", 12, 8),
        figure("packets", 9, 1),
        figure("payload", 9, 6),
        figure("dropped", 9, 2),
        figure("total dropped", 14, 7),
        figure("connections", 11, 4),
        text("last reason", 16, 5),
        text("state", 8, 3),
    ];
    let (picture, theme) = (scene.picture, scene.theme);
    let row = |line: &SourceLine| {
        let held = if line.limit != 0 && line.connections >= line.limit {
            theme.bad()
        } else if line.limit != 0 && u64::from(line.connections) * 10 >= u64::from(line.limit) * 8 {
            theme.warning()
        } else {
            Style::new()
        };
        let state = match line.state() {
            "" => Style::new(),
            "allowed" => theme.good(),
            _ => theme.bad(),
        };
        let dropping =
            if line.drops_per_s > 0.0 { of_reason(scene, Reason::Denied) } else { theme.faint() };
        let payload = match (picture.measured, line.bytes_per_s > 0.0) {
            (true, true) => number::si(line.bytes_per_s, "B/s"),
            _ => rate(picture.measured, 0.0),
        };
        let quiet = if line.packets_per_s > 0.0 { Style::new() } else { theme.faint() };
        let reason = line.last_reason.map_or_else(
            || (number::MISSING.to_owned(), theme.faint()),
            |reason| (reason.name().to_owned(), of_reason(scene, reason)),
        );
        vec![
            (format!(" {}", line.source), quiet),
            (clean(&line.service), theme.faint()),
            (rate(picture.measured, line.packets_per_s), quiet),
            (payload, quiet),
            (rate(picture.measured, line.drops_per_s), dropping),
            (number::count(line.drops), theme.faint()),
            (line.held(), held),
            reason,
            (line.state().to_owned(), state),
        ]
    };
    let title = Line::from(vec![
        Span::styled(" Sources ", theme.strong()),
        Span::styled(
            format!("{} by {} ", number::count(picture.sources_total as u64), picture.sort.label()),
            theme.faint(),
        ),
    ]);
    render(
        frame,
        scene,
        area,
        Panel::Sources,
        Panelled {
            title,
            columns: &COLUMNS,
            flexible: 16,
            rows: picture.sources.iter().map(row).collect(),
            selected: scene.choices.source_row(picture),
            empty: "no source has sent packets yet",
        },
    );
}

pub(super) fn reasons(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
    const COLUMNS: [Column; 4] =
        [text(" reason", 0, 0), figure("now", 10, 1), text("share", 8, 2), figure("in all", 8, 3)];
    let (picture, theme) = (scene.picture, scene.theme);
    let rows = picture.reasons.iter().map(|line| {
        let style = of_reason(scene, line.reason);
        let quiet = if line.packets_per_s > 0.0 { Style::new() } else { theme.faint() };
        vec![
            (format!(" {}", line.reason.name()), style),
            (rate(picture.measured, line.packets_per_s), quiet),
            (theme.bar(line.share, 8), style),
            (number::si(line.packets as f64, ""), theme.faint()),
        ]
    });
    let title = Line::styled(" Reasons ", theme.strong());
    render(
        frame,
        scene,
        area,
        Panel::Reasons,
        Panelled {
            title,
            columns: &COLUMNS,
            flexible: 20,
            rows: rows.collect(),
            selected: scene.choices.reason.min(picture.reasons.len().saturating_sub(1)),
            empty: "no packet has arrived yet",
        },
    );
}

pub(super) fn events(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
    const COLUMNS: [Column; 8] = [
        text(" from", 0, 0),
        text("reason", 16, 0),
        figure("heard", 8, 2),
        figure("latest", 15, 1),
        figure("payload", 8, 4),
        text("service", 12, 5),
        text("to", 24, 3),
        text("version", 10, 6),
    ];
    let (picture, theme) = (scene.picture, scene.theme);
    let rows = picture.events.iter().map(|line| {
        let event = &line.event;
        let version = event.version.map_or_else(String::new, |version| format!("{version:#x}"));
        vec![
            (format!(" {}", event.from), Style::new()),
            (event.reason.name().to_owned(), of_reason(scene, event.reason)),
            (number::count(line.heard), Style::new()),
            (ago(line.age_s), theme.faint()),
            (number::bytes(event.length.into()), theme.faint()),
            (clean(&event.service), theme.faint()),
            (event.to.to_string(), theme.faint()),
            (version, theme.faint()),
        ]
    });
    let what = if picture.dry_run { " Would be dropped " } else { " Drops " };
    let title = Line::from(vec![
        Span::styled(what, theme.strong()),
        Span::styled("sampled, by source and reason ", theme.faint()),
    ]);
    render(
        frame,
        scene,
        area,
        Panel::Events,
        Panelled {
            title,
            columns: &COLUMNS,
            flexible: 22,
            rows: rows.collect(),
            selected: scene.choices.event.min(picture.events.len().saturating_sub(1)),
            empty: "none yet",
        },
    );
}
