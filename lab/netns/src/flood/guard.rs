//! Safety checks of floods. A flood sends only if the calling thread is in a network namespace of a
//! lab, the target is an address of the lab, and the interface is a veth.

use std::net::IpAddr;
use std::path::Path;

use super::FloodError;
use super::interface::Interface;
use crate::cleanup::{Identity, identity};
use crate::state::NETNS_DIR;
use crate::{Lab, plan};

/// Network namespace of the calling thread.
const HERE: &str = "/proc/thread-self/ns/net";
/// Network namespace of PID 1, which is in no lab.
const FIRST: &str = "/proc/1/ns/net";
/// A parameter that the kernel shows only in the initial namespace (`net_core_table`), and one that
/// it shows in every namespace.
const INIT_ONLY: &str = "/proc/sys/net/core/dev_weight";
const EVERYWHERE: &str = "/proc/sys/net/core/somaxconn";

/// Facts that the calling thread can find out about its namespace.
#[derive(Debug, Clone, Copy)]
struct Ground {
    here: Option<Identity>,
    /// Network namespace of PID 1, or `None` if reading it needs more privileges than this process
    /// has (proc_pid_ns(5)). The other checks must then be sufficient.
    first: Option<Identity>,
    shows_init_only: bool,
    shows_everywhere: bool,
}

impl Ground {
    /// Collects this information. `/proc/sys/net` shows the namespace of the thread that reads it.
    fn look() -> Self {
        Self {
            here: identity(Path::new(HERE)),
            first: identity(Path::new(FIRST)),
            shows_init_only: Path::new(INIT_ONLY).exists(),
            shows_everywhere: Path::new(EVERYWHERE).exists(),
        }
    }
}

/// A namespace in a lab's record.
struct Named {
    name: String,
    identity: Identity,
    /// Namespace that the lab was built from.
    home: Identity,
}

/// Returns the name of the lab's namespace that the calling thread is in.
pub(super) fn check_namespace() -> Result<String, FloodError> {
    let labs = Lab::list()?;
    let named = labs.iter().flat_map(|record| {
        record.names().filter_map(|name| {
            let identity = identity(&Path::new(NETNS_DIR).join(name))?;
            Some(Named { name: name.to_owned(), identity, home: record.home })
        })
    });
    judge(Ground::look(), named)
}

fn judge(ground: Ground, mut labs: impl Iterator<Item = Named>) -> Result<String, FloodError> {
    let unknown = |path: &str| FloodError::Unknown(format!("cannot read {path}"));
    let here = ground.here.ok_or_else(|| unknown(HERE))?;
    // Check this before any name, because a name in /run/netns may also point to the initial
    // namespace.
    if ground.shows_init_only || ground.first == Some(here) {
        return Err(FloodError::InitNamespace);
    }
    if !ground.shows_everywhere {
        // If even this parameter is not visible, it proves nothing that the other one is not.
        return Err(unknown(EVERYWHERE));
    }
    let lab = labs.find(|named| named.identity == here).ok_or(FloodError::NotInLab)?;
    if lab.home == here { Err(FloodError::NotInLab) } else { Ok(lab.name) }
}

/// Checks that the target is in the address ranges that exist only in labs.
pub(super) fn check_destination(address: IpAddr) -> Result<(), FloodError> {
    if plan::in_range(address) { Ok(()) } else { Err(FloodError::ForeignDestination(address)) }
}

/// Checks that the interface is a veth, to guard against a real interface that was moved into the
/// namespace.
pub(super) fn check_interface(interface: &Interface) -> Result<(), FloodError> {
    let driver = interface.driver()?;
    if driver == "veth" {
        return Ok(());
    }
    Err(FloodError::NotVeth { ifname: interface.name().to_owned(), driver })
}

#[cfg(test)]
mod tests {
    use super::*;
    use equic_testing::ci;

    const INIT: Identity = (4, 1);
    const HOME: Identity = (4, 9);

    /// Judges a thread in namespace `here`. The record of the lab has three names: one is valid,
    /// one is bound to the initial namespace, and one to the namespace that the lab was built from.
    fn verdict(here: Identity, change: impl FnOnce(&mut Ground)) -> Result<String, FloodError> {
        let mut ground = Ground {
            here: Some(here),
            first: Some(INIT),
            shows_init_only: false,
            shows_everywhere: true,
        };
        change(&mut ground);
        let named = |name: &str, identity| Named { name: name.to_owned(), identity, home: HOME };
        let labs =
            [named("eqlab-a-sw", INIT), named("eqlab-a-c0", (4, 2)), named("eqlab-a-c1", HOME)];
        judge(ground, labs.into_iter())
    }

    #[test]
    fn guard_refuses_another_namespace_with_a_lab_name() {
        assert_eq!(verdict((4, 2), |_| ()).unwrap(), "eqlab-a-c0");
        assert_eq!(verdict((4, 2), |ground| ground.first = None).unwrap(), "eqlab-a-c0");
        assert!(matches!(verdict(INIT, |_| ()), Err(FloodError::InitNamespace)));
        let hidden = |ground: &mut Ground| (ground.first, ground.shows_init_only) = (None, true);
        assert!(matches!(verdict(INIT, hidden), Err(FloodError::InitNamespace)));
        assert!(matches!(verdict((4, 2), hidden), Err(FloodError::InitNamespace)));
        assert!(matches!(verdict(HOME, |_| ()), Err(FloodError::NotInLab)));
        assert!(matches!(verdict((4, 3), |_| ()), Err(FloodError::NotInLab)));
        // A namespace with the same inode on another file system is not in the lab.
        assert!(matches!(verdict((5, 2), |_| ()), Err(FloodError::NotInLab)));
    }

    #[test]
    fn guard_refuses_if_it_cannot_inspect_namespaces() {
        let refused = |change: fn(&mut Ground)| {
            matches!(verdict((4, 2), change), Err(FloodError::Unknown(_)))
        };
        assert!(refused(|ground| ground.here = None));
        assert!(refused(|ground| ground.shows_everywhere = false));
    }

    #[test]
    fn guard_recognises_the_init_namespace() {
        // In a new namespace, the parameter must not be visible. Creating a namespace needs root.
        let fresh = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).ok().map(|()| Ground::look())
        });
        match fresh.join().unwrap() {
            Some(ground) => {
                assert!(!ground.shows_init_only && ground.shows_everywhere, "{ground:?}")
            }
            None => {
                assert!(!ci::in_ci(), "needs root");
                eprintln!(
                    "\n*** SKIPPED guard_recognises_the_init_namespace: run the tests as root ***\n"
                );
            }
        }
    }

    #[test]
    fn guard_refuses_destinations_outside_the_lab() {
        for foreign in
            ["127.0.0.1", "10.78.0.1", "8.8.8.8", "::1", "fd65:7175:6964::1", "::ffff:10.77.0.1"]
        {
            let refusal = check_destination(foreign.parse().unwrap());
            assert!(matches!(refusal, Err(FloodError::ForeignDestination(_))), "{foreign}");
        }
        assert!(check_destination("10.77.0.1".parse().unwrap()).is_ok());
        assert!(check_destination("fd65:7175:6963::1".parse().unwrap()).is_ok());
    }
}
