//! Keeps the interfaces protected that the configuration names, while a gateway runs.
//!
//! The kernel reports when an interface appears or disappears ([`Links`](super::links::Links)). In
//! addition, all interfaces are polled periodically.
//!
//! * If an interface disappears or moves to another network namespace, the program is attached
//!   again when an interface with this name appears. The program is detached from an interface that
//!   has moved, because the configuration applies to this namespace only.
//! * If a configured name now belongs to another interface, the program moves to that interface.
//! * If another XDP program is attached to an interface, the gateway keeps trying to attach.
//! * If an operator detached the gateway from an interface, that interface is ignored until the
//!   next reload.
//! * If an interface is configured under several of its names, it is managed under the first one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use equic_gateway::{
    AttachmentPlace, Control, Error, Gateway, InterfaceReport, Level, Mode, NetworkInterface,
};
use serde_json::json;

use super::health::Health;
use crate::output::Journal;

/// Time between two attempts to attach the program to an interface.
const AGAIN: Duration = Duration::from_secs(1);

/// State of a configured interface.
#[derive(Clone, PartialEq, Eq)]
enum State {
    /// The program is attached to the interface, which has this index.
    Attached { ifindex: u32, native: bool },
    /// No interface has this name. If `moved` is true, the interface is now in another network
    /// namespace.
    Missing { moved: bool },
    /// Another XDP program is attached to the interface. Contains the error that names it.
    Taken(String),
    /// The driver or the kernel rejects the program. Contains the error.
    Refused(String),
    /// An operator detached the program.
    Detached,
    /// The interface is also configured under this other name, and is managed under that name.
    SameAs(String),
}

struct Wanted {
    name: String,
    state: State,
    /// Time of the last attempt to attach, or `None` before the first attempt.
    tried: Option<Instant>,
    /// A problem of an interface to which the program is attached, with its level, or `None`.
    doubt: Option<(Level, String)>,
    /// Number of packets that the interface failed to send, or `None` if the gateway sends no
    /// answers that could get lost on it.
    unsent: Option<Unsent>,
}

impl Wanted {
    fn new(name: &str) -> Wanted {
        let state = State::Missing { moved: false };
        Wanted { name: name.to_owned(), state, tried: None, doubt: None, unsent: None }
    }
}

/// Number of packets that an interface failed to send.
struct Unsent {
    packets: u64,
    /// Time at which the number last increased, or `None`.
    grew: Option<Instant>,
}

/// The warning about lost answers ends if no answer is lost for this time.
const LOST_FOR: Duration = Duration::from_secs(60);

/// All interfaces that a gateway must protect.
pub(super) struct Interfaces {
    wanted: Vec<Wanted>,
    mode: Mode,
}

impl Interfaces {
    /// Creates the state for interfaces with these names. The gateway may already be attached to
    /// some of them.
    pub(super) fn new(names: &[String], mode: Mode, gateway: &Gateway) -> Interfaces {
        let attached = gateway.attached();
        let wanted = names.iter().map(|name| {
            let there = attached.iter().find(|one| one.interface == *name);
            let mut new = Wanted::new(name);
            if let Some(one) = there {
                new.state = State::Attached { ifindex: one.ifindex, native: one.native };
            }
            new
        });
        Interfaces { wanted: wanted.collect(), mode }
    }

    /// Replaces the set of protected interfaces by those with these names.
    pub(super) fn set(&mut self, names: &[String], gateway: &Gateway, journal: &Journal) {
        // If the first name of an interface is removed, the interface must be managed under its
        // second name. So evaluate second names again.
        self.wanted.retain(|one| !matches!(one.state, State::SameAs(_)));
        self.rename(names);
        self.wanted.retain_mut(|one| {
            let stays = names.contains(&one.name);
            if !stays && matches!(one.state, State::Attached { .. }) {
                one.leave(gateway, journal);
            }
            stays
        });
        for one in &mut self.wanted {
            if one.state == State::Detached {
                (one.state, one.tried) = (State::Missing { moved: false }, None);
            }
        }
        for name in names {
            if self.wanted.iter().all(|one| one.name != *name) {
                self.wanted.push(Wanted::new(name));
            }
        }
    }

