//! The keys of a scenario description. The parser accepts only these keys, and docs/simulator.md
//! lists them. `applications.rs` has the keys of applications.

/// Defines a table of keys. Each line has a name, the accepted values, the default, and the
/// meaning.
macro_rules! section {
    ($constant:ident, $shown:literal { $($name:literal: $value:literal, $default:literal, $meaning:literal;)* }) => {
        pub(crate) const $constant: crate::keys::Section = crate::keys::Section {
            name: $shown,
            keys: &[$(crate::keys::Key {
                name: $name,
                value: $value,
                default: $default,
                meaning: $meaning,
            }),*],
        };
    };
}

mod applications;

pub(crate) use applications::{CALL, OBJECT, PAGE, REQUESTS, STREAMS, VIDEO};

/// A key of a scenario description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name of the key in its table.
    pub name: &'static str,
    /// Accepted values, as text.
    pub value: &'static str,
    /// Default value of the key, as text. Empty if the key is mandatory.
    pub default: &'static str,
    /// Meaning of the key, in one sentence.
    pub meaning: &'static str,
}

/// The keys of one kind of table in a scenario description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name of the table or tables, as written in a scenario description.
    pub name: &'static str,
    /// The keys of the table.
    pub keys: &'static [Key],
}

section! { TOP, "at the top" {
    "description": "text", "none", "one sentence that describes the scenario";
    "seeds": "number, or list of numbers", "10", "number of runs, which use the seeds 1, 2, 3, ...; or a list of the seeds to use";
    "limit": "time", "10000 s", "virtual time at which each run ends; required if a flow has no `size`";
    "interval": "time", "100 ms", "interval between the points of time series";
    "network": "table", "", "the network";
    "flow": "list of tables", "", "the connections whose results are reported";
    "traffic": "list of tables", "none", "traffic in the background, whose results are not reported";
}}

section! { NETWORK, "`[network]`" {
    "topology": "`simple`, `dumbbell`, `parking-lot`, `two-path`, `graph`", "", "shape of the network";
    "ip": "`v4`, `v6`", "`v4`", "IP version, which determines the size of the headers";
    "link": "table", "", "for `simple`, the only link; for `dumbbell`, the link that all flows share";
    "pairs": "number from 1", "2", "for `dumbbell`, number of clients, which is also the number of servers";
    "access": "table", "1 Gb/s, 10 ms", "for `dumbbell` and `parking-lot`, the link between each host and its router";
    "links": "list of tables", "", "for `parking-lot`, the links between routers; for `two-path`, the links of the two paths; for `graph`, all links, with `from` and `to`";
    "node": "list of tables", "", "for `graph`, the nodes of the network";
}}

section! { NODE, "`[[network.node]]`" {
    "name": "text", "", "name of the node";
    "router": "true, false", "false", "`true` if the node forwards packets";
}}

section! { LINK, "`[network.link]`, `[network.access]`, `[[network.links]]`, and `back` in each" {
    "rate": "rate", "", "bit rate of the link; required unless there is a `trace`";
    "trace": "path", "none", "file in Mahimahi's format, which replaces `rate`; the path is relative to this file. Each line is a time in milliseconds at which 1,504 bytes may leave. The trace repeats at its end";
    "delay": "time", "", "propagation delay in one direction";
    "loss": "percentage, or table", "0 %", "share of the packets that the link loses, independently of each other; a table also permits loss in bursts and loss that depends on the packet size";
    "queue": "packets, size, or table", "1000 packets", "limit of a drop-tail queue in front of the link; a table selects another kind of queue";
    "mtu": "number of bytes", "1500", "size of the largest IP packet";
    "framing": "`none`, `ppp`, `ethernet`, `ethernet-line`", "`none`", "framing around each IP packet, whose bytes count for rates, queues in bytes and bit errors; `ethernet-line` includes the preamble and the gap between frames";
    "jitter": "time", "0 s", "maximum random delay that is added to each packet, so that packets can overtake each other";
    "duplicate": "percentage", "0 %", "share of the packets that arrive twice";
    "reorder": "percentage", "0 %", "share of the packets that are delayed by `reorder_by`";
    "reorder_by": "time", "0 s", "additional delay of the packets that `reorder` selects";
    "corrupt": "percentage", "0 %", "share of the packets that arrive with one corrupted byte";
    "back": "table", "same", "settings for the other direction of the link; a key that is missing there has the same value as in this direction";
    "from": "text", "", "for `graph`, name of the node at one end of the link";
    "to": "text", "", "for `graph`, name of the node at the other end of the link";
}}

