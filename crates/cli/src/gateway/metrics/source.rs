//! Finds the gateway whose metrics are served: the gateway of this process, or another one that is
//! selected by name.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use equic_gateway::{Control, Error};

use super::families::{self, Memory};
use crate::failure::Result;

/// Maximum age of cached metrics of the gateway. Within this time, all requests together read the
/// gateway only once.
const FRESH: Duration = Duration::from_millis(200);

/// Reads a gateway's metrics. A lock ensures that only one thread reads at a time.
pub(super) struct Source {
    whose: Whose,
    state: Mutex<State>,
    /// Called after each attempt to read the gateway, with the error or with `None`.
    tell: Tell,
}

/// A function that receives the error of an attempt to read the gateway, or `None` if the attempt
/// succeeded.
pub(super) type Tell = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// Condition of the gateway that the metrics describe.
pub(super) enum Health {
    /// The gateway runs and can be read.
    Well,
    /// No gateway is running.
    Gone,
    /// The gateway runs but cannot be read. Contains the reason.
    Unreadable(String),
}

enum Whose {
    /// This process's.
    Own,
    /// Any running gateway that matches the selector, or the only gateway for `None`.
    Selected(Option<String>),
}

#[derive(Default)]
struct State {
    control: Option<Control>,
    memory: Memory,
    last: Option<(Instant, String)>,
}

impl Source {
    /// Returns a source of metrics for a gateway of this process.
    pub(super) fn of(control: Control, tell: Tell) -> Source {
        let state = State { control: Some(control), ..State::default() };
        Source { whose: Whose::Own, state: Mutex::new(state), tell }
    }

    /// Returns a source of metrics for a gateway of another process. That gateway may start later.
    ///
    /// # Errors
    /// This process has no permission to read gateways, so that waiting could never succeed.
    pub(super) fn find(selector: Option<String>, tell: Tell) -> Result<Source> {
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

    /// Returns the metrics as text. Blocks while the gateway is read, which takes tens of
    /// milliseconds if its tables are full.
    pub(super) fn text(&self) -> Result<String> {
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

    /// Reports a problem because of which scrapes are not answered.
    pub(super) fn tell(&self, what: &str) {
        (self.tell)(Some(what));
    }

    /// Returns whether the gateway runs, and whether a scrape would succeed now.
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

    /// If the gateway has ended, closes its handle, because its maps would otherwise stay in
    /// memory. Then looks for a gateway that replaces it.
    fn look(&self, state: &mut State) {
        if state.control.as_ref().is_some_and(|control| !control.is_loaded().unwrap_or(true)) {
            state.control = None;
        }
        if let (None, Whose::Selected(selector)) = (&state.control, &self.whose) {
            state.control = Control::open(selector.as_deref()).ok();
        }
    }
}
