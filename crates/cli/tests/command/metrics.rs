//! Tests of the gateway's metrics with a real Prometheus, and of the dashboard and the alerts in
//! docs/grafana. Also tests the HTTP server with hostile clients.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{
    EQUIC, EQUIC_LAB, PATIENCE, ROOT, Running, equic, equic_in, equic_lab_in, eventually, finish,
    lab, unique, v4,
};
use equic_netns::Namespace;
use serde_json::{Value, json};

/// In the server's own network namespace, this port is always free.
const PROMETHEUS: &str = "127.0.0.1:9090";
const OF_RUN: &str = "127.0.0.1:9433";
const OF_EXPORTER: &str = "127.0.0.1:9434";

/// A response of an HTTP server.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// Sends a request unchanged, and reads until the server closes the connection.
fn exchange(address: SocketAddr, request: &[u8]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
}

fn get_at(address: SocketAddr, path: &str) -> std::io::Result<Answer> {
    // With HTTP/1.0, responses are not chunked.
    exchange(address, format!("GET {path} HTTP/1.0\r\nHost: test\r\n\r\n").as_bytes())
}

/// Requests a page from a host of a lab.
fn get(host: &Namespace, address: &str, path: &str) -> std::io::Result<Answer> {
    let address: SocketAddr = address.parse().expect("an address");
    host.run(|| get_at(address, path)).expect("the namespace is there")
}

/// Reads the metrics that a gateway on a host of a lab serves itself.
pub(crate) fn scrape(host: &Namespace) -> String {
    get(host, OF_RUN, "/metrics").expect("the gateway serves metrics").body
}

/// A child process. It is killed when the value is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Prometheus that runs on a host of a lab.
struct Prometheus<'a> {
    host: &'a Namespace,
    _process: Process,
}

impl<'a> Prometheus<'a> {
    fn start(host: &'a Namespace, directory: &Path, config: &str) -> Prometheus<'a> {
        let file = directory.join("prometheus.yml");
        std::fs::write(&file, config).expect("it can be written");
        let mut command = host.command("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={PROMETHEUS}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let process = equic_netns::spawn(command).expect("prometheus is installed (make setup)");
        let prometheus = Prometheus { host, _process: Process(process) };
        eventually("prometheus is ready", || {
            get(host, PROMETHEUS, "/-/ready").ok().filter(|answer| answer.status == 200)
        });
        prometheus
    }

    fn api(&self, path: &str) -> Value {
        let answer = get(self.host, PROMETHEUS, path).expect("prometheus answers");
        let value: Value = serde_json::from_str(&answer.body)
            .unwrap_or_else(|error| panic!("{path}: {error}: {answer:?}"));
        assert_eq!(value["status"], "success", "{path}: {value}");
        value["data"].clone()
    }

    /// Returns the result of an instant query. Panics if the query is not valid.
    fn query(&self, expression: &str) -> Vec<Value> {
        let encoded: String =
            expression.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        let data = self.api(&format!("/api/v1/query?query={encoded}"));
        data["result"].as_array().expect("a vector").clone()
    }

    /// Returns the values of the series that an expression selects, as numbers.
    fn values(&self, expression: &str) -> Vec<f64> {
        let number =
            |row: &Value| row["value"][1].as_str().expect("a value").parse().expect("a number");
        self.query(expression).iter().map(number).collect()
    }
}

/// Makes the kernel measure the run time of BPF programs while the returned descriptor is open
/// (bpf(2), BPF_ENABLE_STATS).
fn count_run_time() -> std::os::fd::OwnedFd {
    use std::os::fd::FromRawFd as _;
    // SAFETY: the call takes no pointers. It returns a new descriptor or a negative number.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    assert!(fd >= 0, "bpf_enable_stats: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new and has no other owner.
    unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }
}

fn flood(kind: &str, target: &str, rest: &[&'static str]) -> Vec<String> {
    let args = ["net", "flood", kind, "--target", target, "--json"];
    args.iter().chain(rest).map(|arg| (*arg).to_owned()).collect()
}

fn strs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Returns every expression of the dashboard, with the title of its panel.
fn board() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(format!("{ROOT}/docs/grafana/equic-gateway.json")).unwrap();
    let board: Value = serde_json::from_str(&text).expect("the board is JSON");
    let mut expressions = Vec::new();
    for panel in board["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        assert!(!panel["description"].as_str().expect("a description").is_empty(), "{title}");
        assert!(!panel["fieldConfig"]["defaults"]["unit"].as_str().expect("a unit").is_empty());
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            expressions.push((title.to_owned(), expression.to_owned()));
            for with_source in [&panel["datasource"], &target["datasource"]] {
                assert_eq!(with_source["uid"], "${datasource}", "{title}");
            }
        }
    }
    assert!(expressions.len() > 20, "{expressions:?}");
    expressions
}

