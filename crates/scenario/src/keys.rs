//! All keys of a description: the reader knows no others, and docs/simulator.md has this list.
//! `applications.rs` has those of what a flow carries.

mod applications;

pub(crate) use applications::{CALL, OBJECT, PAGE, REQUESTS, STREAMS, VIDEO};

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name in its table.
    pub name: &'static str,
    /// Values that it takes.
    pub value: &'static str,
    /// Value where it is not written; empty: it has to be.
    pub default: &'static str,
    /// Its meaning, in a sentence.
    pub meaning: &'static str,
}

/// Keys of one kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The table or tables, as they are written.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

const fn key(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key { name, value, default, meaning }
}

pub(crate) const TOP: Section = Section {
    name: "at the top",
    keys: &[
        key("description", "text", "none", "a sentence about the scenario"),
        key(
            "seeds",
            "number, or list of numbers",
            "10",
            "so many runs, with the seeds 1, 2, 3, ...; or runs with these seeds",
        ),
        key(
            "limit",
            "time",
            "10000 s",
            "virtual time at which a run ends; has to be written if a flow has no `size`",
        ),
        key("interval", "time", "100 ms", "interval of time series"),
        key("network", "table", "", "the network"),
        key("flow", "list of tables", "", "the connections that are studied"),
        key("traffic", "list of tables", "none", "other traffic"),
    ],
};

pub(crate) const NETWORK: Section = Section {
    name: "`[network]`",
    keys: &[
        key(
            "topology",
            "`simple`, `dumbbell`, `parking-lot`, `two-path`, `graph`",
            "",
            "shape of the network",
        ),
        key("ip", "`v4`, `v6`", "`v4`", "version of IP, for the size of headers"),
        key("link", "table", "", "`simple`: the link; `dumbbell`: the link that all share"),
        key("pairs", "number from 1", "2", "`dumbbell`: clients, and servers"),
        key(
            "access",
            "table",
            "1 Gb/s, 10 ms",
            "`dumbbell`, `parking-lot`: link of each host to its router",
        ),
        key(
            "links",
            "list of tables",
            "",
            "`parking-lot`: the links between routers; `two-path`: two; `graph`: all, with `from` and `to`",
        ),
        key("node", "list of tables", "", "`graph`: the nodes"),
    ],
};

pub(crate) const NODE: Section = Section {
    name: "`[[network.node]]`",
    keys: &[
        key("name", "text", "", "name of the node"),
        key("router", "true, false", "false", "whether it forwards"),
    ],
};

pub(crate) const LINK: Section = Section {
    name: "`[network.link]`, `[network.access]`, `[[network.links]]`, and `back` in each",
    keys: &[
        key("rate", "rate", "", "rate of the sending port; in `back` as there"),
        key("delay", "time", "", "propagation delay, one way; in `back` as there"),
        key(
            "loss",
            "percentage, or table",
            "0 %",
            "packets lost on the way, independently of each other; in bursts or by size with a table",
        ),
        key(
            "queue",
            "packets, size, or table",
            "1000 packets",
            "queue in front of the port: drop-tail with this limit, or another with a table",
        ),
        key("mtu", "number of bytes", "1500", "the largest IP packet"),
        key(
            "framing",
            "`none`, `ppp`, `ethernet`, `ethernet-line`",
            "`none`",
            "what is around each IP packet: rates, queues in bytes and bit errors count it; `ethernet-line` with preamble and gap",
        ),
        key(
            "jitter",
            "time",
            "0 s",
            "each packet is later by up to so much, so that packets overtake each other",
        ),
        key("duplicate", "percentage", "0 %", "packets that arrive twice"),
        key("reorder", "percentage", "0 %", "packets that arrive later by `reorder_by`"),
        key("reorder_by", "time", "0 s", "extra delay of those"),
        key("corrupt", "percentage", "0 %", "packets that arrive with a byte changed"),
        key("back", "table", "as there", "what is different on the way back"),
        key("from", "text", "", "`graph`: one node"),
        key("to", "text", "", "`graph`: the other"),
    ],
};

