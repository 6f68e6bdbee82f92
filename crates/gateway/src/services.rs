//! The services of a gateway as the XDP program stores them.

use crate::abi;
use crate::config::{Config, from_c_name};

/// Settings of every service, by index. The first service without a name ends the list.
pub(crate) type Services = [abi::equic_service; abi::EQUIC_MAX_SERVICES as usize];

/// Returns the services of a configuration as the XDP program stores them.
pub(crate) fn services_of(config: &Config) -> Services {
    let mut services = [abi::equic_service::default(); abi::EQUIC_MAX_SERVICES as usize];
    for ((to, from), group) in services.iter_mut().zip(&config.services).zip(config.groups()) {
        *to = from.to_abi(group);
    }
    services
}

/// Returns the names of the services, by index.
pub(crate) fn service_names(services: &Services) -> Vec<String> {
    services.iter().take_while(|s| s.name[0] != 0).map(|s| from_c_name(&s.name)).collect()
}
