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
    "description": "text", "none", "a sentence about the scenario";
    "seeds": "number, or list of numbers", "10", "number of runs, with the seeds 1, 2, 3, ...; or the list of seeds";
    "limit": "time", "10000 s", "virtual time at which a run ends; required if a flow has no `size`";
    "interval": "time", "100 ms", "interval of time series";
    "network": "table", "", "the network";
    "flow": "list of tables", "", "the connections whose figures are reported";
    "traffic": "list of tables", "none", "background traffic";
}}

section! { NETWORK, "`[network]`" {
    "topology": "`simple`, `dumbbell`, `parking-lot`, `two-path`, `graph`", "", "shape of the network";
    "ip": "`v4`, `v6`", "`v4`", "IP version, which decides the size of headers";
    "link": "table", "", "`simple`: the only link; `dumbbell`: the link that all flows share";
    "pairs": "number from 1", "2", "`dumbbell`: number of clients, and of servers";
    "access": "table", "1 Gb/s, 10 ms", "`dumbbell`, `parking-lot`: link of each host to its router";
    "links": "list of tables", "", "`parking-lot`: the links between routers; `two-path`: two; `graph`: all, with `from` and `to`";
    "node": "list of tables", "", "`graph`: the nodes";
}}

section! { NODE, "`[[network.node]]`" {
    "name": "text", "", "name of the node";
    "router": "true, false", "false", "true: the node forwards packets";
}}

section! { LINK, "`[network.link]`, `[network.access]`, `[[network.links]]`, and `back` in each" {
    "rate": "rate", "", "rate of the sending port; required unless there is a `trace`";
    "trace": "path", "none", "replaces `rate`: a file in Mahimahi's format, relative to this file. Each line is a millisecond at which 1,504 bytes may leave; the trace repeats";
    "delay": "time", "", "propagation delay in one direction";
    "loss": "percentage, or table", "0 %", "packets lost on the link, independently of each other; a table allows loss in bursts or by size";
    "queue": "packets, size, or table", "1000 packets", "queue in front of the port: drop-tail with this limit, or another kind with a table";
    "mtu": "number of bytes", "1500", "the largest IP packet";
    "framing": "`none`, `ppp`, `ethernet`, `ethernet-line`", "`none`", "framing around each IP packet, which counts for rates, queues in bytes and bit errors; `ethernet-line` includes preamble and gap";
    "jitter": "time", "0 s", "each packet is delayed by a random time up to this value, so packets may overtake each other";
    "duplicate": "percentage", "0 %", "packets that arrive twice";
    "reorder": "percentage", "0 %", "packets that are delayed by `reorder_by`";
    "reorder_by": "time", "0 s", "delay of reordered packets";
    "corrupt": "percentage", "0 %", "packets that arrive with one corrupted byte";
    "back": "table", "same", "settings for the other direction; keys that are not given are those of the link";
    "from": "text", "", "`graph`: node at one end";
    "to": "text", "", "`graph`: node at the other end";
}}

section! { LOSS, "`loss` as a table" {
    "packets": "list of numbers", "none", "lose exactly these packets of the direction, counted from 1";
    "bit_error_rate": "probability", "0", "probability that a bit is wrong; a packet with a wrong bit is lost";
    "to_bad": "probability", "0", "Gilbert-Elliott: probability to change from good to bad, for each packet";
    "to_good": "probability", "0", "Gilbert-Elliott: probability to change from bad to good, for each packet";
    "loss_bad": "probability", "1", "Gilbert-Elliott: probability of loss in the bad state";
    "loss_good": "probability", "0", "Gilbert-Elliott: probability of loss in the good state";
}}

section! { QUEUE, "`queue` as a table" {
    "kind": "`drop-tail`, `red`, `codel`, `fq-codel`", "", "discipline of the queue";
    "limit": "packets, or size", "1000 packets; `fq-codel` 10240", "the largest number of waiting packets or bytes";
    "ecn": "true, false", "false; `fq-codel` true", "mark ECN-capable packets instead of dropping them";
    "min_threshold": "number", "5", "`red`: average length, in the unit of `limit`, above which some packets are dropped";
    "max_threshold": "number", "15", "`red`: average length at which the probability is `max_probability`";
    "weight": "number", "0.002", "`red`: weight of the current length in the average";
    "max_probability": "probability", "0.1", "`red`: probability at `max_threshold`";
    "gentle": "true, false", "true", "`red`: probability grows above `max_threshold` instead of jumping to 1";
    "target": "time", "5 ms", "`codel`, `fq-codel`: acceptable queueing delay";
    "interval": "time", "100 ms", "`codel`, `fq-codel`: how long the delay may exceed `target`";
    "flows": "number", "1024", "`fq-codel`: number of queues";
    "quantum": "number of bytes", "1514", "`fq-codel`: bytes that a queue may send in its turn";
}}

