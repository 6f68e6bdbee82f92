use equic_gateway::{LedgerStatus, ListAction, Reason};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use super::super::keys::{Choices, Dialog};
use super::super::lines_of;
use super::super::model::tests::{counter, drop_of, sample, source};
use super::super::model::{Model, Sort};
use super::super::sample::Sample;
use super::*;

const COLOURS: Theme = Theme { colour: true, unicode: true };
const PLAIN: Theme = Theme { colour: false, unicode: true };

/// Returns the picture of a gateway under attack.
fn attacked() -> Picture {
    let mut model = Model::default();
    for second in 0..60 {
        let (new, quota) = (second * 40, second * 2_500);
        let mut held = source("192.0.2.7/32", 5, second * 40, 0);
        held.connections = 9;
        let ledger = LedgerStatus {
            slot: 0,
            name: "web \u{1b}[31mserver\u{202e}".to_owned(),
            pid: 4,
            uid: 0,
            socket: false,
            keys: false,
            ids: false,
            services: None,
            alive: true,
            counts: true,
            heartbeat_age_ms: 5,
            connections: 1204,
            sources: 2,
            opened: 3000,
            overflow: 0,
        };
        let events = vec![drop_of("198.51.100.9:4444", Reason::Quota, 1000 + second)];
        model.push(Sample {
            counters: vec![counter(Reason::New, new), counter(Reason::Quota, quota)],
            sources: vec![held, source("198.51.100.9/32", 5, quota, quota)],
            ledgers: vec![ledger],
            events,
            ..sample(1000 + second)
        });
    }
    let mut picture = model.picture(Sort::Drops);
    picture.sources[1].listed = Some(ListAction::Allow);
    picture
}

struct Drawn {
    text: String,
    backend: TestBackend,
}

fn drawn(scene: &Scene<'_>, width: u16, height: u16) -> Drawn {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, scene)).unwrap();
    let backend = terminal.backend().clone();
    Drawn { text: lines_of(&backend), backend }
}

fn scene<'a>(picture: &'a Picture, choices: &'a Choices, theme: Theme) -> Scene<'a> {
    Scene { picture, choices, theme, gone: None, message: None }
}

