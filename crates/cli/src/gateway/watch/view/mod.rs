//! Draws the picture of the dashboard and the user's choices. The layout fits terminals of 40 x 10
//! characters or more. On a smaller terminal, it is cut off.
//!
//! Large terminals show all panels at once, others one panel at a time. Start at [`draw`];
//! [`panels`] are the three tables, [`dialog`] the questions, [`theme`] the colours.

use equic_report::number;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline};

use super::keys::{Choices, Panel};
use super::model::Picture;

mod dialog;
mod panels;
pub(super) mod theme;

use theme::Theme;

/// Tone of a message: success or failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Bad,
}

/// Everything that the screen must show.
pub(super) struct Scene<'a> {
    pub picture: &'a Picture,
    pub choices: &'a Choices,
    pub theme: Theme,
    /// Why the gateway has ended or cannot be read, or `None` if it is read normally.
    pub gone: Option<&'a str>,
    /// Result of the user's last action as a message, with its tone, or `None`.
    pub message: Option<(Tone, &'a str)>,
}

/// Minimum width and height of a terminal that shows all panels at once.
const WIDE: (u16, u16) = (100, 24);

pub(super) fn draw(frame: &mut Frame<'_>, scene: &Scene<'_>) {
    let area = frame.area();
    if area.width >= WIDE.0 && area.height >= WIDE.1 {
        everything(frame, scene, area);
    } else {
        one_panel(frame, scene, area);
    }
    dialog::draw(frame, scene, area);
}

fn everything(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
    let picture = scene.picture;
    let about = (picture.services.len().clamp(1, 3) + 1) as u16;
    let events = if area.height >= 34 { 10 } else { 7 };
    let [head, subject, curves, body, drops, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(about),
        Constraint::Length(if area.height >= 30 { 6 } else { 5 }),
        Constraint::Min(6),
        Constraint::Length(events),
        Constraint::Length(1),
    ])
    .areas(area);
    header(frame, scene, head);
    self::subject(frame, scene, subject);
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(curves);
    curve(frame, scene, left, true);
    curve(frame, scene, right, false);
    let [sources, reasons] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Length(if area.width >= 130 { 53 } else { 43 }),
    ])
    .areas(body);
    panels::sources(frame, scene, sources);
    panels::reasons(frame, scene, reasons);
    panels::events(frame, scene, drops);
    footer(frame, scene, foot);
}

fn one_panel(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
    let rows = match area.height {
        0..14 => 1,
        14..20 => 2,
        _ => 4,
    };
    let [head, rates, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    header(frame, scene, head);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(rates);
    if rows >= 4 {
        curve(frame, scene, left, true);
        curve(frame, scene, right, false);
    } else {
        small_curve(frame, scene, left, true);
        small_curve(frame, scene, right, false);
    }
    match scene.choices.panel {
        Panel::Sources => panels::sources(frame, scene, body),
        Panel::Reasons => panels::reasons(frame, scene, body),
        Panel::Events => panels::events(frame, scene, body),
    }
    footer(frame, scene, foot);
}

fn header(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
    let (picture, theme) = (scene.picture, scene.theme);
    let mut badges: Vec<Span<'static>> = Vec::new();
    if picture.dry_run {
        badges.push(theme.badge("DRY RUN", theme.warning()));
    }
    if scene.choices.paused {
        badges.push(theme.badge("PAUSED", theme.warning()));
    }
    if scene.gone.is_some() {
        badges.push(theme.badge("GONE", theme.bad()));
    }
    let width: usize = badges.iter().map(Span::width).sum::<usize>() + badges.len();
    let [left, right] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Length(u16::try_from(width).unwrap_or(0)),
    ])
    .areas(area);
    let state = if scene.gone.is_some() {
        Span::styled(theme.dot(), theme.bad())
    } else if picture.interfaces.is_empty() {
        Span::styled(theme.dot(), theme.warning())
    } else {
        Span::styled(theme.dot(), theme.good())
    };
    let mut line = vec![
        Span::raw(" "),
        state,
        Span::raw(" "),
        Span::styled(panels::clean(&picture.name), theme.accent()),
    ];
    let mut then = |text: String, style: Style| {
        line.push(Span::styled(theme.between(), theme.faint()));
        line.push(Span::styled(text, style));
    };
    match scene.gone {
        Some(why) => then(why.to_owned(), theme.bad()),
        None => {
            if picture.interfaces.is_empty() {
                then("attached to no interface".to_owned(), theme.warning());
            }
            for interface in &picture.interfaces {
                then(panels::clean(interface), Style::new());
            }
            if area.width >= 60 {
                then(format!("up {}", number::seconds(picture.uptime_s.floor())), Style::new());
            }
        }
    }
    frame.render_widget(Line::from(line), left);
    let mut right_line = Vec::new();
    for badge in badges {
        right_line.extend([badge, Span::raw(" ")]);
    }
    frame.render_widget(Line::from(right_line), right);
}

