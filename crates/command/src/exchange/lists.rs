//! Lists of plugins to offer, selected by the address of the peer. The first rule in a file that
//! matches the address applies.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use equic_gateway::{Config, IpNet, parse_prefix, read_regular, read_regular_text};
use equic_plugin::MAX_BUNDLE;
use equic_plugin::exchange::Push;
use serde::Deserialize;

use crate::failure::{Failure, Result};

/// Lists of plugins to offer.
#[derive(Debug, Default)]
pub(super) struct Lists {
    rules: Vec<PrefixesAndPlugins>,
    /// Plugins to offer to peers that match no rule.
    usual: Vec<Arc<Push>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Addresses and prefixes of the peers that the rule matches, such as `192.0.2.0/24`.
    peers: Vec<String>,
    /// Paths of the bundles, relative to the file of rules. If the list is empty, nothing is
    /// offered.
    push: Vec<PathBuf>,
}

impl Lists {
    /// Reads the bundles in `files`, which are offered to peers that match no rule, and the bundles
    /// that the rules name. A file whose name ends in `.toml` contains rules.
    pub(super) fn read(files: &[PathBuf]) -> Result<Lists> {
        let mut lists = Lists::default();
        for file in files {
            if file.extension().is_some_and(|extension| extension == "toml") {
                lists.rules.extend(rules(file)?);
            } else {
                lists.usual.push(bundle(file)?);
            }
        }
        Ok(lists)
    }

    /// Returns the plugins to offer to the peer at this address.
    pub(super) fn of(&self, peer: IpAddr) -> &[Arc<Push>] {
        // A dual-stack socket reports IPv4 addresses as IPv4-mapped IPv6 addresses.
        let peer = peer.to_canonical();
        let has = |(peers, _): &&(Vec<IpNet>, _)| peers.iter().any(|net| net.contains(&peer));
        self.rules.iter().find(has).map_or(&self.usual, |(_, push)| push)
    }

    /// Returns the plugins to offer to peers that match no rule.
    pub(super) fn usual(&self) -> &[Arc<Push>] {
        &self.usual
    }

    /// Returns whether the lists are empty, so that no peer is offered any plugin.
    pub(super) fn is_empty(&self) -> bool {
        self.usual.is_empty() && self.rules.iter().all(|(_, push)| push.is_empty())
    }
}

type PrefixesAndPlugins = (Vec<IpNet>, Vec<Arc<Push>>);

fn rules(file: &Path) -> Result<Vec<PrefixesAndPlugins>> {
    let what = |error: &dyn std::fmt::Display| {
        Failure::because(format_args!("cannot read the rules {}", file.display()), error)
    };
    let text = read_regular_text(file, Config::MAX_BYTES).map_err(|error| what(&error))?;
    let parsed: File = toml::from_str(&text).map_err(|error| what(&error))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let rules = parsed.rule.into_iter().map(|Rule { peers, push }| {
        let peers = peers.iter().map(|text| parse_prefix(text).map_err(|error| what(&error)));
        let peers = peers.collect::<Result<Vec<IpNet>>>()?;
        let push = push.iter().map(|plugin| bundle(&folder.join(plugin)));
        Ok((peers, push.collect::<Result<_>>()?))
    });
    rules.collect()
}

fn bundle(file: &Path) -> Result<Arc<Push>> {
    let what = |error: &dyn std::fmt::Display| {
        Failure::because(format_args!("cannot push {}", file.display()), error)
    };
    let bytes = read_regular(file, MAX_BUNDLE as u64).map_err(|error| what(&error))?;
    Ok(Arc::new(Push::new(&bytes).map_err(|error| what(&error))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "version = \"1.0.0\"\nauthor = \"A\"\nabi = 2\nsteps = 1000\n\
        capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"f\"\n";

    #[test]
    fn push_rules_apply_the_first_that_matches_the_address() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one", "two", "usual"] {
            let manifest = format!("name = \"{name}\"\n{MANIFEST}");
            let bundle = equic_plugin::pack(&manifest, b"code", None).unwrap();
            std::fs::write(folder.path().join(format!("{name}.qplug")), bundle).unwrap();
        }
        let rules = folder.path().join("rules.toml");
        let text = "[[rule]]\npeers = [\"192.0.2.7/32\"]\npush = []\n\
            [[rule]]\npeers = [\"192.0.2.0/24\", \"2001:db8::/32\"]\npush = [\"one.qplug\", \"two.qplug\"]\n";
        std::fs::write(&rules, text).unwrap();
        let lists = Lists::read(&[rules.clone(), folder.path().join("usual.qplug")]).unwrap();
        let of = |address: &str| -> Vec<String> {
            let of = lists.of(address.parse().unwrap());
            of.iter().map(|push| push.manifest().name.clone()).collect()
        };
        assert_eq!(of("192.0.2.8"), ["one", "two"]);
        assert_eq!(of("::ffff:192.0.2.8"), ["one", "two"]);
        assert_eq!(of("2001:db8::1"), ["one", "two"]);
        assert_eq!(of("192.0.2.7"), [] as [&str; 0]);
        assert_eq!(of("198.51.100.1"), ["usual"]);
        assert!(!lists.is_empty() && Lists::default().is_empty());
        std::fs::write(&rules, "[[rule]]\nclients = []\npush = []\n").unwrap();
        let wrong = Lists::read(&[rules]).unwrap_err().to_string();
        assert!(wrong.contains("rules.toml") && wrong.contains("clients"), "{wrong}");
    }
}
