//! A packet filter with nftables that is the closest equivalent of the gateway. Experiments use it
//! as the baseline "packet filter".
//!
//! The rules do not track connections. They have a set of denied prefixes, and a dynamic set that
//! limits the rate of version 1 Initial packets per source address. Initial packets are recognised
//! by their first byte (RFC 9000 s.17.2). The rules are at the interface's `ingress` hook, the
//! earliest one. It is before the IP layer, but after the kernel has allocated a socket buffer.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Output, Stdio};

use ipnet::Ipv4Net;

use crate::plan::IFNAME;
use crate::{LabError, Namespace};

/// Name of the table. No other program uses it in a namespace of a lab.
const TABLE: &str = "netdev equic_lab";
/// Maximum number of source addresses in the dynamic set. The gateway's table has the same default.
const SOURCES: u32 = 65_536;

/// Rules that decide which packets reach the server.
#[derive(Debug, Clone)]
pub struct Rules {
    /// UDP port of the server.
    pub port: u16,
    /// Rate limit for Initial packets from one address, per second.
    pub initials_per_second: u32,
    /// Burst of Initial packets from one address. A connection needs two or three, because the
    /// client's answer to the server's first flight begins with one.
    pub burst: u32,
    /// Rate limit for Initial packets from all addresses together: packets per second, and burst.
    /// `None` for no such limit.
    pub in_all: Option<(u32, u32)>,
    /// Prefixes whose packets are all dropped.
    pub deny: Vec<Ipv4Net>,
}

/// Rules that are active in a namespace. Dropping the value removes them.
#[derive(Debug)]
pub struct Filter {
    namespace: Namespace,
}

impl Rules {
    fn text(&self) -> String {
        let Rules { port, initials_per_second: rate, burst, in_all, deny } = self;
        let mut elements = String::new();
        for (index, net) in deny.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(elements, "{comma}{net}");
        }
        if !elements.is_empty() {
            elements = format!("elements = {{ {elements} }}");
        }
        let in_all = in_all.map_or_else(String::new, |(rate, burst)| {
            format!(
                "udp dport {port} @th,64,8 & 0xf0 == 0xc0 \
                 limit rate over {rate}/second burst {burst} packets counter drop"
            )
        });
        // @th,64,8 is the first byte after the UDP header. The bits 1100.... mark a version 1
        // Initial.
        format!(
            "table {TABLE} {{
                set denied {{ type ipv4_addr; flags interval; {elements} }}
                set openings {{ type ipv4_addr; flags dynamic, timeout; timeout 1m; size {SOURCES}; }}
                chain ingress {{
                    type filter hook ingress device {IFNAME} priority -500; policy accept;
                    udp dport {port} ip saddr @denied counter drop
                    udp dport {port} @th,64,8 & 0xf0 == 0xc0 \
                        update @openings {{ ip saddr limit rate over {rate}/second burst {burst} packets }} \
                        counter drop
                    {in_all}
                }}
            }}\n"
        )
    }

    /// Activates the rules in a namespace.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] without `nft`, or if the kernel rejects the rules.
    pub fn apply(&self, namespace: &Namespace) -> Result<Filter, LabError> {
        nft(namespace, &self.text())?;
        Ok(Filter { namespace: namespace.clone() })
    }
}

impl Filter {
    /// Returns the number of packets that the rules have dropped.
    ///
    /// # Errors
    /// Fails with [`LabError::System`] if `nft` fails.
    pub fn dropped(&self) -> Result<u64, LabError> {
        let listed = nft(&self.namespace, &format!("list table {TABLE}\n"))?;
        let mut words = listed.split_whitespace();
        let mut sum = 0;
        while let Some(word) = words.next() {
            // The sets with a rate limit print no counters, so `packets` after `counter` always
            // belongs to a rule.
            if word == "counter" && words.next() == Some("packets") {
                sum += words.next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        Ok(sum)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // If this fails because the namespace no longer exists, the rules are gone, too.
        let _ = nft(&self.namespace, &format!("delete table {TABLE}\n"));
    }
}

/// Runs an `nft` script in a namespace. Returns its output.
fn nft(namespace: &Namespace, script: &str) -> Result<String, LabError> {
    let failed = |error: io::Error| {
        let what = match error.kind() {
            io::ErrorKind::NotFound => {
                "run `nft`, which is in the package nftables (`apt-get install nftables`)"
            }
            _ => "run `nft`",
        };
        LabError::system(what, error)
    };
    let mut command = namespace.command("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = crate::spawn(command).map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes()).map_err(failed)?;
    }
    let Output { status, stdout, stderr } = child.wait_with_output().map_err(failed)?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr).trim().to_owned();
        return Err(LabError::system("filter packets with nftables", io::Error::other(said)));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
