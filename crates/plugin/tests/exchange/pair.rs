//! Two plugin exchanges in memory, connected by a network that loses and reorders frames.

use std::sync::{Arc, Mutex};

use equic_plugin::exchange::{
    Accepted, Action, Exchange, ExchangeConfig, Kind, Loaded, PluginId, Progress, Push, Update,
};
use equic_plugin::{Policy, pack};
use equic_transport::operation::Hook;
use equic_wire::Side;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{key, manifest};

/// Updates that a listener received.
pub(crate) type Heard = Arc<Mutex<Vec<Update>>>;

struct Nothing;

impl Hook for Nothing {}

/// Loads any plugin as a hook that does nothing.
pub(crate) fn load(_: &Accepted<'_>) -> Result<Loaded, String> {
    Ok(Loaded { hook: Box::new(Nothing), points: Vec::new(), frames: Vec::new() })
}

/// Returns a policy under which plugins signed by key 7 may observe and tune, and all others may
/// only observe.
pub(crate) fn policy() -> Policy {
    let key = key(7).public();
    let text = format!(
        "anyone = [\"observe\"]\n[[author]]\nname = \"ann\"\nkey = \"{key}\"\nclasses = [\"observe\", \"tune\"]\n"
    );
    Policy::parse(&text).unwrap()
}

/// Returns a bundle with `size` bytes of code, signed by key 7. Each number gives different code.
pub(crate) fn bundle(number: u64, size: usize) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(number);
    let code: Vec<u8> = (0..size).map(|_| rng.random()).collect();
    pack(&manifest("\"observe\"", "", ""), &code, Some(&key(7))).unwrap()
}

pub(crate) fn push(number: u64, size: usize) -> Arc<Push> {
    Arc::new(Push::new(&bundle(number, size)).unwrap())
}

/// Returns a configuration for an exchange, and the list to which its listener adds updates.
pub(crate) fn config(set: impl FnOnce(&mut ExchangeConfig)) -> (ExchangeConfig, Heard) {
    let heard = Heard::default();
    let mut config = ExchangeConfig::new(load);
    let listener = heard.clone();
    config.listener = Some(Arc::new(move |update: &Update| {
        listener.lock().unwrap().push(update.clone());
    }));
    config.clock = Arc::new(|| 1_800_000_000);
    set(&mut config);
    (config, heard)
}

pub(crate) fn taking(set: impl FnOnce(&mut ExchangeConfig)) -> (ExchangeConfig, Heard) {
    config(|config| {
        config.policy = Some(policy());
        set(config);
    })
}

/// Returns the progress of a plugin in the order in which it was reported.
pub(crate) fn progress(heard: &Heard) -> Vec<Progress> {
    heard.lock().unwrap().iter().map(|update| update.progress.clone()).collect()
}

pub(crate) struct End {
    pub(crate) exchange: Exchange,
    pub(crate) heard: Heard,
    pub(crate) attached: Vec<PluginId>,
}

impl End {
    pub(crate) fn new((config, heard): (ExchangeConfig, Heard)) -> End {
        End { exchange: Exchange::new(Arc::new(config)), heard, attached: Vec::new() }
    }

    /// Attaches and detaches plugins as the exchange requests.
    pub(crate) fn act(&mut self) {
        while let Some(action) = self.exchange.poll_action() {
            match action {
                Action::Attach { id, replaces, .. } => {
                    self.attached.retain(|other| Some(*other) != replaces);
                    self.attached.push(id);
                    self.exchange.on_attached(id);
                }
                Action::Detach(id) => self.attached.retain(|other| *other != id),
            }
        }
    }
}

/// Returns encoded transport parameters that contain that of the exchange.
pub(crate) fn declared(config: &ExchangeConfig) -> Vec<u8> {
    let (id, value) = config.parameter();
    let mut bytes = (id | 0x8000_0000).to_be_bytes()[4..].to_vec();
    bytes.push(value.len() as u8);
    [bytes, value].concat()
}

pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
    rng: StdRng,
    loss: f64,
    /// Number of bundle bytes that were sent in DATA frames. The next field is the number of OFFER
    /// frames.
    pub(crate) data: usize,
    pub(crate) offers: usize,
    /// Number of WANT frames sent.
    pub(crate) wants: usize,
}

impl Pair {
    /// Connects a server and a client whose handshake is confirmed.
    pub(crate) fn new(
        seed: u64,
        loss: f64,
        first: (ExchangeConfig, Heard),
        second: (ExchangeConfig, Heard),
    ) -> Pair {
        println!("seed {seed}");
        let parameters = [declared(&second.0), declared(&first.0)];
        let mut ends = [End::new(first), End::new(second)];
        ends[0].exchange.set_side(Side::Server);
        for (end, parameters) in ends.iter_mut().zip(parameters) {
            end.exchange.handle_parameters(&parameters).unwrap();
            end.exchange.handle_confirmed();
        }
        Pair { ends, rng: StdRng::seed_from_u64(seed), loss, data: 0, offers: 0, wants: 0 }
    }

    /// Delivers frames in random order until neither end has a frame to send.
    pub(crate) fn run(&mut self) {
        let mut flying = Vec::new();
        loop {
            for (at, end) in self.ends.iter_mut().enumerate() {
                end.act();
                for kind in Kind::ALL {
                    let mut room = [0; 1150];
                    // An OFFER frame must fit as a whole, so it gets all the room. Other frames get
                    // a random amount of room.
                    let least = if kind == Kind::Offer { room.len() } else { 300 };
                    let most = self.rng.random_range(least..=room.len());
                    if let Some((length, sent)) = end.exchange.write(kind, &mut room[..most]) {
                        match kind {
                            Kind::Data => self.data += length,
                            Kind::Offer => self.offers += length,
                            Kind::Want => self.wants += 1,
                            _ => {}
                        }
                        flying.push((at, room[..length].to_vec(), sent));
                    }
                }
            }
            if flying.is_empty() {
                let wants = |end: &End| Kind::ALL.iter().any(|kind| end.exchange.wants(*kind));
                assert!(!self.ends.iter().any(wants), "it wants to send and does not");
                return;
            }
            let (from, bytes, sent) = flying.swap_remove(self.rng.random_range(0..flying.len()));
            if self.rng.random_bool(self.loss) {
                self.ends[from].exchange.on_lost(sent);
                // In some cases, a frame arrives although it was reported as lost.
                if self.rng.random_bool(0.7) {
                    continue;
                }
            }
            self.ends[1 - from].exchange.handle_frame(&bytes).unwrap();
            self.ends[1 - from].act();
        }
    }
}
