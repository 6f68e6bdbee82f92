//! What bytecode has of its connection: fields of its parts.

mod common;

use std::time::Duration;

use common::{assert_none_failed, at, download, link, network, of_text, seed};
use equic_plugin_kit::{End, Network};
use equic_transport::Direction;

/// The messages of the server's plugins to the application, as words.
fn told(network: &mut Network) -> Vec<Vec<u64>> {
    let word = |word: &[u8]| u64::from_le_bytes(word.try_into().unwrap());
    let messages = network.messages(End::Server);
    messages.iter().map(|(_, message)| message.chunks_exact(8).map(word).collect()).collect()
}

/// A plugin answers each message with fields: of the connection, of the streams 7, 11 and 15, of paths.
#[test]
fn fields_of_streams_and_paths() {
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
    server.write(streams[0], &[1; 5_000]).unwrap();
    server.write(streams[1], &[2; 700]).unwrap();
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
