//! Pairs of client and server, their protocol, and the reasons why some pairs are known to fail.

use crate::container::contained;
use crate::ends::no_aes;
use crate::path::NetPath;
use crate::sweep::SweepPoint;
use crate::workload::Figure;
use crate::{Implementation, Size, Workload};

/// A client, a server, and the protocol that they speak.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// Implementation of the client.
    pub client: &'a Implementation,
    /// Implementation of the server.
    pub server: &'a Implementation,
    /// Protocol that both speak.
    pub protocol: &'static str,
}

/// Returns all pairs of client and server that share a protocol of the workload. A pair uses the
/// first protocol that both speak, or only `protocol` if it is given. An implementation marked
/// `alone` is paired only with itself. With `same`, every implementation is paired only with
/// itself.
pub fn pairs<'a>(
    all: &'a [Implementation],
    workload: Workload,
    protocol: Option<&str>,
    same: bool,
) -> Vec<Pair<'a>> {
    let mut pairs = Vec::new();
    for client in all.iter().filter(|one| one.asks()) {
        for server in all.iter().filter(|one| one.serves()) {
            let alone = same || client.solo || server.solo;
            if alone && client.name != server.name {
                continue;
            }
            let shared = |one: &&&'static str| {
                protocol.is_none_or(|protocol| **one == protocol)
                    && if workload == Workload::Transfer {
                        client.is_endpoint() && server.is_endpoint()
                    } else {
                        client.speaks(one) && server.speaks(one)
                    }
            };
            if let Some(protocol) = workload.protocols().iter().find(shared) {
                pairs.push(Pair { client, server, protocol });
            }
        }
    }
    pairs
}

/// Returns the reason why a cell is known to be unsupported, or `None` if the runner should try it.
pub fn refusal(
    pair: &Pair<'_>,
    workload: Workload,
    size: &Size,
    path: &NetPath,
    point: &SweepPoint,
) -> Option<String> {
    let (client, server) = (pair.client, pair.server);
    if workload.figure() == Figure::BitsPerSecond {
        for one in [client, server] {
            if let Some(most) = one.max_filesize.filter(|most| size.bytes > *most) {
                let (name, bytes) = (&one.name, size.bytes);
                return Some(format!(
                    "{name} can transfer at most {most} bytes, but the run requests {bytes} bytes"
                ));
            }
        }
    }
    if matches!(path, NetPath::Relay(_)) && ["perf-tcp", "sendfile"].contains(&pair.protocol) {
        return Some(format!("the relay forwards only UDP, and {} uses TCP", pair.protocol));
    }
    if point.get("aes").is_some_and(|aes| aes == "off") {
        let cannot = [client, server].into_iter().find(|one| one.aes_off.is_none());
        if let Some(one) = cannot {
            return Some(no_aes(&one.name));
        }
    }
    if let (Workload::Transfer, NetPath::Testbed(_)) = (workload, path) {
        return Some(
            "stock endpoints (the workload transfer) run only on this machine, not in a testbed"
                .to_owned(),
        );
    }
    if workload == Workload::Transfer && path.needs_namespaces() {
        // A container always uses the network of docker's daemon, so a namespace of the runner has
        // no effect on it.
        if let Some(one) = [client, server].into_iter().find(|one| contained(one)) {
            let name = &one.name;
            return Some(format!(
                "{name} runs in a container, which cannot use the network namespaces of this program: use `--path loopback`"
            ));
        }
    }
    let swept = point.keys().find(|name| !["offload", "aes"].contains(&name.as_str()));
    if let (Workload::Transfer, Some(name)) = (workload, swept) {
        return Some(format!("stock endpoints have no option for {name}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Role;

    fn one(name: &str, speaks: &[&str]) -> Implementation {
        Implementation {
            name: name.to_owned(),
            command: vec!["x".to_owned()],
            speaks: speaks.iter().map(|one| (*one).to_owned()).collect(),
            ..Implementation::default()
        }
    }

    fn shown(all: &[Implementation], workload: Workload, protocol: Option<&str>) -> String {
        let pairs = pairs(all, workload, protocol, false);
        let pairs =
            pairs.iter().map(|p| format!("{}>{}:{}", p.client.name, p.server.name, p.protocol));
        pairs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pair_needs_a_shared_protocol_and_matching_roles() {
        let mut all = [
            one("a", &["perf", "h3"]),
            one("b", &["h3", "perf"]),
            one("tcp", &["perf-tcp"]),
            one("web", &["h3"]),
        ];
        assert_eq!(
            shown(&all, Workload::Upload, None),
            "a>a:perf a>b:perf b>a:perf b>b:perf tcp>tcp:perf-tcp"
        );
        assert_eq!(
            shown(&all, Workload::Download, None),
            "a>a:perf a>b:perf a>web:h3 b>a:perf b>b:perf b>web:h3 tcp>tcp:perf-tcp web>a:h3 web>b:h3 web>web:h3"
        );
        assert_eq!(shown(&all[..2], Workload::Download, Some("h3")), "a>a:h3 a>b:h3 b>a:h3 b>b:h3");
        all[0].solo = true;
        assert_eq!(shown(&all[..2], Workload::Upload, None), "a>a:perf b>b:perf");
        all[0].solo = false;
        all[0].role = Role::Client;
        all[1].role = Role::Server;
        assert_eq!(shown(&all[..2], Workload::Upload, None), "a>b:perf");
        assert_eq!(shown(&all, Workload::Transfer, None), "");
        all[2].path = Some("x".into());
        assert_eq!(shown(&all, Workload::Transfer, None), "tcp>tcp:hq-interop");
        assert_eq!(pairs(&all, Workload::Download, None, true).len(), 2);
    }

    #[test]
    fn pair_refuses_unsupported_sizes_and_settings() {
        let size = Size { bytes: 1000, ..Size::quick() };
        let mut all = [one("a", &["perf"]), one("tcp", &["perf-tcp"])];
        all[0].max_filesize = Some(999);
        let ask = |all: &[Implementation], who: usize, workload, path: &str, point: &SweepPoint| {
            let protocol = if who == 0 { "perf" } else { "perf-tcp" };
            let pair = Pair { client: &all[who], server: &all[who], protocol };
            refusal(&pair, workload, &size, &NetPath::read(path).unwrap(), point)
        };
        let none = SweepPoint::new();
        let off = SweepPoint::from([("aes".to_owned(), "off".to_owned())]);
        assert!(
            ask(&all, 0, Workload::Download, "veth", &none).unwrap().contains("at most 999 bytes")
        );
        assert_eq!(ask(&all, 0, Workload::Handshakes, "veth", &none), None);
        let relay = "relay:loss=1%";
        assert!(ask(&all, 1, Workload::Download, relay, &none).unwrap().contains("only UDP"));
        assert_eq!(ask(&all, 0, Workload::Handshakes, relay, &none), None);
        assert!(ask(&all, 1, Workload::Download, "veth", &off).unwrap().contains("AES"));
        all[1].aes_off = Some([("X".to_owned(), "1".to_owned())].into());
        assert_eq!(ask(&all, 1, Workload::Download, "veth", &off), None);
        let buffers = SweepPoint::from([("rcvbuf".to_owned(), "1".to_owned())]);
        assert!(ask(&all, 1, Workload::Transfer, "veth", &buffers).unwrap().contains("rcvbuf"));
    }
}
