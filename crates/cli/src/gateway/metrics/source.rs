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
    pub(super) fn of(control: Control) -> Source {
        let state = State { control: Some(control), ..State::default() };
        Source { whose: Whose::Own, state: Mutex::new(state) }
    }

    /// A gateway of another process, which need not run yet.
    ///
    /// # Errors
    /// This process may not look into gateways, so that waiting would be in vain.
    pub(super) fn find(selector: Option<String>) -> Done<Source> {
        let control = match Control::open(selector.as_deref()) {
            Ok(control) => Some(control),
            Err(Error::NoGateway | Error::NoSuchGateway { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let state = State { control, ..State::default() };
        Ok(Source { whose: Whose::Selected(selector), state: Mutex::new(state) })
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
        let text = families::text(memory, control.as_ref())?;
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }

    /// Whether the gateway is there.
    pub(super) fn is_up(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.look(&mut state);
        state.control.is_some()
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
