//! The keys of a scenario description. The parser accepts only these keys, and docs/simulator.md
//! lists them. `applications.rs` has the keys of applications.

/// Defines a table of keys. Each line has a name, the accepted values, the default, and the
/// meaning.
macro_rules! section {
    ($constant:ident, $id:literal, $shown:literal { $($name:literal: $values:expr, $default:literal, $meaning:literal;)* }) => {
        pub(crate) const $constant: crate::keys::Section = crate::keys::Section {
            id: $id,
            name: $shown,
            keys: &[$(crate::keys::Key {
                name: $name,
                values: $values,
                default: $default,
                meaning: $meaning,
            }),*],
        };
    };
}

mod applications;
mod values;

pub(crate) use applications::{CALL, OBJECT, PAGE, REQUESTS, STREAMS, VIDEO};
pub use values::Values;

use crate::read::{MAX_FLOWS, MAX_PAIRS, MAX_SEEDS};
use values::Values::*;
use values::{bytes, from_1};

/// A key of a scenario description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name of the key in its table.
    pub name: &'static str,
    /// Accepted values.
    pub values: Values,
    /// Default value of the key, as text. Empty if the key is mandatory.
    pub default: &'static str,
    /// Meaning of the key, in one sentence.
    pub meaning: &'static str,
}

/// The keys of one kind of table in a scenario description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Short name of this kind of table. [`Values::Table`] and JSON Schemas refer to it.
    pub id: &'static str,
    /// Name of the table or tables, as written in a scenario description.
    pub name: &'static str,
    /// The keys of the table.
    pub keys: &'static [Key],
}

section! { TOP, "top", "at the top" {
    "description": Text, "none", "one sentence that describes the scenario";
    "seeds": AnyOf(&[Whole("number", 1, MAX_SEEDS), Numbers]), "10", "number of runs, with the seeds 1, 2, 3, ...; or a list with the seed of each run";
    "limit": Time, "10000 s", "virtual time at which each run ends; required if a flow has no `size`";
    "interval": Time, "100 ms", "interval between the points of time series";
    "network": Table("network"), "", "the network";
    "flow": Tables("flow"), "", "the connections whose results are reported";
    "traffic": Tables("traffic"), "none", "background traffic that shares the network with the flows";
}}

section! { NETWORK, "network", "`[network]`" {
    "topology": Choice(&["simple", "dumbbell", "parking-lot", "two-path", "graph"]), "", "shape of the network";
    "ip": Choice(&["v4", "v6"]), "`v4`", "IP version, which determines the size of the headers";
    "link": Table("link"), "", "for `simple`, the only link; for `dumbbell`, the link that all flows share";
    "pairs": from_1(MAX_PAIRS), "2", "for `dumbbell`, number of pairs of a client and a server";
    "access": Table("link"), "1 Gb/s, 10 ms", "for `dumbbell` and `parking-lot`, the link between each host and its router";
    "links": Tables("link"), "", "for `parking-lot`, the links between routers; for `two-path`, the links of the two paths; for `graph`, all links, with `from` and `to`";
    "node": Tables("node"), "", "for `graph`, the nodes of the network";
}}

section! { NODE, "node", "`[[network.node]]`" {
    "name": Name, "", "name of the node";
    "router": Boolean, "false", "`true` if the node forwards packets";
}}

section! { LINK, "link", "`[network.link]`, `[network.access]`, `[[network.links]]`, and `back` in each" {
    "rate": Rate, "", "bit rate of the link; required unless there is a `trace`";
    "trace": Path, "none", "file in Mahimahi's format, used instead of `rate`; the path is relative to the scenario's file. Each line is a time in milliseconds at which 1,504 bytes may leave. The trace repeats at its end";
    "delay": Time, "", "propagation delay in one direction";
    "loss": AnyOf(&[Percentage, Table("loss")]), "0 %", "share of the packets that the link loses at random; a table also permits loss in bursts, and loss that depends on the packet size";
    "queue": AnyOf(&[Packets, Size, Table("queue")]), "1000 packets", "limit of a drop-tail queue in front of the link; a table selects another kind of queue";
    "mtu": bytes(68, 65_535), "1500", "size of the largest IP packet";
    "framing": Choice(&["none", "ppp", "ethernet", "ethernet-line"]), "`none`", "framing around each IP packet; it counts for rates, bit errors and queues in bytes; `ethernet-line` includes the preamble and the gap between frames";
    "jitter": Time, "0 s", "maximum random delay that is added to each packet, so that packets can overtake each other";
    "duplicate": Percentage, "0 %", "share of the packets that arrive twice";
    "reorder": Percentage, "0 %", "share of the packets that are delayed by `reorder_by`";
    "reorder_by": Time, "0 s", "additional delay of the packets that `reorder` selects";
    "corrupt": Percentage, "0 %", "share of the packets that arrive with one corrupted byte";
    "back": Table("link"), "same", "settings for the other direction of the link; a key that is missing there has the same value as in this direction";
    "from": Name, "", "for `graph`, name of the node at one end of the link";
    "to": Name, "", "for `graph`, name of the node at the other end of the link";
}}

