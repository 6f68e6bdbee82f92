//! The interfaces a gateway was told to protect, through what happens to them while it runs.
//!
//! The kernel tells when one comes or goes ([`Links`](super::links::Links)), and they are looked at every
//! so often in any case. One that vanishes is waited for, one that another XDP program has taken is tried again; one that
//! an operator detached the gateway from is let alone until the next reload.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use equic_gateway::{Control, Error, Gateway, InterfaceReport, Level, Mode};
use nix::net::if_::{if_indextoname, if_nametoindex};
use serde_json::json;

use super::health::Health;
use crate::output::Journal;

/// Time between two attempts to attach.
const AGAIN: Duration = Duration::from_secs(1);

/// State of an interface.
#[derive(Clone, PartialEq, Eq)]
enum State {
    /// The program is on it; its number.
    Attached { ifindex: u32, native: bool },
    /// There is none of that name.
    Missing,
    /// Another XDP program is on it: the error that says which.
    Taken(String),
    /// The driver or the kernel refuses the program: its error.
    Refused(String),
    /// An operator took the program off.
    Detached,
}

struct Wanted {
    name: String,
    state: State,
    /// Time of the last attempt to attach; none: there was none.
    tried: Option<Instant>,
    /// The name it has now, where that is another one.
    renamed: Option<String>,
    /// Packets that it did not send so far, where answers can get lost on it.
    unsent: Option<Unsent>,
}

/// Packets that an interface did not send.
struct Unsent {
    packets: u64,
    /// Time at which the last ones were seen.
    grew: Option<Instant>,
}

/// Time without a lost answer after which none are taken to get lost.
const LOST_FOR: Duration = Duration::from_secs(60);

/// The interfaces that a gateway is to protect.
pub(super) struct Interfaces {
    wanted: Vec<Wanted>,
    mode: Mode,
}

impl Interfaces {
    /// Interfaces of these names. The gateway may be attached to some already.
    pub(super) fn new(names: &[String], mode: Mode, gateway: &Gateway) -> Interfaces {
        let attached = gateway.attached();
        let wanted = names.iter().map(|name| {
            let there = attached.iter().find(|one| one.interface == *name);
            let state = there.map_or(State::Missing, |one| State::Attached {
                ifindex: one.ifindex,
                native: one.native,
            });
            Wanted { name: name.clone(), state, tried: None, renamed: None, unsent: None }
        });
        Interfaces { wanted: wanted.collect(), mode }
    }

    /// Protects these from now on, and no others.
    pub(super) fn set(&mut self, names: &[String], gateway: &Gateway, journal: &Journal) {
        self.wanted.retain_mut(|one| {
            let stays = names.contains(&one.name);
            if !stays && matches!(one.state, State::Attached { .. }) {
                one.leave(gateway, journal);
            }
            stays
        });
        for one in &mut self.wanted {
            if one.state == State::Detached {
                (one.state, one.tried) = (State::Missing, None);
            }
        }
        for name in names {
            if self.wanted.iter().all(|one| one.name != *name) {
                let (name, state) = (name.clone(), State::Missing);
                self.wanted.push(Wanted { name, state, tried: None, renamed: None, unsent: None });
            }
        }
    }

    /// Looks at what is attached, and attaches what can be. `gone`: numbers of interfaces that the kernel
    /// says have been deleted; others may have these numbers by now.
    pub(super) fn look(
        &mut self,
        gateway: &Gateway,
        control: &Control,
        gone: &BTreeSet<u32>,
        journal: &Journal,
    ) {
        // Without the permission to look nothing is known, so nothing is changed.
        let Ok(there) = control.interfaces() else { return };
        let unsent = control.unsent();
        for one in &mut self.wanted {
            if let State::Attached { ifindex, .. } = one.state {
                let packets = unsent.iter().find(|(number, _)| *number == ifindex);
                one.count_unsent(packets.map(|(_, packets)| *packets));
                if there.iter().any(|interface| interface.ifindex == ifindex) {
                    let now = name_of(ifindex);
                    one.renamed = now.filter(|now| *now != one.name);
                    continue;
                }
                one.lost(ifindex, gone.contains(&ifindex), gateway, journal);
            }
            // An interface that has just come is not protected yet, so it does not wait for its turn.
            let due = one.state == State::Missing
                || one.tried.is_none_or(|tried| tried.elapsed() >= AGAIN);
            if one.state != State::Detached && due {
                one.attach(self.mode, gateway, journal);
            }
        }
    }

    /// Whether an operator took the program off all of the interfaces.
    pub(super) fn all_detached(&self) -> bool {
        !self.wanted.is_empty() && self.wanted.iter().all(|one| one.state == State::Detached)
    }

