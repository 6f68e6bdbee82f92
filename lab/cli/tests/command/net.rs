//! Tests of `equic-lab net`, and of the quinn server that `gateway-bench --forged` measures.

use std::process::Command;

use crate::common::{EQUIC_LAB, PATIENCE, Running, equic, equic_lab};
use serde_json::Value;

/// Returns a text field of an event.
fn text<'v>(event: &'v Value, name: &str) -> &'v str {
    event[name].as_str().unwrap_or_else(|| panic!("no {name}: {event}"))
}

#[test]
fn net_creates_lists_and_removes_labs() {
    if !crate::common::root("net_creates_lists_and_removes_labs") {
        return;
    }
    let name = format!("cli-up-{}", std::process::id());
    let keeper =
        Running::start(Command::new(EQUIC_LAB), &["net", "up", &name, "--clients", "1", "--json"]);
    let up = keeper.event("up");
    let id = text(&up["lab"], "id").to_owned();
    let list = equic_lab(&["net", "list", "--json"]).json();
    let labs = list["labs"].as_array().unwrap();
    assert!(
        labs.iter().any(|lab| lab["lab"]["id"] == id.as_str() && lab["alive"] == true),
        "{list}"
    );
    let inside =
        equic_lab(&["net", "exec", &format!("{name}/c0"), "--", "ip", "-br", "address"]).ok();
    assert!(inside.contains("eth0"), "{inside}");
    let code = equic_lab(&["net", "exec", &format!("{name}/server"), "--", "sh", "-c", "exit 7"]);
    assert_eq!(code.code, Some(7));
    assert!(equic_lab(&["net", "down", &name]).ok().contains(&id));
    keeper.event("down");
    assert!(!equic_lab(&["net", "list"]).ok().contains(&id));
}

/// Tests the quinn server that `gateway-bench --forged` measures. A client without a token must get
/// a Retry packet, and a client that returns the token must be served.
#[test]
fn quinn_server_sends_a_retry_to_every_client() {
    let mut command = Command::new(EQUIC_LAB);
    command.args(["quinn-server"]);
    let server = Running::start(command, &["--listen", "127.0.0.1:0", "--receive-buffer", "1MB"]);
    let ready = server.event("ready");
    assert_eq!(text(&ready, "schema"), "equic.lab.quinn/1");

    let initials = equic_netns::flood::InitialFactory::new("localhost", &["h3"]).expect("a name");
    let mut initial = Vec::new();
    initials.write(&mut rand::rng(), &mut initial).expect("it is made");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    for _ in 0..2 {
        socket.send_to(&initial, text(&ready, "address")).expect("it is sent");
        let mut answer = [0; 2_000];
        let length = socket.recv(&mut answer).expect("an answer");
        // The answer must have version 1 and type Retry (RFC 9000 s.17.2.5), and nothing may follow
        // the packet.
        assert_eq!((answer[0] >> 4, &answer[1..5]), (0xf, &[0, 0, 0, 1][..]));
        assert!(length < 300, "{length}");
    }

    let url = |path: &str| format!("https://{}{path}", text(&ready, "address"));
    let get = |path| equic(&["get", "--pin", text(&ready, "fingerprint"), "--json", &url(path)]);
    assert_eq!(get("/bytes/100000").json()["bytes"], 100_000);
    assert_eq!(get("/nothing").code, Some(1));
}
