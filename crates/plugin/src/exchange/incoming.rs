//! Handles the plugins that the peer offers: fetches their bundles, decides whether they may run,
//! and loads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use equic_wire::Side;

use super::config::{Accepted, ExchangeConfig, Loaded, Progress};
use super::frame::{Frame, Kind, MAX_REASON, Offer, Status};
use super::ids::Ids;
use super::offered::{Fetching, Offered, Refused, State, corrupt, refused};
use super::parameter::Parameter;
use super::pieces::Pieces;
use super::types;
use super::violation::Violation;
use crate::bundle::{Bundle, BundleError, sha256};
use crate::class::Origin;
use crate::manifest::Version;
use crate::policy::{decide, decide_early};
use crate::preamble::{MAX_PREAMBLE, Preamble};
use crate::runtime::{Account, Allowance};

/// Steps that the peer is charged for an offer, before its manifest and signature are read.
const OFFER: u64 = 300_000;

/// Steps that the peer is charged for loading a plugin: `LOAD_BYTE` for each byte of an object that
/// is not compiled yet, and `INSTANCE` for each instance.
const LOAD_BYTE: u64 = 100;
const INSTANCE: u64 = 50_000;

/// Maximum time that the peer is charged for loading a plugin, in nanoseconds. If a load took
/// longer, other threads probably preempted it.
const MOST_FOR_LOADING: u64 = 50_000_000;

/// Work that remains for the caller after a frame was handled.
pub(super) enum Outcome {
    /// Report this progress.
    Progress(u64, Progress),
    /// Attach a plugin, and first detach the plugin that it replaces, if any.
    Attach(u64, Loaded, Option<u64>),
    /// Detach this plugin.
    Detach(u64),
}

/// Content of a frame about one of the peer's offers. It is sent again if the frame is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Want(u64, usize),
    Status(u64, Status, String),
}

/// The peer's offers on one connection.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    offers: BTreeMap<u64, Offered>,
    over: Ids,
    /// Credit to send in WANT frames, which permit the peer to send more of a bundle. For each
    /// offer, only the latest value counts.
    wants_due: BTreeMap<u64, usize>,
    /// Statuses to send in STATUS frames. For each offer, only the latest status counts.
    statuses_due: BTreeMap<u64, (Status, String)>,
    /// Allowance of steps that all plugins of the peer share, or `None` until the first plugin is
    /// loaded.
    allowance: Option<Arc<Allowance>>,
    /// Account to which the peer's address is charged, or `None` until the first offer arrives.
    account: Option<Arc<Account>>,
    /// Time of the latest frame, in nanoseconds on the connection's clock.
    now: u64,
    /// Total size of the objects that were compiled for the peer, in bytes.
    compiled: u64,
}

fn no_time() -> Refused {
    let why = "the plugins of this address, or of all peers, have used up their steps for now: try again later";
    (Status::Failed, why.to_owned())
}

/// Hash of an offer's bundle, and the plugin's name and version if its manifest was read.
pub(super) type Known = ([u8; 32], Option<(String, Version)>);

impl Incoming {
    pub(super) fn known(&self, plugin: u64) -> Option<Known> {
        self.offers.get(&plugin).map(|offered| (offered.offer.hash, offered.name.clone()))
    }

    /// Returns the memory of the bundles that are being fetched from the peer, in bytes.
    pub(super) fn memory(&self) -> usize {
        let pieces = self.offers.values().map(|offered| match &offered.state {
            State::Fetching(Fetching { pieces: Some(pieces), .. }) => pieces.memory(),
            _ => 0,
        });
        pieces.sum()
    }