    /// Whether the program is on none of the interfaces, for whatever reason.
    pub(super) fn none_attached(&self) -> bool {
        !self.wanted.iter().any(|one| matches!(one.state, State::Attached { .. }))
    }

    /// Tells of the interfaces that are not as they should be.
    pub(super) fn tell(&self, health: &mut Health, journal: &Journal) {
        let about = |name: &str| format!("interface {name}");
        let answers = |name: &str| format!("answers {name}");
        let gone = health.conditions().into_iter().filter(|condition| {
            (condition.about.starts_with("interface ") || condition.about.starts_with("answers "))
                && self
                    .wanted
                    .iter()
                    .all(|one| ![about(&one.name), answers(&one.name)].contains(&condition.about))
        });
        gone.for_each(|condition| health.clear(journal, &condition.about));
        for one in &self.wanted {
            let lost = one.loses_answers().then_some(
                "the other end of this veth interface does not receive the gateway's answers to clients, or not all: \
                 in native mode it needs an XDP program or GRO (`ethtool -K ... gro on`). `mode = \"generic\"` answers in \
                 any case",
            );
            health.note(journal, &answers(&one.name), Level::Error, lost);
            let about = about(&one.name);
            match &one.state {
                State::Attached { .. } => {
                    let renamed = one.renamed.as_ref().map(|now| {
                        format!("is called {now} now; it is protected as before, until a restart")
                    });
                    health.note(journal, &about, Level::Warning, renamed.as_deref());
                }
                state => health.set(journal, &about, Level::Error, &detail(state)),
            }
        }
    }

    /// States of the interfaces, for the report.
    pub(super) fn report(&self) -> Vec<InterfaceReport> {
        self.wanted
            .iter()
            .map(|one| InterfaceReport {
                name: one.name.clone(),
                state: match one.state {
                    State::Attached { .. } => "attached",
                    State::Missing => "missing",
                    State::Taken(_) => "taken",
                    State::Refused(_) => "refused",
                    State::Detached => "detached",
                }
                .to_owned(),
                detail: detail(&one.state),
            })
            .collect()
    }
}

fn detail(state: &State) -> String {
    match state {
        State::Attached { native: true, .. } => "native".to_owned(),
        State::Attached { native: false, .. } => "generic".to_owned(),
        State::Missing => {
            "not protected: there is no such interface; it is attached to when it comes".to_owned()
        }
        State::Taken(why) | State::Refused(why) => {
            format!("not protected: {why}; it is tried again every second")
        }
        State::Detached => {
            "not protected: an operator detached it; `equic gateway reload` attaches it again"
                .to_owned()
        }
    }
}

fn name_of(ifindex: u32) -> Option<String> {
    // An empty one: there is no such interface.
    if_indextoname(ifindex).ok()?.into_string().ok().filter(|name| !name.is_empty())
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

    /// Whether answers have got lost lately.
    fn loses_answers(&self) -> bool {
        let grew = self.unsent.as_ref().and_then(|unsent| unsent.grew);
        grew.is_some_and(|grew| grew.elapsed() < LOST_FOR)
    }

    fn leave(&mut self, gateway: &Gateway, journal: &Journal) {
        // An error says that the link has gone already.
        let _ = gateway.detach(&self.name);
        self.say_detached(journal, "configuration");
    }

    fn say_detached(&self, journal: &Journal, why: &str) {
        journal.entry(
            format_args!("detached from {} ({why})", self.name),
            || json!({ "event": "detached", "interface": { "name": self.name }, "why": why }),
        );
    }

    /// The link has gone from the interface; `deleted`: because the interface has.
    fn lost(&mut self, ifindex: u32, deleted: bool, gateway: &Gateway, journal: &Journal) {
        // Forgets the link, whose interface may come back under the same number.
        let _ = gateway.detach(&self.name);
        let still_there = !deleted && name_of(ifindex).is_some();
        (self.state, self.renamed, self.tried) = (State::Missing, None, None);
        self.unsent = None;
        if still_there {
            self.state = State::Detached;
        }
        self.say_detached(journal, if still_there { "operator" } else { "interface gone" });
    }

    fn attach(&mut self, mode: Mode, gateway: &Gateway, journal: &Journal) {
        self.tried = Some(Instant::now());
        if if_nametoindex(self.name.as_str()).is_err() {
            self.state = State::Missing;
            return;
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
            Err(Error::NoSuchInterface { .. }) => State::Missing,
            Err(error @ Error::InterfaceBusy { .. }) => State::Taken(error.to_string()),
            Err(error) => State::Refused(error.to_string()),
        };
    }
}