section! { LOSS, "`loss` as a table" {
    "packets": "list of numbers", "none", "numbers of the packets that are lost, counted from 1 in each direction";
    "bit_error_rate": "probability", "0", "probability that a bit arrives wrong; a packet with a wrong bit is lost";
    "to_bad": "probability", "0", "Gilbert-Elliott model: probability, for each packet, that the state changes from good to bad";
    "to_good": "probability", "0", "Gilbert-Elliott model: probability, for each packet, that the state changes from bad to good";
    "loss_bad": "probability", "1", "Gilbert-Elliott model: probability of loss in the bad state";
    "loss_good": "probability", "0", "Gilbert-Elliott model: probability of loss in the good state";
}}

section! { QUEUE, "`queue` as a table" {
    "kind": "`drop-tail`, `red`, `codel`, `fq-codel`", "", "kind of the queue";
    "limit": "packets, or size", "1000 packets; `fq-codel` 10240", "maximum number of packets or bytes in the queue";
    "ecn": "true, false", "false; `fq-codel` true", "if `true`, the queue marks ECN-capable packets instead of dropping them";
    "min_threshold": "number", "5", "for `red`, average length of the queue, in the unit of `limit`, above which some packets are dropped";
    "max_threshold": "number", "15", "for `red`, average length of the queue at which the drop probability is `max_probability`";
    "weight": "number", "0.002", "for `red`, weight of the current length of the queue in the average length";
    "max_probability": "probability", "0.1", "for `red`, drop probability at `max_threshold`";
    "gentle": "true, false", "true", "for `red`, if `true`, the drop probability grows gradually above `max_threshold` instead of jumping to 1";
    "target": "time", "5 ms", "for `codel` and `fq-codel`, acceptable queueing delay";
    "interval": "time", "100 ms", "for `codel` and `fq-codel`, time for which the queueing delay may exceed `target` before packets are dropped";
    "flows": "number", "1024", "for `fq-codel`, number of separate queues";
    "quantum": "number of bytes", "1514", "for `fq-codel`, number of bytes that each queue may send per round";
}}

section! { FLOW, "`[[flow]]`" {
    "name": "text", "protocol and controller", "name of the flow in results; must be unique";
    "count": "number from 1", "1", "number of identical connections of this flow";
    "pair": "number from 1", "in turn", "number of the pair whose client and server the connection uses";
    "from": "text", "by `pair`", "name of the client node, which opens the connection, and which sends the data of bulk transfers, `streams` and `call`";
    "to": "text", "by `pair`", "name of the server node, which sends responses";
    "protocol": "`quic`, `tcp`", "`quic`", "transport protocol";
    "controller": "`newreno`, `cubic`, `bbr`, `bic`, `vegas`, `westwood`, `gquic-cubic`, `lia`, `olia`", "`cubic`", "congestion control algorithm of both ends; `lia` and `olia` couple the paths of a QUIC connection";
    "application": "`bulk`, `requests`, `streams`, `page`, `video`, `call`", "`bulk`", "what each connection carries: a single transfer (`bulk`), or the application that the table with this name describes";
    "size": "size", "until `limit`", "for `bulk`, number of bytes that each connection sends";
    "requests": "table", "", "settings of the application `requests`";
    "streams": "table", "", "settings of the application `streams`";
    "page": "table", "", "settings of the application `page`";
    "video": "table", "", "settings of the application `video`";
    "call": "table", "", "settings of the application `call`";
    "start": "time", "0 s", "time at which the first connection starts its handshake";
    "stagger": "time", "0 s", "time between the starts of two successive connections of this flow";
    "quic": "table", "see below", "options of QUIC connections";
    "tcp": "table", "see below", "options of TCP connections";
}}

