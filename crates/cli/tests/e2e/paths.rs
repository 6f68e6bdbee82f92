//! Tests of `equic get --path`: a download over two interfaces at once (RFC 10069). During the
//! download, one interface goes down and comes back, a plugin limits the rate of one path, or
//! another interface appears.

use std::fs;
use std::path::PathBuf;

use equic_netns::{Lab, Namespace};

use crate::common::{EQUIC, ROOT, Running, equic, eventually, finish, lab, v4};

/// The client's address on its second interface.
const CLIENT: &str = "10.99.0.2";
const SERVER: &str = "10.99.0.1";
/// Rate of each link towards the client, until a test has made its change and removes the limit.
/// Over one such link, the download would take 80 seconds, so there is enough time on any machine.
const RATE: &str = "4mbit";
const FILE: usize = 40 << 20;
/// Number of bytes that a link must transfer before a test believes that it carries data.
const SOME: u64 = 512 << 10;

fn run(host: &Namespace, program: &str, args: &str) -> String {
    let mut command = host.command(program);
    command.args(args.split(' '));
    finish(command).ok()
}

/// Adds another link between client and server, and waits until it works. On this link, the client
/// has the address `10.NET.0.2`, and the server `10.NET.0.1`.
fn link(lab: &Lab, name: &str, net: u8) {
    let (server, client) = (lab.server(), lab.client(0));
    run(client, "ip", &format!("link add {name} type veth peer name {name} netns {}", server.name));
    limit(server, name);
    for (host, number) in [(client, 2), (server, 1)] {
        run(host, "ip", &format!("address add 10.{net}.0.{number}/24 dev {name}"));
        run(host, "ip", &format!("link set {name} up"));
    }
}

/// Limits the rate of a link towards the client.
fn limit(server: &Namespace, interface: &str) {
    let limit =
        format!("qdisc replace dev {interface} root tbf rate {RATE} burst 64kb latency 50ms");
    run(server, "tc", &limit);
}

/// Removes the rate limits of all links.
fn unlimit(lab: &Lab) {
    let shown = run(lab.server(), "tc", "-j qdisc show");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    for one in shown.as_array().expect("a list").iter().filter(|one| one["kind"] == "tbf") {
        let interface = one["dev"].as_str().expect("an interface");
        run(lab.server(), "tc", &format!("qdisc del dev {interface} root"));
    }
}

/// Adds a second link between client and server. Over it, the client can also reach the server's
/// usual address, but only if it sends from its second interface. By default, the route over the
/// first one is used.
fn second_link(lab: &Lab) {
    let (server, client) = (lab.server(), lab.client(0));
    link(lab, "second", 99);
    let to = v4(server);
    run(client, "ip", &format!("route add {to}/32 dev eth0 metric 1"));
    run(client, "ip", &format!("route add {to}/32 via {SERVER} dev second metric 500"));
    limit(server, "eth0");
}

/// Returns the number of bytes that an interface of the client has received.
fn received(lab: &Lab, interface: &str) -> u64 {
    let shown = run(lab.client(0), "ip", &format!("-j -s link show dev {interface}"));
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    shown[0]["stats64"]["rx"]["bytes"].as_u64().expect("a number")
}

/// Waits until an interface has received another [`SOME`] bytes.
fn carries(lab: &Lab, interface: &str) {
    let before = received(lab, interface);
    eventually("data over the link", || (received(lab, interface) > before + SOME).then_some(()));
}

/// A download in progress.
struct Scene<'a> {
    lab: &'a Lab,
    /// File to which the body is written, in order.
    body: PathBuf,
}

impl Scene<'_> {
    /// Waits until the body has grown. The body is written in order, so if it grows after a link
    /// went down, the data lost on that link was sent again.
    fn grows(&self) {
        let length = || fs::metadata(&self.body).expect("it is under way").len();
        let before = length();
        eventually("more of the body", || (length() > before + SOME).then_some(()));
    }
}