    /// Keeps the program attached to an interface for which the new configuration uses another
    /// name. This avoids a gap in the protection.
    fn rename(&mut self, names: &[String]) {
        let new: Vec<String> = names
            .iter()
            .filter(|name| self.wanted.iter().all(|one| one.name != **name))
            .cloned()
            .collect();
        for name in new {
            let Ok(Some(index)) = index_of(&name) else { continue };
            let same = |one: &&mut Wanted| {
                let on = matches!(one.state, State::Attached { ifindex, .. } if ifindex == index);
                on && !names.contains(&one.name)
            };
            if let Some(one) = self.wanted.iter_mut().find(same) {
                one.name = name;
            }
        }
    }

    /// Checks the attached interfaces, and attaches the program to those that have become
    /// available. `gone` contains the indices of interfaces that the kernel reported as deleted.
    /// Other interfaces may have these indices by now.
    pub(super) fn look(
        &mut self,
        gateway: &Gateway,
        control: &Control,
        gone: &BTreeSet<u32>,
        journal: &Journal,
    ) {
        let unsent = control.unsent();
        for place in 0..self.wanted.len() {
            let same = self.same_as(place);
            let Some(one) = self.wanted.get_mut(place) else { break };
            if let State::Attached { ifindex, .. } = one.state {
                let packets = unsent.iter().find(|(number, _)| *number == ifindex);
                one.count_unsent(packets.map(|(_, packets)| *packets));
                match gateway.place_of(ifindex) {
                    // If the interface cannot be looked up, keep its state.
                    Err(_) => continue,
                    Ok(AttachmentPlace::Here) => {
                        one.examine(ifindex, self.mode, gateway, journal);
                        continue;
                    }
                    Ok(AttachmentPlace::Elsewhere) => one.moved(ifindex, gateway, journal),
                    Ok(AttachmentPlace::Nowhere) => {
                        one.lost(ifindex, gone.contains(&ifindex), gateway, journal);
                    }
                }
            }
            // The program is not attached. Either the interface is already managed under another
            // name, or it must be attached now. There is no wait for an interface that has just
            // appeared.
            if let Some(name) = same {
                one.is_not_attached(State::SameAs(name));
                continue;
            }
            let due = matches!(one.state, State::Missing { .. } | State::SameAs(_))
                || one.tried.is_none_or(|tried| tried.elapsed() >= AGAIN);
            if one.state != State::Detached && due {
                one.attach(self.mode, gateway, journal);
            }
        }
    }

    /// Returns another configured name under which the same interface is already managed, or `None`
    /// if no name qualifies.
    fn same_as(&self, place: usize) -> Option<String> {
        let one = self.wanted.get(place)?;
        if matches!(one.state, State::Attached { .. } | State::Detached) {
            return None;
        }
        let index = index_of(&one.name).ok().flatten()?;
        let is_the_same = |other: &&Wanted| match other.state {
            State::Attached { ifindex, .. } => ifindex == index,
            State::Detached => index_of(&other.name).is_ok_and(|found| found == Some(index)),
            _ => false,
        };
        self.wanted.iter().find(is_the_same).map(|other| other.name.clone())
    }

    /// Returns whether an operator detached the program from all interfaces.
    pub(super) fn all_detached(&self) -> bool {
        let mut own = self.wanted.iter().filter(|one| !matches!(one.state, State::SameAs(_)));
        !self.wanted.is_empty() && own.all(|one| one.state == State::Detached)
    }

    /// Returns whether the program is attached to no interface, for any reason.
    pub(super) fn none_attached(&self) -> bool {
        !self.wanted.iter().any(|one| matches!(one.state, State::Attached { .. }))
    }

    /// Reports which interfaces need attention. `reloads` says whether the gateway can read its
    /// configuration again.
    pub(super) fn tell(&self, reloads: bool, health: &mut Health, journal: &Journal) {
        let about = |name: &str| format!("interface {name}");
        let answers = |name: &str| format!("answers {name}");
        let gone = health.conditions().into_iter().filter(|condition| {
            (condition.about.starts_with("interface ") || condition.about.starts_with("answers "))
                && self
                    .wanted
                    .iter()
                    .all(|one| ![about(&one.name), answers(&one.name)].contains(&condition.about))
        });
        gone.for_each(|condition| health.forget(journal, &condition.about));
        for one in &self.wanted {
            let lost = one.loses_answers().then_some(
                "the other end of this veth interface does not receive all of the gateway's answers to clients, because in native mode that end needs an XDP program or GRO (`ethtool -K ... gro on`): turn on GRO there, or set `mode = \"generic\"`",
            );
            health.note(journal, &answers(&one.name), Level::Error, lost);
            let about = about(&one.name);
            match &one.state {
                State::Attached { .. } => match &one.doubt {
                    Some((level, message)) => health.set(journal, &about, *level, message),
                    None => health.clear(journal, &about),
                },
                State::SameAs(_) => {
                    health.set(journal, &about, Level::Warning, &detail(&one.state, reloads));
                }
                state => health.set(journal, &about, Level::Error, &detail(state, reloads)),
            }
        }
    }