    /// Handles an OFFER of the peer. `side` is the peer's side. `taken` has the frame types of
    /// other hooks.
    pub(super) fn on_offer(
        &mut self,
        mut offer: Offer,
        (ours, side, taken): (&Parameter, Side, &[u64]),
        config: &ExchangeConfig,
        out: &mut Vec<Outcome>,
    ) -> Result<(), Violation> {
        let plugin = offer.plugin;
        let carried = std::mem::take(&mut offer.carried);
        if carried.len() as u64 > ours.carried {
            return Err(Violation::Carried(plugin));
        }
        if self.over.contains(plugin) {
            return Ok(());
        }
        if let Some(known) = self.offers.get(&plugin) {
            // The peer sends the offer again because it considers the first OFFER frame lost.
            let same = known.offer == offer && known.carried == carried.len();
            return if same { Ok(()) } else { Err(Violation::OfferTwice(plugin)) };
        }
        let bytes = |number| usize::try_from(number).unwrap_or(usize::MAX);
        let (size, preamble) = (bytes(offer.size), bytes(offer.preamble));
        let hash = offer.hash;
        let refusal = self.refusal(&offer, ours, side, taken);
        let offered = Offered {
            offer,
            carried: carried.len(),
            size,
            preamble,
            state: State::Fetching(Fetching::default()),
            name: None,
            expires: None,
            held: None,
        };
        self.offers.insert(plugin, offered);
        out.push(Outcome::Progress(plugin, Progress::Offered));
        let refusal = refusal.or_else(|| self.pay(OFFER, config).err());
        let refusal = refusal.or_else(|| self.hold(plugin, Pieces::room(size), config).err());
        if let Some((status, why)) = refusal {
            self.end(plugin, status, why, out);
            return Ok(());
        }
        let cached = config.cache.as_ref().and_then(|cache| cache.get(&hash));
        // Other programs may write to the folder of a cache, so the hash of a cached bundle is
        // checked.
        match cached.filter(|bytes| bytes.len() == size && sha256(bytes) == hash) {
            Some(bytes) => {
                out.push(Outcome::Progress(plugin, Progress::Cached));
                self.judge(plugin, &bytes, config, out);
                Ok(())
            }
            None if carried.is_empty() => {
                self.ask(plugin, config.window);
                Ok(())
            }
            None => self.take_in(plugin, 0, &carried, config, out),
        }
    }

    /// Returns the reason for refusing an offer before its bundle is read or fetched, or `None` if
    /// nothing speaks against the offer so far.
    fn refusal(
        &self,
        offer: &Offer,
        ours: &Parameter,
        side: Side,
        taken: &[u64],
    ) -> Option<Refused> {
        let budgets = ours.budgets;
        if budgets.plugins == 0 {
            return Some((Status::Refused, "this endpoint accepts no plugins".to_owned()));
        }
        let too_large = |why: String| Some((Status::TooLarge, why));
        if offer.size == 0 || offer.size > budgets.size {
            return too_large(format!("a bundle must have 1 to {} bytes", budgets.size));
        }
        let replaced = offer.replaces.and_then(|other| self.offers.get(&other));
        let (freed, one) = replaced.map_or((0, 0), |offered| (offered.size as u64, 1));
        if self.offers.len() as u64 - one >= budgets.plugins {
            return too_large(format!(
                "this endpoint accepts at most {} plugins at a time",
                budgets.plugins
            ));
        }
        let total: u64 = self.offers.values().map(|offered| offered.size as u64).sum();
        if total - freed + offer.size > budgets.total {
            return too_large(format!(
                "this endpoint accepts at most {} bytes of bundles at a time",
                budgets.total
            ));
        }
        let (size, preamble) = (offer.size, offer.preamble);
        if preamble == 0 || preamble > MAX_PREAMBLE as u64 || preamble >= size {
            let why =
                format!("a bundle of {size} bytes cannot have {preamble} bytes before its object");
            return Some((Status::Corrupt, why));
        }
        let others = || self.offers.iter().filter(|(plugin, _)| Some(**plugin) != offer.replaces);
        let in_use = |one| {
            let mut of_others = others().flat_map(|(_, offered)| &offered.offer.frame_types);
            taken.contains(&one) || of_others.any(|other| *other == one)
        };
        let allotted = types::check(&offer.frame_types, side, in_use);
        allotted.err().map(|why| (Status::FrameTypes, why.to_string()))
    }