#[test]
fn metrics_work_with_prometheus_dashboard_and_alerts() {
    let Some(lab) = lab("cli-metrics", 2) else { return };
    let (server, name) = (lab.server(), &unique("metrics"));
    let _counting = count_run_time();
    let limits = ["--new-per-source", "5/s burst 10", "--max-connections", "7"];
    let gateway = Running::gateway(server, name, &[&["--metrics", OF_RUN], &limits[..]].concat());
    assert_eq!(gateway.event("metrics")["address"], OF_RUN);
    let exporter = Running::start(
        server.command(EQUIC),
        &["gateway", "metrics", "--gateway", name, "--listen", OF_EXPORTER, "--json"],
    );
    let ready = exporter.event("metrics");
    assert_eq!(
        (&ready["schema"], &ready["address"]),
        (&json!("equic.gateway.metrics/1"), &json!(OF_EXPORTER))
    );
    let feeding = Running::start(
        server.command(EQUIC),
        &["serve", "--json", "--gateway", name, "--listen", "[::]:443"],
    );
    feeding.event("ready");

    let directory = tempfile::tempdir().unwrap();
    let prometheus = Prometheus::start(
        server,
        directory.path(),
        &format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: ['{ROOT}/docs/grafana/alerts.yml']\n\
             scrape_configs:\n\
             - job_name: equic\n\
             \x20 static_configs: [{{ targets: ['{OF_RUN}', '{OF_EXPORTER}'] }}]\n"
        ),
    );
    eventually("both targets are up", || {
        let targets = prometheus.api("/api/v1/targets");
        let targets = targets["activeTargets"].as_array()?;
        let up = targets.iter().filter(|target| target["health"] == "up").count();
        (targets.len() == 2 && up == 2).then_some(())
    });
    // The data of a scrape can be queried only a moment after the target is reported as up.
    eventually("both say that they are up", || {
        (prometheus.values("equic_up") == [1.0, 1.0]).then_some(())
    });

    // Send an exact number of packets. The counters must match it exactly.
    let target = format!("{}:443", v4(server));
    let garbage = flood("garbage", &target, &["--packets", "70", "--duration", "20s"]);
    equic_lab_in(lab.client(1), &strs(&garbage)).ok();
    let initials =
        flood("initial", &target, &["--packets", "400", "--pps", "1000", "--duration", "20s"]);
    equic_lab_in(lab.client(0), &strs(&initials)).ok();
    let status = eventually("all have been judged", || {
        let status = equic(&["gateway", "status", "--json", "--gateway", name]).json();
        (status["services"][0]["packets"].as_u64()? >= 470).then_some(status)
    });
    for verdict in status["services"][0]["verdicts"].as_array().unwrap() {
        let (reason, packets) =
            (verdict["reason"].as_str().unwrap(), verdict["packets"].as_u64().unwrap() as f64);
        eventually(&format!("{reason}: {packets} packets in prometheus, twice"), || {
            let counter = format!("equic_packets_total{{reason=\"{reason}\"}}");
            (prometheus.values(&counter) == [packets, packets]).then_some(())
        });
        let bytes = verdict["bytes"].as_u64().unwrap() as f64;
        let of_run = format!("{{reason=\"{reason}\",instance=\"{OF_RUN}\"}}");
        assert_eq!(prometheus.values(&format!("equic_bytes_total{of_run}")), [bytes]);
        let dropped = prometheus.values(&format!("equic_dropped_packets_total{of_run}"));
        let expected = verdict["dropped"].as_u64().unwrap() as f64;
        assert_eq!(dropped, if expected > 0.0 { vec![expected] } else { vec![] }, "{reason}");
    }
    let of_exporter =
        |metric: &str| prometheus.values(&format!("{metric}{{instance=\"{OF_EXPORTER}\"}}"));
    assert_eq!(of_exporter("equic_service_connections_limit"), [7.0]);
    assert_eq!(prometheus.values("equic_service_rate_limit{limit='new_per_source'}"), [5.0, 5.0]);
    assert_eq!(
        prometheus.values("equic_interface_attached{interface='eth0',mode='native'}"),
        [1.0, 1.0]
    );
    assert_eq!(prometheus.values("equic_servers{state='counting'}"), [1.0, 1.0]);
    assert_eq!(prometheus.values("equic_table_entries{table='sources'}"), [2.0, 2.0]);

    equic(&["gateway", "deny", "198.51.100.0/24", "--gateway", name]).ok();
    eventually("a list entry", || {
        (prometheus.values("sum by (instance) (equic_list_entries{list='deny'})") == [1.0, 1.0])
            .then_some(())
    });
    check_dashboard_has_data(&lab, &prometheus, &target);
    check_alerts_evaluate(&prometheus);
    check_exporter_outlives_the_gateway(&prometheus, gateway, &lab, name);
}

