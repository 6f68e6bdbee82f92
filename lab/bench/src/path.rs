//! The network path between client and server, which is written as `loopback`, `veth`,
//! `veth-plain`, `tbf:RATE`, `relay:...` or `testbed:FILE`.

use std::path::PathBuf;
use std::time::Duration;

use equic_net::{Chance, Link, Queue};
use equic_netns::relay::Config;

use crate::BenchError;
use crate::sweep::{bytes, rate};

/// Rate in bytes per second below which a transfer counts as stalled, unless the path itself is
/// slow.
const LEAST_RATE: f64 = 5e6;
/// A transfer may be slower than the path by this factor before it counts as stalled.
const SLACK: f64 = 4.0;
/// Size of a packet in bytes, to estimate the rate that is possible with loss.
const PACKET: f64 = 1200.0;

/// Path between client and server.
#[derive(Clone, Debug, PartialEq)]
pub enum NetPath {
    /// The loopback interface.
    Loopback,
    /// Two network namespaces, veth interfaces and a bridge.
    Veth {
        /// True if segmentation, receive and checksum offload are off, as with hardware that lacks
        /// them.
        plain: bool,
    },
    /// Two network namespaces as with `Veth`, with a token bucket filter on both sides.
    Tbf {
        /// Rate in bits per second.
        rate: u64,
    },
    /// The loopback interface, and a relay that delays, drops and reorders UDP datagrams.
    Relay(Box<Impairment>),
    /// Two machines of a testbed, which this file describes.
    Testbed(PathBuf),
}

/// Impairment that a relay applies in each direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Impairment {
    link: Link,
    seed: u64,
    /// The impairment, as the user wrote it.
    text: String,
}

impl NetPath {
    /// Parses a path, such as `veth` or `relay:delay=20ms`.
    ///
    /// # Errors
    /// [`BenchError::Path`].
    pub fn read(text: &str) -> Result<NetPath, BenchError> {
        let wrong = |why: &str| BenchError::Path { text: text.to_owned(), why: why.to_owned() };
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        match (name, rest) {
            ("loopback", None) => Ok(NetPath::Loopback),
            ("veth", None) => Ok(NetPath::Veth { plain: false }),
            ("veth-plain", None) => Ok(NetPath::Veth { plain: true }),
            ("tbf", Some(text)) => {
                let rate = rate(text).filter(|rate| *rate >= 10_000);
                let rate = rate.ok_or_else(|| {
                    wrong("the rate is missing or invalid: write, for example, tbf:100mbit")
                })?;
                Ok(NetPath::Tbf { rate })
            }
            ("relay", Some(spec)) => {
                let impairment = Impairment::read(spec).map_err(|why| wrong(&why))?;
                Ok(NetPath::Relay(Box::new(impairment)))
            }
            ("testbed", Some(file)) if !file.is_empty() => Ok(NetPath::Testbed(file.into())),
            _ => Err(wrong(
                "unknown path: use loopback, veth, veth-plain, tbf:RATE, relay:delay=20ms,loss=1%,... or testbed:FILE",
            )),
        }
    }

    /// Returns the name of the path in records.
    pub fn name(&self) -> String {
        match self {
            NetPath::Loopback => "loopback".to_owned(),
            NetPath::Veth { plain: false } => "veth".to_owned(),
            NetPath::Veth { plain: true } => "veth-plain".to_owned(),
            NetPath::Tbf { rate } => match rate {
                rate if rate.is_multiple_of(1_000_000_000) => {
                    format!("tbf-{}gbit", rate / 1_000_000_000)
                }
                rate if rate.is_multiple_of(1_000_000) => format!("tbf-{}mbit", rate / 1_000_000),
                rate => format!("tbf-{}kbit", rate / 1000),
            },
            NetPath::Relay(impairment) => format!("relay-{}", impairment.text),
            NetPath::Testbed(_) => "testbed".to_owned(),
        }
    }

