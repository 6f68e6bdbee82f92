//! The terminal: taken over, and given back as it was, whatever happens.

use std::io::{self, IsTerminal as _, Stdout};
use std::sync::Once;

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

use crate::failure::{Done, Failure};

/// A terminal in raw mode, on its alternate screen. Given back when dropped, and before a panic is
/// told of.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

/// Whether there is a terminal to draw on and to take keys from.
pub(super) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Gives the terminal back. Harmless when it was not taken over.
pub(super) fn give_back() {
    // A terminal that has gone cannot be given back.
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn take() -> Done<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let tell = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                tell(panic);
            }));
        });
        // From here on the terminal is given back when the screen is dropped.
        let mut screen = Screen {
            terminal: Terminal::new(CrosstermBackend::new(io::stdout())).map_err(failed)?,
        };
        screen.take_over()?;
        Ok(screen)
    }

    fn take_over(&mut self) -> Done {
        enable_raw_mode().map_err(failed)?;
        execute!(io::stdout(), EnterAlternateScreen, Hide).map_err(failed)?;
        self.redraw()
    }

    /// Takes it over again: another process has had it meanwhile.
    pub(super) fn take_again(&mut self) -> Done {
        give_back();
        self.take_over()
    }

    /// Gives it to the shell and stops this process until it is continued.
    pub(super) fn suspend(&mut self) -> Done {
        give_back();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)
            .map_err(failed)?;
        self.take_over()
    }

    /// Clears the screen, so that everything is drawn again. (`Terminal::clear` would ask the terminal where its cursor is,
    /// and wait for an answer that some never give, and that the thread with the keys may take.)
    pub(super) fn redraw(&mut self) -> Done {
        execute!(io::stdout(), Clear(ClearType::All)).map_err(failed)?;
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout())).map_err(failed)?;
        Ok(())
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Done {
        self.terminal.draw(draw).map(drop).map_err(failed)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::because("cannot use the terminal", error)
}