section! { LOSS, "loss", "`loss` as a table" {
    "packets": Numbers, "none", "numbers of the packets that are lost, counted from 1 in each direction";
    "bit_error_rate": Probability, "0", "probability that a bit arrives wrong; a packet with a wrong bit is lost";
    "to_bad": Probability, "0", "Gilbert-Elliott model: probability, for each packet, that the state changes from good to bad";
    "to_good": Probability, "0", "Gilbert-Elliott model: probability, for each packet, that the state changes from bad to good";
    "loss_bad": Probability, "1", "Gilbert-Elliott model: probability of loss in the bad state";
    "loss_good": Probability, "0", "Gilbert-Elliott model: probability of loss in the good state";
}}

section! { QUEUE, "queue", "`queue` as a table" {
    "kind": Choice(&["drop-tail", "red", "codel", "fq-codel"]), "", "kind of the queue";
    "limit": AnyOf(&[Packets, Size]), "1000 packets; `fq-codel` 10240", "maximum number of packets or bytes in the queue";
    "ecn": Boolean, "false; `fq-codel` true", "if `true`, the queue marks ECN-capable packets instead of dropping them";
    "min_threshold": Number, "5", "for `red`, average length of the queue, in the unit of `limit`, above which some packets are dropped";
    "max_threshold": Number, "15", "for `red`, average length of the queue at which the drop probability is `max_probability`";
    "weight": Number, "0.002", "for `red`, weight of the current length of the queue in the average length";
    "max_probability": Probability, "0.1", "for `red`, drop probability at `max_threshold`";
    "gentle": Boolean, "true", "for `red`, if `true`, the drop probability grows gradually above `max_threshold` instead of jumping to 1";
    "target": Time, "5 ms", "for `codel` and `fq-codel`, acceptable queueing delay";
    "interval": Time, "100 ms", "for `codel` and `fq-codel`, time for which the queueing delay may exceed `target` before packets are dropped";
    "flows": Whole("number", 1, 65_536), "1024", "for `fq-codel`, number of separate queues";
    "quantum": bytes(1, 1 << 20), "1514", "for `fq-codel`, number of bytes that each queue may send per round";
}}

section! { FLOW, "flow", "`[[flow]]`" {
    "name": Name, "protocol and controller", "name of the flow in results; must be unique";
    "count": from_1(MAX_FLOWS as u64), "1", "number of identical connections of this flow";
    "pair": from_1(MAX_FLOWS as u64), "in turn", "number of the pair of hosts that the connection uses";
    "from": Name, "by `pair`", "name of the client node; the client opens the connection, and sends the data of bulk transfers, `streams` and `call`";
    "to": Name, "by `pair`", "name of the server node, which sends responses";
    "protocol": Choice(&["quic", "tcp"]), "`quic`", "transport protocol";
    "controller": Choice(&["newreno", "cubic", "bbr", "bic", "vegas", "westwood", "gquic-cubic", "lia", "olia"]), "`cubic`", "congestion control algorithm of both ends; `lia` and `olia` couple the paths of a QUIC connection";
    "application": Choice(&["bulk", "requests", "streams", "page", "video", "call"]), "`bulk`", "what each connection carries: a single transfer (`bulk`), or the application that the table with this name describes";
    "size": Size, "until `limit`", "for `bulk`, number of bytes that each connection sends";
    "requests": Table("requests"), "", "settings of the application `requests`";
    "streams": Table("streams"), "", "settings of the application `streams`";
    "page": Table("page"), "", "settings of the application `page`";
    "video": Table("video"), "", "settings of the application `video`";
    "call": Table("call"), "", "settings of the application `call`";
    "start": Time, "0 s", "time at which the first connection starts its handshake";
    "stagger": Time, "0 s", "time between the starts of two successive connections of this flow";
    "quic": Table("quic"), "see below", "options of QUIC connections";
    "tcp": Table("tcp"), "see below", "options of TCP connections";
}}

section! { QUIC, "quic", "`[flow.quic]`" {
    "protection": Choice(&["none", "tls"]), "`none`", "`tls` uses real TLS 1.3; `none` sends packets and handshakes of the same sizes without cryptography";
    "initial_window": Size, "RFC 9002 s.7.2", "initial congestion window";
    "mtu": bytes(1_200, 65_527), "largest that fits every link", "UDP payload of the largest packets";
    "mtu_discovery": Boolean, "false", "if `true`, the connection starts with packets of 1,200 bytes and searches for a larger size, up to `mtu`";
    "window": Size, "fits the network, 1 to 128 MiB", "maximum amount of data that flow control permits in flight; also the maximum amount that waits to be sent";
    "ecn": Boolean, "true", "if `true`, packets are ECN-capable";
    "ack_frequency": Boolean, "true", "if `true`, the receiver acknowledges less often when the window is large";
    "idle_timeout": Time, "30 s", "time without a packet after which a connection fails; 0 s: never";
    "resumption": Boolean, "false", "if `true`, the client resumes a session of an earlier connection, so that the server sends no certificate";
    "early_data": Boolean, "false", "if `true`, the client sends early data (0-RTT); requires `resumption`";
    "paths": Whole("1, 2", 1, 2), "1", "number of paths of each connection (RFC 10069); 2 requires the topology `two-path`, and uses both links";
    "scheduler": Choice(&["lowest-rtt", "round-robin", "redundant", "backup"]), "`lowest-rtt`", "with 2 `paths`, the way in which the sender chooses the path of a packet";
    "client_plugins": Files, "none", "plugins of the client (bundles from `equic plugin build`); paths are relative to the scenario's file";
    "server_plugins": Files, "none", "plugins of the server (bundles from `equic plugin build`); paths are relative to the scenario's file";
}}

