//! Effects of the keys of the dashboard: a state machine on the current picture that needs no
//! terminal.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use equic_gateway::{IpNet, ListAction, SourceKey};

use super::model::{Picture, Sort};

/// Durations that a dialog offers for a new entry of the deny or allow list.
pub(super) const LIFETIMES: [(&str, Option<Duration>); 4] = [
    ("1 minute", Some(Duration::from_secs(60))),
    ("10 minutes", Some(Duration::from_secs(600))),
    ("1 hour", Some(Duration::from_secs(3600))),
    ("for ever", None),
];
/// Index of the duration that a dialog selects first: ten minutes, which is long enough to decide
/// what to do next.
const USUAL: usize = 1;

/// The panel of the dashboard that the keys act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Panel {
    #[default]
    Sources,
    Reasons,
    Events,
}

/// A dialog that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialog {
    /// Asks for how long to deny or allow a prefix.
    List { action: ListAction, prefix: IpNet, choice: usize },
    /// Asks whether to remove a prefix from the deny and allow lists.
    Forget { prefix: IpNet },
    /// The keys.
    Help,
}

/// Action that the dashboard must take after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Quit,
    /// Stop this process until the shell continues it, as Ctrl-Z does.
    Suspend,
    /// Draw the whole screen again.
    Redraw,
    /// Build the picture again, because the sort order has changed.
    Sorted,
    /// Show the current state again, because the user has ended a pause.
    Resumed,
    List(ListAction, IpNet, Option<Duration>),
    Forget(IpNet),
}

/// Choices that the user has made with keys.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Choices {
    pub panel: Panel,
    pub sort: Sort,
    /// The selected source, wherever it is in the list, or `None` to select the first one.
    pub source: Option<SourceKey>,
    pub reason: usize,
    pub event: usize,
    pub paused: bool,
    pub dialog: Option<Dialog>,
}

impl Choices {
    /// Returns the row of the selected source.
    pub(super) fn source_row(&self, picture: &Picture) -> usize {
        let chosen = |key| picture.sources.iter().position(|line| line.key == key);
        self.source.and_then(chosen).unwrap_or(0)
    }

    /// Returns the prefix that the keys `d`, `a` and `f` apply to, or `None` if nothing with a
    /// prefix is selected.
    pub(super) fn prefix(
        &self,
        picture: &Picture,
        source_of: &dyn Fn(std::net::IpAddr) -> IpNet,
    ) -> Option<IpNet> {
        match self.panel {
            Panel::Sources => {
                picture.sources.get(self.source_row(picture)).map(|line| line.key.prefix)
            }
            Panel::Events => {
                picture.events.get(self.event).map(|line| source_of(line.event.from.ip()))
            }
            Panel::Reasons => None,
        }
    }

    /// Handles a key. `source_of` returns the source that an address is counted under.
    pub(super) fn key(
        &mut self,
        key: KeyEvent,
        picture: &Picture,
        source_of: &dyn Fn(std::net::IpAddr) -> IpNet,
    ) -> Act {
        if key.kind == KeyEventKind::Release {
            return Act::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Act::Quit,
                KeyCode::Char('z') => Act::Suspend,
                KeyCode::Char('l') => Act::Redraw,
                _ => Act::Nothing,
            };
        }
        match self.dialog {
            Some(dialog) => self.answer(dialog, key.code),
            None => self.command(key.code, picture, source_of),
        }
    }

    fn answer(&mut self, dialog: Dialog, code: KeyCode) -> Act {
        let cancelled = matches!(code, KeyCode::Esc | KeyCode::Char('q' | 'n'));
        let agreed = matches!(code, KeyCode::Enter | KeyCode::Char('y'));
        match dialog {
            // Any key closes the help.
            Dialog::Help => self.dialog = None,
            _ if cancelled => self.dialog = None,
            Dialog::Forget { prefix } if agreed => {
                self.dialog = None;
                return Act::Forget(prefix);
            }
            Dialog::Forget { .. } => {}
            Dialog::List { action, prefix, choice } if agreed => {
                self.dialog = None;
                return Act::List(action, prefix, LIFETIMES[choice].1);
            }
            Dialog::List { action, prefix, choice } => {
                let last = LIFETIMES.len() - 1;
                let choice = match code {
                    KeyCode::Left | KeyCode::Up | KeyCode::Char('h' | 'k') | KeyCode::BackTab => {
                        choice.saturating_sub(1)
                    }
                    KeyCode::Right | KeyCode::Down | KeyCode::Char('l' | 'j') | KeyCode::Tab => {
                        (choice + 1).min(last)
                    }
                    KeyCode::Char(digit @ '1'..='4') => digit as usize - '1' as usize,
                    _ => choice,
                };
                self.dialog = Some(Dialog::List { action, prefix, choice });
            }
        }
        Act::Nothing
    }

    fn command(
        &mut self,
        code: KeyCode,
        picture: &Picture,
        source_of: &dyn Fn(std::net::IpAddr) -> IpNet,
    ) -> Act {
        let prefix = self.prefix(picture, source_of);
        let list = |action| prefix.map(|prefix| Dialog::List { action, prefix, choice: USUAL });
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Act::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.dialog = Some(Dialog::Help),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                return Act::Sorted;
            }
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                return if self.paused { Act::Nothing } else { Act::Resumed };
            }
            KeyCode::Tab => self.panel = self.panel.next(),
            KeyCode::BackTab => self.panel = self.panel.next().next(),
            KeyCode::Char('d') => self.dialog = list(ListAction::Deny),
            KeyCode::Char('a') => self.dialog = list(ListAction::Allow),
            KeyCode::Char('f') => self.dialog = prefix.map(|prefix| Dialog::Forget { prefix }),
            KeyCode::Down | KeyCode::Char('j') => self.step(picture, 1),
            KeyCode::Up | KeyCode::Char('k') => self.step(picture, -1),
            KeyCode::PageDown => self.step(picture, 10),
            KeyCode::PageUp => self.step(picture, -10),
            KeyCode::Home | KeyCode::Char('g') => self.step(picture, isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(picture, isize::MAX),
            _ => {}
        }
        Act::Nothing
    }

    fn step(&mut self, picture: &Picture, by: isize) {
        let moved =
            |at: usize, length: usize| at.saturating_add_signed(by).min(length.saturating_sub(1));
        match self.panel {
            Panel::Sources => {
                let row = moved(self.source_row(picture), picture.sources.len());
                self.source = picture.sources.get(row).map(|line| line.key);
            }
            Panel::Reasons => self.reason = moved(self.reason, picture.reasons.len()),
            Panel::Events => self.event = moved(self.event, picture.events.len()),
        }
    }
}

impl Panel {
    /// Returns the panel that follows this one.
    pub(super) fn next(self) -> Panel {
        match self {
            Panel::Sources => Panel::Reasons,
            Panel::Reasons => Panel::Events,
            Panel::Events => Panel::Sources,
        }
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
