//! The gateway that a process has chosen among the running ones, and the rules by which a successor
//! of that gateway is recognised.

use super::discover::{Interface, RunningGateway};

/// The choice of one gateway among those that are running. If that gateway is replaced, the same
/// rules choose its successor.
///
/// A machine may run unrelated gateways. They may be of another release, or in containers, where
/// they often have the same name and interfaces of the same index. So the successor must be
/// attached in this network namespace. If the chosen gateway was attached only in other namespaces,
/// its successor may be in another namespace, too.
///
/// A gateway that is not attached yet cannot be recognised, and it has no connections to count. The
/// caller checks it again later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewayChoice {
    /// The interface, name or program id that the caller gave. `None` if the caller asked for the
    /// only gateway.
    selector: Option<String>,
    pub(crate) name: String,
    interfaces: Vec<Interface>,
}

impl GatewayChoice {
    pub(super) fn new(selector: Option<&str>, found: &RunningGateway) -> GatewayChoice {
        let (name, interfaces) = (found.name.clone(), found.interfaces.clone());
        GatewayChoice { selector: selector.map(str::to_owned), name, interfaces }
    }

    /// Returns true if the gateway `found` is the successor of the chosen one.
    pub(crate) fn is_followed_by(&self, found: &RunningGateway) -> bool {
        self.resembles(found) && self.is_near(&found.interfaces)
    }

    /// Returns true if a gateway matches the choice, in any network namespace. It matches if it has
    /// the chosen interface or name. It also matches if it has the same name and shares an
    /// interface with the chosen gateway, as far as their interfaces are known.
    pub(crate) fn resembles(&self, found: &RunningGateway) -> bool {
        if let Some(selector) = &self.selector
            && (found.name == *selector || found.is_on(selector))
        {
            return true;
        }
        found.name == self.name
            && (self.interfaces.is_empty()
                || found.interfaces.is_empty()
                || self.shares_with(&found.interfaces))
    }

    /// Returns true if a gateway on these interfaces has replaced the chosen one. Nothing else
    /// needs to be known about that gateway.
    pub(crate) fn is_displaced_by(&self, interfaces: &[Interface]) -> bool {
        let selected = |there: &Interface| there.name.is_some() && there.name == self.selector;
        self.is_near(interfaces)
            && (self.interfaces.is_empty()
                || self.shares_with(interfaces)
                || interfaces.iter().any(selected))
    }

    /// Returns true if the chosen gateway is attached to one of these interfaces.
    pub(crate) fn shares_with(&self, interfaces: &[Interface]) -> bool {
        let same = |a: &Interface, b: &Interface| {
            a.name.is_some() == b.name.is_some()
                && (a.ifindex == b.ifindex || (a.name.is_some() && a.name == b.name))
        };
        interfaces.iter().any(|there| self.interfaces.iter().any(|here| same(here, there)))
    }

    fn is_near(&self, interfaces: &[Interface]) -> bool {
        let is_here = |interface: &Interface| interface.name.is_some();
        let was_here = self.interfaces.is_empty() || self.interfaces.iter().any(is_here);
        interfaces.iter().any(|there| is_here(there) || !was_here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(program_id: u32, name: &str, interfaces: &[(u32, Option<&str>)]) -> RunningGateway {
        let interface = |(ifindex, name): &(u32, Option<&str>)| Interface {
            ifindex: *ifindex,
            name: name.map(str::to_owned),
            native: None,
        };
        let interfaces: Vec<Interface> = interfaces.iter().map(interface).collect();
        RunningGateway {
            program_id,
            name: name.to_owned(),
            owner_pid: 1,
            owner_alive: true,
            here: interfaces.iter().any(|there: &Interface| there.name.is_some()),
            interfaces,
        }
    }

    #[test]
    fn gateway_choice_follows_a_gateway_that_the_selector_matches() {
        let first = found(7, "web", &[(2, Some("eth0"))]);
        let again = found(8, "web", &[(2, Some("eth0"))]);
        let renamed = found(8, "front", &[(2, Some("eth0"))]);
        let moved = found(8, "web", &[(3, Some("eth1"))]);
        let made_anew = found(8, "web", &[(9, Some("eth0"))]);
        let elsewhere = found(8, "web", &[(2, None)]);
        let not_yet = found(8, "web", &[]);
        let other = found(8, "dns", &[(3, Some("eth1"))]);
        let all = [&again, &renamed, &moved, &made_anew, &elsewhere, &not_yet, &other];
        let followed = |selector| {
            let chosen = GatewayChoice::new(selector, &first);
            all.map(|found| u8::from(chosen.is_followed_by(found)))
        };
        assert_eq!(followed(None), [1, 0, 0, 1, 0, 0, 0], "the only one there was");
        assert_eq!(followed(Some("7")), [1, 0, 0, 1, 0, 0, 0], "by its id");
        assert_eq!(followed(Some("web")), [1, 0, 1, 1, 0, 0, 0], "by its name");
        assert_eq!(followed(Some("eth0")), [1, 1, 0, 1, 0, 0, 0], "by its interface");
    }

    #[test]
    fn gateway_choice_follows_in_another_network_namespace() {
        let first = found(7, "web", &[(2, None)]);
        let again = found(8, "web", &[(2, None)]);
        let moved = found(8, "web", &[(4, None)]);
        let not_yet = found(8, "web", &[]);
        let followed = |selector| {
            let chosen = GatewayChoice::new(selector, &first);
            [&again, &moved, &not_yet].map(|found| u8::from(chosen.is_followed_by(found)))
        };
        assert_eq!(followed(Some("7")), [1, 0, 0], "by its id");
        assert_eq!(followed(Some("web")), [1, 1, 0], "by its name");
    }

    #[test]
    fn gateway_choice_is_displaced_on_the_same_interface_only() {
        let first = found(7, "web", &[(2, Some("eth0"))]);
        let in_the_way = |selector, interfaces: &[(u32, Option<&str>)]| {
            GatewayChoice::new(selector, &first)
                .is_displaced_by(&found(8, "", interfaces).interfaces)
        };
        assert!(in_the_way(None, &[(2, Some("eth0"))]));
        assert!(in_the_way(Some("eth1"), &[(3, Some("eth1"))]));
        assert!(!in_the_way(None, &[(3, Some("eth1"))]), "another interface");
        assert!(!in_the_way(None, &[(2, None)]), "another network namespace");
        assert!(!in_the_way(None, &[]), "not attached");
    }
}