    /// Returns the rate in bytes per second below which a transfer counts as stalled: 5 MB/s, or a
    /// quarter of the path's rate if that is lower.
    #[must_use]
    pub fn least_rate(&self) -> f64 {
        let carried = match self {
            NetPath::Tbf { rate } => *rate as f64 / 8.0,
            NetPath::Relay(impairment) => impairment.carried(),
            _ => f64::INFINITY,
        };
        LEAST_RATE.min(carried / SLACK)
    }

    /// Returns true if the path needs network namespaces, and therefore root.
    pub const fn needs_namespaces(&self) -> bool {
        matches!(self, NetPath::Veth { .. } | NetPath::Tbf { .. })
    }
}

impl Impairment {
    /// Parses `delay=20ms,loss=1%,reorder=2%,late=5ms,rate=100mbit,queue=100,seed=7`, in any order.
    fn read(text: &str) -> Result<Impairment, String> {
        let mut link = Link { reorder_by: Duration::from_millis(5), ..Link::default() };
        let mut seed = 1;
        let mut seen = Vec::new();
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is invalid: write NAME=VALUE"))?;
            if seen.contains(&name) {
                return Err(format!("the key {name} occurs twice"));
            }
            seen.push(name);
            let number = || format!("{value:?} is not a valid value of {name}");
            match name {
                "delay" => link.delay = duration(value).ok_or_else(number)?,
                "late" => link.reorder_by = duration(value).ok_or_else(number)?,
                "loss" => link.drop = chance(value).ok_or_else(number)?,
                "duplicate" => link.duplicate = chance(value).ok_or_else(number)?,
                "reorder" => link.reorder = chance(value).ok_or_else(number)?,
                "rate" => link.rate = Some(rate(value).ok_or_else(number)?),
                "queue" => {
                    let packets = bytes(value).and_then(|packets| usize::try_from(packets).ok());
                    link.queue = match packets.ok_or_else(number)? {
                        0 => Queue::Unlimited,
                        packets => Queue::Packets(packets),
                    };
                }
                "seed" => seed = value.parse().map_err(|_| number())?,
                _ => {
                    return Err(format!(
                        "unknown key {name:?}: the keys are delay, loss, reorder, late, duplicate, rate, queue, seed"
                    ));
                }
            }
        }
        Ok(Impairment { link, seed, text: text.to_owned() })
    }

    /// Returns an estimate of the rate that is possible with this impairment, in bytes per second,
    /// for a congestion controller that reacts to loss. It is limited by the rate, and by the
    /// formula of Mathis, Semke, Mahdavi and Ott (The Macroscopic Behavior of the TCP Congestion
    /// Avoidance Algorithm, 1997). A reordered packet may be declared lost, so it counts as loss.
    fn carried(&self) -> f64 {
        let Link { delay, rate, drop, reorder, .. } = &self.link;
        let limit = rate.map_or(f64::INFINITY, |rate| rate as f64 / 8.0);
        let round_trip = 2.0 * delay.as_secs_f64();
        let lost = ((drop.percent + reorder.percent) / 100.0).min(1.0);
        // Without loss or without delay, the second limit is infinite.
        limit.min(PACKET / round_trip * (1.5 / lost).sqrt())
    }

    /// Returns a relay with this impairment in both directions. The seed depends on the round, so
    /// that a handshake does not lose the same packets in every round.
    pub fn relay(&self, server: std::net::SocketAddr, round: i64) -> Config {
        let any = std::net::SocketAddr::new(server.ip(), 0);
        Config {
            to_server: self.link.clone(),
            to_client: self.link.clone(),
            seed: self.seed.wrapping_add(round.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            ..Config::new(any, server)
        }
    }
}

/// Parses a time such as `20ms`, `1.5s`, `300us`.
fn duration(text: &str) -> Option<Duration> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
    let (digits, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    let seconds = plain(digits)? * factor;
    (seconds <= 60.0).then(|| Duration::from_secs_f64(seconds))
}

/// Parses a percentage such as `1%`, `0.5%`.
fn chance(text: &str) -> Option<Chance> {
    let percent = plain(text.strip_suffix('%')?)?;
    (percent <= 100.0).then_some(Chance::percent(percent))
}