    /// Returns the states of all interfaces for the report. `reloads` is as for [`Interfaces::tell`].
    pub(super) fn report(&self, reloads: bool) -> Vec<InterfaceReport> {
        self.wanted
            .iter()
            .map(|one| InterfaceReport {
                name: one.name.clone(),
                state: match one.state {
                    State::Attached { .. } => "attached",
                    State::SameAs(_) => "same",
                    State::Missing { .. } => "missing",
                    State::Taken(_) => "taken",
                    State::Refused(_) => "refused",
                    State::Detached => "detached",
                }
                .to_owned(),
                detail: detail(&one.state, reloads),
            })
            .collect()
    }
}

fn detail(state: &State, reloads: bool) -> String {
    match state {
        State::Attached { native: true, .. } => "native".to_owned(),
        State::Attached { native: false, .. } => "generic".to_owned(),
        State::Missing { moved: false } => {
            "not protected: there is no such interface; the gateway attaches to the interface when it appears".to_owned()
        }
        State::Missing { moved: true } => {
            "not protected: the interface was moved to another network namespace; the gateway attaches to it when it comes back"
                .to_owned()
        }
        State::SameAs(name) => {
            format!("is another name of {name}: remove one of the two names from the configuration")
        }
        State::Taken(why) | State::Refused(why) => {
            format!("not protected: {why}; the gateway tries to attach again every second")
        }
        State::Detached => {
            let remedy = if reloads { "`equic gateway reload`" } else { "a restart" };
            format!(
                "not protected: an operator detached the gateway from the interface; {remedy} attaches it again"
            )
        }
    }
}

/// Returns the index of the interface with this name or alternative name. Fails if the kernel does
/// not answer.
fn index_of(name: &str) -> std::io::Result<Option<u32>> {
    Ok(NetworkInterface::by_name(name)?.map(|interface| interface.index))
}

/// Returns a warning if packets can bypass the program, because the interface is stacked on a lower
/// one, through which packets enter the host.
fn unprotected_below(interface: &NetworkInterface, gateway: &Gateway) -> Option<String> {
    let stacked = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"];
    let kind = interface.kind.as_deref().filter(|kind| stacked.contains(kind))?;
    let lower = interface.lower?;
    if gateway.attached().iter().any(|one| one.ifindex == lower) {
        return None;
    }
    let lower = NetworkInterface::by_index(lower).ok().flatten()?.name;
    Some(format!(
        "is a {kind} on top of {lower}, which is not protected: Linux also accepts packets to this interface's addresses if they arrive directly on {lower}. Protect {lower} instead"
    ))
}

impl Wanted {
    fn count_unsent(&mut self, packets: Option<u64>) {
        let Some(packets) = packets else {
            self.unsent = None;
            return;
        };
        let before = self.unsent.get_or_insert(Unsent { packets, grew: None });
        if packets > before.packets {
            *before = Unsent { packets, grew: Some(Instant::now()) };
        }
    }

    /// Returns whether answers to clients were lost recently.
    fn loses_answers(&self) -> bool {
        let grew = self.unsent.as_ref().and_then(|unsent| unsent.grew);
        grew.is_some_and(|grew| grew.elapsed() < LOST_FOR)
    }

    fn leave(&mut self, gateway: &Gateway, journal: &Journal) {
        if let State::Attached { ifindex, .. } = self.state {
            gateway.detach_index(ifindex);
        }
        self.say_detached(journal, "configuration");
    }

    fn say_detached(&self, journal: &Journal, why: &str) {
        journal.entry(
            format_args!("detached from {} ({why})", self.name),
            || json!({ "event": "detached", "interface": { "name": self.name }, "why": why }),
        );
    }