#[track_caller]
fn shows(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

#[test]
fn watch_view_shows_everything_on_a_large_terminal() {
    let (picture, choices) = (attacked(), Choices::default());
    let text = drawn(&scene(&picture, &choices, PLAIN), 140, 40).text;
    shows(
        &text,
        &[
            "edge · eth0 native · up 17 min 39 s",
            "web on 443: 10 connections per source",
            "1,204 connections",
            "passed 40.0 /s",
            "dropped 2.50 k/s",
            "peak 2.50 k/s",
            "Sources 2 by drops/s",
            "198.51.100.9",
            "9 of 10",
            "allowed",
            "Reasons",
            "148 k",
            "Drops",
            "198.51.100.9:4444",
            "q quit",
            "██",
        ],
    );
    let (attacker, other) =
        (text.find(" 198.51.100.9 ").unwrap(), text.find(" 192.0.2.7 ").unwrap());
    assert!(attacker < other, "{text}");
    // Escape sequences in a server's name must not reach the terminal.
    shows(&text, &["web [31mserver 1,204"]);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
}

#[test]
fn watch_view_draws_every_size_and_the_essentials_at_40_by_10() {
    let picture = attacked();
    let mut choices = Choices::default();
    let prefix = "198.51.100.9/32".parse().unwrap();
    let dialogs = [
        None,
        Some(Dialog::Help),
        Some(Dialog::Forget { prefix }),
        Some(Dialog::List { action: ListAction::Deny, prefix, choice: 1 }),
    ];
    for dialog in dialogs {
        choices.dialog = dialog;
        for panel in [Panel::Sources, Panel::Reasons, Panel::Events] {
            choices.panel = panel;
            for (width, height) in
                [(1, 1), (3, 2), (10, 5), (40, 10), (79, 24), (100, 24), (100, 23), (500, 200)]
            {
                drawn(&scene(&picture, &choices, COLOURS), width, height);
            }
        }
    }
    let small = |panel| {
        let choices = Choices { panel, ..Choices::default() };
        drawn(&scene(&picture, &choices, PLAIN), 40, 10).text
    };
    let rates = ["edge", "passed 40.0 /s", "dropped 2.50 k/s", "? help  q quit"];
    let sources = small(Panel::Sources);
    shows(&sources, &rates);
    shows(&sources, &["198.51.100.9", "2.50 k/s", "dropped"]);
    shows(&small(Panel::Reasons), &["quota", "new", "2.50 k/s"]);
    shows(&small(Panel::Events), &["198.51.100.9:4444", "quota"]);
    let asked = Choices {
        dialog: Some(Dialog::List { action: ListAction::Deny, prefix, choice: 1 }),
        ..Choices::default()
    };
    let asked = drawn(&scene(&picture, &asked, PLAIN), 40, 10).text;
    shows(&asked, &["198.51.100.9/32", "10 minutes", "for ever", "enter do it", "esc leave it"]);
}

#[test]
fn watch_view_says_that_there_is_no_data_yet() {
    let (picture, choices) = (Picture::default(), Choices::default());
    let text = drawn(&scene(&picture, &choices, PLAIN), 120, 30).text;
    shows(
        &text,
        &[
            "attached to no interface",
            "no source has sent packets yet",
            "no packet has arrived yet",
            "none yet",
            "passed - ",
        ],
    );
}

#[test]
fn watch_view_highlights_dry_run_pause_and_loss() {
    let mut picture = attacked();
    picture.dry_run = true;
    let choices = Choices { paused: true, ..Choices::default() };
    let text = drawn(&scene(&picture, &choices, PLAIN), 120, 30).text;
    shows(&text, &[" DRY RUN ", " PAUSED", "would drop", "Would be dropped", "go on"]);
    let gone = Scene {
        gone: Some("gateway gone, waiting"),
        message: Some((Tone::Bad, "it did not work")),
        ..scene(&picture, &choices, PLAIN)
    };
    for (width, height) in [(120, 30), (60, 12)] {
        shows(
            &drawn(&gone, width, height).text,
            &["GONE", "gateway gone, waiting", "it did not work"],
        );
    }
}

#[test]
fn watch_view_has_colour_and_unicode_only_if_enabled() {
    let (picture, choices) = (attacked(), Choices::default());
    let cells = |theme| {
        let drawn = drawn(&scene(&picture, &choices, theme), 140, 40);
        drawn.backend.buffer().content().to_vec()
    };
    let coloured =
        |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
    assert!(cells(COLOURS).iter().any(|cell| cell.fg == Color::Red));
    let plain = cells(PLAIN);
    assert!(!plain.iter().any(coloured));
    // The selected row must be visible without colours.
    assert!(plain.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)));
    let ascii = drawn(&scene(&picture, &choices, Theme { colour: false, unicode: false }), 140, 40);
    assert!(ascii.text.is_ascii(), "{}", ascii.text);
    shows(&ascii.text, &["+ Sources 2", "###"]);
}

#[test]
fn watch_view_scrolls_to_the_selected_source() {
    let mut model = Model::default();
    let sources = (0..150u64).map(|n| source(&format!("10.0.0.{n}/32"), 5, 1000 - n, 0)).collect();
    model.push(Sample { sources, ..sample(100) });
    let picture = model.picture(Sort::Packets);
    let last = picture.sources.last().unwrap();
    let choices = Choices { source: Some(last.key), ..Choices::default() };
    let text = drawn(&scene(&picture, &choices, PLAIN), 80, 24).text;
    shows(&text, &["10.0.0.149", "150 of 150"]);
    assert!(!text.contains(" 10.0.0.1 "), "{text}");
}
