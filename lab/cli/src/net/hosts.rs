//! Creates, lists, enters and removes labs.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use equic_gateway::{IpNet, parse_prefix};
use equic_netns::{Lab, LabRecord, NamespaceRecord};
use equic_report::table::{Cell, Column, Table, Tone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::{self, Journal};
use crate::signals::{Signals, runtime};

/// Maximum time that `net down` waits until the process that keeps the lab has removed it.
const GOODBYE: Duration = Duration::from_secs(15);

/// Creates a server and clients, each in a network namespace, connected by a bridge.
#[derive(clap::Args)]
pub(crate) struct Up {
    /// Name of the lab: 1 to 24 letters (a-z), digits and `-`
    name: String,
    /// Number of clients
    #[arg(long, value_name = "N", default_value = "2")]
    clients: usize,
    /// MTU of all links, in bytes
    #[arg(long, value_name = "N", default_value = "1500")]
    mtu: u32,
    /// Permit client I (counted from 0) to send from any address of this prefix
    #[arg(long, value_name = "I=PREFIX", value_parser = client_prefix)]
    client_prefix: Vec<(usize, IpNet)>,
    /// Print JSON lines (schema equic.lab.up/1)
    #[arg(long)]
    json: bool,
}

/// Removes a lab.
#[derive(clap::Args)]
pub(crate) struct Down {
    /// Name of the lab as given to `net up`, or its complete id
    name: String,
}

/// Lists the labs.
#[derive(clap::Args)]
pub(crate) struct List {
    /// Print JSON (schema equic.lab.list/1)
    #[arg(long)]
    json: bool,
}

/// Runs a program in the network namespace of a host. Files and processes are the same as outside.
#[derive(clap::Args)]
pub(crate) struct Exec {
    /// Host of a lab: NAME/server, NAME/c0, ..., or the name of a namespace. If there is only one
    /// lab: server, c0, ...
    host: String,
    /// Program to run on the host, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Removes labs whose process has ended.
#[derive(clap::Args)]
pub(crate) struct Sweep {
    /// Print JSON (schema equic.lab.sweep/1)
    #[arg(long)]
    json: bool,
}

fn client_prefix(text: &str) -> Result<(usize, IpNet), String> {
    let (client, prefix) = text
        .split_once('=')
        .ok_or("write the number of a client and a prefix, such as 0=10.77.200.0/24")?;
    let client = client.parse().map_err(|_| format!("`{client}` is not a client number"))?;
    Ok((client, parse_prefix(prefix).map_err(|error| error.to_string())?))
}

pub(super) fn up(args: &Up) -> Result {
    runtime(Some(1))?.block_on(async {
        let mut signals = Signals::new()?;
        let mut builder = Lab::builder(&args.name).clients(args.clients).mtu(args.mtu);
        for (client, prefix) in &args.client_prefix {
            builder = builder.client_prefix(*client, *prefix);
        }
        let lab = builder.build()?;
        let journal = Journal::new(args.json, "equic.lab.up/1");
        let mut text = format!("lab {} is running; Ctrl-C removes the lab\n", lab.id());
        for host in &lab.record().hosts {
            text +=
                &format!("  {:<10} {:<16} {}\n", short(lab.record(), host), host.ipv4, host.ipv6);
        }
        text += &format!("`equic-lab net exec {}/server -- CMD` runs CMD on its server", args.name);
        journal.entry(text, || json!({ "event": "up", "lab": lab.record() }));
        signals.next().await;
        let id = lab.id().to_owned();
        lab.close()?;
        journal
            .entry(format_args!("lab {id} was removed"), || json!({ "event": "down", "id": id }));
        Ok(())
    })
}

/// Returns the host's name without the prefix of its lab.
fn short<'a>(lab: &LabRecord, host: &'a NamespaceRecord) -> &'a str {
    let lab = lab.switch.strip_suffix("sw").unwrap_or(&lab.switch);
    host.name.strip_prefix(lab).unwrap_or(&host.name)
}

fn is_called(lab: &LabRecord, name: &str) -> bool {
    // The ID of a lab is its name, `-`, and a random part.
    lab.id == name || lab.id.rsplit_once('-').is_some_and(|(front, _)| front == name)
}