    /// Handles an interface whose link to the program is gone. `deleted` is true if the interface
    /// was deleted.
    fn lost(&mut self, ifindex: u32, deleted: bool, gateway: &Gateway, journal: &Journal) {
        // Forget the link to the program, because the interface may come back with the same index.
        gateway.detach_index(ifindex);
        let there = NetworkInterface::by_index(ifindex).ok().flatten();
        let still_there = !deleted && there.is_some();
        self.is_not_attached(State::Missing { moved: false });
        self.unsent = None;
        if still_there {
            self.state = State::Detached;
        }
        self.say_detached(journal, if still_there { "operator" } else { "interface gone" });
    }

    /// Handles an interface that has moved to another network namespace.
    fn moved(&mut self, ifindex: u32, gateway: &Gateway, journal: &Journal) {
        gateway.detach_index(ifindex);
        self.is_not_attached(State::Missing { moved: true });
        self.say_detached(journal, "interface moved to another network namespace");
    }

    fn is_not_attached(&mut self, state: State) {
        (self.state, self.doubt, self.tried) = (state, None, None);
    }

    /// Checks whether the attached interface still has the configured name, and whether the program
    /// works on it.
    fn examine(&mut self, ifindex: u32, mode: Mode, gateway: &Gateway, journal: &Journal) {
        // If the kernel does not answer, keep the state.
        let Ok(named) = index_of(&self.name) else { return };
        if named.is_some_and(|index| index != ifindex) {
            let due = self.tried.is_none_or(|tried| tried.elapsed() >= AGAIN);
            if self.doubt.is_some() && !due {
                return;
            }
            self.replaced(ifindex, mode, gateway, journal);
            return;
        }
        let Ok(Some(now)) = NetworkInterface::by_index(ifindex) else { return };
        self.doubt = if named.is_none() {
            let name = now.name;
            let what = format!(
                "is called {name} now; the interface stays protected until the gateway restarts"
            );
            Some((Level::Warning, what))
        } else if !now.up {
            Some((Level::Warning, "is down, so the interface receives no packets".to_owned()))
        } else {
            unprotected_below(&now, gateway).map(|what| (Level::Warning, what))
        };
    }

    /// Handles a configured name that now belongs to another interface: attaches the program to
    /// that interface, and detaches it from the old one.
    fn replaced(&mut self, ifindex: u32, mode: Mode, gateway: &Gateway, journal: &Journal) {
        let before = std::mem::replace(&mut self.state, State::Missing { moved: false });
        self.attach(mode, gateway, journal);
        let why = match &self.state {
            State::Attached { .. } => {
                gateway.detach_index(ifindex);
                self.doubt = None;
                self.say_detached(journal, "another interface has this name now");
                return;
            }
            State::Taken(why) | State::Refused(why) => why.clone(),
            // The interface that had taken the name has disappeared again.
            State::Missing { .. } | State::Detached | State::SameAs(_) => {
                self.state = before;
                return;
            }
        };
        self.state = before;
        let what = format!(
            "not protected: another interface has this name now, and the gateway cannot attach to that interface: {why}; the gateway tries again. The interface that had the name before stays protected"
        );
        self.doubt = Some((Level::Error, what));
    }

    fn attach(&mut self, mode: Mode, gateway: &Gateway, journal: &Journal) {
        self.tried = Some(Instant::now());
        match index_of(&self.name) {
            Ok(Some(_)) => {}
            Ok(None) => {
                // Keep the note that the interface has moved until it comes back.
                if !matches!(self.state, State::Missing { .. }) {
                    self.state = State::Missing { moved: false };
                }
                return;
            }
            Err(error) => {
                self.state = State::Refused(format!("interfaces cannot be looked up: {error}"));
                return;
            }
        }
        self.state = match gateway.attach(&self.name, mode) {
            Ok(attached) => {
                let how = if attached.native { "native" } else { "generic" };
                journal.entry(
                    format_args!("attached to {}, {how}", self.name),
                    || json!({ "event": "attached", "interface": attached }),
                );
                State::Attached { ifindex: attached.ifindex, native: attached.native }
            }
            Err(Error::NoSuchInterface { .. }) => State::Missing { moved: false },
            Err(error @ Error::InterfaceBusy { .. }) => State::Taken(error.to_string()),
            Err(error) => State::Refused(error.to_string()),
        };
    }
}