/// Starts a download over both links, with `path` as the value of `--path`. Calls `act` when both
/// links have carried data. At the end, checks the content and returns the JSON output.
fn downloads(name: &str, path: &str, act: impl Fn(&Scene<'_>)) -> Option<serde_json::Value> {
    let lab = lab(name, 1)?;
    second_link(&lab);
    let folder = tempfile::tempdir().unwrap();
    let file: Vec<u8> = (0..FILE).map(|at| (at ^ (at >> 8) ^ ((at >> 16) * 31)) as u8).collect();
    fs::write(folder.path().join("file"), &file).unwrap();
    let root = folder.path().to_str().unwrap();
    let args = ["serve", "--json", "--listen", "[::]:443", "--paths", "3", "--root", root];
    let server = Running::start(lab.server().command(EQUIC), &args);
    server.event("ready");
    let into = folder.path().join("copies");
    fs::create_dir(&into).unwrap();
    let copy = into.join("copy");
    let url = format!("https://{}/file", v4(lab.server()));
    let output = copy.to_str().unwrap();
    let args = ["get", "--json", "--insecure", "--path", path, "--output", output, &url];
    let mut get = Running::start(lab.client(0).command(EQUIC), &args);
    for interface in ["eth0", "second"] {
        carries(&lab, interface);
    }
    let mut names = fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().path());
    let body = names.find(|path| path.extension().is_some_and(|end| end == "partial"));
    act(&Scene { lab: &lab, body: body.expect("a temporary file") });
    let come = received(&lab, "eth0") + received(&lab, "second");
    assert!(come < FILE as u64, "{come} bytes: it is under way");
    unlimit(&lab);
    let printed = get.json();
    assert!(get.wait().success());
    assert!(fs::read(&copy).unwrap() == file, "{} bytes", fs::metadata(&copy).unwrap().len());
    Some(printed)
}

fn set(lab: &Lab, interface: &str, state: &str) {
    run(lab.client(0), "ip", &format!("link set {interface} {state}"));
}

/// Returns the source addresses of the paths that were open at the end of the download.
fn from(printed: &serde_json::Value) -> Vec<&str> {
    let paths = printed["paths"].as_array().expect("paths");
    paths.iter().map(|path| path["from"].as_str().expect("an address")).collect()
}

#[test]
fn path_loss_of_the_added_interface_does_not_end_a_download() {
    let printed = downloads("e2e-path-second", CLIENT, |scene| {
        set(scene.lab, "second", "down");
        // The body must grow while the link is down.
        scene.grows();
    });
    let Some(printed) = printed else { return };
    assert!(from(&printed).len() == 1 && from(&printed) != [CLIENT], "{printed}");
}

#[test]
fn path_loss_of_the_first_interface_does_not_end_a_download() {
    let printed = downloads("e2e-path-first", CLIENT, |scene| {
        set(scene.lab, "eth0", "down");
        scene.grows();
    });
    let Some(printed) = printed else { return };
    assert_eq!(from(&printed), [CLIENT], "{printed}");
}

/// Every interface must become a path. An interface that goes down and comes back must become a
/// path again.
#[test]
fn path_returns_with_its_interface() {
    let printed = downloads("e2e-path-back", "all", |scene| {
        let lab = scene.lab;
        set(lab, "second", "down");
        carries(lab, "eth0");
        scene.grows();
        set(lab, "second", "up");
        let to = v4(lab.server());
        run(lab.client(0), "ip", &format!("route add {to}/32 via {SERVER} dev second metric 500"));
        carries(lab, "second");
    });
    let Some(printed) = printed else { return };
    assert!(from(&printed).len() == 2 && from(&printed).contains(&CLIENT), "{printed}");
    assert!(printed["paths"][1]["id"].as_u64() > Some(1), "no path ID is used twice: {printed}");
}