section! { TCP, "tcp", "`[flow.tcp]`" {
    "initial_window": Whole("number of segments", 1, 10_000), "10", "initial congestion window";
    "mss": bytes(64, 65_495), "largest that fits every link", "maximum segment size, with TCP options but without headers";
    "sack": Boolean, "true", "selective acknowledgements";
    "timestamps": Boolean, "true", "timestamps";
    "window_scaling": Boolean, "true", "if `true`, window scaling permits windows above 65,535 bytes";
    "ecn": Boolean, "true", "if `true`, the client negotiates ECN, as QUIC does by default; Linux negotiates ECN only if it is configured to do so";
    "pacing": Boolean, "false", "if `true`, the sender paces segments even if the congestion control does not need it";
    "tail_loss_probe": Boolean, "true", "if `true`, the sender sends a probe when the end of a transfer may be lost";
    "min_rto": Time, "200 ms", "minimum time that the retransmission timeout adds to the round-trip time";
    "delayed_ack": Time, "40 ms", "maximum delay of an acknowledgement";
    "window": Size, "fits the network, 1 to 128 MiB", "maximum receive window, and maximum amount of unacknowledged data";
    "fast_open": Boolean, "false", "if `true`, the SYN carries data, with a cookie from an earlier connection (RFC 7413)";
    "tls": Table("tls"), "no TLS", "options of TLS over the TCP connection";
}}

section! { TLS, "tls", "`[flow.tcp.tls]`" {
    "version": Choice(&["1.2", "1.3"]), "`1.3`", "TLS version";
    "resumption": Boolean, "false", "if `true`, the client resumes a session of an earlier connection";
    "early_data": Boolean, "false", "if `true`, the client sends early data; requires version `1.3` and `resumption`";
    "false_start": Boolean, "false", "if `true`, the client does not wait for the server's Finished message (RFC 7918); requires version `1.2` without `resumption`";
    "certificates": Size, "3 KB", "total size of the server's certificates";
}}

section! { TRAFFIC, "traffic", "`[[traffic]]`" {
    "name": Name, "`kind`", "name of the flow in results; must be unique";
    "kind": Choice(&["on-off", "short-flows"]), "", "`on-off` sends UDP at a fixed rate, with pauses; `short-flows` starts flows at random times";
    "pair": from_1(MAX_FLOWS as u64), "in turn", "number of the pair of hosts that the connection uses";
    "from": Name, "by `pair`", "name of the host that sends";
    "to": Name, "by `pair`", "name of the host that receives";
    "rate": Rate, "", "rate of the payload while the source sends (`on-off`), or rate of each flow (`short-flows`)";
    "datagram": bytes(1, 65_487), "1200", "payload of each datagram";
    "start": Time, "0 s", "time at which the traffic starts";
    "stop": Time, "never", "time at which the traffic stops";
    "on": Time, "1 s", "for `on-off`, duration of each sending period";
    "off": Time, "0 s", "for `on-off`, duration of each pause";
    "random": Boolean, "false", "if `true`, durations and sizes have exponential distributions with the means `on`, `off` and `size`";
    "per_second": Number, "", "for `short-flows`, mean number of flows that start in each second";
    "size": Size, "", "for `short-flows`, size of each flow; with `random` the mean size, with `most` the smallest size";
    "most": Size, "none", "for `short-flows`, size of the largest flow; with this key, sizes have a Pareto distribution";
    "shape": Number, "1.2", "for `short-flows`, shape parameter of the Pareto distribution";
}}

/// Returns all keys, table by table.
pub fn sections() -> &'static [Section] {
    &[
        TOP, NETWORK, LINK, QUEUE, LOSS, NODE, FLOW, REQUESTS, STREAMS, PAGE, OBJECT, VIDEO, CALL,
        QUIC, TCP, TLS, TRAFFIC,
    ]
}

/// Returns the list of keys as Markdown, as in docs/simulator.md.
pub fn markdown() -> String {
    let mut text = String::new();
    for section in sections() {
        text += &format!(
            "### {}\n\n| key | value | default | meaning |\n|---|---|---|---|\n",
            section.name
        );
        for Key { name, values, default, meaning } in section.keys {
            text += &format!("| `{name}` | {values} | {default} | {meaning} |\n");
        }
        text.push('\n');
    }
    text
}
