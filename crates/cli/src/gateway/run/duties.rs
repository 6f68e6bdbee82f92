//! Periodic work of a running gateway: it follows interfaces, bans sources, reports changes by
//! other processes, reads the configuration file, and publishes its condition.

use std::sync::PoisonError;
use std::time::Instant;

use equic_gateway::{Config, Control, Gateway, Level, Reload, ReplacedValue, Report};
use serde_json::json;

use super::bans::BanKeeper;
use super::changes::Changes;
use super::health::{Health, unix_ms};
use super::interfaces::Interfaces;
use super::links::Links;
use super::reload;
use crate::failure::Result;
use crate::gateway::limits::replacements;
use crate::gateway::metrics::LastError;
use crate::gateway::needs::{NEEDS, clocks_apart, uncounted, unreadable};
use crate::output::Journal;

/// A function that reads the current configuration file and applies the command-line flags on top.
/// It also returns the values of the file that `-o` has replaced.
pub(super) type Configure<'a> = Box<dyn Fn() -> Result<(Config, Vec<ReplacedValue>)> + 'a>;

/// Origin of the configuration, and the function that reads it again.
pub(super) struct Source<'a> {
    /// The configuration file, or `None` if everything was given on the command line. Without a
    /// file, a reload is not possible.
    pub file: Option<String>,
    /// Reads it.
    pub configure: Configure<'a>,
    /// State of the interfaces in which the loop ends.
    pub end: End,
}

impl Source<'_> {
    /// Publishes a first report, so that `equic gateway reload` works as soon as the gateway says
    /// that it is ready.
    pub(super) fn publish(&self, control: &Control) {
        let (config, written_ms) = (self.file.clone(), unix_ms());
        // The duties publish the next report at once, and print a warning if that fails.
        let _ = control.publish(&Report { config, written_ms, ..Report::default() });
    }
}

/// State of the interfaces in which a gateway's loop ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It ends in no state, because the process has other work, too.
    Never,
    /// Another process has detached the gateway from all interfaces.
    AllDetached,
    /// The gateway is attached to no interface, for any reason.
    NoneAttached,
}

/// Sources of changes by other processes and by the kernel. They are read at every check.
pub(super) struct Watched {
    /// Finds changes that other processes make.
    pub changes: Changes,
    /// Error of the last scrape of the metrics, or `None` if it succeeded.
    pub scrapes: LastError,
    /// The kernel's notifications about interfaces, or `None` if they are not available. Interfaces
    /// are then only polled.
    pub links: Option<Links>,
}

/// The periodic work of a running gateway, and the state that it keeps from one check to the next.
pub(super) struct Duties<'a> {
    gateway: &'a Gateway,
    control: Control,
    source: Source<'a>,
    config: Config,
    interfaces: Interfaces,
    bans: Option<BanKeeper>,
    watched: Watched,
    health: Health,
    reload: Option<Reload>,
    published: Option<(Report, Instant)>,
}

/// Maximum age of the published report. An older report is written again.
const REPORT: std::time::Duration = std::time::Duration::from_secs(5);