/// Checks that the dashboard shows data during an attack. The attack causes drops and new
/// connections.
fn check_dashboard_has_data(lab: &equic_netns::Lab, prometheus: &Prometheus<'_>, target: &str) {
    let flood = flood("initial", target, &["--pps", "200", "--duration", "300s"]);
    let _flood = Running::start(lab.client(0).command(EQUIC_LAB), &strs(&flood));
    for (title, expression) in board() {
        let expression = expression
            .replace("$instance", ".*")
            .replace("$service", ".*")
            .replace("$__rate_interval", "10s");
        assert!(!expression.contains('$'), "{title}: {expression}");
        eventually(&format!("data for {title}: {expression}"), || {
            let values = prometheus.values(&expression);
            (!values.is_empty() && values.iter().all(|value| value.is_finite())).then_some(())
        });
    }
    eventually("drops a second", || {
        let rate = prometheus.values("sum(rate(equic_dropped_packets_total[10s]))");
        rate.first().filter(|rate| **rate > 10.0).copied()
    });
}

fn check_alerts_evaluate(prometheus: &Prometheus<'_>) {
    let rules = eventually("every rule was evaluated", || {
        let groups = prometheus.api("/api/v1/rules");
        let rules = groups["groups"][0]["rules"].as_array()?.clone();
        let done = |rule: &Value| rule["health"] != "unknown";
        (!rules.is_empty() && rules.iter().all(done)).then_some(rules)
    });
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        let quiet = !["EquicAttack"].contains(&rule["name"].as_str().unwrap());
        assert!(!quiet || rule["state"] == "inactive", "{rule}");
    }
}

fn check_exporter_outlives_the_gateway(
    prometheus: &Prometheus<'_>,
    gateway: Running,
    lab: &equic_netns::Lab,
    name: &str,
) {
    let up = format!("equic_up{{instance=\"{OF_EXPORTER}\"}}");
    gateway.signal(nix::sys::signal::Signal::SIGKILL);
    drop(gateway);
    eventually("no gateway", || (prometheus.values(&up) == [0.0]).then_some(()));
    let health = || get(lab.server(), OF_EXPORTER, "/healthz").unwrap().status;
    assert_eq!(health(), 503);
    let again = Running::start(
        lab.server().command(EQUIC),
        &["gateway", "run", "-i", "eth0", "-p", "443", "--name", name, "--json"],
    );
    again.event("ready");
    eventually("a gateway again", || (prometheus.values(&up) == [1.0]).then_some(()));
    assert_eq!(health(), 200);
    assert_eq!(prometheus.values(&format!("{up} and on () sum(equic_packets_total) >= 0")), [1.0]);
}

/// Runs promtool, and checks that it accepts the input.
fn promtool(args: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is installed (make setup)");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let out = child.wait_with_output().expect("it ends");
    let said = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn metrics_alerts_pass_their_rule_tests() {
    let file = |name: &str| format!("{ROOT}/docs/grafana/{name}");
    promtool(&["check", "rules", &file("alerts.yml")], "");
    promtool(&["test", "rules", &file("alerts.test.yml")], "");
}

/// Starts a gateway whose configuration has an address for metrics. Returns this address, too.
fn configured(host: &Namespace, name: &str) -> (Running, String) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!(
        "[gateway]\nname = \"{name}\"\ninterfaces = [\"eth0\"]\nmetrics = \"127.0.0.1:0\"\n\
         [[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 2\n\
         new_per_source = \"20/s\"\n[[service]]\nname = \"alt\"\nlisten = [\"444\"]\n"
    );
    std::fs::write(file.path(), text).expect("it can be written");
    let path = file.path().to_str().expect("a path");
    let gateway =
        Running::start(host.command(EQUIC), &["gateway", "run", "--json", "--config", path]);
    let address = gateway.event("metrics")["address"].as_str().expect("an address").to_owned();
    (gateway, address)
}

