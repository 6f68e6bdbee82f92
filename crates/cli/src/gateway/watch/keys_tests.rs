use std::net::IpAddr;

use crossterm::event::KeyEventState;

use super::super::model::Model;
use super::super::model::tests::{drop_of, sample, source};
use super::super::sample::Sample;
use super::*;

fn picture() -> Picture {
    let mut model = Model::default();
    let sources =
        (1..=20).map(|n| source(&format!("192.0.2.{n}/32"), 5, 1000 - n, 0)).collect::<Vec<_>>();
    let events = vec![drop_of("[2001:db8:1:2::3]:9", equic_gateway::Reason::Quota, 99)];
    model.push(Sample { sources, events, ..sample(100) });
    model.picture(Sort::Packets)
}

fn of(address: IpAddr) -> IpNet {
    IpNet::new(address, if address.is_ipv4() { 32 } else { 64 }).unwrap().trunc()
}

/// Presses keys one after the other, and returns the action of the last one.
fn press(choices: &mut Choices, picture: &Picture, keys: &[KeyCode]) -> Act {
    let mut act = Act::Nothing;
    for key in keys {
        act = choices.key(KeyEvent::new(*key, KeyModifiers::NONE), picture, &of);
    }
    act
}

fn letters(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

#[test]
fn watch_deny_key_asks_for_a_duration() {
    let (picture, net) = (picture(), |text: &str| text.parse::<IpNet>().unwrap());
    let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
    for (keys, lifetime) in [
        ("", minutes(10)),
        ("1", minutes(1)),
        ("3", minutes(60)),
        ("4", None),
        ("lll", None),
        ("hhh", minutes(1)),
    ] {
        let mut choices = Choices::default();
        assert_eq!(press(&mut choices, &picture, &letters(&format!("jjd{keys}"))), Act::Nothing);
        let shown = choices.dialog;
        assert!(matches!(shown, Some(Dialog::List { action: ListAction::Deny, .. })), "{shown:?}");
        let act = press(&mut choices, &picture, &[KeyCode::Enter]);
        assert_eq!(act, Act::List(ListAction::Deny, net("192.0.2.3/32"), lifetime), "{keys}");
        assert_eq!(choices.dialog, None);
    }
    let mut choices = Choices::default();
    let act = press(&mut choices, &picture, &letters("a4y"));
    assert_eq!(act, Act::List(ListAction::Allow, net("192.0.2.1/32"), None));
    assert_eq!(press(&mut choices, &picture, &letters("fy")), Act::Forget(net("192.0.2.1/32")));
}

#[test]
fn watch_dialog_takes_all_keys_and_can_be_cancelled() {
    let picture = picture();
    let mut choices = Choices::default();
    for leave in [KeyCode::Esc, KeyCode::Char('q'), KeyCode::Char('n')] {
        for ask in ['d', 'a', 'f'] {
            assert_eq!(press(&mut choices, &picture, &[KeyCode::Char(ask), leave]), Act::Nothing);
            assert_eq!(choices, Choices::default());
        }
    }
    // While the dialog is open, other keys must not affect the panels behind the dialog.
    press(&mut choices, &picture, &letters("dspx"));
    assert!(choices.dialog.is_some() && !choices.paused && choices.sort == Sort::Packets);
    press(&mut choices, &picture, &[KeyCode::Esc]);
    // Any key closes the help.
    press(&mut choices, &picture, &letters("?q"));
    assert_eq!(choices, Choices::default());
}

#[test]
fn watch_selection_stays_when_the_order_changes() {
    let mut before = picture();
    let mut choices = Choices::default();
    press(&mut choices, &before, &letters("jjj"));
    assert_eq!(
        (choices.source_row(&before), choices.prefix(&before, &of)),
        (3, "192.0.2.4/32".parse().ok())
    );
    before.sources.reverse();
    assert_eq!(
        (choices.source_row(&before), choices.prefix(&before, &of)),
        (16, "192.0.2.4/32".parse().ok())
    );
    // The selected source disappears. The first one must then be selected.
    before.sources.remove(16);
    assert_eq!(choices.source_row(&before), 0);
}

#[test]
fn watch_selection_stops_at_the_ends_of_a_list() {
    let picture = picture();
    let mut choices = Choices::default();
    let row = |choices: &mut Choices, keys: &[KeyCode]| {
        press(choices, &picture, keys);
        choices.source_row(&picture)
    };
    assert_eq!(row(&mut choices, &[KeyCode::Up]), 0);
    assert_eq!(row(&mut choices, &[KeyCode::PageDown, KeyCode::Down]), 11);
    assert_eq!(row(&mut choices, &[KeyCode::End, KeyCode::Down, KeyCode::PageDown]), 19);
    assert_eq!(row(&mut choices, &[KeyCode::PageUp]), 9);
    assert_eq!(row(&mut choices, &[KeyCode::Home]), 0);
    // With an empty picture, no key may panic or select anything.
    let nothing = Picture::default();
    for panel in [Panel::Sources, Panel::Reasons, Panel::Events] {
        let mut choices = Choices { panel, ..Choices::default() };
        let act = press(&mut choices, &nothing, &letters("jkGgdaf"));
        assert_eq!((act, choices.dialog), (Act::Nothing, None));
    }
}

#[test]
fn watch_panels_have_subjects_of_their_own() {
    let picture = picture();
    let mut choices = Choices::default();
    press(&mut choices, &picture, &[KeyCode::Tab, KeyCode::Char('d')]);
    assert_eq!((choices.panel, choices.dialog), (Panel::Reasons, None));
    press(&mut choices, &picture, &[KeyCode::Tab, KeyCode::Char('d')]);
    let Some(Dialog::List { prefix, .. }) = choices.dialog else { panic!("{choices:?}") };
    assert_eq!(prefix, "2001:db8:1:2::/64".parse().unwrap(), "the source, not the address");
    press(&mut choices, &picture, &[KeyCode::Esc, KeyCode::Tab]);
    assert_eq!(choices.panel, Panel::Sources);
    press(&mut choices, &picture, &[KeyCode::BackTab]);
    assert_eq!(choices.panel, Panel::Events);
}

#[test]
fn watch_keys_sort_pause_suspend_and_quit() {
    let picture = picture();
    let mut choices = Choices::default();
    assert_eq!(press(&mut choices, &picture, &letters("s")), Act::Sorted);
    assert_eq!(choices.sort, Sort::Drops);
    assert_eq!(press(&mut choices, &picture, &letters("p")), Act::Nothing);
    assert!(choices.paused);
    assert_eq!(press(&mut choices, &picture, &letters("p")), Act::Resumed);
    assert_eq!(press(&mut choices, &picture, &letters("q")), Act::Quit);
    let mut control = |letter| {
        let key = KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        choices.key(key, &picture, &of)
    };
    assert_eq!((control('c'), control('z'), control('l')), (Act::Quit, Act::Suspend, Act::Redraw));
    assert_eq!(control('d'), Act::Nothing);
    // Some terminals also report when a key is released. That must have no effect.
    let released = KeyEvent {
        code: KeyCode::Char('q'),
        modifiers: KeyModifiers::NONE,
        kind: KeyEventKind::Release,
        state: KeyEventState::NONE,
    };
    assert_eq!(choices.key(released, &picture, &of), Act::Nothing);
}
