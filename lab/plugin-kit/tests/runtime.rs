//! Tests what bytecode can read from its connection: fields of paths and streams, the default's
//! answer, and the answers of other plugins at the same operation.

mod common;

use std::time::Duration;

use common::{assert_none_failed, at, attach, download, link, network, of_text, seed, tree_plugin};
use equic_plugin::Plugin;
use equic_plugin_kit::{End, Network};
use equic_transport::Direction;

/// Returns the messages that the server's plugins have sent to the application, as numbers.
fn told(network: &mut Network) -> Vec<Vec<u64>> {
    let word = |word: &[u8]| u64::from_le_bytes(word.try_into().unwrap());
    let messages = network.messages(End::Server);
    messages.iter().map(|(_, message)| message.chunks_exact(8).map(word).collect()).collect()
}

/// The plugin answers each message of the application with fields of the connection, of the streams
/// 7, 11 and 15, and of paths.
#[test]
fn runtime_reads_fields_of_streams_and_paths() {
    let fields = r#"
        capabilities = ["observe"]
        reads = ["BytesUnsent", "NextPath", "SmoothedRtt", "LossTime", "DeliveryRate", "LastElicitingSent", "ActivePath"]
    "#;
    let text = r#"
        equic_u64 run(void)
        {
            equic_u64 active = equic_get(EQUIC_ACTIVE_PATH);
            equic_u64 told[] = {
                equic_get(EQUIC_BYTES_UNSENT),
                equic_get_of(EQUIC_BYTES_UNSENT, 7),
                equic_get_of(EQUIC_BYTES_UNSENT, 11),
                equic_get_of(EQUIC_BYTES_UNSENT, 15),
                equic_get_of(EQUIC_NEXT_PATH, 0) == active,
                equic_get_of(EQUIC_NEXT_PATH, active + 1),
                equic_get_of(EQUIC_SMOOTHED_RTT, active) == equic_get(EQUIC_SMOOTHED_RTT),
                equic_get_of(EQUIC_SMOOTHED_RTT, active + 1),
                equic_get_of(EQUIC_LOSS_TIME, active),
                equic_get(EQUIC_DELIVERY_RATE),
                equic_get(EQUIC_LAST_ELICITING_SENT),
            };
            equic_tell(told, sizeof(told));
            return 0;
        }"#;
    let plugin = of_text("fields", &at(fields, "HookMessage", "after"), text).unwrap();
    let mut network = network(&link(), seed());
    download(&mut network, 500_000);
    let server = network.connection(End::Server).unwrap();
    let hook = plugin.attach(server).unwrap();
    let streams = [0, 1].map(|_| server.open(Direction::Unidirectional).unwrap());
    assert_eq!(streams.map(|id| id.as_varint().get()), [7, 11]);
    server.streams().write(streams[0], &[1; 5_000]).unwrap();
    server.streams().write(streams[1], &[2; 700]).unwrap();
    server.tell_hook(hook, b"").unwrap();
    network.pass(Duration::from_secs(1)).unwrap();
    network.connection(End::Server).unwrap().tell_hook(hook, b"").unwrap();
    network.pass(Duration::from_millis(1)).unwrap();
    assert_none_failed(&mut network);
    let told = told(&mut network);
    let none = u64::MAX;
    assert_eq!(told[0][..9], [5_700, 5_000, 700, none, 1, none, 1, none, none]);
    assert_eq!(told[1][..9], [0, 0, 0, none, 1, none, 1, none, none]);
    assert!(told[1][9] > 100_000, "bytes a second delivered: {}", told[1][9]);
    assert_eq!(told.len(), 2);
}

/// Returns a plugin that reports the size of the largest datagram that its connection sends.
fn largest_datagram(name: &str) -> Plugin {
    let looks = at("capabilities = [\"observe\"]", "DatagramSize", "after");
    let text = r#"
        static equic_u64 largest;

        equic_u64 run(struct equic_datagram_size *call)
        {
            if (call->out.bytes > largest) {
                largest = call->out.bytes;
                equic_tell(&largest, 8);
            }
            return 0;
        }"#;
    of_text(name, &looks, text).unwrap()
}

