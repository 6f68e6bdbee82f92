//! The command `equic gateway status`.

use equic_gateway::{Control, Error, LedgerStatus, Level, ServiceStatus, Status, TableStatus};
use equic_report::number;
use equic_report::table::{Cell, Column, Table, Tone};

use super::Target;
use super::limits::{describe, describe_adaptive};
use super::needs::NEEDS;
use crate::failure::{Failure, Result};
use crate::output;

/// Shows a running gateway: its interfaces, the services that it protects, what it passed and
/// dropped, and why.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// List the gateways that run in this network namespace
    #[arg(long, conflicts_with = "gateway")]
    list: bool,
    /// List the gateways of all network namespaces
    #[arg(long, conflicts_with = "gateway")]
    all: bool,
    /// Print JSON (schema equic.gateway.status/1; with --list equic.gateway.list/1)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result {
    if args.list || args.all {
        return list(args.all, args.json);
    }
    let control = args.target.open()?;
    let status = control.status()?;
    if args.json {
        return output::json("equic.gateway.status/1", status);
    }
    head(&status)?;
    report(&status)?;
    unserved(&control)?;
    for service in &status.services {
        show_service(service)?;
    }
    ledgers(&status)?;
    tables(&status.tables)?;
    tallies(&status)
}

/// Lists the gateways of this network namespace, or of all namespaces if `all` is true.
fn list(all: bool, json: bool) -> Result {
    let mut survey = Control::survey()?;
    let found = survey.gateways.len() + survey.others.len();
    survey.gateways.retain(|one| all || one.here);
    survey.others.retain(|one| all || one.here);
    let elsewhere = found - survey.gateways.len() - survey.others.len();
    if json {
        return output::json("equic.gateway.list/1", survey);
    }
    if elsewhere > 0 {
        let what = if elsewhere == 1 { "one more gateway runs" } else { "more gateways run" };
        output::notice(format_args!(
            "{what} in other network namespaces: `--all` also lists those"
        ));
    }
    if survey.gateways.is_empty() && survey.others.is_empty() {
        let place = if all { "" } else { " in this network namespace" };
        return output::line(format_args!("no gateway is running{place}"));
    }
    survey.gateways.iter().try_for_each(|one| output::line(one.describe()))?;
    survey.others.iter().try_for_each(|one| output::line(one.describe()))
}

fn head(status: &Status) -> Result {
    let gone = if status.owner.alive { "" } else { " (ended)" };
    output::line(format_args!(
        "gateway `{}`: program {}, process {}{gone}, up {}",
        status.name,
        status.program_id,
        status.owner.pid,
        number::seconds(status.uptime_s)
    ))?;
    for interface in &status.interfaces {
        let mode = match interface.native {
            Some(true) => "native",
            Some(false) => "generic",
            None => "in another network namespace",
        };
        output::line(format_args!("  on {}, {mode}", interface.label()))?;
    }
    if let Some(pin) = &status.pin {
        output::line(format_args!("  pinned at {pin}"))?;
    }
    if status.interfaces.is_empty() {
        output::line("  attached to no interface, so nothing is protected")?;
    }
    if status.dry_run {
        output::line("  dry run: the gateway drops nothing")?;
    }
    Ok(())
}

/// Prints which settings need the support of servers, although no server has joined.
fn unserved(control: &Control) -> Result {
    for need in &NEEDS {
        for warning in need.unserved(control) {
            output::line(format_args!("  warning: {}: {warning}", need.about))?;
        }
    }
    Ok(())
}

/// Prints the conditions that need attention, as reported by the process that manages the gateway.
fn report(status: &Status) -> Result {
    let Some(report) = &status.report else { return Ok(()) };
    if !report.is_alive() {
        output::line(format_args!(
            "  no process manages the gateway: process {} has ended, and its last report is not shown",
            report.pid
        ))?;
        return Ok(());
    }
    for condition in &report.conditions {
        let level = match condition.level {
            Level::Error => "NOT WELL",
            Level::Warning => "warning",
        };
        let about = &condition.about;
        output::line(format_args!("  {level}: {about}: {}", condition.message))?;
    }
    let Some(bans) = &report.bans else { return Ok(()) };
    let dry = if bans.dry_run { " (dry run: no source is actually banned)" } else { "" };
    output::line(format_args!(
        "  bans: {} in force, {} imposed, {} over, {} lifted, {} spared{dry}",
        number::count(bans.active),
        number::count(bans.imposed),
        number::count(bans.expired),
        number::count(bans.lifted),
        number::count(bans.spared),
    ))
}

