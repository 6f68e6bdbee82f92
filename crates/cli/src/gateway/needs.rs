//! Settings of a service that work only if its servers support them. Otherwise, clients lose their
//! connections. `equic gateway set` refuses such a setting while a server has not declared its
//! support. A running gateway that has such a setting prints a warning.

use equic_gateway::{
    Control, Error, JoinedServer, Key, LedgerStatus, Retry, ServiceConfig, Setting, SettingValue,
};

use crate::failure::{Failure, Result};

/// A setting that needs the support of the servers, and the texts for its warnings.
pub(super) struct Need {
    /// Subject under which a running gateway reports the warning.
    pub about: &'static str,
    /// Returns whether a change of a setting enables this one.
    is_made_by: fn(&Setting) -> bool,
    /// Returns whether a service has this setting.
    is_of: fn(&ServiceConfig) -> bool,
    /// Returns the servers of a service that have not declared their support for this setting.
    missing: fn(&Control, &str) -> Result<Vec<JoinedServer>, Error>,
    /// Duty of the servers, as a verb phrase for one server and for several.
    verbs: [&'static str; 2],
    what: &'static str,
    /// The question that the operator must answer before enabling the setting.
    question: &'static str,
    /// Effect on the clients of a server that does not support this setting.
    lost: &'static str,
    /// Returns a sentence about the risk for clients of the service with this name.
    may_be_lost: fn(&str) -> String,
    help: &'static str,
}

pub(super) const NEEDS: [Need; 2] = [
    Need {
        about: "retry",
        is_made_by: |setting| matches!(setting.value, SettingValue::Retry(retry) if retry != Retry::Never),
        is_of: |service| service.retry != Retry::Never,
        missing: Control::servers_without_keys,
        verbs: ["has not declared that it checks", "have not declared that they check"],
        what: "the gateway's tokens",
        question: "whether the servers check the gateway's tokens",
        lost: "new clients cannot connect",
        may_be_lost: |service| format!("new clients of `{service}` may be unable to connect"),
        help: "start the servers with the gateway's keys (`equic serve` receives them with --gateway), or use --force",
    },
    Need {
        about: "ids",
        is_made_by: |setting| turns_on(setting, Key::CheckIds),
        is_of: |service| service.check_ids,
        missing: Control::servers_without_ids,
        verbs: ["has not declared that it makes", "have not declared that they make"],
        what: "connection IDs with the gateway's keys",
        question: "whether the servers make connection IDs that the gateway can check",
        lost: "clients of such a server lose their connections",
        may_be_lost: |service| format!("clients of `{service}` may lose their connections"),
        help: "use `equic serve --gateway`, which makes such connection IDs, or follow docs/servers.md for other servers; --force skips this check",
    },
];

/// Returns true if `setting` turns on the flag `key`.
fn turns_on(setting: &Setting, key: Key) -> bool {
    setting.key == key && setting.value == SettingValue::Flag(true)
}

/// Returns the names of the services that a setting applies to.
fn services_of(control: &Control, setting: &Setting) -> impl Iterator<Item = String> {
    let wanted = setting.service.clone();
    let names = control.service_names().into_iter();
    names.filter(move |name| wanted.as_ref().is_none_or(|one| one == name))
}

/// Returns warnings for the user about settings that were just changed.
pub(super) fn warnings(control: &Control, settings: &[Setting]) -> Vec<String> {
    let mut found: Vec<String> =
        NEEDS.iter().flat_map(|need| need.undeclared(control, settings)).collect();
    let made = settings.iter().filter(|setting| turns_on(setting, Key::StatelessReset));
    for service in made.flat_map(|setting| services_of(control, setting)) {
        let servers = control.servers_of(&service).map(|servers| servers.len());
        let without = control.servers_without_ids(&service).map(|servers| servers.len());
        if servers.is_ok() && servers.ok() == without.ok() {
            found.push(format!(
                "no server of `{service}` has declared that it makes connection IDs with the gateway's keys: until a server declares this, the gateway sends no stateless resets"
            ));
        }
    }
    found
}

impl Need {
    /// Describes the servers of a service that have not declared their support for this setting.
    /// Returns `None` if all have.
    fn missing(&self, control: &Control, service: &str) -> Result<Option<String>, Error> {
        let servers = (self.missing)(control, service)?;
        let named = |server: &JoinedServer| format!("{} (process {})", server.name, server.pid);
        let names: Vec<String> = servers.iter().map(named).collect();
        let [one, several] = self.verbs;
        let not = if names.len() == 1 { one } else { several };
        Ok((!names.is_empty()).then(|| format!("{} {not} {}", names.join(", "), self.what)))
    }

