//! The network namespaces of a run. The run needs a lab (two namespaces and the link between them)
//! for each kind of link.

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;

use equic_netns::{Lab, Namespace};

use crate::BenchError;
use crate::path::NetPath;
use crate::sweep::SweepPoint;

/// Size of the IPv6 and UDP headers together, in bytes.
const HEADERS: u32 = 48;
/// The MTU of Ethernet, in bytes.
const ETHERNET: u32 = 1500;
/// Size of an Ethernet header with a VLAN tag, in bytes.
const FRAMING: u32 = 18;
/// Size of the largest buffer of a sender with segmentation offload, in bytes.
const OFFLOADED: u64 = 64 << 10;

/// Properties of the links between namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Links {
    /// True if the interfaces' offloads are turned off.
    plain: bool,
    /// Rate of the link in bits per second. `None` means unlimited.
    rate: Option<u64>,
    /// MTU of the link in bytes.
    mtu: u32,
}

impl Links {
    /// Returns the properties of the links that a path needs at a sweep point, or `None` if the
    /// path has no namespaces.
    ///
    /// # Errors
    /// [`BenchError::Plan`]: offloads cannot be turned off on the machine's own interfaces.
    pub fn of(path: &NetPath, point: &SweepPoint) -> Result<Option<Links>, BenchError> {
        let offload = point.get("offload").map(|offload| offload == "on");
        let (plain, rate) = match path {
            NetPath::Veth { plain } => (*plain, None),
            NetPath::Tbf { rate } => (false, Some(*rate)),
            NetPath::Loopback | NetPath::Relay(_) | NetPath::Testbed(_) if offload.is_some() => {
                let path = path.name();
                let why =
                    format!("offloads cannot be turned off on the path {path}: use the path veth");
                return Err(BenchError::Plan(why));
            }
            NetPath::Loopback | NetPath::Relay(_) | NetPath::Testbed(_) => return Ok(None),
        };
        let payload = point.get("mtu").and_then(|mtu| mtu.parse::<u32>().ok()).unwrap_or(0);
        Ok(Some(Links {
            plain: offload.map_or(plain, |on| !on),
            rate,
            mtu: ETHERNET.max(payload + HEADERS),
        }))
    }
}

/// All labs of a run. Dropping it removes them.
#[derive(Debug, Default)]
pub struct Network {
    labs: BTreeMap<Links, Lab>,
}

impl Network {
    /// Creates a lab for each of these kinds of links.
    ///
    /// # Errors
    /// [`BenchError::Lab`], or the error of `tc`. Nothing is left behind in this case.
    pub fn build(links: impl IntoIterator<Item = Links>) -> Result<Network, BenchError> {
        let mut network = Network::default();
        for links in links {
            if network.labs.contains_key(&links) {
                continue;
            }
            let lab = Lab::builder("bench").clients(1).mtu(links.mtu).build()?;
            for host in [lab.server(), lab.client(0)] {
                if links.plain {
                    host.set_offloads(false)?;
                }
                if let Some(rate) = links.rate {
                    limit(host, rate, links.mtu)?;
                }
            }
            network.labs.insert(links, lab);
        }
        Ok(network)
    }

    /// Returns the lab with these links, if it exists.
    pub fn lab(&self, links: Links) -> Option<&Lab> {
        self.labs.get(&links)
    }

    /// Removes all labs.
    ///
    /// # Errors
    /// Returns the first error. The remaining labs are removed anyway.
    pub fn close(self) -> Result<(), BenchError> {
        let closed: Vec<_> = self.labs.into_values().map(Lab::close).collect();
        closed.into_iter().collect::<Result<(), _>>()?;
        Ok(())
    }
}

/// Size of the bucket and of the queue of the queueing discipline `tbf`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    burst: u64,
    queue: u64,
}

