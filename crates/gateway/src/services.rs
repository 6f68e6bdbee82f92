//! The services of a gateway as the program reads them.

use crate::abi;
use crate::config::{Config, from_c_name};

/// Settings of every service, by index; those behind the first one without a name are not used.
pub(crate) type Services = [abi::equic_service; abi::EQUIC_MAX_SERVICES as usize];

/// The services of a configuration as the program reads them.
pub(crate) fn services_of(config: &Config) -> Services {
    let mut services = [abi::equic_service::default(); abi::EQUIC_MAX_SERVICES as usize];
    for ((to, from), group) in services.iter_mut().zip(&config.services).zip(config.groups()) {
        *to = from.to_abi(group);
    }
    services
}

/// Their names, by index.
pub(crate) fn service_names(services: &Services) -> Vec<String> {
    services.iter().take_while(|s| s.name[0] != 0).map(|s| from_c_name(&s.name)).collect()
}