impl<'a> Duties<'a> {
    /// Creates the periodic work for a gateway that is already attached.
    pub(super) fn new(
        gateway: &'a Gateway,
        config: Config,
        source: Source<'a>,
        watched: Watched,
        journal: &Journal,
    ) -> Duties<'a> {
        let control = gateway.control().clone();
        let mut health = Health::default();
        let bans = config
            .ban
            .as_ref()
            .map(|policy| BanKeeper::new(policy, &control, journal, &mut health));
        let interfaces = Interfaces::new(&config.gateway.interfaces, config.gateway.mode, gateway);
        let mut duties = Duties {
            gateway,
            control,
            source,
            config,
            interfaces,
            bans,
            watched,
            health,
            reload: None,
            published: None,
        };
        duties.look(journal);
        duties
    }

    /// Returns whether SIGHUP makes the gateway read its configuration again.
    pub(super) fn reloads(&self) -> bool {
        self.source.file.is_some()
    }

    /// Checks the interfaces after a notification from the kernel. Returns the reason if the
    /// gateway must end.
    pub(super) fn look_at_interfaces(&mut self, journal: &Journal) -> Option<&'static str> {
        let gone = self.watched.links.as_ref().map(Links::hear).unwrap_or_default();
        self.interfaces.look(self.gateway, &self.control, &gone, journal);
        let end = self.source.end;
        if end != End::Never && self.interfaces.all_detached() {
            // The process ends, so it reports no condition, whose advice would come too late.
            return Some("another process detached the gateway from its last interface");
        }
        let reloads = self.reloads();
        self.interfaces.tell(reloads, &mut self.health, journal);
        self.publish(journal);
        let ends = end == End::NoneAttached && self.interfaces.none_attached();
        ends.then_some("the last interface of the gateway has disappeared")
    }

    /// Waits for the next notification about an interface.
    pub(super) async fn news_of_interfaces(&self) {
        match &self.watched.links {
            Some(links) => links.ready().await,
            None => std::future::pending().await,
        }
    }

    /// Does all periodic work that is due. Returns the reason if the gateway must end.
    pub(super) fn look(&mut self, journal: &Journal) -> Option<&'static str> {
        let why = self.look_at_interfaces(journal);
        if let Some(bans) = &mut self.bans {
            bans.look(&self.control, journal, &mut self.health);
        }
        self.watched.changes.look(&self.control, journal, "another process");
        let failing = self.watched.scrapes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failing =
            failing.map(|why| format!("the metrics cannot be read from the gateway: {why}"));
        self.health.note(journal, "metrics", Level::Warning, failing.as_deref());
        for need in &NEEDS {
            let unmet = need.unmet(&self.control);
            self.health.note(journal, need.about, Level::Warning, unmet.as_deref());
        }
        let unknown = (!self.control.knows_addresses()).then_some(
            "the gateway could not read the addresses of this host, so it cannot check destination addresses before it answers packets; it tries again",
        );
        self.health.note(journal, "addresses", Level::Warning, unknown);
        self.look_at_pins(journal);
        let clocks = clocks_apart(&self.control);
        self.health.note(journal, "server clocks", Level::Warning, clocks.as_deref());
        let unreadable = unreadable(&self.control);
        self.health.note(journal, "servers", Level::Warning, unreadable.as_deref());
        let unproven = uncounted(&self.control);
        self.health.note(journal, "unproven", Level::Warning, unproven.as_deref());
        let trouble = journal.trouble();
        self.health.note(journal, "output", Level::Warning, trouble.as_deref());
        self.publish(journal);
        why
    }

    /// Warns if a pin of this gateway in the BPF file system no longer exists.
    fn look_at_pins(&mut self, journal: &Journal) {
        // Missing pins are intended in two cases: after a takeover, they belong to the successor's
        // program, and `detach` removes them.
        let attached = self.gateway.interfaces().is_ok_and(|on| !on.is_empty());
        let ours = attached && self.gateway.taken_over().is_none();
        let missing = if ours { self.gateway.missing_pins() } else { Vec::new() };
        let lost = missing.first().map(|path| {
            format!(
                "the pin `{}` no longer exists, because it was removed or its BPF file system was unmounted. Protection will end when this process ends, and the next process will start with empty tables: if the file system is missing, mount it (`mount -t bpf -o mode=0700 bpf DIR`); then restart the gateway",
                path.display()
            )
        });
        self.health.note(journal, "pins", Level::Warning, lost.as_deref());
    }

    /// Reads the configuration again and applies all of it. If it has an error, applies nothing.
    /// Returns the result as text.
    pub(super) fn read_again(&mut self, journal: &Journal) -> String {
        let number = self.reload.as_ref().map_or(0, |reload| reload.number) + 1;
        // Report changes by other processes first. Otherwise, they would be reported as changes by
        // the reload.
        self.watched.changes.look(&self.control, journal, "another process");
        let done = (self.source.configure)().and_then(|(mut new, options)| {
            let lists = reload::apply(&self.config, &mut new, &self.control)?;
            Ok((new, lists, options))
        });
        let (ok, lines) = match done {
            Ok((new, replaced, options)) => {
                self.take(new, journal);
                let lists = format!(
                    "prefixes on the deny and allow lists: {} added, {} removed, {} kept",
                    replaced.added, replaced.removed, replaced.kept
                );
                let options = replacements(&options);
                (true, std::iter::once(lists).chain(options).collect::<Vec<_>>())
            }
            Err(failure) => (false, failure.to_string().lines().map(str::to_owned).collect()),
        };
        let text = if ok { "configuration reloaded" } else { "configuration NOT reloaded" };
        let told = format!("{text}\n  {}", lines.join("\n  "));
        let data = || json!({ "event": "reload", "ok": ok, "number": number, "lines": lines });
        if ok {
            journal.entry(&told, data);
        } else {
            journal.warning(&told, data);
        }
        let trouble = (!ok).then(|| {
            format!(
                "the configuration file could not be applied, so the previous configuration stays in force: {}",
                lines.join("; ")
            )
        });
        self.health.note(journal, "reload", Level::Warning, trouble.as_deref());
        self.reload = Some(Reload { number, ok, at_ms: unix_ms(), lines });
        self.published = None;
        self.look(journal);
        told
    }

    /// Applies the remaining parts of a new configuration. Its settings and lists are already in
    /// force.
    fn take(&mut self, new: Config, journal: &Journal) {
        self.watched.changes.look(&self.control, journal, "reload");
        self.watched.changes.know_lists(&self.control);
        self.interfaces.set(&new.gateway.interfaces, self.gateway, journal);
        match (&new.ban, &mut self.bans) {
            (Some(policy), Some(bans)) => bans.set_policy(policy),
            (Some(policy), none @ None) => {
                *none = Some(BanKeeper::new(policy, &self.control, journal, &mut self.health));
            }
            (None, _) => {
                if let Some(bans) = self.bans.take() {
                    bans.end(&self.control, journal);
                }
                for about in ["bans", "ban state", "ban evidence", "ban watch"] {
                    self.health.forget(journal, about);
                }
            }
        }
        self.config = new;
    }

    /// Saves the state that must be kept after the process ends.
    pub(super) fn finish(&mut self, journal: &Journal) {
        if let Some(bans) = &mut self.bans {
            bans.save_now(journal, &mut self.health);
        }
    }

    fn publish(&mut self, journal: &Journal) {
        let mut report = Report {
            config: self.source.file.clone(),
            conditions: self.health.conditions(),
            interfaces: self.interfaces.report(self.reloads()),
            reload: self.reload.clone(),
            bans: self.bans.as_ref().map(BanKeeper::totals),
            ban_rules: self.bans.as_ref().map(|bans| bans.rules().clone()),
            // The caller sets the remaining fields when it publishes the report.
            ..Report::default()
        };
        let fresh = self
            .published
            .as_ref()
            .is_some_and(|(old, at)| *old == report && at.elapsed() < REPORT);
        if !fresh {
            self.published = Some((report.clone(), Instant::now()));
            report.written_ms = unix_ms();
            if let Err(error) = self.control.publish(&report) {
                journal.warning(
                    format_args!("cannot write the status report: {error}"),
                    || json!({ "event": "trouble", "about": "report", "what": error.to_string() }),
                );
            }
        }
    }
}