#[test]
fn metrics_are_valid_for_promtool() {
    let Some(lab) = lab("cli-promtool", 1) else { return };
    let name = &unique("promtool");
    let (_gateway, address) = configured(lab.server(), name);
    let answer = get(lab.server(), &address, "/metrics").unwrap();
    assert!(
        answer.status == 200 && answer.head.contains("text/plain; version=0.0.4"),
        "{answer:?}"
    );
    promtool(&["check", "metrics"], &answer.body);
    let once = equic(&["gateway", "metrics", "--once", "--gateway", name]).ok();
    promtool(&["check", "metrics"], &once);
    // Every reason must have a series for every service from the start, so that the first packet is
    // an increase.
    let series =
        |text: &str| text.lines().filter(|l| l.starts_with("equic_packets_total{")).count();
    let reasons = equic_gateway::Reason::all().len();
    assert_eq!((series(&answer.body), series(&once)), (2 * reasons, 2 * reasons));
    assert!(
        once.contains("equic_packets_total{service=\"alt\",reason=\"quota\",verdict=\"drop\"} 0\n")
    );
}

#[test]
fn metrics_server_serves_others_despite_hostile_clients() {
    let Some(lab) = lab("cli-hostile", 1) else { return };
    let (_gateway, address) = configured(lab.server(), &unique("hostile"));
    let address: SocketAddr = address.parse().unwrap();
    let host = lab.server();
    let ask = |request: &[u8]| host.run(|| exchange(address, request)).unwrap();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("GET /metrics?name[]=up HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 405),
        ("DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        ("\u{16}\u{3}\u{1} this is not HTTP\r\n\r\n", 400),
    ] {
        let answer = ask(request.as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{request}: {answer:?}");
    }
    let head = ask(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(head.status == 200 && head.body.is_empty(), "{head:?}");
    assert!(ask(b"PUT / HTTP/1.1\r\n\r\n").unwrap().head.contains("allow: get, head"));
    // The server must reject headers that never end.
    let endless = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'a'; 100_000]].concat();
    let refused = ask(&endless);
    assert!(refused.as_ref().is_ok_and(|a| a.status == 431) || refused.is_err(), "{refused:?}");

    // 200 clients connect, and send nothing or only a part of a request.
    let held: Vec<TcpStream> = host
        .run(|| {
            let hold = |index: usize| {
                let mut stream = TcpStream::connect(address).expect("a connection");
                // Ignore errors, because the server may close the connection at any time for a
                // later client.
                let _ = stream.write_all(&b"GET /metrics HTTP/1.1\r\nHo"[..index % 25]);
                stream
            };
            (0..200).map(hold).collect()
        })
        .unwrap();
    let answer = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(answer.status == 200 && answer.body.contains("equic_up 1"), "{answer:?}");
    // The server must close these connections.
    for mut stream in held {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A read with a timeout returns early if the process is stopped for a moment (signal(7)).
        let ended = loop {
            match stream.read(&mut [0; 512]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                ended => break ended,
            }
        };
        let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(reset), "{ended:?}");
    }
}

/// A client that closes its sending side after the request, like `printf ... | nc -N`, must still
/// get the response.
#[test]
fn metrics_client_that_closes_its_half_is_answered() {
    let Some(lab) = lab("cli-half", 1) else { return };
    let (server, name) = (lab.server(), &unique("half"));
    let gateway = Running::gateway(server, name, &["--metrics", OF_RUN]);
    gateway.event("metrics");
    let address: SocketAddr = OF_RUN.parse().expect("an address");
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
        ("GET /healthz HTTP/1.0\r\n\r\n", "200"),
        ("GET /x HTTP/1.0\r\n\r\n", "404"),
        // If a connection sends several requests, only the first may be answered.
        ("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
    ] {
        let answer = server.run(|| {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            stream.write_all(request.as_bytes()).expect("it reads");
            stream.shutdown(std::net::Shutdown::Write).expect("it is open");
            let mut bytes = Vec::new();
            // Reading may fail: the rest of the request is unread, so the kernel resets the
            // connection after the response.
            let _ = stream.read_to_end(&mut bytes);
            String::from_utf8(bytes).expect("text")
        });
        let answer = answer.expect("the namespace is there");
        assert_eq!(answer.split(' ').nth(1), Some(status), "{request:?}: {answer:?}");
    }
    // An incomplete request must get no response.
    let half = server.run(|| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost").expect("it reads");
        stream.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes
    });
    let half = half.expect("the namespace is there");
    assert!(!half.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&half));
    assert!(gateway.terminate().success());
}