section! { QUIC, "`[flow.quic]`" {
    "protection": "`none`, `tls`", "`none`", "`tls` uses real TLS 1.3; `none` sends packets and handshakes of the same sizes without cryptography";
    "initial_window": "size", "RFC 9002 s.7.2", "initial congestion window";
    "mtu": "number of bytes", "largest that fits every link", "UDP payload of the largest packets";
    "mtu_discovery": "true, false", "false", "if `true`, the connection starts with packets of 1,200 bytes and searches for a larger size, up to `mtu`";
    "window": "size", "by the network, 1 to 128 MiB", "maximum amount of data that flow control permits in flight; also the maximum amount that waits to be sent";
    "ecn": "true, false", "true", "if `true`, packets are ECN-capable";
    "ack_frequency": "true, false", "true", "if `true`, the receiver acknowledges less often when the window is large";
    "idle_timeout": "time", "30 s", "time without a packet after which a connection fails; 0 s: never";
    "resumption": "true, false", "false", "if `true`, the client resumes a session of an earlier connection, so that the server sends no certificate";
    "early_data": "true, false", "false", "if `true`, the client sends early data (0-RTT); requires `resumption`";
    "paths": "1, 2", "1", "number of paths of each connection (RFC 10069); 2 requires the topology `two-path`, and uses both links";
    "scheduler": "`lowest-rtt`, `round-robin`, `redundant`, `backup`", "`lowest-rtt`", "with 2 `paths`, the way in which the sender chooses the path of a packet";
    "client_plugins": "list of files", "none", "plugins of the client (bundles from `equic plugin build`); paths are relative to the scenario's file";
    "server_plugins": "list of files", "none", "plugins of the server (bundles from `equic plugin build`); paths are relative to the scenario's file";
}}

section! { TCP, "`[flow.tcp]`" {
    "initial_window": "number of segments", "10", "initial congestion window";
    "mss": "number of bytes", "largest that fits every link", "maximum segment size, which includes TCP options but no headers";
    "sack": "true, false", "true", "selective acknowledgements";
    "timestamps": "true, false", "true", "timestamps";
    "window_scaling": "true, false", "true", "if `true`, window scaling permits windows above 65,535 bytes";
    "ecn": "true, false", "true", "if `true`, the client negotiates ECN, as QUIC does by default; Linux negotiates ECN only if it is configured to do so";
    "pacing": "true, false", "false", "if `true`, the sender paces segments even if the congestion control does not need it";
    "tail_loss_probe": "true, false", "true", "if `true`, the sender sends a probe when the end of a transfer may be lost";
    "min_rto": "time", "200 ms", "minimum time that the retransmission timeout adds to the round-trip time";
    "delayed_ack": "time", "40 ms", "maximum delay of an acknowledgement";
    "window": "size", "by the network, 1 to 128 MiB", "maximum receive window, and maximum amount of unacknowledged data";
    "fast_open": "true, false", "false", "if `true`, the SYN carries data, with a cookie from an earlier connection (RFC 7413)";
    "tls": "table", "no TLS", "options of TLS, which runs on top of the TCP connection";
}}

section! { TLS, "`[flow.tcp.tls]`" {
    "version": "`1.2`, `1.3`", "`1.3`", "TLS version";
    "resumption": "true, false", "false", "if `true`, the client resumes a session of an earlier connection";
    "early_data": "true, false", "false", "if `true`, the client sends early data; requires version `1.3` and `resumption`";
    "false_start": "true, false", "false", "if `true`, the client does not wait for the server's Finished message (RFC 7918); requires version `1.2` without `resumption`";
    "certificates": "size", "3 KB", "total size of the server's certificates";
}}

section! { TRAFFIC, "`[[traffic]]`" {
    "name": "text", "`kind`", "name of the flow in results; must be unique";
    "kind": "`on-off`, `short-flows`", "", "`on-off` sends UDP at a fixed rate, with pauses; `short-flows` starts flows at random times";
    "pair": "number from 1", "in turn", "number of the pair whose client and server the connection uses";
    "from": "text", "by `pair`", "name of the host that sends";
    "to": "text", "by `pair`", "name of the host that receives";
    "rate": "rate", "", "rate of the payload: while the source sends (`on-off`), or of each short flow";
    "datagram": "number of bytes", "1200", "payload of each datagram";
    "start": "time", "0 s", "time at which the traffic starts";
    "stop": "time", "never", "time at which the traffic stops";
    "on": "time", "1 s", "for `on-off`, duration of each sending period";
    "off": "time", "0 s", "for `on-off`, duration of each pause";
    "random": "true, false", "false", "if `true`, `on` and `off` (or `size` of `short-flows`) are the means of exponential distributions";
    "per_second": "number", "", "for `short-flows`, mean number of flows that start in each second";
    "size": "size", "", "for `short-flows`, size of each flow; with `random` the mean size, with `most` the smallest size";
    "most": "size", "none", "for `short-flows`, size of the largest flow; with this key, sizes have a Pareto distribution";
    "shape": "number", "1.2", "for `short-flows`, shape parameter of the Pareto distribution";
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
        for Key { name, value, default, meaning } in section.keys {
            text += &format!("| `{name}` | {value} | {default} | {meaning} |\n");
        }
        text.push('\n');
    }
    text
}
