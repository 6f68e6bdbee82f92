//! All keys of a description. The reader accepts only these, and docs/simulator.md lists them.
//! `applications.rs` has the keys of applications.

/// Defines a table of keys. Each line has a name, accepted values, default, and meaning.
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

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name of the key in its table.
    pub name: &'static str,
    /// Accepted values.
    pub value: &'static str,
    /// Default value. Empty if the key is mandatory.
    pub default: &'static str,
    /// Meaning, in one sentence.
    pub meaning: &'static str,
}

/// The keys of one kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name of the table or tables, as written.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

section! { TOP, "at the top" {
    "description": "text", "none", "a sentence about the scenario";
    "seeds": "number, or list of numbers", "10", "so many runs, with the seeds 1, 2, 3, ...; or runs with these seeds";
    "limit": "time", "10000 s", "virtual time at which a run ends; has to be written if a flow has no `size`";
    "interval": "time", "100 ms", "interval of time series";
    "network": "table", "", "the network";
    "flow": "list of tables", "", "the connections that are studied";
    "traffic": "list of tables", "none", "other traffic";
}}

section! { NETWORK, "`[network]`" {
    "topology": "`simple`, `dumbbell`, `parking-lot`, `two-path`, `graph`", "", "shape of the network";
    "ip": "`v4`, `v6`", "`v4`", "version of IP, for the size of headers";
    "link": "table", "", "`simple`: the link; `dumbbell`: the link that all share";
    "pairs": "number from 1", "2", "`dumbbell`: clients, and servers";
    "access": "table", "1 Gb/s, 10 ms", "`dumbbell`, `parking-lot`: link of each host to its router";
    "links": "list of tables", "", "`parking-lot`: the links between routers; `two-path`: two; `graph`: all, with `from` and `to`";
    "node": "list of tables", "", "`graph`: the nodes";
}}

section! { NODE, "`[[network.node]]`" {
    "name": "text", "", "name of the node";
    "router": "true, false", "false", "whether it forwards";
}}

section! { LINK, "`[network.link]`, `[network.access]`, `[[network.links]]`, and `back` in each" {
    "rate": "rate", "", "rate of the sending port, unless there is a `trace`; in `back` as there";
    "trace": "path", "none", "instead of `rate`: a file in Mahimahi's format, each line a millisecond at which 1,504 bytes may leave, again and again; from the directory of this file";
    "delay": "time", "", "propagation delay, one way; in `back` as there";
    "loss": "percentage, or table", "0 %", "packets lost on the way, independently of each other; in bursts or by size with a table";
    "queue": "packets, size, or table", "1000 packets", "queue in front of the port: drop-tail with this limit, or another with a table";
    "mtu": "number of bytes", "1500", "the largest IP packet";
    "framing": "`none`, `ppp`, `ethernet`, `ethernet-line`", "`none`", "what is around each IP packet: rates, queues in bytes and bit errors count it; `ethernet-line` with preamble and gap";
    "jitter": "time", "0 s", "each packet is later by up to so much, so that packets overtake each other";
    "duplicate": "percentage", "0 %", "packets that arrive twice";
    "reorder": "percentage", "0 %", "packets that arrive later by `reorder_by`";
    "reorder_by": "time", "0 s", "extra delay of those";
    "corrupt": "percentage", "0 %", "packets that arrive with a byte changed";
    "back": "table", "as there", "what is different on the way back";
    "from": "text", "", "`graph`: one node";
    "to": "text", "", "`graph`: the other";
}}

section! { LOSS, "`loss` as a table" {
    "packets": "list of numbers", "none", "these packets of the direction, counted from 1";
    "bit_error_rate": "probability", "0", "each bit is wrong so often, and a packet with it is lost";
    "to_bad": "probability", "0", "Gilbert-Elliott: from good to bad, for each packet";
    "to_good": "probability", "0", "Gilbert-Elliott: from bad to good, for each packet";
    "loss_bad": "probability", "1", "Gilbert-Elliott: loss while it is bad";
    "loss_good": "probability", "0", "Gilbert-Elliott: loss while it is good";
}}

section! { QUEUE, "`queue` as a table" {
    "kind": "`drop-tail`, `red`, `codel`, `fq-codel`", "", "discipline of the queue";
    "limit": "packets, or size", "1000 packets; `fq-codel` 10240", "the most that waits";
    "ecn": "true, false", "false; `fq-codel` true", "mark packets that are ECN-capable rather than drop them";
    "min_threshold": "number", "5", "`red`: average length, in the unit of `limit`, from which packets are dropped";
    "max_threshold": "number", "15", "`red`: average length from which many are";
    "weight": "number", "0.002", "`red`: weight of the length that a packet finds";
    "max_probability": "probability", "0.1", "`red`: probability at `max_threshold`";
    "gentle": "true, false", "true", "`red`: probability grows above `max_threshold` instead of jumping to 1";
    "target": "time", "5 ms", "`codel`, `fq-codel`: wait that is acceptable";
    "interval": "time", "100 ms", "`codel`, `fq-codel`: how long a longer wait is borne";
    "flows": "number", "1024", "`fq-codel`: number of queues";
    "quantum": "number of bytes", "1514", "`fq-codel`: bytes of a turn";
}}

