//! Finds the gateway to which a server reports its connections: a running one, or one that this
//! process attaches.

use std::net::SocketAddr;
use std::path::Path;

use equic_gateway::{Control, JoinEvent, JoinOptions, Ledger, Service, TokenCheck};
use serde_json::json;

use super::Args;
use super::admission::Exemptions;
use crate::failure::{Failure, Result};
use crate::gateway::attach::Attachment;
use crate::gateway::run::hosted::{self, Hosted};
use crate::gateway::status::service_named;
use crate::output::Journal;

/// The gateway to which the server reports its connections. Keep the value while the server runs.
pub(super) struct Feeding {
    through: Through,
    pub service: Service,
    /// Says that packets to the server's address do not belong to the service. `None` if they do.
    pub warning: Option<String>,
    /// The gateway that this process runs, or `None` if another process runs it.
    pub own: Option<Hosted>,
}

/// A server's access to its gateway.
enum Through {
    /// Within this process, which runs the gateway itself.
    Own(Control, Ledger),
    /// Through the gateway's maps, which needs privileges.
    Maps(Control, Ledger),
    /// Through the gateway's socket, which needs no privileges.
    Socket(Ledger),
}

impl Feeding {
    /// Returns the gateway's name.
    pub(super) fn name(&self) -> String {
        match &self.through {
            Through::Own(control, _) | Through::Maps(control, _) => control.name(),
            Through::Socket(ledger) => ledger.gateway_name(),
        }
    }

    /// Returns the kernel's ID of the XDP program, or `None` for a gateway that is reached through
    /// its socket.
    pub(super) fn program_id(&self) -> Option<u32> {
        match &self.through {
            Through::Own(control, _) | Through::Maps(control, _) => Some(control.program_id()),
            Through::Socket(_) => None,
        }
    }

    /// Returns where to look up which sources are exempt from the quota.
    pub(super) fn exempt(&self) -> Exemptions {
        match &self.through {
            Through::Own(control, _) => Exemptions::of(control.clone(), None),
            Through::Maps(control, ledger) => Exemptions::of(control.clone(), Some(ledger.clone())),
            Through::Socket(ledger) => Exemptions::Ledger(ledger.clone()),
        }
    }

    /// Returns the server's ledger in a gateway of another process, or `None` if this process runs
    /// the gateway.
    pub(super) fn ledger(&self) -> Option<&Ledger> {
        match &self.through {
            Through::Own(..) => None,
            Through::Maps(_, ledger) | Through::Socket(ledger) => Some(ledger),
        }
    }

    /// Returns the ledger with the gateway's keys for connection IDs and Retry tokens. In contrast
    /// to [`Feeding::ledger`], this is also available if this process runs the gateway.
    pub(super) fn ledger_with_keys(&self) -> &Ledger {
        match &self.through {
            Through::Own(_, ledger) | Through::Maps(_, ledger) | Through::Socket(ledger) => ledger,
        }
    }

    /// Starts to report when the gateway ends, and when the server joins the gateway that replaces
    /// it.
    pub(super) fn tell(&self, journal: Journal) {
        let Some(ledger) = self.ledger() else { return };
        ledger.notify(move |event| {
            journal.entry(event, || match event {
                JoinEvent::Lost { gateway } => {
                    json!({ "event": "gateway_lost", "gateway": gateway })
                }
                JoinEvent::Joined { gateway, unheard, connections, carried, missing } => json!({
                    "event": "gateway_joined", "gateway": gateway,
                    "unheard_ms": unheard.as_secs_f64() * 1000.0, "connections": connections,
                    "carried": carried, "missing": missing,
                }),
                other => json!({ "event": "gateway_unreachable", "why": other.to_string() }),
            });
        });
    }
}

