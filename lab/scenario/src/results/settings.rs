//! Settings of a flow that may differ between protocols. A comparison of protocols must show them,
//! because they influence the result.

use std::time::Duration;

use serde::Serialize;

use crate::model::{Controller, Flow, Protocol, TlsVersion};

/// Settings of a flow that may differ between protocols.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// TLS in the handshake: `1.3`, `1.2` or `none`, followed by `resumption` or `early data` if
    /// used.
    pub tls: String,
    /// True if packets are ECN-capable.
    pub ecn: bool,
    /// True if congestion control paces the packets. If false, packets are sent in bursts.
    pub pacing: bool,
    /// When the receiver sends acknowledgements.
    pub acknowledgements: String,
}

impl Settings {
    /// Returns the settings of a flow.
    pub fn of(flow: &Flow) -> Settings {
        match flow.protocol {
            Protocol::Quic => Settings {
                tls: tls("1.3", flow.quic.resumption, flow.quic.early_data),
                ecn: flow.quic.ecn,
                pacing: true,
                acknowledgements: if flow.quic.ack_frequency {
                    "every 2 packets or 25 ms, less often if the window is large".to_owned()
                } else {
                    "every 2 packets or 25 ms".to_owned()
                },
            },
            Protocol::Tcp => {
                let version = flow.tcp.tls.map(|options| match options.version {
                    TlsVersion::Tls12 => tls("1.2", options.resumption, options.early_data),
                    TlsVersion::Tls13 => tls("1.3", options.resumption, options.early_data),
                });
                let delay = flow.tcp.delayed_ack.unwrap_or(Duration::from_millis(40));
                Settings {
                    tls: version.unwrap_or_else(|| "none".to_owned()),
                    ecn: flow.tcp.ecn,
                    pacing: flow.tcp.pacing == Some(true) || flow.controller == Controller::Bbr,
                    acknowledgements: format!(
                        "every 2 segments or {} ms",
                        delay.as_secs_f64() * 1e3
                    ),
                }
            }
        }
    }

    /// Returns the name and the value of each setting, as text.
    pub fn named(&self) -> [(&'static str, String); 4] {
        let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
        [
            ("TLS", self.tls.clone()),
            ("ECN", yes(self.ecn)),
            ("pacing", yes(self.pacing)),
            ("acknowledgements", self.acknowledgements.clone()),
        ]
    }
}

fn tls(version: &str, resumption: bool, early_data: bool) -> String {
    match (resumption, early_data) {
        (_, true) => format!("{version}, early data"),
        (true, false) => format!("{version}, resumption"),
        (false, false) => version.to_owned(),
    }
}