impl Bucket {
    /// Computes the sizes for a rate in bits per second.
    ///
    /// The bucket can pass its content at once, so it must be small compared with a transfer. It
    /// holds what the rate passes in 4 ms, or the largest buffer of segmentation offload if that
    /// takes 10 ms or less. At lower rates, the kernel splits such buffers. The bucket always has
    /// room for two frames. The queue holds what the rate passes in 50 ms, or 16 frames.
    fn of(rate: u64, mtu: u32) -> Bucket {
        let (bytes, frame) = (rate / 8, u64::from(mtu + FRAMING));
        let burst = (bytes / 250).max(OFFLOADED.min(bytes / 100)).max(2 * frame);
        Bucket { burst, queue: (bytes / 20).max(16 * frame) }
    }
}

/// Adds a token bucket filter to the packets that the host sends.
fn limit(host: &Namespace, rate: u64, mtu: u32) -> Result<(), BenchError> {
    let bucket = Bucket::of(rate, mtu);
    let rate = format!("{rate}bit");
    // The option `limit` of tc is the size of the queue and the bucket together.
    let (burst, most) = (format!("{}b", bucket.burst), format!("{}b", bucket.burst + bucket.queue));
    let interface = host.ifname.as_str();
    let words = ["qdisc", "replace", "dev", interface, "root", "tbf", "rate", &rate, "burst"];
    let mut command = host.command("tc");
    command.args(words).args([burst.as_str(), "limit", &most]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let failed = |why: String| BenchError::Plan(format!("tc cannot limit the rate: {why}"));
    let spawned = equic_netns::spawn(command).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed("install iproute2".to_owned()),
        _ => failed(error.to_string()),
    })?;
    let output = spawned.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(path: &str, point: &[(&str, &str)]) -> Result<Option<Links>, BenchError> {
        let point = point.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Links::of(&NetPath::read(path).unwrap(), &point.collect())
    }

    /// Checks that the bucket is a small part of a transfer of one second.
    #[test]
    fn tbf_buckets_are_small_at_every_rate() {
        for rate in [1_000_000, 2_000_000, 5_000_000, 20_000_000, 100_000_000, 10_000_000_000] {
            let Bucket { burst, queue } = Bucket::of(rate, 1500);
            assert!(burst >= 2 * 1518 && burst * 8 * 40 <= rate, "{rate}: {burst}");
            assert!(queue >= 16 * 1518 && queue >= rate / 8 / 20, "{rate}: {queue}");
        }
        assert_eq!(Bucket::of(100_000_000, 1500), Bucket { burst: 65_536, queue: 625_000 });
        // At every rate and MTU, the bucket must pass at least two frames.
        assert_eq!(Bucket::of(64_000, 9000), Bucket { burst: 18_036, queue: 144_288 });
    }

    #[test]
    fn links_follow_the_path_and_the_sweep_point() {
        let usual = Links { plain: false, rate: None, mtu: 1500 };
        assert_eq!(links("loopback", &[]).unwrap(), None);
        assert_eq!(links("veth", &[("rcvbuf", "1")]).unwrap(), Some(usual));
        let plain = Some(Links { plain: true, ..usual });
        assert_eq!(links("veth-plain", &[]).unwrap(), plain);
        assert_eq!(links("veth", &[("offload", "off")]).unwrap(), plain);
        assert_eq!(links("veth-plain", &[("offload", "on")]).unwrap(), Some(usual));
        assert_eq!(links("veth", &[("mtu", "1200")]).unwrap(), Some(usual));
        assert_eq!(links("veth", &[("mtu", "8900")]).unwrap(), Some(Links { mtu: 8948, ..usual }));
        let slow = Some(Links { rate: Some(1_000_000), ..usual });
        assert_eq!(links("tbf:1mbit", &[]).unwrap(), slow);
        let refused = links("loopback", &[("offload", "off")]).unwrap_err().to_string();
        assert!(refused.contains("use the path veth"), "{refused}");
    }
}