/// Two plugins each subtract 20 bytes from the answer that they get. The second plugin must get the
/// answer of the first.
#[test]
fn runtime_passes_the_default_answer_along_the_chain() {
    let less = at("capabilities = [\"tune\"]", "DatagramSize", "replace") + "default = true\n";
    let text = r#"
        equic_u64 run(struct equic_datagram_size *call)
        {
            call->out.bytes -= 20;
            return EQUIC_DONE;
        }"#;
    let less = of_text("less", &less, text).unwrap();
    let looks = largest_datagram("looks");
    let mut network = network(&link(), seed());
    for plugin in [&less, &looks, &less] {
        attach(&mut network, End::Server, plugin);
    }
    download(&mut network, 1_000_000);
    assert_none_failed(&mut network);
    let mtu = network.connection(End::Server).unwrap().current_mtu();
    assert_eq!(told(&mut network).last().unwrap()[0], u64::from(mtu) - 40);
}

/// `equic_call_default` must restore the default's answer after the function has overwritten it.
#[test]
fn runtime_call_default_restores_the_answer() {
    let manifest = |anchor: &str, default: &str| {
        let of = |operation: &str, function: &str| {
            format!(
                "[[operations]]\noperation = \"{operation}\"\nanchor = \"{anchor}\"\n{default}function = \"{function}\"\n"
            )
        };
        let capabilities = "capabilities = [\"observe\", \"tune\"]\n";
        [capabilities, &of("DatagramSize", "size"), &of("AckPolicy", "policy")].concat()
    };
    // If a function returns anything other than EQUIC_DONE and EQUIC_DEFAULT, the plugin must be
    // detached.
    let text = r#"
        equic_u64 size(struct equic_datagram_size *call)
        {
            equic_u64 usual = call->out.bytes;

            call->out.bytes = 7;
            if (equic_call_default() != usual || call->out.bytes != usual)
                return 99;
            call->out.bytes = usual - 20;
            return EQUIC_DONE;
        }
        equic_u64 policy(struct equic_ack_policy *call)
        {
            equic_u64 threshold = call->out.threshold, delay = call->out.max_delay, late = call->out.reordering;

            call->out.threshold = call->out.max_delay = call->out.reordering = 99;
            if (equic_call_default() != threshold || call->out.threshold != threshold)
                return 99;
            return call->out.max_delay == delay && call->out.reordering == late ? EQUIC_DONE : 99;
        }"#;
    let plugin = of_text("again", &manifest("replace", "default = true\n"), text).unwrap();
    let mut network = network(&link(), seed());
    for plugin in [&plugin, &largest_datagram("looks-again"), &plugin] {
        attach(&mut network, End::Server, plugin);
    }
    download(&mut network, 1_000_000);
    assert_none_failed(&mut network);
    let mtu = network.connection(End::Server).unwrap().current_mtu();
    assert_eq!(told(&mut network).last().unwrap()[0], u64::from(mtu) - 40);
    // The manifest does not request the default's answer, so the object must not load.
    for (anchor, default) in [("replace", ""), ("after", "")] {
        let why =
            of_text("again-without", &manifest(anchor, default), text).unwrap_err().to_string();
        assert!(why.contains("`size` calls equic_call_default"), "{why}");
        assert!(why.contains("default = true"), "{why}");
    }
}

/// If two plugins that limit the rate are attached, the lower limit must apply, whichever was
/// attached last. After that plugin is detached, the other limit must apply.
#[test]
fn runtime_applies_the_lower_of_two_caps() {
    let plugin = tree_plugin("cap");
    let mut network = network(&link(), seed());
    let mut cap = |caps: [u64; 2]| {
        let server = network.connection(End::Server).unwrap();
        let hook = plugin.attach(server).unwrap();
        let message: Vec<u8> = caps.into_iter().flat_map(u64::to_le_bytes).collect();
        server.tell_hook(hook, &message).unwrap();
        hook
    };
    let low = cap([30_000, 300_000]);
    cap([400_000, 1_500_000]);
    let mut rate = || 600_000.0 / download(&mut network, 600_000).as_secs_f64();
    let both = rate();
    network.connection(End::Server).unwrap().detach(low).unwrap();
    let mut rate = || 600_000.0 / download(&mut network, 600_000).as_secs_f64();
    let (_, one) = (rate(), rate());
    assert_none_failed(&mut network);
    assert!((180_000.0..315_000.0).contains(&both), "{both} bytes a second with both");
    assert!((700_000.0..1_575_000.0).contains(&one), "{one} bytes a second with the higher one");
}
