//! Takes over the terminal, and restores it however the program ends.

use std::io::{self, IsTerminal as _, Stdout};
use std::sync::Once;

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

use crate::failure::{Failure, Result};

/// A terminal in raw mode that shows its alternate screen. It is restored when the value is
/// dropped, and before the message of a panic is printed.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

/// Returns whether standard input and output are a terminal.
pub(super) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Restores the terminal. Does nothing if the terminal was not taken over.
pub(super) fn give_back() {
    // Errors are ignored, because a terminal that was closed cannot be restored.
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

impl Screen {
    /// Takes over the terminal.
    pub(super) fn take() -> Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let tell = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                tell(panic);
            }));
        });
        // From here on, dropping `screen` restores the terminal.
        let mut screen = Screen {
            terminal: Terminal::new(CrosstermBackend::new(io::stdout())).map_err(failed)?,
        };
        screen.take_over()?;
        Ok(screen)
    }

    fn take_over(&mut self) -> Result {
        enable_raw_mode().map_err(failed)?;
        execute!(io::stdout(), EnterAlternateScreen, Hide).map_err(failed)?;
        self.redraw()
    }

    /// Takes over the terminal again after another process has used it.
    pub(super) fn take_again(&mut self) -> Result {
        give_back();
        self.take_over()
    }

    /// Restores the terminal, and stops this process until the shell continues it.
    pub(super) fn suspend(&mut self) -> Result {
        give_back();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)
            .map_err(failed)?;
        self.take_over()
    }

    /// Clears the screen, so that everything is drawn again. `Terminal::clear` cannot be used,
    /// because it asks the terminal for the cursor position. Some terminals never answer, and the
    /// thread that reads keys may receive the answer.
    pub(super) fn redraw(&mut self) -> Result {
        execute!(io::stdout(), Clear(ClearType::All)).map_err(failed)?;
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout())).map_err(failed)?;
        Ok(())
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result {
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