pub(crate) const LOSS: Section = Section {
    name: "`loss` as a table",
    keys: &[
        key("packets", "list of numbers", "none", "these packets of the direction, counted from 1"),
        key(
            "bit_error_rate",
            "probability",
            "0",
            "each bit is wrong so often, and a packet with it is lost",
        ),
        key("to_bad", "probability", "0", "Gilbert-Elliott: from good to bad, for each packet"),
        key("to_good", "probability", "0", "Gilbert-Elliott: from bad to good, for each packet"),
        key("loss_bad", "probability", "1", "Gilbert-Elliott: loss while it is bad"),
        key("loss_good", "probability", "0", "Gilbert-Elliott: loss while it is good"),
    ],
};

pub(crate) const QUEUE: Section = Section {
    name: "`queue` as a table",
    keys: &[
        key("kind", "`drop-tail`, `red`, `codel`, `fq-codel`", "", "discipline of the queue"),
        key("limit", "packets, or size", "1000 packets; `fq-codel` 10240", "the most that waits"),
        key(
            "ecn",
            "true, false",
            "false; `fq-codel` true",
            "mark packets that are ECN-capable rather than drop them",
        ),
        key(
            "min_threshold",
            "number",
            "5",
            "`red`: average length, in the unit of `limit`, from which packets are dropped",
        ),
        key("max_threshold", "number", "15", "`red`: average length from which many are"),
        key("weight", "number", "0.002", "`red`: weight of the length that a packet finds"),
        key("max_probability", "probability", "0.1", "`red`: probability at `max_threshold`"),
        key(
            "gentle",
            "true, false",
            "true",
            "`red`: probability grows above `max_threshold` instead of jumping to 1",
        ),
        key("target", "time", "5 ms", "`codel`, `fq-codel`: wait that is acceptable"),
        key("interval", "time", "100 ms", "`codel`, `fq-codel`: how long a longer wait is borne"),
        key("flows", "number", "1024", "`fq-codel`: number of queues"),
        key("quantum", "number of bytes", "1514", "`fq-codel`: bytes of a turn"),
    ],
};

pub(crate) const FLOW: Section = Section {
    name: "`[[flow]]`",
    keys: &[
        key("name", "text", "protocol and controller", "name in results; each once"),
        key("count", "number from 1", "1", "so many connections that are alike"),
        key("pair", "number from 1", "in turn", "hosts: the client and the server of this pair"),
        key(
            "from",
            "text",
            "by `pair`",
            "host that opens the connection, the client, by its name; transfers, `streams` and `call` go from there",
        ),
        key("to", "text", "by `pair`", "the other host, the server; answers come from there"),
        key("protocol", "`quic`, `tcp`", "`quic`", "transport protocol"),
        key(
            "controller",
            "`newreno`, `cubic`, `bbr`, `bic`, `vegas`, `westwood`",
            "`cubic`",
            "congestion control of both ends",
        ),
        key(
            "application",
            "`bulk`, `requests`, `streams`, `page`, `video`, `call`",
            "`bulk`",
            "what each connection carries: one transfer, or what the table of that name says",
        ),
        key("size", "size", "until `limit`", "`bulk`: bytes that each connection sends"),
        key("requests", "table", "", "requests and responses"),
        key("streams", "table", "", "streams that begin together"),
        key("page", "table", "", "a web page"),
        key("video", "table", "", "a video of constant rate"),
        key("call", "table", "", "messages at a constant rate"),
        key("start", "time", "0 s", "when the first begins its handshake"),
        key("stagger", "time", "0 s", "time from the start of one connection to that of the next"),
        key("quic", "table", "see below", "options of QUIC"),
        key("tcp", "table", "see below", "options of TCP"),
    ],
};

pub(crate) const QUIC: Section = Section {
    name: "`[flow.quic]`",
    keys: &[
        key("initial_window", "size", "RFC 9002 s.7.2", "initial congestion window"),
        key(
            "mtu",
            "number of bytes",
            "what the smallest MTU takes",
            "UDP payload of a full packet",
        ),
        key(
            "mtu_discovery",
            "true, false",
            "false",
            "begin with 1,200 bytes, and search for more up to `mtu`",
        ),
        key(
            "window",
            "size",
            "by the network, 1 to 128 MiB",
            "the most that flow control allows in flight, and that waits to be sent",
        ),
        key("ecn", "true, false", "true", "packets are ECN-capable"),
        key(
            "ack_frequency",
            "true, false",
            "true",
            "acknowledge less often where the window is large",
        ),
        key(
            "idle_timeout",
            "time",
            "30 s",
            "a connection on which nothing came for so long has failed; 0 s: never",
        ),
        key(
            "resumption",
            "true, false",
            "false",
            "the client has a session of an earlier connection: no certificate is sent",
        ),
        key("early_data", "true, false", "false", "with `resumption`: it sends early data (0-RTT)"),
    ],
};

