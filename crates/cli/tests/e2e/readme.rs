//! Runs the README's commands in order, as printed there, on one machine with the interface `eth0`.
//! The only change is the name of the gateway, because gateways of other tests run at the same
//! time.

use std::path::Path;
use std::process::Command;

use equic_netns::Namespace;

use crate::common::{EQUIC, ROOT, Running, finish, lab, unique};

/// Returns the commands of the README: indented lines that start with `equic`. Leaves out the
/// commands of the simulator, which is a separate program.
fn commands() -> Vec<String> {
    let text = std::fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    let indented = text.lines().filter_map(|line| line.strip_prefix("    "));
    indented.filter(|line| line.starts_with("equic ")).map(str::to_owned).collect()
}

/// Returns a shell that runs a line of the README. In it, `equic` is the command that was built.
fn shell(host: &Namespace, folder: &Path, line: &str) -> Command {
    let mut shell = host.command("sh");
    shell.current_dir(folder).env_remove("EQUIC_LOG");
    shell.arg("-c").arg(format!("equic() {{ exec {EQUIC} \"$@\"; }}; {line}"));
    shell
}

/// Adds the name of this gateway to a command.
fn named(line: &str, name: &str) -> String {
    if let Some(rest) = line.strip_prefix("equic gateway run ") {
        return format!("equic gateway run --name {name} {rest}");
    }
    if let Some(rest) = line.strip_prefix("equic gateway ") {
        let (command, rest) = rest.split_once(' ').expect("what to do, and a comment or more");
        return format!("equic gateway {command} --gateway {name} {rest}");
    }
    line.replace("--gateway ", &format!("--gateway {name} "))
}

/// Returns the text that a command prints when it is ready. The text is empty if the command does
/// not keep running.
fn ready(line: &str) -> &'static str {
    if line.starts_with("equic serve") { "serving HTTP/3 on " } else { "gateway `" }
}

#[test]
fn readme_commands_do_what_it_says() {
    let name = unique("readme");
    let Some(lab) = lab(&name, 1) else { return };
    let host = lab.server();
    let mut up = host.command("ip");
    up.args(["link", "set", "lo", "up"]);
    finish(up).ok();
    let folder = tempfile::tempdir().unwrap();
    let commands = commands();
    assert!(commands.len() >= 10, "{commands:?}");
    let mut running = Vec::new();
    for line in &commands {
        let shell = shell(host, folder.path(), &named(line, &name));
        if line.contains("# in ") {
            let program = Running::start(shell, &[]);
            program.line(ready(line));
            running.push(program);
        } else {
            let out = finish(shell);
            assert_eq!(out.code, Some(0), "{line}: {out:?}");
        }
    }
    assert_eq!(running.len(), 2, "a gateway and a server");
    // End the server first. Otherwise, it would look for another gateway when this one ends.
    while let Some(program) = running.pop() {
        assert!(program.terminate().success());
    }
}
