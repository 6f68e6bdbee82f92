//! Command lines of the demo's processes, which run this same program, or `equic`, with other
//! arguments.

use equic_netns::plan::IFNAME;
use equic_netns::{Lab, Namespace};

use super::arms::Arm;
use super::plan::DemoPlan;

/// Port of the server.
const PORT: u16 = 443;

impl DemoPlan {
    /// Returns the arguments of `equic serve` for an arm. `gateway` is the name of the gateway that
    /// the server joins.
    pub(super) fn server(&self, arm: Arm, lab: &Lab, gateway: &str) -> Vec<String> {
        let listen = format!("{}:{PORT}", lab.server().ipv4);
        let mut args = words(&["serve", "--json", "--threads", "1", "--listen", &listen]);
        // In one arm, the server has its default Retry threshold. In the other arms, Retry by the
        // server is off, because they compare protections in front of the server.
        if arm != Arm::ForgedServerRetry {
            args.extend(words(&["--retry", "never"]));
        }
        match arm {
            Arm::Alone | Arm::Unprotected => {}
            Arm::Calm | Arm::ForgedUnprotected | Arm::ForgedServerRetry => {}
            // Ignoring packets costs the server least, and the gateway also ignores them.
            Arm::UserSpace => args.extend(words(&[
                "--user-limit",
                &format!("max_connections={}", self.max_connections),
                "--user-limit",
                &format!("new_per_source={}", self.new_per_source),
                "--user-limit",
                "at_limit=ignore",
            ])),
            // When the server joins the gateway, it gets the keys for the tokens in the gateway's
            // Retry packets.
            Arm::Gateway | Arm::ForgedGateway => args.extend(words(&["--gateway", gateway])),
        }
        args
    }

    /// Returns the arguments of `equic gateway run` for a gateway with this name.
    pub(super) fn gateway(&self, arm: Arm, name: &str) -> Vec<String> {
        let (port, most) = (PORT.to_string(), self.max_connections.to_string());
        let mut args = words(&["gateway", "run", "--json", "--interface", IFNAME, "--port", &port]);
        args.extend(words(&["--name", name, "--max-connections", &most]));
        args.extend(words(&["--new-per-source", self.new_per_source]));
        if arm.forged() {
            let above = format!("retry_above={}", self.retry_above);
            let answers = format!("answers_per_service={}", self.answers_per_service);
            args.extend(words(&["-o", "retry=adaptive", "-o", &above, "-o", &answers]));
            // On veth, packets that an XDP program in the driver sends back are lost unless the
            // peer interface has a program, too.
            args.extend(words(&["--mode", "generic"]));
        }
        args
    }

    /// Returns the arguments of `equic-lab net load well` for a legitimate client that runs for
    /// this many seconds.
    pub(super) fn client(&self, server: &Namespace, pin: &str, seconds: f64) -> Vec<String> {
        let mut args = words(&["net", "load", "well", &self.url(server), "--pin", pin]);
        args.extend(words(&[
            "--clients",
            &self.connections_per_client.to_string(),
            "--requests",
            &self.requests_per_connection.to_string(),
            "--think",
            &format!("{}ms", self.think_ms),
            "--timeout",
            &format!("{}ms", self.timeout_ms),
            "--duration",
            &milliseconds(seconds),
        ]));
        args.extend(words(&SAMPLED));
        args
    }

    /// Returns the arguments of `equic-lab net load well` for the newcomers. They start at a steady
    /// rate, whether or not earlier ones have succeeded. Each has its own socket and address. The
    /// process ends when the last newcomer has its response or has failed.
    pub(super) fn newcomers(&self, host: &Namespace, server: &Namespace, pin: &str) -> Vec<String> {
        let mut args = words(&["net", "load", "well", &self.url(server), "--pin", pin]);
        args.extend(words(&[
            "--clients",
            &self.newcomers_addresses.to_string(),
            "--requests",
            "1",
            "--count",
            &self.newcomers.to_string(),
            "--rate",
            &self.newcomers_per_s.to_string(),
            "--retry-pause",
            "0s",
            "--timeout",
            &format!("{}ms", self.timeout_ms),
        ]));
        let [a, b, c, _] = host.ipv4.octets();
        // The addresses begin with .2, because .1 is the host's own address.
        for last in (2..=u8::MAX).take(self.newcomers_addresses as usize) {
            args.extend(words(&["--from", &format!("{a}.{b}.{c}.{last}")]));
        }
        args.extend(words(&SAMPLED));
        args
    }

    /// Returns the arguments of `equic-lab net load parallel` for the attackers that hold many
    /// connections, as in the paper.
    pub(super) fn parallel(&self, server: &Namespace, pin: &str, seconds: f64) -> Vec<String> {
        let mut args = words(&["net", "load", "parallel", &self.url(server), "--pin", pin]);
        args.extend(words(&[
            "--connections",
            &self.connections_per_attacker.to_string(),
            "--duration",
            &milliseconds(seconds),
        ]));
        args.extend(words(&SAMPLED));
        args
    }

    /// Returns the arguments of `equic-lab net flood initial` for one attacker.
    pub(super) fn flood(
        &self,
        arm: Arm,
        server: &Namespace,
        attacker: usize,
        seconds: f64,
    ) -> Vec<String> {
        let target = format!("{}:{PORT}", server.ipv4);
        let pps = (self.flood_pps / self.attackers as u64).max(1);
        let mut args = words(&["net", "flood", "initial", "--json", "--target", &target]);
        args.extend(words(&["--pps", &pps.to_string(), "--pool", &self.flood_pool.to_string()]));
        args.extend(words(&["--seed", &(attacker + 1).to_string()]));
        args.extend(words(&["--duration", &milliseconds(seconds)]));
        if arm.forged() {
            args.extend(words(&["--spoof", self.forged]));
        }
        args
    }

    fn url(&self, server: &Namespace) -> String {
        format!("https://{}:{PORT}/bytes/{}", server.ipv4, self.bytes_per_request)
    }
}

/// Options with which a load generator prints every request as a line on standard output, followed
/// by a summary.
const SAMPLED: [&str; 5] = ["--threads", "1", "--samples", "/dev/stdout", "--json"];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn milliseconds(seconds: f64) -> String {
    format!("{}ms", (seconds * 1000.0).round() as u64)
}