    /// Sets the arrival time of the frame that is handled next.
    pub(super) fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Returns the account of the peer's address.
    fn account(&mut self, config: &ExchangeConfig) -> Arc<Account> {
        let limits = || config.policy.as_ref().map(|policy| policy.limits).unwrap_or_default();
        let make = || config.accounts.of(config.peer, &limits(), self.now);
        Arc::clone(self.account.get_or_insert_with(make))
    }

    /// Charges the peer's address for work, before the work is done. Returns an error if the
    /// address has too few steps left.
    fn pay(&mut self, steps: u64, config: &ExchangeConfig) -> Result<(), Refused> {
        if self.account(config).pay(steps, self.now) {
            return Ok(());
        }
        Err(no_time())
    }

    /// Reserves memory for a plugin. The new reservation replaces the plugin's earlier one. Refuses
    /// the plugin if it would exceed the limit of the connection or of the address.
    fn hold(&mut self, plugin: u64, bytes: usize, config: &ExchangeConfig) -> Result<(), Refused> {
        let limits = config.policy.as_ref().map(|policy| policy.limits).unwrap_or_default();
        let account = self.account(config);
        let replaced = self.offers.get(&plugin).and_then(|offered| offered.offer.replaces);
        let goes = |one: &u64| *one == plugin || Some(*one) == replaced;
        let of = |goes_or_stays: bool| {
            let all = self.offers.iter().filter(|(one, _)| goes(one) == goes_or_stays);
            all.map(|(_, offered)| offered.memory()).sum::<usize>()
        };
        let (freed, taken) = (of(true), of(false));
        let too_large = |whose: &str, most: usize| {
            let why = format!(
                "too little memory is left: it needs {bytes} bytes, other plugins of the connection use {taken}, and \
                 the limit of the {whose} is {most}"
            );
            (Status::TooLarge, why)
        };
        if taken.saturating_add(bytes) > limits.total_memory {
            return Err(too_large("connection", limits.total_memory));
        }
        let held = account.hold(bytes, freed).map_err(|most| too_large("address", most))?;
        if let Some(offered) = self.offers.get_mut(&plugin) {
            offered.held = Some(held);
        }
        Ok(())
    }