    /// Fails if a change would enable this setting for a service that has servers without declared
    /// support.
    pub(super) fn check(&self, control: &Control, settings: &[Setting]) -> Result {
        for setting in settings.iter().filter(|setting| (self.is_made_by)(setting)) {
            for service in services_of(control, setting) {
                // If the servers cannot be read, assume that all clients may be lost.
                let servers = self.missing(control, &service).map_err(|error| {
                    Failure::because(format_args!("cannot tell {}", self.question), error)
                        .help("run the command as root to find out, or use --force")
                })?;
                if let Some(servers) = servers {
                    let lost = (self.may_be_lost)(&service);
                    return Err(Failure::because(lost, servers).help(self.help));
                }
            }
        }
        Ok(())
    }

    /// Returns a warning for each service for which a change enables this setting while no server
    /// has joined. Without a server, nothing has declared whether the setting is supported.
    pub(super) fn undeclared(&self, control: &Control, settings: &[Setting]) -> Vec<String> {
        let made = settings.iter().filter(|setting| (self.is_made_by)(setting));
        self.without_servers(control, made.flat_map(|setting| services_of(control, setting)))
    }

    fn without_servers(
        &self,
        control: &Control,
        services: impl Iterator<Item = String>,
    ) -> Vec<String> {
        // Only warn about services whose servers can be read.
        let unserved = services
            .filter(|service| control.servers_of(service).is_ok_and(|servers| servers.is_empty()));
        let warning = |service: String| {
            format!(
                "no server of `{service}` has joined, so it is not known {}: if a server does not, {}",
                self.question, self.lost
            )
        };
        unserved.map(warning).collect()
    }

    /// Returns a warning for each service that has this setting and no server.
    pub(super) fn unserved(&self, control: &Control) -> Vec<String> {
        let services = control.services().unwrap_or_default();
        let having = services.into_iter().filter(|service| (self.is_of)(service));
        self.without_servers(control, having.map(|service| service.name))
    }