fn plain(digits: &str) -> Option<f64> {
    let allowed = digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    if allowed { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_parsed_and_has_a_name() {
        for (text, name) in [
            ("loopback", "loopback"),
            ("veth", "veth"),
            ("veth-plain", "veth-plain"),
            ("tbf:100mbit", "tbf-100mbit"),
            ("tbf:2000mbit", "tbf-2gbit"),
            ("tbf:1.5mbit", "tbf-1500kbit"),
            ("relay:delay=20ms,loss=1%", "relay-delay=20ms,loss=1%"),
            ("testbed:lab.toml", "testbed"),
        ] {
            assert_eq!(NetPath::read(text).unwrap().name(), name);
        }
        assert!(NetPath::read("tbf:1gbit").unwrap().needs_namespaces());
        assert!(!NetPath::read("relay:delay=1ms").unwrap().needs_namespaces());
    }

    #[test]
    fn path_least_rate_follows_rate_loss_and_delay() {
        let least = |text: &str| NetPath::read(text).unwrap().least_rate();
        for text in [
            "loopback",
            "veth",
            "tbf:1gbit",
            "relay:loss=1%",
            "relay:delay=50ms",
            "relay:delay=1ms,loss=0.001%",
            "relay:rate=1gbit",
        ] {
            assert_eq!(least(text), 5e6, "{text}");
        }
        assert_eq!(least("tbf:8mbit"), 250e3);
        assert_eq!(least("relay:rate=8mbit,loss=0%"), 250e3);
        // The expected rate with 40 ms and 1 % loss is 12.2 packets of 1,200 bytes per 40 ms.
        let lossy = least("relay:delay=20ms,loss=1%");
        assert!((91e3..93e3).contains(&lossy), "{lossy}");
        assert_eq!(least("relay:delay=20ms,reorder=1%"), lossy);
        assert_eq!(least("relay:delay=20ms,loss=1%,rate=800kbit"), 25e3);
        assert!(least("relay:delay=60s,loss=100%") > 0.0);
    }

    #[test]
    fn path_relay_has_the_impairments_of_its_text() {
        let text = "relay:delay=20ms,loss=1.5%,reorder=2%,late=3ms,rate=100mbit,queue=50,seed=9";
        let NetPath::Relay(impairment) = NetPath::read(text).unwrap() else { panic!() };
        let server = "127.0.0.1:9".parse().unwrap();
        let config = impairment.relay(server, 0);
        assert_eq!((config.server, config.seed), (server, 9));
        assert_eq!(config.to_server, config.to_client);
        let link = config.to_client;
        assert_eq!(
            (link.delay, link.reorder_by),
            (Duration::from_millis(20), Duration::from_millis(3))
        );
        assert_eq!((link.drop.percent, link.reorder.percent), (1.5, 2.0));
        assert_eq!((link.rate, link.queue), (Some(100_000_000), Queue::Packets(50)));
        assert_ne!(impairment.relay(server, 1).seed, 9);
        assert_eq!(impairment.relay(server, 1).seed, impairment.relay(server, 1).seed);
    }

    #[test]
    fn path_rejects_invalid_text() {
        for (text, why) in [
            ("moon", "use loopback, veth, veth-plain"),
            ("loopback:x", "use loopback, veth, veth-plain"),
            ("testbed:", "use loopback, veth, veth-plain"),
            ("tbf", "use loopback, veth, veth-plain"),
            ("tbf:fast", "tbf:100mbit"),
            ("tbf:1", "tbf:100mbit"),
            ("relay:", "NAME=VALUE"),
            ("relay:delay", "NAME=VALUE"),
            ("relay:delay=20", "not a valid value of delay"),
            ("relay:delay=-1s", "not a valid value of delay"),
            ("relay:delay=90s", "not a valid value of delay"),
            ("relay:loss=101%", "not a valid value of loss"),
            ("relay:loss=1", "not a valid value of loss"),
            ("relay:loss=1%,loss=2%", "twice"),
            ("relay:colour=red", "the keys are delay"),
        ] {
            let error = NetPath::read(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
