//! Tests forward error correction (FEC) by plugins at both ends of connections over sockets,
//! through a relay that drops datagrams.

use std::path::Path;
use std::process::Command;

use equic_net::Link;
use equic_netns::relay::{Config, Counts, Relay};
use serde_json::Value;

use crate::common::{EQUIC, ROOT, Running, equic};

/// Numbers of the server's datagrams that the relay drops. The first one is after the handshake.
/// Each repair frame covers a window of packets. The numbers are so far apart that no window
/// contains two of them.
const LOST: [u64; 10] = [21, 44, 67, 90, 113, 136, 159, 182, 205, 228];

/// Size of the file in bytes. Even without repair frames, sending it takes more than 228 datagrams.
const BYTES: usize = 400_000;

/// Builds a plugin of the source tree with `equic plugin build`.
fn built(name: &str, folder: &Path) -> String {
    let bundle = folder.join(format!("{name}.qplug"));
    let bundle = bundle.to_str().expect("the path is UTF-8");
    equic(&["plugin", "build", &format!("{ROOT}/plugins/{name}"), "-o", bundle]).ok();
    bundle.to_owned()
}

/// Fetches a file from a server through the relay, and checks its content. If `plugin` is given, it
/// is attached at both ends. Returns the number of packets that the client recovered, and the
/// relay's counts.
fn fetched(plugin: Option<&str>) -> (u64, Counts) {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..BYTES as u32).map(|at| (at ^ at >> 8 ^ at >> 15) as u8).collect();
    std::fs::create_dir(folder.path().join("root")).unwrap();
    std::fs::write(folder.path().join("root/file"), &content).unwrap();
    let root = folder.path().join("root");
    let bundle = plugin.map(|name| built(name, folder.path()));
    let plugin: Vec<&str> = bundle.iter().flat_map(|bundle| ["--plugin", bundle]).collect();

    let serve = ["serve", "--json", "--listen", "127.0.0.1:0", "--root", root.to_str().unwrap()];
    let server = Running::start(Command::new(EQUIC), &[&serve, &plugin[..]].concat());
    let ready = server.event("ready");
    let address = ready["address"].as_str().unwrap();
    let relay = Relay::start(Config {
        to_client: Link { drop_list: LOST.to_vec(), ..Link::default() },
        ..Config::new("127.0.0.1:0".parse().unwrap(), address.parse().unwrap())
    });
    let relay = relay.expect("the relay starts");

    let front = relay.fronts()[0].to_string();
    let (url, to) = (format!("https://{address}/file"), folder.path().join("got"));
    let pin = ready["fingerprint"].as_str().unwrap();
    let get =
        ["get", "--json", "--pin", pin, "--connect", &front, "-o", to.to_str().unwrap(), &url];
    let lines = equic(&[&get, &plugin[..]].concat()).ok();
    let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let got = lines.next().expect("the line of the URL");
    for plugin in lines {
        assert_eq!((&plugin["by"], &plugin["state"]), (&"local".into(), &"active".into()));
        assert!(plugin["counters"]["calls"].as_u64().unwrap() > 0, "{plugin}");
    }
    assert_eq!((&got["status"], &got["bytes"]), (&200.into(), &BYTES.into()), "{got}");
    assert!(std::fs::read(to).unwrap() == content, "other bytes came than were sent");
    assert!(server.terminate().success());
    let counts = relay.stop().expect("the relay has gone on to the end").counts;
    (got["packets_recovered"].as_u64().expect("it is counted"), counts)
}

fn lost(counts: &Counts) -> u64 {
    counts.to_client.fates.get("dropped").copied().unwrap_or(0)
}

#[test]
fn fec_without_the_plugin_at_the_client_recovers_nothing() {
    let (recovered, counts) = fetched(None);
    assert_eq!((recovered, lost(&counts)), (0, LOST.len() as u64), "{counts:?}");
}

/// On a busy machine, sockets also drop datagrams, so fewer packets can be recovered. Even then,
/// more than half of the dropped packets must be recovered.
#[test]
fn fec_by_xor_recovers_lost_datagrams() {
    let (recovered, counts) = fetched(Some("fec-xor"));
    assert_eq!(lost(&counts), LOST.len() as u64, "{counts:?}");
    assert!(recovered > LOST.len() as u64 / 2, "{recovered} recovered, {counts:?}");
}

#[test]
fn fec_by_random_linear_codes_recovers_lost_datagrams() {
    let (recovered, counts) = fetched(Some("fec-rlc"));
    assert_eq!(lost(&counts), LOST.len() as u64, "{counts:?}");
    assert!(recovered > LOST.len() as u64 / 2, "{recovered} recovered, {counts:?}");
}
