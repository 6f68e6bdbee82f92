//! The example servers: their names, their locations, and how to start them.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{EQUIC, PATIENCE, ROOT};
use crate::stage::TestStage;

/// An example server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Example {
    Quinn,
    S2nQuic,
    Quiche,
    QuicGo,
    Aioquic,
    /// The ngtcp2 example that uses the connection handles of libequic.
    Ngtcp2,
    /// The ngtcp2 example that uses the API of the eQUIC paper.
    Ngtcp2Paper,
    Picoquic,
}

use Example::{Aioquic, Ngtcp2, Ngtcp2Paper, Picoquic, QuicGo, Quiche, Quinn, S2nQuic};

pub(crate) const ALL: [Example; 8] =
    [Quinn, S2nQuic, Quiche, QuicGo, Aioquic, Ngtcp2, Ngtcp2Paper, Picoquic];

/// Directory in which `scripts/examples.sh` builds the examples.
const BUILT: &str = "target/servers";

pub(crate) fn built(file: &str) -> PathBuf {
    let path = Path::new(ROOT).join(BUILT).join(file);
    assert!(path.exists(), "{} is missing: run `make test-examples`", path.display());
    path
}

impl Example {
    /// Returns a short name of the example. The name of its lab contains it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Quinn => "quinn",
            S2nQuic => "s2n",
            Quiche => "quiche",
            QuicGo => "quic-go",
            Aioquic => "aioquic",
            Ngtcp2 => "ngtcp2",
            Ngtcp2Paper => "paper",
            Picoquic => "picoquic",
        }
    }

    /// Its source.
    pub(crate) fn source(self) -> PathBuf {
        Path::new(ROOT).join(match self {
            Quinn => "crates/gateway/examples/quinn.rs",
            S2nQuic => "examples/s2n-quic/src/main.rs",
            Quiche => "examples/quiche/src/main.rs",
            QuicGo => "examples/quic-go/main.go",
            Aioquic => "examples/aioquic/server.py",
            Ngtcp2 => "examples/ngtcp2/handles.c",
            Ngtcp2Paper => "examples/ngtcp2/paper.c",
            Picoquic => "examples/picoquic/server.c",
        })
    }

    /// Returns whether the example loads a gateway itself. The limit is then in the example's code.
    pub(crate) fn own_gateway(self) -> bool {
        matches!(self, Quinn | Ngtcp2Paper)
    }

    /// Returns the number of connections that a source may hold.
    pub(crate) fn limit(self) -> usize {
        if self == Quinn { 8 } else { 3 }
    }

    /// Returns whether the example echoes streams. Otherwise, it is an HTTP/3 server.
    pub(crate) fn echoes(self) -> bool {
        matches!(self, Quinn | S2nQuic | Ngtcp2 | Ngtcp2Paper | Picoquic)
    }

    /// After a migration, returns whether the example counts the client at its new address. quinn
    /// does not report when an address is validated, and the eQUIC paper's API has no function for
    /// it.
    pub(crate) fn follows(self) -> bool {
        !matches!(self, Quinn | Ngtcp2Paper)
    }

    /// Returns whether the example checks the tokens of a gateway's Retry packets.
    pub(crate) fn checks_tokens(self) -> bool {
        matches!(self, S2nQuic | Quiche | Aioquic | Ngtcp2)
    }

    /// Returns whether a gateway can verify the example's connection IDs.
    pub(crate) fn proves_ids(self) -> bool {
        matches!(self, S2nQuic | Quiche | QuicGo | Aioquic | Ngtcp2 | Picoquic)
    }

    /// Starts the example in the lab on port 443, and waits until it listens.
    pub(crate) fn start(self, stage: &TestStage) -> Server {
        let program = match self {
            Quinn => Path::new(EQUIC.path()).with_file_name("examples").join("quinn"),
            S2nQuic => built("debug/serve-s2n-quic"),
            Quiche => built("debug/serve-quiche"),
            QuicGo => built("serve-quic-go"),
            Aioquic => built("venv/bin/python"),
            Ngtcp2 => built("serve-ngtcp2"),
            Ngtcp2Paper => built("serve-ngtcp2-paper"),
            Picoquic => built("serve-picoquic"),
        };
        let mut command = stage.lab.server().command(&program);
        match self {
            Quinn => command.args(["eth0", "443"]),
            Ngtcp2Paper => {
                command.envs([("EQUIC_LIMIT", "3"), ("EQUIC_POLICY", "new")]);
                command.args(["443", "eth0"])
            }
            Picoquic => {
                command.args(["443", &stage.name]);
                command.args([built("certificate.pem"), built("key.pem")])
            }
            Aioquic => command.arg(self.source()).args(["443", &stage.name]),
            _ => command.args(["443", &stage.name]),
        };
        command.env("EQUIC_LIBRARY", built("prefix/lib/libequic.so"));
        Server::start(command)
    }
}

/// A running example. It is killed when the value is dropped.
pub(crate) struct Server {
    child: Child,
}

impl Server {
    fn start(mut command: Command) -> Server {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = equic_netns::spawn(command).expect("the server starts");
        let stdout = child.stdout.take().expect("it is piped");
        let server = Server { child };
        let (sender, ready) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.starts_with("listening") {
                    let _ = sender.send(());
                }
            }
        });
        ready.recv_timeout(PATIENCE).expect("the server listens");
        server
    }

    /// Kills the example, so that it cannot clean up.
    pub(crate) fn kill(mut self) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGKILL).expect("the child is ours");
        self.child.wait().expect("the child is ours");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
