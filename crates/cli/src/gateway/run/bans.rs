//! Bans sources while a gateway runs. Decides which refused sources to ban, with
//! [`equic_gateway::ban`], and writes the bans to the deny list. Also reports changes, and saves the
//! bans to a file if one is configured.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use equic_gateway::ban::{Ban, Bans, Evidence, Kept, load, save, set_aside};
use equic_gateway::{BanConfig, BanTotals, Control, IpNet, Level, ListAction, Origin};
use serde_json::json;

use super::health::{Health, unix_ms};
use crate::output::Journal;

/// Time between two checks of the refused sources. It is longer if a check takes long, see
/// [`REST`].
const LOOK: Duration = Duration::from_secs(1);
/// Minimum pause after a check, as a multiple of the duration of the check. It limits the checks to
/// a tenth of a CPU core.
const REST: u32 = 10;
/// Time after which a failed write of the ban file is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Value of the bans' clock at the start, in nanoseconds. It is far above 0, so that bans from
/// before the start also have a positive time.
const EPOCH_NS: u64 = 1 << 60;

/// Decides which sources to ban, and carries out the bans.
pub(super) struct BanKeeper {
    policy: BanConfig,
    bans: Bans,
    evidence: Evidence,
    totals: BanTotals,
    began: Instant,
    next: Instant,
    refused: Option<u64>,
    /// True if bans have changed since the ban file was last written.
    unsaved: bool,
    /// True if the file at the configured path could neither be read nor moved away. This process
    /// must not overwrite it.
    in_the_way: bool,
    save_at: Instant,
    /// True if the last check was a dry run, in which no bans are written to the deny list.
    dry: bool,
}

impl BanKeeper {
    /// Takes over the bans in the ban file, and the bans that a previous process left on the deny
    /// list.
    pub(super) fn new(
        policy: &BanConfig,
        control: &Control,
        journal: &Journal,
        health: &mut Health,
    ) -> BanKeeper {
        let began = Instant::now();
        let mut keeper = BanKeeper {
            policy: policy.clone(),
            bans: Bans::new(policy),
            evidence: Evidence::default(),
            totals: BanTotals::default(),
            began,
            next: began,
            refused: None,
            unsaved: false,
            in_the_way: false,
            save_at: began,
            dry: policy.dry_run || control.settings().dry_run,
        };
        let now = keeper.now();
        // The lists may be long, so search them only if they contain bans.
        let bans = control.list_counts().map_or(u64::MAX, |counts| counts.bans);
        let there = if bans == 0 { Vec::new() } else { control.lists().unwrap_or_default() };
        for entry in there {
            if let (Origin::Ban, Some(left)) = (entry.origin, entry.expires_in) {
                keeper.bans.restore(entry.prefix, entry.bans, now + nanos(left), now);
            }
        }
        if let Some(path) = policy.state.clone() {
            keeper.read(&path, control, journal, health);
        }
        keeper
    }

    fn read(&mut self, path: &PathBuf, control: &Control, journal: &Journal, health: &mut Health) {
        let kept = match load(path) {
            Ok(kept) => kept,
            Err(error) => {
                let aside = set_aside(path);
                self.in_the_way = aside.is_err();
                let kept = match aside {
                    Ok(aside) => format!("the file is kept as {}", aside.display()),
                    Err(aside) => format!("{aside}, so the gateway does not save bans"),
                };
                let message = format!("{error}: the bans of the previous run are lost; {kept}");
                return health.set(journal, "ban state", Level::Warning, &message);
            }
        };
        let (now, unix) = (self.now(), unix_ms());
        let mut restored = 0;
        for one in kept {
            let until = match one.until_ms.checked_sub(unix) {
                Some(left) => now.saturating_add(left.saturating_mul(1_000_000)),
                None => now.saturating_sub((unix - one.until_ms).saturating_mul(1_000_000)),
            };
            self.bans.restore(one.prefix, one.count, until, now);
            if until > now && !self.policy.dry_run {
                let lasts = Duration::from_nanos(until - now);
                match control.ban(one.prefix, lasts, one.count) {
                    Ok(true) => restored += 1,
                    Ok(false) => self.bans.spare(one.prefix, now),
                    Err(error) => {
                        self.bans.spare(one.prefix, now);
                        health.set(journal, "bans", Level::Warning, &error.to_string());
                    }
                }
            }
        }
        if restored > 0 {
            journal.entry(
                format_args!("{restored} bans from {}", path.display()),
                || json!({ "event": "bans_restored", "bans": restored, "file": path }),
            );
        }
    }

