//! Rejects a scenario that is impossible in real time, before the run starts.

use equic_netns::emulation::{Emulation, MAX_CONNECTIONS};
use equic_netns::plan::MAX_CLIENTS;
use equic_scenario::{Controller, Flow, Place, Protocol, Scenario, TcpOptions};
use equic_sim::IpVersion;

use super::plugins;
use crate::failure::Result;

/// Minimum MTU for IPv6 in bytes (RFC 8200 s.5). Linux disables IPv6 on interfaces with a smaller
/// MTU.
const LEAST_V6: u32 = 1_280;

/// Returns the keys of the scenario that are impossible in real time, each with the reason. The
/// list is empty if the whole scenario can run.
pub(super) fn complaints(scenario: &Scenario, place: &Place) -> Result<Vec<(String, String)>> {
    let mut complaints = Vec::new();
    let mut complain = |key: String, message: String| complaints.push((key, message));
    let ends: Vec<_> = place.flows.iter().flatten().copied().collect();
    let hosts = Emulation::hosts_for(&ends);
    if hosts > MAX_CLIENTS + 1 {
        let most = MAX_CLIENTS + 1;
        complain(
            "flow".to_owned(),
            format!("the scenario has {hosts} hosts, but at most {most} are possible in real time"),
        );
    }
    if ends.len() > MAX_CONNECTIONS {
        let message = format!(
            "the scenario has {} connections, but at most {MAX_CONNECTIONS} are possible in real time",
            ends.len()
        );
        complain("flow".to_owned(), message);
    }
    if scenario.network.ip == IpVersion::V6 && mtu(place) < LEAST_V6 {
        let message =
            format!("Linux does not support IPv6 on links with an MTU below {LEAST_V6} bytes");
        complain("network".to_owned(), message);
    }
    let mut first: Option<(usize, &Flow)> = None;
    for (index, flow) in scenario.flows.iter().enumerate() {
        if flow.application.is_some() {
            let message =
                "in real time, flows support only bulk transfers: remove this key".to_owned();
            complain(format!("flow[{}].application", index + 1), message);
        }
        let key = |name: &str| format!("flow[{}].{name}", index + 1);
        let not_yet = [
            ("quic.resumption", flow.quic.resumption),
            ("quic.early_data", flow.quic.early_data),
            ("tcp.tls", flow.tcp.tls.is_some()),
        ];
        for (name, _) in not_yet.into_iter().filter(|(_, asked)| *asked) {
            let message = "`equic-lab net run` does not support this key: remove it";
            complain(key(name), message.to_owned());
        }
        let of_ends = [
            ("quic.client_plugins", &flow.quic.client_plugins),
            ("quic.server_plugins", &flow.quic.server_plugins),
        ];
        for (name, files) in of_ends {
            for failure in files.iter().filter_map(|file| plugins::load(file).err()) {
                complain(key(name), failure.to_string());
            }
        }
        if flow.protocol != Protocol::Tcp {
            continue;
        }
        let name = kernel_name(flow.controller);
        if !equic_netns::knows_congestion(name)? {
            let message = format!(
                "the kernel's TCP does not know the congestion control {name}: try `modprobe tcp_{name}`"
            );
            complain(key("controller"), message);
        }
        if flow.tcp.delayed_ack.is_some() {
            let message = "the kernel does not permit this setting: remove this key";
            complain(key("tcp.delayed_ack"), message.to_owned());
        }
        let (other, settled) = *first.get_or_insert((index, flow));
        for name in differences(&settled.tcp, &flow.tcp) {
            let message = format!(
                "flow[{}] has a different value, but the kernel uses one value for all connections of a host: give all TCP flows the same value",
                other + 1
            );
            complain(key(&format!("tcp.{name}")), message);
        }
    }
    Ok(complaints)
}

/// Returns the keys in which two TCP flows differ although the kernel has only one setting for all
/// connections of a host.
fn differences(one: &TcpOptions, other: &TcpOptions) -> Vec<&'static str> {
    let same = [
        ("initial_window", one.initial_window == other.initial_window),
        ("sack", one.sack == other.sack),
        ("timestamps", one.timestamps == other.timestamps),
        ("window_scaling", one.window_scaling == other.window_scaling),
        ("ecn", one.ecn == other.ecn),
        ("tail_loss_probe", one.tail_loss_probe == other.tail_loss_probe),
        ("min_rto", one.min_rto == other.min_rto),
        ("window", one.window == other.window),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}

/// Returns the kernel's name of a congestion control algorithm.
pub(super) fn kernel_name(controller: Controller) -> &'static str {
    match controller {
        Controller::NewReno => "reno",
        other => other.name(),
    }
}

/// Returns the smallest MTU of the network, in bytes.
pub(super) fn mtu(place: &Place) -> u32 {
    u32::from(place.datagram) + place.topology.ip.header() + 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        let scenario = Scenario::parse(text).unwrap();
        let place = Place::of(&scenario).unwrap();
        complaints(&scenario, &place).unwrap().into_iter().map(|(key, _)| key).collect()
    }

    const NETWORK: &str =
        "network = { topology = \"simple\", link = { rate = \"1 Mb/s\", delay = \"1 ms\" } }\n";

    #[test]
    fn tcp_settings_of_a_host_must_be_equal_in_all_flows() {
        let flow = |name: &str, options: &str| {
            format!(
                "[[flow]]\nname = \"{name}\"\nprotocol = \"tcp\"\nsize = \"1 MB\"\ntcp = {{ {options} }}\n"
            )
        };
        let two = |one: &str, other: &str| {
            keys(&format!("{NETWORK}{}{}", flow("one", one), flow("other", other)))
        };
        assert_eq!(two("sack = false, mss = 500", "sack = false, mss = 600"), [""; 0]);
        assert_eq!(two("sack = false", "ecn = false"), ["flow[2].tcp.sack", "flow[2].tcp.ecn"]);
        assert_eq!(two("mss = 500", "delayed_ack = \"10 ms\""), ["flow[2].tcp.delayed_ack"]);
    }

    #[test]
    fn application_of_a_flow_is_refused() {
        let flows = "[[flow]]\nsize = \"1 MB\"\n[[flow]]\nname = \"many\"\napplication = \"streams\"\n\
                     streams = { count = 2, size = \"1 KB\" }\n";
        assert_eq!(keys(&format!("{NETWORK}{flows}")), ["flow[2].application"]);
    }

    #[test]
    fn hosts_beyond_the_limit_of_a_lab_are_refused() {
        let flows = |pairs: usize| {
            format!(
                "[network]\ntopology = \"dumbbell\"\npairs = {pairs}\nlink = {{ rate = \"1 Mb/s\", delay = \"1 ms\" }}\n\
                 [[flow]]\ncount = {pairs}\nsize = \"1 MB\"\n"
            )
        };
        assert_eq!(keys(&flows(125)), [""; 0]);
        assert_eq!(keys(&flows(126)), ["flow"]);
    }
}