/// Draws the protected services, and the servers that report their connections to the gateway.
fn subject(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
    let (picture, theme) = (scene.picture, scene.theme);
    let room = usize::from(area.height.saturating_sub(1));
    let mut lines: Vec<Line<'_>> = Vec::new();
    for service in picture.services.iter().take(room) {
        lines.push(Line::styled(format!("   {}", panels::clean(service)), theme.faint()));
    }
    if picture.services.len() > room
        && let Some(last) = lines.last_mut()
    {
        last.push_span(format!(" and {} more", picture.services.len() - room));
    }
    let mut servers = vec![Span::styled("   servers: ", theme.faint())];
    if picture.servers.is_empty() {
        servers.push(Span::styled(
            "no server reports connections, so quotas have no effect",
            theme.faint(),
        ));
    }
    for (index, server) in picture.servers.iter().enumerate() {
        if index > 0 {
            servers.push(Span::styled(theme.between(), theme.faint()));
        }
        let (state, style) = match (server.alive, server.counts) {
            (true, true) => ("", theme.good()),
            (true, false) => (", silent: connections not counted", theme.bad()),
            (false, _) => (", ended", theme.warning()),
        };
        servers.push(Span::styled(panels::clean(&server.name), style));
        let connections = number::count(server.connections);
        servers.push(Span::raw(format!(" {connections} connections{state}")));
    }
    lines.push(Line::from(servers));
    frame.render_widget(Paragraph::new(lines), area);
}

/// Returns the data of a curve: its name, its style, the current value and the past values.
fn measure<'a>(scene: &Scene<'a>, passed: bool) -> (&'static str, Style, f64, &'a [f64]) {
    let (picture, theme) = (scene.picture, scene.theme);
    match (passed, picture.dry_run) {
        (true, _) => ("passed", theme.good(), picture.passed_per_s, &picture.passed_history),
        (false, false) => ("dropped", theme.bad(), picture.dropped_per_s, &picture.dropped_history),
        (false, true) => {
            ("would drop", theme.warning(), picture.dropped_per_s, &picture.dropped_history)
        }
    }
}

fn rate(scene: &Scene<'_>, rate: f64) -> String {
    panels::rate(scene.picture.measured, rate)
}

fn sparkline<'a>(scene: &Scene<'_>, history: &[f64], style: Style) -> Sparkline<'a> {
    let latest_first: Vec<u64> = history.iter().rev().map(|rate| rate.ceil() as u64).collect();
    Sparkline::default()
        .data(latest_first)
        .direction(RenderDirection::RightToLeft)
        .bar_set(scene.theme.bars())
        .style(style)
}

/// Draws a curve inside a frame.
fn curve(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect, passed: bool) {
    let theme = scene.theme;
    let (name, style, now, history) = measure(scene, passed);
    // Scale the curve to the highest value in its visible part.
    let seen = history.iter().rev().take(area.width.saturating_sub(2).into());
    let peak = seen.copied().fold(0.0, f64::max);
    let title = Line::from(vec![
        Span::raw(format!(" {name} ")),
        Span::styled(format!("{} ", rate(scene, now)), style.patch(theme.strong())),
    ]);
    let block = theme.frame(false).title(title).title_top(
        Line::styled(format!(" peak {} ", rate(scene, peak)), theme.faint())
            .alignment(Alignment::Right),
    );
    let inner = block.inner(area);
    frame.render_widget(block, area);
    frame.render_widget(sparkline(scene, history, style), inner);
}

/// Draws the name of a curve and then the curve, in one or two lines.
fn small_curve(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect, passed: bool) {
    let (name, style, now, history) = measure(scene, passed);
    let label = Line::from(vec![
        Span::raw(format!(" {name} ")),
        Span::styled(rate(scene, now), style.patch(scene.theme.strong())),
    ]);
    if area.height >= 2 {
        let [text, bars] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        frame.render_widget(label, text);
        let [_, bars] =
            Layout::horizontal([Constraint::Length(1), Constraint::Fill(1)]).areas(bars);
        frame.render_widget(sparkline(scene, history, style), bars);
    } else {
        let width = u16::try_from(label.width()).unwrap_or(0) + 1;
        let [text, bars] =
            Layout::horizontal([Constraint::Length(width), Constraint::Fill(1)]).areas(area);
        frame.render_widget(label, text);
        frame.render_widget(sparkline(scene, history, style), bars);
    }
}

fn footer(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
    let theme = scene.theme;
    if let Some((tone, text)) = scene.message {
        let style = match tone {
            Tone::Good => theme.good(),
            Tone::Bad => theme.bad(),
        };
        frame.render_widget(Line::styled(format!(" {}", panels::clean(text)), style), area);
        return;
    }
    let keys = [
        (theme.arrows(), "select"),
        ("d", "deny"),
        ("a", "allow"),
        ("f", "forget"),
        ("s", "sort"),
        ("p", if scene.choices.paused { "go on" } else { "pause" }),
        ("tab", "panel"),
        ("?", "help"),
        ("q", "quit"),
    ];
    // If there is not enough room for the help on all keys, show only the keys for help and for
    // quitting.
    let width = |(key, word): &(&str, &str)| key.chars().count() + word.len() + 3;
    let mut left = usize::from(area.width).saturating_sub(keys[7..].iter().map(width).sum());
    let mut shown: Vec<&(&str, &str)> = Vec::new();
    for key in &keys[..7] {
        if width(key) > left {
            break;
        }
        left -= width(key);
        shown.push(key);
    }
    shown.extend(&keys[7..]);
    let mut line = Vec::new();
    for (key, word) in shown {
        line.push(Span::styled(format!(" {key}"), theme.accent()));
        line.push(Span::styled(format!(" {word} "), theme.faint()));
    }
    frame.render_widget(Line::from(line), area);
}

#[cfg(test)]
#[path = "../view_tests.rs"]
mod tests;