    /// Returns the running plugins with their expiries, in seconds since the Unix epoch.
    pub(super) fn expiries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let running = self.offers.iter().filter(|(plugin, _)| self.is_running(**plugin));
        running.filter_map(|(plugin, offered)| Some((*plugin, offered.expires?)))
    }

    /// Ends the offer `plugin` because the offer `by` replaces it. If that plugin does not run yet,
    /// also ends the offer that it was to replace, and so on. Returns the plugin in this chain that
    /// was running.
    pub(super) fn supersede(
        &mut self,
        plugin: u64,
        by: u64,
        out: &mut Vec<Outcome>,
    ) -> Option<u64> {
        const WHY: &str = "another plugin replaces it";
        let mut next = Some(plugin);
        while let Some(plugin) = next.filter(|one| *one != by && !self.over.contains(*one)) {
            let runs = self.is_running(plugin);
            next = match self.offers.get(&plugin) {
                Some(offered) => {
                    let before = offered.offer.replaces;
                    self.end(plugin, Status::Detached, WHY.to_owned(), out);
                    before
                }
                None => {
                    // The OFFER of the new plugin arrived before the OFFER that it replaces.
                    self.over.insert(plugin);
                    self.statuses_due.insert(plugin, (Status::Detached, WHY.to_owned()));
                    None
                }
            };
            if runs {
                return Some(plugin);
            }
        }
        None
    }

    /// Permits the peer to send more of a bundle if it needs more credit: first for the preamble,
    /// and after the preamble was accepted, for the rest.
    fn ask(&mut self, plugin: u64, window: u64) {
        let Some(offered) = self.offers.get_mut(&plugin) else { return };
        let State::Fetching(fetching) = &mut offered.state else { return };
        let came = fetching.pieces.as_ref().map_or(0, Pieces::count);
        let window = usize::try_from(window).unwrap_or(usize::MAX).max(1);
        let wanted = if fetching.accepted { offered.size } else { offered.preamble };
        // New credit is due when half of the last credit is used.
        if fetching.limit < wanted && fetching.limit.saturating_sub(came) <= window / 2 {
            fetching.limit = wanted.min(came.saturating_add(window));
            self.wants_due.insert(plugin, fetching.limit);
        }
    }

    pub(super) fn on_data(
        &mut self,
        plugin: u64,
        offset: u64,
        data: &[u8],
        config: &ExchangeConfig,
        out: &mut Vec<Outcome>,
    ) -> Result<(), Violation> {
        if self.over.contains(plugin) {
            return Ok(());
        }
        let offered = self.offers.get(&plugin).ok_or(Violation::NotOffered(plugin))?;
        let State::Fetching(fetching) = &offered.state else {
            // The bundle is complete, so this piece is a late duplicate.
            return Ok(());
        };
        let offset = usize::try_from(offset).map_err(|_| Violation::BeyondCredit(plugin))?;
        if offset.checked_add(data.len()).is_none_or(|end| end > fetching.limit) {
            return Err(Violation::BeyondCredit(plugin));
        }
        self.take_in(plugin, offset, data, config, out)
    }

    /// Adds bytes of a bundle from an OFFER or a DATA frame. If the preamble or the bundle is now
    /// complete, decides whether the plugin may run.
    fn take_in(
        &mut self,
        plugin: u64,
        offset: usize,
        data: &[u8],
        config: &ExchangeConfig,
        out: &mut Vec<Outcome>,
    ) -> Result<(), Violation> {
        let Some(offered) = self.offers.get_mut(&plugin) else { return Ok(()) };
        let State::Fetching(fetching) = &mut offered.state else { return Ok(()) };
        let size = if fetching.accepted { offered.size } else { offered.preamble };
        let pieces = fetching.pieces.get_or_insert_with(|| Pieces::new(size));
        if pieces.insert(offset, data) == 0 {
            // All of these bytes arrived earlier.
            return Ok(());
        }
        match pieces.take() {
            None => self.ask(plugin, config.window),
            Some(bytes) if fetching.accepted => {
                out.push(Outcome::Progress(plugin, Progress::Fetched));
                if sha256(&bytes) == offered.offer.hash {
                    self.judge(plugin, &bytes.into(), config, out);
                } else {
                    let why = "the bundle does not have the hash that was offered";
                    self.end(plugin, Status::Corrupt, why.to_owned(), out);
                }
            }
            Some(preamble) => self.judge_early(plugin, &preamble, config, out),
        }
        Ok(())
    }

    /// Decides from the preamble whether the plugin may run. Only if it may, the rest of the bundle
    /// is requested. The hash of the complete bundle later proves that the preamble belongs to it.
    fn judge_early(
        &mut self,
        plugin: u64,
        bytes: &[u8],
        config: &ExchangeConfig,
        out: &mut Vec<Outcome>,
    ) {
        let Some(offered) = self.offers.get_mut(&plugin) else { return };
        let policy = config.policy.clone().unwrap_or_default();
        let judged = Preamble::parse(bytes, offered.size).map_err(corrupt).and_then(|preamble| {
            offered.read(&preamble.manifest);
            decide_early(&preamble, offered.offer.hash, &policy, (config.clock)())
                .map_err(refused)?;
            offered.has_types_for(&preamble.manifest)
        });
        if let Err((status, why)) = judged {
            return self.end(plugin, status, why, out);
        }
        let mut pieces = Pieces::new(offered.size);
        // The preamble is the beginning of the bundle.
        let _ = pieces.insert(0, bytes);
        if let State::Fetching(fetching) = &mut offered.state {
            (fetching.accepted, fetching.pieces) = (true, Some(pieces));
        }
        self.ask(plugin, config.window);
    }

    /// Decides whether the plugin in a complete bundle may run, and loads it if so.
    fn judge(
        &mut self,
        plugin: u64,
        bytes: &Arc<[u8]>,
        config: &ExchangeConfig,
        out: &mut Vec<Outcome>,
    ) {
        match self.load(plugin, bytes, config) {
            Ok(loaded) => {
                let Some(offered) = self.offers.get_mut(&plugin) else { return };
                offered.state = State::Attaching;
                out.push(Outcome::Attach(plugin, loaded, offered.offer.replaces));
            }
            Err((status, why)) => self.end(plugin, status, why, out),
        }
    }

    fn load(
        &mut self,
        plugin: u64,
        bytes: &Arc<[u8]>,
        config: &ExchangeConfig,
    ) -> Result<Loaded, Refused> {
        let gone = || (Status::Failed, "the offer has already ended".to_owned());
        let account = self.account(config);
        let offered = self.offers.get_mut(&plugin).ok_or_else(gone)?;
        let bundle = Bundle::parse(bytes).map_err(corrupt)?;
        let preamble = bundle.preamble();
        if preamble.header.preamble() != offered.preamble {
            let (expected, found) = (preamble.header.preamble(), offered.preamble);
            return Err(corrupt(BundleError::Preamble { expected, found }));
        }
        offered.read(bundle.manifest());
        let policy = config.policy.clone().unwrap_or_default();
        let granted = decide(&bundle, Origin::Peer, &policy, (config.clock)()).map_err(refused)?;
        offered.has_types_for(bundle.manifest())?;
        let allowance = || {
            let (account, clock) = (Some(Arc::clone(&account)), config.meter.clone());
            Arc::new(Allowance::new(&policy.limits, account, clock))
        };
        let accepted = Accepted {
            bundle: &bundle,
            hash: &offered.offer.hash,
            granted: &granted,
            frame_types: &offered.offer.frame_types,
            origin: Origin::Peer,
            allowance: Some(self.allowance.get_or_insert_with(allowance)),
        };
        let mut cost = INSTANCE;
        if !config.load.is_ready(&accepted) {
            let code = bundle.code().len() as u64;
            cost += code.saturating_mul(LOAD_BYTE);
            self.compiled = self.compiled.saturating_add(code);
            let most = config.compile_limit;
            if self.compiled > most {
                let why = format!(
                    "this endpoint compiles at most {most} bytes of objects per connection"
                );
                return Err((Status::TooLarge, why));
            }
        }
        if !account.has_place() {
            let why = "few places for plugins are left, and the peer's address or network already uses several of them";
            return Err((Status::Failed, why.to_owned()));
        }
        if !account.pay(cost, self.now) {
            return Err(no_time());
        }
        let began = config.meter.as_ref().map(|clock| clock());
        let loaded = config.load.load(&accepted).map_err(|why| (Status::Failed, why));
        if let (Some(clock), Some(began)) = (&config.meter, began) {
            let took = clock().saturating_sub(began).min(MOST_FOR_LOADING);
            account.owe_for_load(took.saturating_sub(cost));
        }
        let loaded = loaded?;
        self.hold(plugin, loaded.hook.memory(), config)?;
        // The cache keeps only bundles that were accepted, paid for and loaded.
        if let (Some(cache), Some(offered)) = (&config.cache, self.offers.get(&plugin)) {
            cache.put(&offered.offer.hash, bytes);
        }
        Ok(loaded)
    }

    pub(super) fn is_running(&self, plugin: u64) -> bool {
        let offered = self.offers.get(&plugin);
        offered.is_some_and(|offered| matches!(offered.state, State::Attaching | State::Active))
    }

    /// Records that the plugin runs.
    pub(super) fn on_attached(&mut self, plugin: u64, out: &mut Vec<Outcome>) {
        if let Some(offered) = self.offers.get_mut(&plugin) {
            offered.state = State::Active;
            self.statuses_due.insert(plugin, (Status::Active, String::new()));
            out.push(Outcome::Progress(plugin, Progress::Active));
        }
    }

    /// Handles a DETACH frame, with which the peer detaches a plugin or withdraws its offer.
    pub(super) fn on_detach(&mut self, plugin: u64, out: &mut Vec<Outcome>) {
        if self.over.contains(plugin) {
            return;
        }
        if self.offers.contains_key(&plugin) {
            self.end(plugin, Status::Detached, String::new(), out);
        } else {
            // The DETACH frame arrived before the OFFER frame that it withdraws.
            self.over.insert(plugin);
            self.statuses_due.insert(plugin, (Status::Detached, String::new()));
        }
    }

    /// Ends an offer, and queues a STATUS with the reason.
    pub(super) fn end(
        &mut self,
        plugin: u64,
        status: Status,
        mut why: String,
        out: &mut Vec<Outcome>,
    ) {
        if !self.offers.contains_key(&plugin) {
            return;
        }
        if self.is_running(plugin) {
            out.push(Outcome::Detach(plugin));
        }
        let end = (0..=MAX_REASON.min(why.len())).rev().find(|at| why.is_char_boundary(*at));
        why.truncate(end.unwrap_or(0));
        // The progress is reported first, because the plugin's name is forgotten together with the
        // offer.
        out.push(Outcome::Progress(plugin, Progress::Over(status, why.clone())));
        self.statuses_due.insert(plugin, (status, why));
        self.over.insert(plugin);
        self.wants_due.remove(&plugin);
    }

    /// Forgets the offers that have ended. The caller must already have reported their end.
    pub(super) fn forget_over(&mut self) {
        let over = &self.over;
        self.offers.retain(|plugin, _| !over.contains(*plugin));
    }

    /// Returns `true` if a frame of this kind must be sent.
    pub(super) fn wants(&self, kind: Kind) -> bool {
        match kind {
            Kind::Want => !self.wants_due.is_empty(),
            Kind::Status => !self.statuses_due.is_empty(),
            _ => false,
        }
    }

    /// Writes a frame of this kind. Returns `None` if no such frame is due, or if the buffer is too
    /// small.
    pub(super) fn write(&mut self, kind: Kind, buffer: &mut [u8]) -> Option<(usize, Sent)> {
        match kind {
            Kind::Want => {
                let (plugin, limit) = self.wants_due.first_key_value()?;
                let (plugin, limit) = (*plugin, *limit);
                let length = Frame::Want { plugin, limit: limit as u64 }.write(buffer).ok()?;
                self.wants_due.remove(&plugin);
                Some((length, Sent::Want(plugin, limit)))
            }
            Kind::Status => {
                let (plugin, (status, reason)) = self.statuses_due.first_key_value()?;
                let (plugin, status) = (*plugin, *status);
                let length = Frame::Status { plugin, status, reason }.write(buffer).ok()?;
                let (_, reason) = self.statuses_due.remove(&plugin)?;
                Some((length, Sent::Status(plugin, status, reason)))
            }
            _ => None,
        }
    }

    /// Queues the content of a lost frame again, unless newer content replaces it.
    pub(super) fn on_lost(&mut self, sent: Sent) {
        match sent {
            Sent::Want(plugin, lost) => {
                let Some(offered) = self.offers.get(&plugin) else { return };
                if let State::Fetching(fetching) = &offered.state
                    && fetching.limit == lost
                {
                    self.wants_due.insert(plugin, lost);
                }
            }
            Sent::Status(plugin, status, reason) => {
                // If an offer has ended, only its last status counts.
                if status.is_active() && self.over.contains(plugin) {
                    return;
                }
                self.statuses_due.entry(plugin).or_insert((status, reason));
            }
        }
    }
}