#[test]
fn metrics_port_in_use_is_an_error_and_nothing_is_attached() {
    let Some(lab) = lab("cli-taken", 1) else { return };
    let taken = lab
        .server()
        .run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"))
        .expect("the namespace is there");
    let address = taken.local_addr().unwrap().to_string();
    let name = &unique("taken");
    let run = ["gateway", "run", "-i", "eth0", "-p", "443", "--name", name, "--metrics", &address];
    for args in [&run[..], &["gateway", "metrics", "--gateway", name, "--listen", &address]] {
        let out = equic_in(lab.server(), args);
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.stderr.contains(&format!("cannot listen on {address}")), "{out:?}");
        assert!(out.stderr.contains("another process listens on this port"), "{out:?}");
    }
    let mut ip = lab.server().command("ip");
    ip.args(["link", "show", "eth0"]);
    assert!(!finish(ip).ok().contains("xdp"));
    let out = equic(&["gateway", "metrics", "--listen", "localhost"]);
    assert!(out.code == Some(2) && out.stderr.contains("--listen"), "{out:?}");
}

/// A gateway with a socket has dropped CAP_SYS_ADMIN, so it can no longer open BPF objects by ID.
/// Its metrics must still work.
#[test]
fn metrics_need_no_privilege_and_report_a_failed_scrape() {
    let Some(lab) = lab("cli-scrape", 1) else { return };
    let (server, name) = (lab.server(), &unique("scrape"));
    let _counting = count_run_time();
    let folder = tempfile::tempdir().unwrap();
    let (socket, log) = (folder.path().join("socket"), folder.path().join("log"));
    let mut command = server.command(EQUIC);
    command.stderr(std::fs::File::create(&log).unwrap());
    let args = ["gateway", "run", "-i", "eth0", "-p", "443", "--json", "--log", "json"];
    let more = ["--name", name, "--metrics", OF_RUN, "--socket", socket.to_str().unwrap()];
    let gateway = Running::start(command, &[&args[..], &more].concat());
    gateway.event("metrics");
    // Send some packets, so that the kernel has run times of the program.
    let target = format!("{}:443", v4(server));
    let one = flood("garbage", &target, &["--packets", "5", "--duration", "20s"]);
    equic_lab_in(lab.client(0), &strs(&one)).ok();
    let scrape = || get(server, OF_RUN, "/metrics").expect("it answers");
    let answer = scrape();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("\nequic_program_runs_total "), "{answer:?}");
    assert!(answer.body.contains("\nequic_up 1"), "{answer:?}");
    let healthz = || get(server, OF_RUN, "/healthz").expect("it answers");
    assert_eq!(healthz().status, 200);

    // Limit the file descriptors so that a response uses the last free one.
    let limit = |soft: usize| {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &gateway.pid().to_string(), &format!("--nofile={soft}:")]);
        finish(prlimit).ok();
    };
    let short = || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap();
        let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<usize>().ok();
        let open: Vec<usize> = open.filter_map(|entry| number(entry.ok()?)).collect();
        let free = |below: usize| below - open.iter().filter(|fd| **fd < below).count();
        limit((0..).find(|below| free(*below) == 1).unwrap());
    };
    // A previous response may still hold a descriptor for a moment, so try repeatedly.
    eventually("a scrape fails", || {
        short();
        (scrape().status == 500).then_some(())
    });
    let unwell =
        eventually("its health is told", || Some(healthz()).filter(|answer| answer.status == 503));
    assert!(unwell.body.contains("cannot be read"), "{unwell:?}");
    let logged = |event: &str| {
        let text = std::fs::read_to_string(&log).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.into_iter().find(|line| line["event"] == event && line["about"] == "metrics")
    };
    let told = eventually("it is in the log", || logged("condition"));
    assert!(told["what"].as_str().unwrap().contains("the metrics cannot be read"), "{told}");
    limit(1024);
    eventually("a scrape succeeds", || (scrape().status == 200).then_some(()));
    eventually("that is in the log", || logged("recovered"));
    assert_eq!(healthz().status, 200);
    assert!(gateway.terminate().success());
}
