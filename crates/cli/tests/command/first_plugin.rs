//! Runs every command of the section "From an empty folder to a plugin" in `docs/plugins.md`, as
//! printed there.

use std::path::Path;

use equic_netns::Namespace;

use crate::common::{EQUIC, Out, ROOT, Running, finish, lab, unique};

/// Content of the section. Indented blocks are commands with their output, and the fenced TOML
/// block is a policy.
struct Printed {
    commands: Vec<String>,
    shown: Vec<String>,
    policy: String,
}

fn printed() -> Printed {
    let text = std::fs::read_to_string(format!("{ROOT}/docs/plugins.md")).unwrap();
    let (_, section) = text.split_once("## From an empty folder to a plugin\n").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let (_, policy) = section.split_once("```toml\n").unwrap();
    let (policy, _) = policy.split_once("```").unwrap();
    let blocks = section.lines().filter_map(|line| line.strip_prefix("    "));
    let (commands, shown) =
        blocks.map(str::to_owned).partition(|line: &String| line.starts_with("equic "));
    Printed { commands, shown, policy: policy.to_owned() }
}

/// Imitates a reader who types the printed commands, on a machine whose only interface is `lo`.
struct Reader<'a> {
    host: &'a Namespace,
    folder: &'a Path,
    server: Option<Running>,
    /// Fingerprint of the certificate that a server of the guide has printed.
    fingerprint: String,
}

impl Reader<'_> {
    /// Returns a shell that runs a line of the guide. In it, `equic` is the command that was built.
    fn shell(&self, line: &str) -> std::process::Command {
        let line = line.replace("FINGERPRINT", &self.fingerprint);
        let mut shell = self.host.command("sh");
        shell.current_dir(self.folder).env_remove("EQUIC_LOG");
        shell.arg("-c").arg(format!("equic() {{ exec {EQUIC} \"$@\"; }}; {line}"));
        shell
    }

    fn types(&mut self, line: &str) -> Out {
        if line.contains("# in another terminal") {
            // The guide says to stop the previous server first.
            if let Some(server) = self.server.take() {
                server.terminate();
            }
            let server = Running::start(self.shell(line), &[]);
            server.line("serving HTTP/3 on ");
            let certificate = server.line("certificate ");
            self.fingerprint = certificate.trim_start_matches("certificate ").to_owned();
            self.server = Some(server);
            return Out { pid: 0, code: Some(0), stdout: String::new(), stderr: String::new() };
        }
        finish(self.shell(line))
    }
}

/// The output of `equic plugin run` must match the guide, and pushed plugins must be `active` at
/// both ends.
#[test]
fn guide_to_the_first_plugin_matches_its_output() {
    let Some(lab) = lab(&unique("first"), 1) else { return };
    let host = lab.client(0);
    let mut up = host.command("ip");
    up.args(["link", "set", "lo", "up"]);
    finish(up).ok();
    let folder = tempfile::tempdir().unwrap();
    let printed = printed();
    assert!(printed.commands.len() >= 10, "{:?}", printed.commands);
    let mut reader =
        Reader { host, folder: folder.path(), server: None, fingerprint: String::new() };
    let mut states = 0;
    for line in &printed.commands {
        let out = reader.types(line);
        assert_eq!(out.code, Some(0), "{line}: {out:?}");
        if line.contains("plugin key") {
            let policy = printed.policy.replace("ed25519:...", out.stdout.trim());
            std::fs::write(folder.path().join("theirs.toml"), policy).unwrap();
        }
        if line.contains("plugin run") {
            for shown in printed.shown.iter().filter(|shown| *shown != "...") {
                assert!(out.stdout.lines().any(|line| line == shown), "{shown}: {}", out.stdout);
            }
        }
        if line.contains("--accept-plugins") {
            assert!(out.stderr.contains("plugin seldom 0.1.0 of "), "{out:?}");
            assert!(out.stderr.contains(": active"), "{out:?}");
            let said = reader.server.as_ref().expect("it runs").line("plugin seldom ");
            assert!(said.contains(": active"), "{said}");
            states += 1;
        }
    }
    assert_eq!(states, 1, "the guide ends with a plugin that is pushed");
    assert!(reader.server.take().expect("it runs").terminate().success());
}
