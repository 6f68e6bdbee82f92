//! The nearest that nftables comes to the gateway: the baseline "packet filter" of experiments.
//!
//! No connection tracking: a deny set, and for each source address a rate of version 1 Initials, told
//! apart by their first byte (RFC 9000 s.17.2), in a set that grows by itself. The rules stand at the
//! `ingress` hook of the interface, the earliest there is: before the IP layer, but after the kernel
//! has made a socket buffer.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Output, Stdio};

use ipnet::Ipv4Net;

use crate::plan::IFNAME;
use crate::{LabError, Namespace};

/// Name of the table; in a namespace of a lab nobody else has one.
const TABLE: &str = "netdev equic_lab";
/// As many sources as the gateway's table has by default.
const SOURCES: u32 = 65_536;

/// Rules for what is let through to the server.
#[derive(Debug, Clone)]
pub struct Rules {
    /// UDP port of the server.
    pub port: u16,
    /// Initials a second from one address.
    pub initials_per_second: u32,
    /// Initials from one address that may come at once. A connection takes two to three: the answer
    /// to the server's first flight begins with one.
    pub burst: u32,
    /// Initials a second from everybody together, and how many may come at once; none: no such rule.
    pub in_all: Option<(u32, u32)>,
    /// Prefixes whose packets are dropped, whatever they are.
    pub deny: Vec<Ipv4Net>,
}

/// Rules at work in a namespace; taken out when dropped.
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
        // @th,64,8 is the first byte behind the UDP header: 1100.... is a version 1 Initial.
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

    /// Puts the rules to work in a namespace.
    ///
    /// # Errors
    /// [`LabError::System`] without `nft`, or when the kernel refuses the rules.
    pub fn apply(&self, namespace: &Namespace) -> Result<Filter, LabError> {
        nft(namespace, &self.text())?;
        Ok(Filter { namespace: namespace.clone() })
    }
}

impl Filter {
    /// Packets the rules have dropped.
    ///
    /// # Errors
    /// [`LabError::System`] when `nft` cannot tell.
    pub fn dropped(&self) -> Result<u64, LabError> {
        let listed = nft(&self.namespace, &format!("list table {TABLE}\n"))?;
        let mut words = listed.split_whitespace();
        let mut sum = 0;
        while let Some(word) = words.next() {
            // Sets with a rate print no counters of their own: what says `packets` behind `counter`
            // is a rule's.
            if word == "counter" && words.next() == Some("packets") {
                sum += words.next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        Ok(sum)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // If the namespace is gone, so are the rules.
        let _ = nft(&self.namespace, &format!("delete table {TABLE}\n"));
    }
}

/// Gives `nft` a script; what it prints.
fn nft(namespace: &Namespace, script: &str) -> Result<String, LabError> {
    let failed = |error: io::Error| {
        let what = match error.kind() {
            io::ErrorKind::NotFound => "run `nft` (install it with `apt-get install nftables`)",
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
        return Err(LabError::system("filter with nftables", io::Error::other(said)));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