/// Joins or runs the gateway that the flags select. `address` is the address at which the
/// server listens. Returns `None` if the flags select no gateway.
pub(super) fn feed(args: &Args, address: SocketAddr) -> Result<Option<Feeding>> {
    let options = JoinOptions::new("equic serve");
    let options = if args.retry_keys.is_some() {
        options.token_check(TokenCheck::OwnKeys)
    } else {
        options.token_check(TokenCheck::GatewayKeys).issue_ids(true)
    };
    if let Some(file) = &args.gateway_config {
        return feed_own(file, args.service.as_deref(), options, address).map(Some);
    }
    let Some(selector) = &args.gateway else {
        return match args.service {
            None => Ok(None),
            Some(_) => Err(Failure::usage(
                "--service has no effect without a gateway: add --gateway or --gateway-config",
            )),
        };
    };
    // Neither interfaces nor gateways have names with a slash.
    if let Some(path) = selector.as_deref().filter(|selector| selector.contains('/')) {
        let path = Path::new(path);
        return Ok(Some(feed_by_socket(path, args.service.as_deref(), options, address)?));
    }
    let control = Control::open(selector.as_deref())?;
    let (index, warning) = service_index(&control, args.service.as_deref(), address)?;
    let ledger = control.join(options)?;
    let service = ledger.service_at(index)?;
    Ok(Some(Feeding { through: Through::Maps(control, ledger), service, warning, own: None }))
}

/// Runs a gateway in this process.
fn feed_own(
    file: &Path,
    service: Option<&str>,
    options: JoinOptions,
    address: SocketAddr,
) -> Result<Feeding> {
    let config = hosted::read(file)?;
    let metrics = hosted::metrics_listener(&config)?;
    let attachment = Attachment::default();
    let gateway = attachment.load(&config)?;
    let control = gateway.control().clone();
    // This is checked before the program is attached. Otherwise it would drop packets for a moment.
    let (index, warning) = service_index(&control, service, address)?;
    // The server joins before the program is attached, because its clients' Retry tokens need the
    // gateway's keys.
    let ledger = control.join(options)?;
    let service = ledger.service_at(index)?;
    let own = Some(Hosted::new(attachment.start(gateway, &config)?, config, metrics));
    Ok(Feeding { through: Through::Own(control, ledger), service, warning, own })
}

/// Returns the index of the service with this name, or of the service with the server's address.
/// Also returns a warning if packets to that address do not belong to the service.
fn service_index(
    control: &Control,
    name: Option<&str>,
    address: SocketAddr,
) -> Result<(usize, Option<String>)> {
    let Some(name) = name else { return Ok((service_at(control, address)?, None)) };
    let at = control.service_listening_at(address)?;
    let names = control.service_names();
    let owner = at.and_then(|index| names.get(index));
    Ok((service_named(control, name)?, warning(name, owner.map(String::as_str), address)))
}

/// Returns a warning if packets to the server's address belong to the service `owner`, or to none,
/// instead of to the server's service.
fn warning(service: &str, owner: Option<&str>, address: SocketAddr) -> Option<String> {
    let whose = match owner {
        Some(owner) if owner == service => return None,
        Some(owner) => format!("belong to the service `{owner}`"),
        None => "belong to no service".to_owned(),
    };
    Some(format!(
        "the service `{service}` does not protect this server's address {address}, to which packets {whose}: listen on an address of `{service}`, unless a NAT behind the gateway translates such an address to this one"
    ))
}

/// Joins a gateway through its socket. The service is the one that was named, or else the one with
/// the server's address.
fn feed_by_socket(
    path: &Path,
    service: Option<&str>,
    options: JoinOptions,
    address: SocketAddr,
) -> Result<Feeding> {
    let (ledger, at_address) = Ledger::connect_listening(path, options, address)?;
    let owner = at_address.as_ref().map(|service| service.name().to_owned());
    let service = match (service, at_address, ledger.service_names().as_slice()) {
        (Some(name), ..) => ledger.service(name)?,
        (None, Some(service), _) => service,
        (None, None, [_]) => ledger.service_at(0)?,
        (None, None, several) => {
            return Err(Failure::because(
                format_args!("gateway `{}` has no service on {address}", ledger.gateway_name()),
                format_args!("its services are {}", several.join(", ")),
            )
            .help("listen on the address of a service, or select a service with --service"));
        }
    };
    let warning = warning(service.name(), owner.as_deref(), address);
    Ok(Feeding { through: Through::Socket(ledger), service, warning, own: None })
}

/// Returns the index of the gateway's service that receives packets to this address.
fn service_at(control: &Control, address: SocketAddr) -> Result<usize> {
    let found = control.service_listening_at(address)?;
    let listeners = control.listeners()?;
    found.ok_or_else(|| {
        let known: Vec<String> = listeners.iter().map(|(at, _)| at.to_string()).collect();
        Failure::because(
            format_args!("gateway `{}` has no service on {address}", control.name()),
            format_args!("it protects {}", known.join(", ")),
        )
        .help("listen on one of these addresses, or select a service with --service")
    })
}