section! { FLOW, "`[[flow]]`" {
    "name": "text", "protocol and controller", "name in results; must be unique";
    "count": "number from 1", "1", "number of identical connections";
    "pair": "number from 1", "in turn", "uses the client and the server of this pair";
    "from": "text", "by `pair`", "name of the client, which opens the connection; it sends transfers, `streams` and `call`";
    "to": "text", "by `pair`", "name of the server, which sends responses";
    "protocol": "`quic`, `tcp`", "`quic`", "transport protocol";
    "controller": "`newreno`, `cubic`, `bbr`, `bic`, `vegas`, `westwood`, `gquic-cubic`, `lia`, `olia`", "`cubic`", "congestion control of both ends; `lia` and `olia` couple the paths of a QUIC connection";
    "application": "`bulk`, `requests`, `streams`, `page`, `video`, `call`", "`bulk`", "what each connection carries: one transfer, or the application described by the table of that name";
    "size": "size", "until `limit`", "`bulk`: bytes that each connection sends";
    "requests": "table", "", "requests and responses";
    "streams": "table", "", "streams that start together";
    "page": "table", "", "a web page";
    "video": "table", "", "a video with a constant rate";
    "call": "table", "", "messages at a constant rate";
    "start": "time", "0 s", "time at which the first connection starts its handshake";
    "stagger": "time", "0 s", "time from the start of one connection to that of the next";
    "quic": "table", "see below", "options of QUIC";
    "tcp": "table", "see below", "options of TCP";
}}

section! { QUIC, "`[flow.quic]`" {
    "protection": "`none`, `tls`", "`none`", "`none`: packets and handshakes of the same sizes without cryptography; `tls`: real TLS 1.3";
    "initial_window": "size", "RFC 9002 s.7.2", "initial congestion window";
    "mtu": "number of bytes", "largest that fits every link", "UDP payload of a full packet";
    "mtu_discovery": "true, false", "false", "start with 1,200 bytes and search for a larger size, up to `mtu`";
    "window": "size", "by the network, 1 to 128 MiB", "largest amount that flow control allows in flight, and that may wait to be sent";
    "ecn": "true, false", "true", "packets are ECN-capable";
    "ack_frequency": "true, false", "true", "acknowledge less often if the window is large";
    "idle_timeout": "time", "30 s", "a connection fails if nothing arrives for this time; 0 s: never";
    "resumption": "true, false", "false", "the client has a session from an earlier connection, so no certificate is sent";
    "early_data": "true, false", "false", "with `resumption`: the client sends early data (0-RTT)";
    "paths": "1, 2", "1", "paths of each connection (RFC 10069); 2 requires the topology `two-path`, and uses both links";
    "scheduler": "`lowest-rtt`, `round-robin`, `redundant`, `backup`", "`lowest-rtt`", "with 2 `paths`: how the path of a packet is chosen";
    "client_plugins": "list of files", "none", "plugins of the client (bundles by `equic plugin build`), relative to the scenario's file";
    "server_plugins": "list of files", "none", "plugins of the server";
}}

section! { TCP, "`[flow.tcp]`" {
    "initial_window": "number of segments", "10", "initial congestion window";
    "mss": "number of bytes", "largest that fits every link", "maximum segment size, including options but not headers";
    "sack": "true, false", "true", "selective acknowledgements";
    "timestamps": "true, false", "true", "timestamps";
    "window_scaling": "true, false", "true", "windows above 65,535 bytes";
    "ecn": "true, false", "true", "the client asks for ECN, like QUIC by default; Linux does so only if configured";
    "pacing": "true, false", "false", "pace segments even if the controller does not need it";
    "tail_loss_probe": "true, false", "true", "send a probe if the end of a transfer may be lost";
    "min_rto": "time", "200 ms", "smallest retransmission timeout, in addition to the round-trip time";
    "delayed_ack": "time", "40 ms", "longest delay of an acknowledgement";
    "window": "size", "by the network, 1 to 128 MiB", "largest receive window, and largest amount of unacknowledged data";
    "fast_open": "true, false", "false", "the SYN carries data, with a cookie from an earlier connection (RFC 7413)";
    "tls": "table", "no TLS", "TLS above the connection";
}}

section! { TLS, "`[flow.tcp.tls]`" {
    "version": "`1.2`, `1.3`", "`1.3`", "version of TLS";
    "resumption": "true, false", "false", "the client has a session from an earlier connection";
    "early_data": "true, false", "false", "1.3 with `resumption`: the client sends early data";
    "false_start": "true, false", "false", "1.2 without `resumption`: the client does not wait for the server's Finished (RFC 7918)";
    "certificates": "size", "3 KB", "size of the server's certificates";
}}

section! { TRAFFIC, "`[[traffic]]`" {
    "name": "text", "`kind`", "name in results; must be unique";
    "kind": "`on-off`, `short-flows`", "", "`on-off`: UDP at a rate, on and off; `short-flows`: flows that start at random times";
    "pair": "number from 1", "in turn", "uses the client and the server of this pair";
    "from": "text", "by `pair`", "host that sends";
    "to": "text", "by `pair`", "host that receives";
    "rate": "rate", "", "payload rate while it is on, or of each short flow";
    "datagram": "number of bytes", "1200", "payload of a datagram";
    "start": "time", "0 s", "time of the start";
    "stop": "time", "never", "time of the end";
    "on": "time", "1 s", "`on-off`: duration of each sending period";
    "off": "time", "0 s", "`on-off`: duration of each pause";
    "random": "true, false", "false", "`on-off`: `on` and `off` are means of exponential distributions; `short-flows`: `size` is such a mean";
    "per_second": "number", "", "`short-flows`: flows that start in each second, on average";
    "size": "size", "", "`short-flows`: size of a flow; the mean with `random`, the smallest with `most`";
    "most": "size", "none", "`short-flows`: largest size; sizes then have a Pareto distribution";
    "shape": "number", "1.2", "`short-flows`: shape of the Pareto distribution";
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