/// An interface that appears during the download must become a path, too.
#[test]
fn path_opens_on_a_new_interface() {
    let printed = downloads("e2e-path-new", "all", |scene| {
        let lab = scene.lab;
        link(lab, "third", 98);
        let to = v4(lab.server());
        run(lab.client(0), "ip", &format!("route add {to}/32 via 10.98.0.1 dev third metric 600"));
        carries(lab, "third");
    });
    let Some(printed) = printed else { return };
    assert!(from(&printed).len() == 3 && from(&printed).contains(&"10.98.0.2"), "{printed}");
}

/// A policy that grants plugins of any author the classes that the plugin `cap` needs.
const POLICY: &str = "anyone = [\"observe\", \"tune\"]\n";

/// Downloads over two interfaces, and returns how many bytes each has received. If `cap` is given,
/// the client pushes a plugin to the server that limits the second path to this number of bytes per
/// second. `serve` has additional options of the server.
fn downloads_with(cap: Option<u32>, serve: &[&str], name: &str) -> Option<[u64; 2]> {
    const BYTES: u64 = 6 << 20;
    let lab = lab(name, 1)?;
    second_link(&lab);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(file("policy.toml"), POLICY).unwrap();
    let (policy, bundle) = (file("policy.toml"), file("cap.qplug"));
    let args = ["serve", "--json", "--listen", "[::]:443", "--paths", "2"];
    let args = [&args[..], &["--accept-plugins", &policy], serve].concat();
    let server = Running::start(lab.server().command(EQUIC), &args);
    server.event("ready");
    let url = format!("https://{}/bytes/{BYTES}", v4(lab.server()));
    let mut args = vec!["get", "--json", "--insecure", "--path", CLIENT, "-o", "/dev/null", &url];
    if let Some(rate) = cap {
        let folder = format!("{ROOT}/plugins/cap-path");
        let rate = format!("RATE={rate}");
        equic(&["plugin", "build", &folder, "-o", &bundle, "-D", &rate]).ok();
        args.extend(["--push", &bundle, "--push-hold", "10s"]);
    }
    let before = ["eth0", "second"].map(|interface| received(&lab, interface));
    let mut get = lab.client(0).command(EQUIC);
    get.args(args);
    let said = finish(get).ok();
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["bytes"], BYTES, "{said}");
    if cap.is_some() {
        let plugin =
            lines.iter().find(|line| line["schema"] == "equic.get.plugin/1").expect("a plugin");
        assert_eq!((&plugin["name"], &plugin["state"]), (&"cap-path".into(), &"active".into()));
    }
    let after = ["eth0", "second"].map(|interface| received(&lab, interface));
    Some([after[0] - before[0], after[1] - before[1]])
}

#[test]
fn path_cap_pushed_by_the_client_limits_one_path_of_the_server() {
    let Some(usual) = downloads_with(None, &[], "e2e-path-nocap") else { return };
    // The second path opens later than the first. How much later depends on the machine, so the
    // test does not require equal shares.
    assert!(usual[1] > 1_000_000, "data comes over both: {usual:?}");
    let Some(capped) = downloads_with(Some(50_000), &[], "e2e-path-cap") else { return };
    println!("{usual:?} without a cap, {capped:?} with it");
    assert!(2 * capped[1] < usual[1], "{usual:?} without a cap, {capped:?} with it");
    assert!(capped[1] > 20_000, "it carries something: {capped:?}");
}

/// The plugin `weighted` on the server must send at most a tenth as much over a path with cost 9 as
/// over the other path.
#[test]
fn path_that_costs_more_carries_less() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("weighted.qplug");
    let bundle = bundle.to_str().unwrap();
    equic(&["plugin", "build", &format!("{ROOT}/plugins/weighted"), "-o", bundle]).ok();
    let options = ["--plugin", bundle, "--path-cost", "10.99.0.0/24=9"];
    let Some(sent) = downloads_with(None, &options, "e2e-path-cost") else { return };
    // The first link's counter does not include packets that the link dropped, so compare with 1/7
    // instead of 1/10.
    assert!(sent[1] < sent[0] / 7, "{sent:?}");
    assert!(sent[1] > 100_000, "it carries something: {sent:?}");
}