section! { FLOW, "`[[flow]]`" {
    "name": "text", "protocol and controller", "name in results; each once";
    "count": "number from 1", "1", "so many connections that are alike";
    "pair": "number from 1", "in turn", "hosts: the client and the server of this pair";
    "from": "text", "by `pair`", "host that opens the connection, the client, by its name; transfers, `streams` and `call` go from there";
    "to": "text", "by `pair`", "the other host, the server; answers come from there";
    "protocol": "`quic`, `tcp`", "`quic`", "transport protocol";
    "controller": "`newreno`, `cubic`, `bbr`, `bic`, `vegas`, `westwood`, `gquic-cubic`, `lia`, `olia`", "`cubic`", "congestion control of both ends; `lia` and `olia`, which couple the paths of a connection, are QUIC's";
    "application": "`bulk`, `requests`, `streams`, `page`, `video`, `call`", "`bulk`", "what each connection carries: one transfer, or what the table of that name says";
    "size": "size", "until `limit`", "`bulk`: bytes that each connection sends";
    "requests": "table", "", "requests and responses";
    "streams": "table", "", "streams that begin together";
    "page": "table", "", "a web page";
    "video": "table", "", "a video of constant rate";
    "call": "table", "", "messages at a constant rate";
    "start": "time", "0 s", "when the first begins its handshake";
    "stagger": "time", "0 s", "time from the start of one connection to that of the next";
    "quic": "table", "see below", "options of QUIC";
    "tcp": "table", "see below", "options of TCP";
}}

section! { QUIC, "`[flow.quic]`" {
    "protection": "`none`, `tls`", "`none`", "`none`: packets and handshakes of the same sizes without cryptography; `tls`: TLS 1.3 itself";
    "initial_window": "size", "RFC 9002 s.7.2", "initial congestion window";
    "mtu": "number of bytes", "what the smallest MTU takes", "UDP payload of a full packet";
    "mtu_discovery": "true, false", "false", "begin with 1,200 bytes, and search for more up to `mtu`";
    "window": "size", "by the network, 1 to 128 MiB", "the most that flow control allows in flight, and that waits to be sent";
    "ecn": "true, false", "true", "packets are ECN-capable";
    "ack_frequency": "true, false", "true", "acknowledge less often where the window is large";
    "idle_timeout": "time", "30 s", "a connection on which nothing came for so long has failed; 0 s: never";
    "resumption": "true, false", "false", "the client has a session of an earlier connection: no certificate is sent";
    "early_data": "true, false", "false", "with `resumption`: it sends early data (0-RTT)";
    "paths": "1, 2", "1", "paths of each connection (RFC 10069); 2 in the topology `two-path`, a path over each of its links";
    "scheduler": "`lowest-rtt`, `round-robin`, `redundant`, `backup`", "`lowest-rtt`", "with `paths`: the path of a packet";
    "client_plugins": "list of files", "none", "plugins of the client (bundles that `equic plugin build` makes), from beside the scenario";
    "server_plugins": "list of files", "none", "plugins of the server";
}}

section! { TCP, "`[flow.tcp]`" {
    "initial_window": "number of segments", "10", "initial congestion window";
    "mss": "number of bytes", "what the smallest MTU takes", "maximum segment size, without headers and with options";
    "sack": "true, false", "true", "selective acknowledgements";
    "timestamps": "true, false", "true", "timestamps";
    "window_scaling": "true, false", "true", "windows above 65,535 bytes";
    "ecn": "true, false", "true", "the client asks for ECN, as QUIC does by default; Linux does not unless told to";
    "pacing": "true, false", "false", "pace segments even if the controller does not need it";
    "tail_loss_probe": "true, false", "true", "probe when a tail may be lost";
    "min_rto": "time", "200 ms", "least time of the retransmission timer beyond the round trip";
    "delayed_ack": "time", "40 ms", "how long an acknowledgement may wait";
    "window": "size", "by the network, 1 to 128 MiB", "largest receive window, and the most that is outstanding";
    "fast_open": "true, false", "false", "data goes with the SYN, by a cookie of an earlier connection (RFC 7413)";
    "tls": "table", "no TLS", "TLS above the connection";
}}

section! { TLS, "`[flow.tcp.tls]`" {
    "version": "`1.2`, `1.3`", "`1.3`", "version of TLS";
    "resumption": "true, false", "false", "the client has a session of an earlier connection";
    "early_data": "true, false", "false", "1.3 with `resumption`: it sends early data";
    "false_start": "true, false", "false", "1.2 without `resumption`: the client does not wait for the server's Finished (RFC 7918)";
    "certificates": "size", "3 KB", "the server's certificates";
}}

section! { TRAFFIC, "`[[traffic]]`" {
    "name": "text", "`kind`", "name in results; each once";
    "kind": "`on-off`, `short-flows`", "", "UDP at a rate, on and off; or flows that begin by chance";
    "pair": "number from 1", "in turn", "hosts: the client and the server of this pair";
    "from": "text", "by `pair`", "host that sends";
    "to": "text", "by `pair`", "host that receives";
    "rate": "rate", "", "payload while it is on, or of each short flow";
    "datagram": "number of bytes", "1200", "payload of a datagram";
    "start": "time", "0 s", "when it begins";
    "stop": "time", "never", "when it ends";
    "on": "time", "1 s", "`on-off`: how long it sends";
    "off": "time", "0 s", "`on-off`: how long it does not";
    "random": "true, false", "false", "`on-off`: these times are means of exponential distributions; `short-flows`: so is `size`";
    "per_second": "number", "", "`short-flows`: flows that begin in a second, on average";
    "size": "size", "", "`short-flows`: size of a flow; the mean if `random`, the smallest if `most` is there";
    "most": "size", "none", "`short-flows`: the largest, of a Pareto distribution";
    "shape": "number", "1.2", "`short-flows`: shape of that distribution";
}}

/// All keys, table by table.
pub fn sections() -> &'static [Section] {
    &[
        TOP, NETWORK, LINK, QUEUE, LOSS, NODE, FLOW, REQUESTS, STREAMS, PAGE, OBJECT, VIDEO, CALL,
        QUIC, TCP, TLS, TRAFFIC,
    ]
}

/// Returns the list in the form of docs/simulator.md.
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