    /// Replaces the ban policy.
    pub(super) fn set_policy(&mut self, policy: &BanConfig) {
        self.bans.set_policy(policy);
        if policy.state != self.policy.state {
            (self.unsaved, self.in_the_way) = (true, false);
        }
        self.policy = policy.clone();
        self.save_at = Instant::now();
    }

    /// Removes all bans, because the new configuration disables them.
    pub(super) fn end(mut self, control: &Control, journal: &Journal) {
        let active: Vec<IpNet> = self.bans.active().map(|(prefix, ..)| prefix).collect();
        for prefix in active {
            self.lift(prefix, "bans were turned off", control, journal);
        }
    }

    /// Returns the policy in force.
    pub(super) fn rules(&self) -> &BanConfig {
        self.bans.policy()
    }

    pub(super) fn totals(&self) -> BanTotals {
        BanTotals {
            dry_run: self.policy.dry_run,
            active: self.bans.active_count() as u64,
            watched: self.bans.watched() as u64,
            evicted: self.bans.evicted(),
            ..self.totals
        }
    }

    fn now(&self) -> u64 {
        EPOCH_NS + nanos(self.began.elapsed())
    }

    /// If a check is due: reads which sources were refused, decides which to ban, and carries out
    /// the bans.
    pub(super) fn look(&mut self, control: &Control, journal: &Journal, health: &mut Health) {
        if Instant::now() < self.next {
            return;
        }
        let began = Instant::now();
        // If the whole gateway is in a dry run, do not write bans either. When the dry run ends,
        // they would suddenly take effect.
        let dry = self.policy.dry_run || control.settings().dry_run;
        if std::mem::replace(&mut self.dry, dry) && !dry {
            // Bans of the dry run were never on the deny list, so remove them.
            let active: Vec<IpNet> = self.bans.active().map(|(prefix, ..)| prefix).collect();
            for prefix in active {
                self.bans.pardon(prefix);
            }
        }
        let trouble = self.observe(dry, control, journal, health).err();
        let trouble =
            trouble.map(|error| format!("cannot read which sources were refused: {error}"));
        health.note(journal, "ban evidence", Level::Warning, trouble.as_deref());
        let now = self.now();
        for prefix in self.bans.ended(now) {
            self.totals.expired += 1;
            self.unsaved = true;
            said_unban(journal, prefix, "over");
        }
        if !dry {
            self.check(control, journal);
        }
        self.save(journal, health);
        self.next = Instant::now() + LOOK.max(began.elapsed() * REST);
    }

    fn observe(
        &mut self,
        dry: bool,
        control: &Control,
        journal: &Journal,
        health: &mut Health,
    ) -> equic_gateway::Result<()> {
        let refused = control.refused_in_all()?;
        if self.refused == Some(refused) {
            return Ok(());
        }
        let seen = control.refusals()?;
        let (fresh, evicted) = self.evidence.new_refusals(&seen, &self.policy);
        self.refused = Some(refused);
        let blind = (evicted > seen.entries / 2).then(|| {
            format!(
                "{evicted} sources were evicted from their table within about a second, so the gateway may fail to ban some sources: increase `gateway.sources`"
            )
        });
        health.note(journal, "ban watch", Level::Warning, blind.as_deref());
        let now = self.now();
        for (prefix, times) in fresh {
            if let Some(ban) = self.bans.refused(prefix, times, now) {
                self.impose(&ban, dry, control, journal, health);
            }
        }
        Ok(())
    }

    fn impose(
        &mut self,
        ban: &Ban,
        dry: bool,
        control: &Control,
        journal: &Journal,
        health: &mut Health,
    ) {
        let imposed = if dry {
            control.allowed(ban.prefix).map(|allowed| !allowed)
        } else {
            control.ban(ban.prefix, ban.lasts, ban.count)
        };
        match imposed {
            Ok(true) => {
                self.totals.imposed += 1;
                self.unsaved = true;
                health.clear(journal, "bans");
                let lasts = equic_gateway::format_duration(Duration::from_secs(
                    ban.lasts.as_secs_f64().ceil() as u64,
                ));
                let verb = if dry { "would ban" } else { "banned" };
                journal.entry(
                    format_args!(
                        "{verb} {} for {lasts}, ban {}: refused {} times within {}",
                        ban.prefix,
                        ban.count,
                        ban.refusals,
                        equic_gateway::format_duration(self.policy.within)
                    ),
                    || {
                        json!({
                            "event": "ban", "prefix": ban.prefix, "for_s": ban.lasts.as_secs_f64(),
                            "count": ban.count, "refusals": ban.refusals, "dry_run": dry,
                        })
                    },
                );
            }
            Ok(false) => {
                self.totals.spared += 1;
                self.bans.spare(ban.prefix, self.now());
                journal.entry(
                    format_args!("{} was not banned, because an operator has put it on the deny or allow list", ban.prefix),
                    || json!({ "event": "spared", "prefix": ban.prefix }),
                );
            }
            Err(error) => {
                self.bans.spare(ban.prefix, self.now());
                let message = format!("cannot ban {}: {error}", ban.prefix);
                health.set(journal, "bans", Level::Warning, &message);
            }
        }
    }

