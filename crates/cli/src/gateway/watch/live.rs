//! The main loop of the dashboard: receives samples, keys and signals, and draws pictures.
//!
//! Three threads wait for samples, keys and signals, and send them to this thread through a small
//! bounded channel. If they are faster than the screen, they block.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyEvent};
use equic_gateway::{Control, IpNet, ListAction, format_duration};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use super::keys::{Act, Choices};
use super::model::{Model, Picture};
use super::sample::{Reader, Sample};
use super::screen::{self, Screen};
use super::view::theme::Theme;
use super::view::{self, Scene, Tone};
use super::{Args, picture, theme};
use crate::failure::{Failure, Result};

/// Time for which a message stays on the screen.
const MESSAGE: Duration = Duration::from_secs(5);
/// Maximum time for a clean end after a signal. After that, the process exits at once, because a
/// terminal that accepts no output would block it.
const GRACE: Duration = Duration::from_secs(2);

/// Input of the main loop, from the terminal, from signals, and from the sampler.
enum Input {
    Key(KeyEvent),
    /// The size of the terminal has changed.
    Resized,
    /// The terminal was closed, so no more keys will arrive.
    Closed,
    Signal(i32),
    Sample(Box<Sample>),
    /// The sampler has found a gateway that replaces the one that ended.
    Found(Control),
    /// The gateway has ended or cannot be read. Contains the reason.
    Gone(String),
}

pub(super) fn run(args: &Args) -> Result {
    // Open the gateway before taking over the terminal, so that an error is printed as any other
    // command prints it.
    let control = args.target.open()?;
    let (sender, inputs) = sync_channel(8);
    watch_signals(sender.clone())?;
    let screen = Screen::take()?;
    let sampler = Sampler {
        selector: args.target.gateway.clone(),
        name: control.name(),
        interval: args.interval,
        sender: sender.clone(),
    };
    thread::spawn(move || watch_keys(&sender));
    let first = control.clone();
    thread::spawn(move || sampler.run(first));
    let choices = Choices { sort: args.sort, ..Choices::default() };
    let live = Live {
        screen,
        theme: theme(),
        control,
        model: Model::default(),
        picture: Picture::default(),
        choices,
        gone: None,
        message: None,
    };
    live.go(&inputs)
}

fn watch_keys(sender: &SyncSender<Input>) {
    loop {
        let input = match crossterm::event::read() {
            Ok(Event::Key(key)) => Input::Key(key),
            Ok(Event::Resize(..)) => Input::Resized,
            Ok(_) => continue,
            Err(_) => Input::Closed,
        };
        let last = matches!(input, Input::Closed);
        if sender.send(input).is_err() || last {
            return;
        }
    }
}

fn watch_signals(sender: SyncSender<Input>) -> Result {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT])
        .map_err(|error| Failure::because("cannot watch for signals", error))?;
    thread::spawn(move || {
        for signal in &mut signals {
            let deadly = !matches!(signal, SIGTSTP | SIGCONT);
            if !deadly {
                let _ = sender.send(Input::Signal(signal));
                continue;
            }
            // Do not block on a full channel, because the thread that reads it may hang.
            let _ = sender.try_send(Input::Signal(signal));
            thread::sleep(GRACE);
            screen::give_back();
            std::process::exit(1);
        }
    });
    Ok(())
}

/// Reads the gateway periodically. If the gateway ends, waits for one that replaces it.
struct Sampler {
    selector: Option<String>,
    name: String,
    interval: Duration,
    sender: SyncSender<Input>,
}

impl Sampler {
    /// Sends samples until the receiver is dropped.
    fn run(self, control: Control) {
        let mut reader = Reader::new(control);
        loop {
            let begun = Instant::now();
            let input = match &mut reader {
                Ok(open) => match open.read() {
                    Ok(Some(sample)) => Input::Sample(Box::new(sample)),
                    Ok(None) => Input::Gone("gateway gone, waiting for it to come back".to_owned()),
                    Err(failure) => Input::Gone(failure.to_string()),
                },
                Err(failure) => Input::Gone(failure.to_string()),
            };
            if matches!(input, Input::Gone(_)) {
                // Assigning the new reader drops the old one, which releases the maps of the
                // gateway that has ended.
                if let Ok(control) = self.find() {
                    reader = Reader::new(control.clone());
                    if self.sender.send(Input::Found(control)).is_err() {
                        return;
                    }
                    continue;
                }
                reader = Err(Failure::new("gateway gone, waiting for it to come back"));
            }
            if self.sender.send(input).is_err() {
                return;
            }
            thread::sleep(self.interval.saturating_sub(begun.elapsed()));
        }
    }