pub(super) fn down(args: &Down) -> Result {
    let labs: Vec<LabRecord> =
        Lab::list()?.into_iter().filter(|lab| is_called(lab, &args.name)).collect();
    if labs.is_empty() {
        return Err(no_such(&format!("there is no lab `{}`", args.name))?);
    }
    for lab in &labs {
        if lab.owner_alive() {
            let pid = Pid::from_raw(i32::try_from(lab.pid).unwrap_or_default());
            kill(pid, Signal::SIGTERM).map_err(|error| {
                Failure::because(
                    format_args!("cannot end process {pid}, which keeps the lab {}", lab.id),
                    error,
                )
            })?;
            let deadline = Instant::now() + GOODBYE;
            while lab.owner_alive() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    // Also remove what labs of killed processes left behind.
    let sweep = Lab::sweep()?;
    if let Some(error) = sweep.failed.into_iter().next() {
        return Err(error.into());
    }
    for lab in &labs {
        if Lab::list()?.iter().any(|other| other.id == lab.id) {
            return Err(Failure::because(
                format_args!("the lab {} still exists", lab.id),
                format_args!("process {}, which keeps the lab, did not end on SIGTERM", lab.pid),
            ));
        }
        output::line(format_args!("lab {} was removed", lab.id))?;
    }
    Ok(())
}

fn no_such(what: &str) -> Result<Failure> {
    let known: Vec<String> = Lab::list()?.into_iter().map(|lab| lab.id).collect();
    Ok(if known.is_empty() {
        Failure::because(what, "no lab exists").help("`equic-lab net up NAME` creates a lab")
    } else {
        Failure::because(what, format_args!("these labs exist: {}", known.join(", ")))
    })
}

pub(super) fn list(args: &List) -> Result {
    let labs = Lab::list()?;
    if args.json {
        let labs: Vec<_> =
            labs.iter().map(|lab| json!({ "lab": lab, "alive": lab.owner_alive() })).collect();
        return output::json("equic.lab.list/1", json!({ "labs": labs }));
    }
    if labs.is_empty() {
        return output::line("no labs");
    }
    let mut table = Table::new([
        Column::text("lab"),
        Column::text("process"),
        Column::text("host"),
        Column::text("IPv4"),
        Column::text("IPv6"),
    ]);
    for lab in &labs {
        for (index, host) in lab.hosts.iter().enumerate() {
            let (id, process) = match index {
                0 if lab.owner_alive() => (lab.id.clone(), Cell::new(lab.pid.to_string())),
                0 => (lab.id.clone(), Cell::new("ended").tone(Tone::Warning)),
                _ => (String::new(), Cell::default()),
            };
            let (v4, v6) = (host.ipv4.to_string(), host.ipv6.to_string());
            table.row([Cell::new(id), process, short(lab, host).into(), v4.into(), v6.into()]);
        }
    }
    output::table(&table)
}

pub(super) fn exec(args: &Exec) -> Result {
    let labs = Lab::list()?;
    let found: Vec<&NamespaceRecord> = labs
        .iter()
        .flat_map(|lab| lab.hosts.iter().map(move |host| (lab, host)))
        .filter(|(lab, host)| match args.host.split_once('/') {
            Some((name, name_of_host)) => is_called(lab, name) && short(lab, host) == name_of_host,
            None => host.name == args.host || short(lab, host) == args.host,
        })
        .map(|(_, host)| host)
        .collect();
    let host = match found.as_slice() {
        [one] => one,
        [] => return Err(no_such(&format!("no lab has a host `{}`", args.host))?),
        several => {
            let names: Vec<&str> = several.iter().map(|host| host.name.as_str()).collect();
            return Err(Failure::because(
                format_args!("several hosts are called `{}`", args.host),
                names.join(", "),
            )
            .help("use the name of one of these namespaces"));
        }
    };
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::usage("no program to run is given"));
    };
    host.open()?.enter()?;
    // Replace this process by the program, so that signals and exit codes are those of the program.
    let error = Command::new(program).args(rest).exec();
    Err(Failure::because(format_args!("cannot run {}", program.display()), error))
}

pub(super) fn sweep(args: &Sweep) -> Result {
    let sweep = Lab::sweep()?;
    let failed: Vec<String> = sweep.failed.iter().map(ToString::to_string).collect();
    if args.json {
        let data = json!({ "removed": sweep.removed, "alive": sweep.alive, "failed": failed });
        output::json("equic.lab.sweep/1", data)?;
    } else if sweep.removed.is_empty() && failed.is_empty() {
        output::line("there is nothing to remove")?;
    } else {
        for id in &sweep.removed {
            output::line(format_args!("lab {id} was removed"))?;
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::new(failed.join("\n  "))) }
}
