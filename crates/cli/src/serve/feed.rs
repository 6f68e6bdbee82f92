//! The gateway a server feeds: one that runs, or one of its own.

use std::net::SocketAddr;

use equic_gateway::{Config, Control, Listen, Service, ServiceConfig};

use super::Args;
use crate::failure::{Done, Failure};
use crate::gateway::attach::Running;
use crate::gateway::status::check_service;

/// The gateway a server feeds, for as long as it runs.
pub struct Feeding {
    pub control: Control,
    pub service: Service,
    /// The gateway of this process.
    pub own: Option<Running>,
}

/// Joins or attaches what the flags say, for a server that listens on `address`.
pub fn feed(args: &Args, address: SocketAddr) -> Done<Option<Feeding>> {
    if !args.attach.is_empty() {
        let mut service = ServiceConfig {
            name: "quic".to_owned(),
            listen: vec![listener(address)],
            ..ServiceConfig::default()
        };
        args.limits.apply(&mut service);
        let mut config = Config { services: vec![service], ..Config::default() };
        config.gateway.interfaces.clone_from(&args.attach);
        args.attachment.apply(&mut config);
        let own = args.attachment.start(&config)?;
        let control = own.gateway.control().clone();
        let service = own.gateway.ledger()?.service_at(0)?;
        return Ok(Some(Feeding { control, service, own: Some(own) }));
    }
    let Some(selector) = &args.gateway else { return Ok(None) };
    let control = Control::open(selector.as_deref())?;
    let index = match &args.service {
        Some(name) => {
            check_service(&control, name)?;
            control.service_names().iter().position(|known| known == name)
        }
        None => Some(service_at(&control, address)?),
    };
    let ledger = control.join("equic serve")?;
    let service = ledger.service_at(index.unwrap_or_default())?;
    Ok(Some(Feeding { control, service, own: None }))
}

/// A socket on `[::]` takes IPv4 too: that is what a bare port means to the gateway.
fn listener(address: SocketAddr) -> Listen {
    if address.is_ipv6() && address.ip().is_unspecified() {
        Listen::Port(address.port())
    } else {
        Listen::Addr(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }
}

/// The gateway's service whose packets come to this address.
fn service_at(control: &Control, address: SocketAddr) -> Done<usize> {
    let listeners = control.listeners()?;
    let own: Vec<SocketAddr> = listener(address).addresses().collect();
    let exact = listeners.iter().find(|(at, _)| own.contains(at));
    let found = exact.or_else(|| {
        listeners.iter().find(|(at, _)| {
            let same_family = own.iter().any(|own| own.is_ipv4() == at.is_ipv4());
            at.port() == address.port() && at.ip().is_unspecified() && same_family
        })
    });
    found.map(|(_, index)| *index).ok_or_else(|| {
        let known: Vec<String> = listeners.iter().map(|(at, _)| at.to_string()).collect();
        Failure::because(
            format_args!("gateway `{}` has no service on {address}", control.name()),
            format_args!("it protects {}", known.join(", ")),
        )
        .mend("listen there, or name the service with --service")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_s_address_as_the_gateway_says_it() {
        for (socket, listen) in [
            ("[::]:443", "443"),
            ("0.0.0.0:443", "0.0.0.0:443"),
            ("[::ffff:192.0.2.1]:443", "192.0.2.1:443"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
        ] {
            assert_eq!(listener(socket.parse().unwrap()).to_string(), listen);
        }
    }
}