    /// Opens the gateway that has replaced the old one. Finds it by the selector that was given, or
    /// by the old gateway's name.
    fn find(&self) -> Result<Control> {
        let by_choice = Control::open(self.selector.as_deref());
        Ok(by_choice.or_else(|_| Control::open(Some(&self.name)))?)
    }
}

struct Live {
    screen: Screen,
    theme: Theme,
    control: Control,
    model: Model,
    picture: Picture,
    choices: Choices,
    gone: Option<String>,
    message: Option<(Tone, String, Instant)>,
}

impl Live {
    fn go(mut self, inputs: &Receiver<Input>) -> Result {
        loop {
            self.draw()?;
            let fades = self.message.as_ref().map(|(.., until)| *until);
            let first = match fades {
                None => inputs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => inputs.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            match first {
                Ok(input) => {
                    // Handle all pending inputs before drawing the next picture.
                    for input in std::iter::once(input).chain(inputs.try_iter()) {
                        if self.take(input)? {
                            return Ok(());
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.message = None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn draw(&mut self) -> Result {
        let scene = Scene {
            picture: &self.picture,
            choices: &self.choices,
            theme: self.theme,
            gone: self.gone.as_deref(),
            message: self.message.as_ref().map(|(tone, text, _)| (*tone, text.as_str())),
        };
        self.screen.draw(|frame| view::draw(frame, &scene))
    }

    /// Handles one input. Returns whether the dashboard must end.
    fn take(&mut self, input: Input) -> Result<bool> {
        match input {
            Input::Key(key) => return self.key(key),
            Input::Resized => {}
            Input::Closed => return Ok(true),
            Input::Signal(SIGTSTP) => self.screen.suspend()?,
            Input::Signal(SIGCONT) => self.screen.take_again()?,
            Input::Signal(_) => return Ok(true),
            Input::Sample(sample) => {
                self.gone = None;
                self.model.push(*sample);
                if !self.choices.paused {
                    self.renew();
                }
            }
            Input::Found(control) => self.control = control,
            Input::Gone(why) => self.gone = Some(why),
        }
        Ok(false)
    }

    fn renew(&mut self) {
        self.picture = picture(&self.model, self.choices.sort, &self.control);
    }

    fn key(&mut self, key: KeyEvent) -> Result<bool> {
        let control = &self.control;
        let act = self.choices.key(key, &self.picture, &|address| control.source_of(address));
        match act {
            Act::Nothing => {}
            Act::List(..) | Act::Forget(_) if self.gone.is_some() => {
                self.say(
                    Tone::Bad,
                    "nothing was changed, because the gateway has ended".to_owned(),
                );
            }
            Act::Quit => return Ok(true),
            Act::Suspend => self.screen.suspend()?,
            Act::Redraw => self.screen.redraw()?,
            Act::Sorted | Act::Resumed => self.renew(),
            Act::List(action, prefix, lifetime) => self.list(action, prefix, lifetime),
            Act::Forget(prefix) => self.forget(prefix),
        }
        Ok(false)
    }

    fn list(&mut self, action: ListAction, prefix: IpNet, lifetime: Option<Duration>) {
        let (done, what) = match action {
            ListAction::Deny => (self.control.deny(prefix, lifetime), "denied"),
            ListAction::Allow => (self.control.allow(prefix, lifetime), "allowed"),
        };
        let how_long = lifetime
            .map_or_else(|| "for ever".to_owned(), |l| format!("for {}", format_duration(l)));
        match done {
            Ok(()) => self.say(Tone::Good, format!("{prefix} is {what} {how_long}")),
            Err(error) => self.say(Tone::Bad, error.to_string()),
        }
        self.relist();
    }

    fn forget(&mut self, prefix: IpNet) {
        // The list entry that applies to this address may be for a shorter prefix.
        let forgotten = self.control.listed(prefix).and_then(|entry| match entry {
            Some(entry) if entry.prefix == prefix => {
                self.control.forget(prefix).map(|_| entry.prefix)
            }
            Some(entry) => Ok(entry.prefix),
            None => Ok(prefix),
        });
        match forgotten {
            Ok(found) if found != prefix => self.say(
                Tone::Bad,
                format!(
                    "{prefix} is listed only as part of {found}: use `equic gateway forget {found}`"
                ),
            ),
            Ok(_) => self.say(Tone::Good, format!("{prefix} is on neither list")),
            Err(error) => self.say(Tone::Bad, error.to_string()),
        }
        self.relist();
    }

    /// Reads again on which list each source in the current picture is.
    fn relist(&mut self) {
        for line in &mut self.picture.sources {
            let entry = self.control.listed(line.key.prefix).ok().flatten();
            line.listed = entry.map(|entry| entry.action);
        }
    }

    fn say(&mut self, tone: Tone, text: String) {
        self.message = Some((tone, text, Instant::now() + MESSAGE));
    }
}