fn show_service(service: &ServiceStatus) -> Result {
    let listen: Vec<String> = service.config.listen.iter().map(ToString::to_string).collect();
    let title = format!(
        "\nservice {} on {}: {}",
        service.config.name,
        listen.join(", "),
        describe(&service.config)
    );
    let title = match &service.adaptive {
        Some(state) => {
            format!("{title}\n  {}", describe_adaptive(state, service.config.retry_above))
        }
        None => title,
    };
    if service.verdicts.is_empty() {
        return output::line(format_args!("{title}\n  no packet has arrived yet"));
    }
    let mut table = Table::new([
        Column::text("reason"),
        Column::number("packets"),
        Column::number("share"),
        Column::number("payload"),
        Column::number("dropped"),
        Column::number("answered"),
    ])
    .title(title);
    for row in &service.verdicts {
        let tone = match (row.reason.drops(), row.dropped) {
            (false, _) => Tone::Good,
            // The service is in a dry run: these packets passed, but would be dropped without it.
            (true, 0) => Tone::Warning,
            (true, _) => Tone::Bad,
        };
        table.row([
            Cell::new(row.reason.name()).tone(tone),
            Cell::new(number::count(row.packets)),
            Cell::new(number::percent_of(row.packets, service.packets)),
            Cell::new(number::bytes(row.bytes)),
            Cell::new(number::count(row.dropped)),
            Cell::new(number::count(row.answered)),
        ]);
    }
    table.row([
        Cell::new("all").tone(Tone::Strong),
        Cell::new(number::count(service.packets)).tone(Tone::Strong),
        Cell::default(),
        Cell::new(number::bytes(service.bytes)).tone(Tone::Strong),
        Cell::new(number::count(service.dropped)).tone(Tone::Strong),
        Cell::new(number::count(service.answered)).tone(Tone::Strong),
    ]);
    output::table(&table)
}

fn ledgers(status: &Status) -> Result {
    let Status { ledgers, unreadable, .. } = status;
    for server in unreadable {
        output::line(format_args!(
            "\nthe connections of {} (process {}) count, but cannot be read without CAP_SYS_ADMIN",
            server.name, server.pid
        ))?;
    }
    if ledgers.is_empty() && !unreadable.is_empty() {
        return Ok(());
    }
    if ledgers.is_empty() {
        return output::line(
            "\nno server reports its connections to the gateway, so quotas have no effect",
        );
    }
    let mut table = Table::new([
        Column::text("server"),
        Column::number("process"),
        Column::text("user"),
        Column::number("connections"),
        Column::number("sources"),
        Column::number("opened"),
        Column::text("tokens"),
        Column::text("ids"),
        Column::text("state"),
    ])
    .title("\nservers that report connections");
    for ledger in ledgers {
        let state = match (ledger.alive, ledger.counts) {
            (true, true) => Cell::new("counts").tone(Tone::Good),
            (true, false) => Cell::new("silent: connections do not count").tone(Tone::Bad),
            (false, true) => {
                Cell::new("ended: connections count until the lease expires").tone(Tone::Warning)
            }
            (false, false) => Cell::new("ended").tone(Tone::Faint),
        };
        table.row([
            Cell::new(&ledger.name),
            Cell::new(ledger.pid.to_string()),
            Cell::new(user(ledger)),
            Cell::new(number::count(ledger.connections)),
            Cell::new(number::count(ledger.sources)),
            Cell::new(number::count(ledger.opened)),
            Cell::new(if ledger.keys { "checks" } else { "-" }),
            Cell::new(if ledger.ids { "proven" } else { "-" }),
            state,
        ]);
    }
    output::table(&table)
}

/// Returns the user of a server's process, and whether the server joined through the socket.
fn user(ledger: &LedgerStatus) -> String {
    let by = if ledger.socket { ", by socket" } else { "" };
    let uid = nix::unistd::Uid::from_raw(ledger.uid);
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name + by,
        _ => format!("{uid}{by}"),
    }
}

fn tables(tables: &[TableStatus]) -> Result {
    let mut table = Table::new([
        Column::text("table"),
        Column::number("entries"),
        Column::number("of"),
        Column::number("full"),
    ])
    .title("\ntables");
    for one in tables {
        let tone = if one.entries * 10 >= one.capacity * 9 { Tone::Warning } else { Tone::Normal };
        table.row([
            Cell::new(one.name),
            Cell::new(number::count(one.entries)),
            Cell::new(number::count(one.capacity)),
            Cell::new(number::percent_of(one.entries, one.capacity)).tone(tone),
        ]);
    }
    output::table(&table)
}

/// Prints counts of rare events, but only of those that have occurred.
fn tallies(status: &Status) -> Result {
    let tallies = &status.tallies;
    let overflow: u64 = status.ledgers.iter().map(|ledger| ledger.overflow).sum();
    let rows = [
        (tallies.sources_evicted, "sources evicted from their table by newer sources"),
        (tallies.handshakes_evicted, "handshakes evicted or replaced by newer handshakes"),
        (tallies.prefixes_evicted, "prefixes evicted from their table by newer prefixes"),
        (overflow, "connections not counted, because a server's ledger was full"),
        (
            tallies.deep_headers,
            "packets whose UDP header was not found (too many VLAN tags or IPv6 headers, or fragments)",
        ),
        (tallies.events_lost, "drop events lost, because no process read them in time"),
        (tallies.stale_ledger, "look-ups of connection counts that ignored a silent server"),
        (
            tallies.contended,
            "packets refused because several CPUs updated the same rate limit at once",
        ),
    ];
    for (count, what) in rows.into_iter().filter(|(count, _)| *count > 0) {
        output::line(format_args!("{:>12} {what}", number::count(count)))?;
    }
    Ok(())
}

/// Returns the index of the service with this name. Fails if the gateway has no such service. The
/// error lists the existing names.
pub(crate) fn service_named(control: &Control, name: &str) -> Result<usize> {
    let known = control.service_names();
    known.iter().position(|known| known == name).ok_or_else(|| {
        let error = Error::NoSuchService { name: name.to_owned(), similar: Vec::new(), known };
        Failure::from(error)
    })
}