    /// Checks whether an operator has removed bans from the deny list, or has allowed banned
    /// prefixes.
    fn check(&mut self, control: &Control, journal: &Journal) {
        // Ignore bans that end soon, because their entries may have expired already.
        let soon = self.now() + nanos(2 * LOOK);
        let active: Vec<IpNet> =
            self.bans.active().filter(|(_, until, _)| *until > soon).map(|(p, ..)| p).collect();
        for prefix in active {
            match (control.entry(prefix), control.allowed(prefix)) {
                (Ok(Some(entry)), Ok(false)) if entry.origin == Origin::Ban => {}
                (Ok(Some(entry)), Ok(true)) if entry.origin == Origin::Ban => {
                    self.lift(prefix, "allowed by an operator", control, journal);
                }
                (Ok(Some(entry)), Ok(_)) => {
                    let why = match entry.action {
                        ListAction::Deny => "denied by an operator",
                        ListAction::Allow => "allowed by an operator",
                    };
                    self.lift(prefix, why, control, journal);
                }
                (Ok(None), Ok(_)) => {
                    self.lift(prefix, "forgotten by an operator", control, journal)
                }
                // If the list entry cannot be read, keep the ban.
                _ => {}
            }
        }
    }

    fn lift(&mut self, prefix: IpNet, why: &str, control: &Control, journal: &Journal) {
        let ours = |entry: equic_gateway::ListEntry| entry.origin == Origin::Ban;
        if control.entry(prefix).is_ok_and(|entry| entry.is_some_and(ours)) {
            // If the list entry cannot be removed, it expires anyway.
            let _ = control.forget(prefix);
        }
        self.bans.pardon(prefix);
        self.totals.lifted += 1;
        self.unsaved = true;
        said_unban(journal, prefix, why);
    }

    /// Writes the ban file now if bans have changed, because the process is about to end.
    pub(super) fn save_now(&mut self, journal: &Journal, health: &mut Health) {
        self.save_at = Instant::now();
        self.save(journal, health);
    }

    /// Writes the ban file if one is configured and bans have changed.
    fn save(&mut self, journal: &Journal, health: &mut Health) {
        let Some(path) = &self.policy.state else { return health.clear(journal, "ban state") };
        if !self.unsaved || Instant::now() < self.save_at {
            return;
        }
        if self.in_the_way {
            self.save_at = Instant::now() + AGAIN;
            match set_aside(path) {
                Ok(_) => self.in_the_way = false,
                Err(error) => {
                    return health.set(journal, "ban state", Level::Warning, &error.to_string());
                }
            }
        }
        let (now, unix) = (self.now(), unix_ms());
        let kept = self.bans.banned().map(|(prefix, at, count)| Kept {
            prefix,
            until_ms: match at.checked_sub(now) {
                Some(left) => unix.saturating_add(left / 1_000_000),
                None => unix.saturating_sub((now - at) / 1_000_000),
            },
            count,
        });
        match save(path, kept.collect()) {
            Ok(()) => {
                self.unsaved = false;
                self.save_at = Instant::now() + LOOK;
                health.clear(journal, "ban state");
            }
            Err(error) => {
                self.save_at = Instant::now() + AGAIN;
                let message = format!("{error}: bans would not outlast a restart");
                health.set(journal, "ban state", Level::Warning, &message);
            }
        }
    }
}

fn said_unban(journal: &Journal, prefix: IpNet, why: &str) {
    journal.entry(
        format_args!("ban of {prefix} ended: {why}"),
        || json!({ "event": "unban", "prefix": prefix, "why": why }),
    );
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
