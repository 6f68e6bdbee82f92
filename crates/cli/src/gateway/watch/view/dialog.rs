//! Draws dialogs (questions and help) over everything else.

use equic_gateway::ListAction;
use equic_report::number;
use ratatui::Frame;
use ratatui::layout::{Alignment, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::super::keys::{Dialog, LIFETIMES};
use super::Scene;

pub(super) fn draw(frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
    let Some(dialog) = scene.choices.dialog else { return };
    let (title, lines) = match dialog {
        Dialog::Help => (" Keys ".to_owned(), help(scene)),
        Dialog::Forget { prefix } => (
            " Forget ".to_owned(),
            vec![
                Line::styled(prefix.to_string(), scene.theme.accent()),
                Line::raw("remove it from both lists?"),
                answers(scene),
            ],
        ),
        Dialog::List { action, prefix, choice } => {
            let (verb, style, what) = match action {
                ListAction::Deny => ("Deny", scene.theme.bad(), "drop all its packets"),
                ListAction::Allow => ("Allow", scene.theme.good(), "exempt it from limits"),
            };
            let mut chips = Vec::new();
            for (index, (label, _)) in LIFETIMES.iter().enumerate() {
                let style = if index == choice {
                    style.add_modifier(Modifier::REVERSED | Modifier::BOLD)
                } else {
                    scene.theme.faint()
                };
                chips.push(Span::styled(format!(" {} {label} ", index + 1), style));
            }
            // Use two lines if the text is too long for one.
            let (first, second) = if area.width >= 60 {
                (chips, Vec::new())
            } else {
                let second = chips.split_off(2);
                (chips, second)
            };
            let mut lines = vec![
                Line::from(vec![
                    Span::styled(prefix.to_string(), scene.theme.accent()),
                    Span::raw(format!(": {what}")),
                ]),
                Line::from(first),
            ];
            if !second.is_empty() {
                lines.push(Line::from(second));
            }
            lines.push(answers(scene));
            (format!(" {verb} "), lines)
        }
    };
    window(frame, scene, area, title, lines);
}

fn answers(scene: &Scene<'_>) -> Line<'static> {
    let theme = scene.theme;
    Line::from(vec![
        Span::styled("enter", theme.accent()),
        Span::styled(" do it   ", theme.faint()),
        Span::styled("esc", theme.accent()),
        Span::styled(" leave it", theme.faint()),
    ])
}

fn help(scene: &Scene<'_>) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let keys = [
        ("up down j k", "select; PgUp PgDn Home End"),
        ("d", "deny the source"),
        ("a", "exempt from all limits"),
        ("f", "remove from both lists"),
        ("s", "sort by the next column"),
        ("tab", "next panel"),
        ("p", "pause or resume"),
        ("ctrl-l", "redraw the screen"),
        ("ctrl-z", "suspend this program"),
        ("q", "quit"),
    ];
    let mut lines: Vec<Line<'static>> = keys
        .into_iter()
        .map(|(key, what)| {
            Line::from(vec![
                Span::styled(format!("{key:>11}  "), theme.accent()),
                Span::raw(format!("{what:<27}")),
            ])
        })
        .collect();
    let cost = number::seconds(scene.picture.read_s);
    lines.push(Line::styled(format!("reading the gateway took {cost}"), theme.faint()));
    lines
}

fn window(
    frame: &mut Frame<'_>,
    scene: &Scene<'_>,
    area: Rect,
    title: String,
    lines: Vec<Line<'_>>,
) {
    let widest = lines.iter().map(Line::width).max().unwrap_or(0);
    let width = u16::try_from(widest + 6).unwrap_or(u16::MAX).min(area.width);
    // Add empty lines if there is room for them.
    let airy = usize::from(area.height) >= 2 * lines.len() + 6 && lines.len() < 6;
    let mut content = Vec::new();
    for line in lines {
        if airy {
            content.push(Line::default());
        }
        content.push(line.alignment(Alignment::Center));
    }
    if airy {
        content.push(Line::default());
    }
    let height = u16::try_from(content.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    let block = scene.theme.frame(true).title(Line::styled(title, scene.theme.strong()));
    frame.render_widget(Paragraph::new(content).block(block), place);
}