pub(crate) const TCP: Section = Section {
    name: "`[flow.tcp]`",
    keys: &[
        key("initial_window", "number of segments", "10", "initial congestion window"),
        key(
            "mss",
            "number of bytes",
            "what the smallest MTU takes",
            "maximum segment size, without headers and with options",
        ),
        key("sack", "true, false", "true", "selective acknowledgements"),
        key("timestamps", "true, false", "true", "timestamps"),
        key("window_scaling", "true, false", "true", "windows above 65,535 bytes"),
        key("ecn", "true, false", "false", "the client asks for ECN"),
        key(
            "pacing",
            "true, false",
            "false",
            "pace segments even if the controller does not need it",
        ),
        key("tail_loss_probe", "true, false", "true", "probe when a tail may be lost"),
        key(
            "min_rto",
            "time",
            "200 ms",
            "least time of the retransmission timer beyond the round trip",
        ),
        key("delayed_ack", "time", "40 ms", "how long an acknowledgement may wait"),
        key(
            "window",
            "size",
            "by the network, 1 to 128 MiB",
            "largest receive window, and the most that is outstanding",
        ),
        key(
            "fast_open",
            "true, false",
            "false",
            "data goes with the SYN, by a cookie of an earlier connection (RFC 7413)",
        ),
        key("tls", "table", "no TLS", "TLS above the connection"),
    ],
};

pub(crate) const TLS: Section = Section {
    name: "`[flow.tcp.tls]`",
    keys: &[
        key("version", "`1.2`, `1.3`", "`1.3`", "version of TLS"),
        key(
            "resumption",
            "true, false",
            "false",
            "the client has a session of an earlier connection",
        ),
        key("early_data", "true, false", "false", "1.3 with `resumption`: it sends early data"),
        key(
            "false_start",
            "true, false",
            "false",
            "1.2 without `resumption`: the client does not wait for the server's Finished (RFC 7918)",
        ),
        key("certificates", "size", "3 KB", "the server's certificates"),
    ],
};

pub(crate) const TRAFFIC: Section = Section {
    name: "`[[traffic]]`",
    keys: &[
        key("name", "text", "`kind`", "name in results; each once"),
        key(
            "kind",
            "`on-off`, `short-flows`",
            "",
            "UDP at a rate, on and off; or flows that begin by chance",
        ),
        key("pair", "number from 1", "in turn", "hosts: the client and the server of this pair"),
        key("from", "text", "by `pair`", "host that sends"),
        key("to", "text", "by `pair`", "host that receives"),
        key("rate", "rate", "", "payload while it is on, or of each short flow"),
        key("datagram", "number of bytes", "1200", "payload of a datagram"),
        key("start", "time", "0 s", "when it begins"),
        key("stop", "time", "never", "when it ends"),
        key("on", "time", "1 s", "`on-off`: how long it sends"),
        key("off", "time", "0 s", "`on-off`: how long it does not"),
        key(
            "random",
            "true, false",
            "false",
            "`on-off`: these times are means of exponential distributions; `short-flows`: so is `size`",
        ),
        key("per_second", "number", "", "`short-flows`: flows that begin in a second, on average"),
        key(
            "size",
            "size",
            "",
            "`short-flows`: size of a flow; the mean if `random`, the smallest if `most` is there",
        ),
        key("most", "size", "none", "`short-flows`: the largest, of a Pareto distribution"),
        key("shape", "number", "1.2", "`short-flows`: shape of that distribution"),
    ],
};

/// All keys, table by table.
pub fn sections() -> &'static [Section] {
    &[
        TOP, NETWORK, LINK, QUEUE, LOSS, NODE, FLOW, REQUESTS, STREAMS, PAGE, OBJECT, VIDEO, CALL,
        QUIC, TCP, TLS, TRAFFIC,
    ]
}

/// The list as docs/simulator.md has it.
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