    /// Names the services that have this setting although some of their servers may not support it,
    /// and names these servers. Returns `None` if there are no such services.
    pub(super) fn unmet(&self, control: &Control) -> Option<String> {
        let services = control.services().unwrap_or_default();
        let having = services.iter().filter(|service| (self.is_of)(service));
        let lost: Vec<String> = having
            .filter_map(|ServiceConfig { name, .. }| {
                // Only warn about services whose servers can be read.
                let servers = self.missing(control, name).ok().flatten()?;
                Some(format!("service {name}: {servers}: if a server does not, {}", self.lost))
            })
            .collect();
        (!lost.is_empty()).then(|| lost.join("; "))
    }
}

/// Returns whether at least one readable ledger counts connections of the service. A ledger is the
/// table in which a server reports its connections.
fn is_counted_for(ledgers: &[LedgerStatus], service: &str) -> bool {
    let counts_for = |ledger: &LedgerStatus| {
        let all = ledger.services.as_ref();
        all.is_none_or(|services| services.iter().any(|one| one == service))
    };
    ledgers.iter().any(|ledger| ledger.counts && counts_for(ledger))
}

/// Fails if a change would limit packets of sources without a connection, although the servers of
/// the service do not report connections. To the gateway, all sources of such a service would be
/// without a connection.
pub(super) fn check_counted(control: &Control, settings: &[Setting]) -> Result {
    let limits = |setting: &&Setting| {
        let rate = setting.value.rate();
        setting.key == Key::UnprovenPerService && rate.is_some_and(|rate| !rate.is_off())
    };
    for setting in settings.iter().filter(limits) {
        let named = |name: &String| setting.service.as_ref().is_none_or(|one| one == name);
        let ledgers = control.ledgers()?;
        for service in control.service_names().into_iter().filter(named) {
            if !is_counted_for(&ledgers, &service) {
                let what = format!(
                    "all connections of `{service}` would share the limit `unproven_per_service`"
                );
                let why = "no server reports its connections";
                let help = "start a server that reports its connections (`equic serve --gateway`, or one with libequic), or use --force";
                return Err(Failure::because(what, why).help(help));
            }
        }
    }
    Ok(())
}

/// Names the services that limit packets of sources without a connection although no server reports
/// connections. Returns `None` if there are no such services.
pub(super) fn uncounted(control: &Control) -> Option<String> {
    let mut having = control.services().unwrap_or_default();
    having.retain(|config| config.enabled && !config.unproven_per_service.is_off());
    if having.is_empty() {
        return None;
    }
    // The ledger of an unreadable server may count for every service.
    if control.unreadable_servers().map_or(true, |servers| !servers.is_empty()) {
        return None;
    }
    let ledgers = control.ledgers().ok()?;
    let uncounted = having.iter().filter(|config| !is_counted_for(&ledgers, &config.name));
    let names: Vec<&str> = uncounted.map(|config| config.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "service {}: no server reports its connections, so all connections share the limit unproven_per_service",
            names.join(", ")
        )
    })
}

/// Names the servers whose connections this process may not read. Returns `None` if there are no
/// such servers.
pub(super) fn unreadable(control: &Control) -> Option<String> {
    let servers = control.unreadable_servers().ok()?;
    let names: Vec<String> =
        servers.iter().map(|one| format!("{} (process {})", one.name, one.pid)).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the gateway cannot read the connections of {}, because it has a socket and has therefore dropped CAP_SYS_ADMIN. The connections count towards quotas, but the gateway's metrics and summaries lack them: let the server join at the socket (`equic serve --gateway PATH`)",
            names.join(", ")
        )
    })
}

/// Names running servers whose reported connections do not count, because the server's clock
/// differs from the gateway's. Returns `None` if there are no such servers.
pub(super) fn clocks_apart(control: &Control) -> Option<String> {
    let ledgers = control.ledgers().ok()?;
    let silent = ledgers.iter().filter(|ledger| ledger.alive && !ledger.counts);
    let apart = silent.filter(|ledger| {
        let ahead = ledger.heartbeat_age_ms >= u64::MAX / 1_000_000;
        ahead || in_another_time_namespace(ledger.pid)
    });
    let named: Vec<String> =
        apart.map(|ledger| format!("{} (process {})", ledger.name, ledger.pid)).collect();
    (!named.is_empty()).then(|| {
        format!(
            "the clock of {} differs from the gateway's, so the server's connections do not count. The server runs in another time namespace, and cannot correct the difference because it cannot read /proc/self/timens_offsets: mount /proc for the server, or start it in the gateway's time namespace",
            named.join(", ")
        )
    })
}

/// Returns whether the process is in another time namespace than this one. Returns `false` if that
/// is unknown, because inspecting another user's process needs `CAP_SYS_PTRACE`.
fn in_another_time_namespace(pid: u32) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let inode = |process: &str| {
        std::fs::metadata(format!("/proc/{process}/ns/time")).map(|namespace| namespace.ino())
    };
    match (inode("self"), inode(&pid.to_string())) {
        (Ok(own), Ok(other)) => own != other,
        _ => false,
    }
}
