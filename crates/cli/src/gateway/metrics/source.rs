//! The gateway that is told of: one of this process, or whichever runs under a name.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use equic_gateway::{Control, Error};

use super::families::{self, Memory};
use crate::failure::Done;

/// A reading that is younger than this is given again: many requests cost no more than one.
const FRESH: Duration = Duration::from_millis(200);

/// Source of the metrics. All reading goes through one lock, one at a time.
pub(super) struct Source {
    whose: Whose,
    state: Mutex<State>,
    /// Is told of every reading: what is wrong with it, or that nothing is.
    tell: Tell,
}

/// Takes what is wrong with a reading; none: nothing.
pub(super) type Tell = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// Condition of the gateway that metrics are about.
pub(super) enum Health {
    /// It runs and can be read.
    Well,
    /// There is none.
    Gone,
    /// It is there and cannot be read: why.
    Unreadable(String),
}

enum Whose {
    /// This process's.
    Own,
    /// Whichever runs and matches.
    Selected(Option<String>),
}

#[derive(Default)]
struct State {
    control: Option<Control>,
    memory: Memory,
    last: Option<(Instant, String)>,
}

impl Source {
    /// A gateway of this process.
    pub(super) fn of(control: Control, tell: Tell) -> Source {
        let state = State { control: Some(control), ..State::default() };
        Source { whose: Whose::Own, state: Mutex::new(state), tell }
    }

    /// A gateway of another process, which need not run yet.
    ///
    /// # Errors
    /// This process may not look into gateways, so that waiting would be in vain.
    pub(super) fn find(selector: Option<String>, tell: Tell) -> Done<Source> {
        let control = match Control::open(selector.as_deref()) {
            Ok(control) => Some(control),
            Err(Error::NoGateway | Error::NoGatewayHere { .. } | Error::NoSuchGateway { .. }) => {
                None
            }
            Err(error) => return Err(error.into()),
        };
        let state = State { control, ..State::default() };
        Ok(Source { whose: Whose::Selected(selector), state: Mutex::new(state), tell })
    }

    /// The exposition. Blocks for as long as reading takes: tens of milliseconds with full tables.
    pub(super) fn text(&self) -> Done<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, text)) = &state.last
            && at.elapsed() < FRESH
        {
            return Ok(text.clone());
        }
        self.look(&mut state);
        let State { control, memory, last } = &mut *state;
        match families::text(memory, control.as_ref()) {
            Ok(text) => {
                (self.tell)(None);
                *last = Some((Instant::now(), text.clone()));
                Ok(text)
            }
            Err(failure) => {
                (self.tell)(Some(&failure.to_string()));
                Err(failure)
            }
        }
    }

    /// Reports trouble that keeps scrapes from being answered.
    pub(super) fn tell(&self, what: &str) {
        (self.tell)(Some(what));
    }

    /// Whether the gateway is there, and whether a scrape would succeed now.
    pub(super) fn health(&self) -> Health {
        match self.text() {
            Err(failure) => Health::Unreadable(failure.to_string()),
            Ok(_) => {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                self.look(&mut state);
                if state.control.is_some() { Health::Well } else { Health::Gone }
            }
        }
    }

    /// Lets go of a gateway that has ended, whose maps would stay in memory, and looks for its successor.
    fn look(&self, state: &mut State) {
        if state.control.as_ref().is_some_and(|control| !control.is_loaded().unwrap_or(true)) {
            state.control = None;
        }
        if let (None, Whose::Selected(selector)) = (&state.control, &self.whose) {
            state.control = Control::open(selector.as_deref()).ok();
        }
    }
}
