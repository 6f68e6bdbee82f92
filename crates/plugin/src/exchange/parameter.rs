//! The transport parameter of the plugin exchange. With it, an endpoint declares that it supports
//! the exchange, and which plugins it accepts.

use std::collections::BTreeSet;

use equic_wire::params::RawParameters;
use equic_wire::{Reader, Writer};

use super::frame::{MAX_CARRIED, MAX_OFFERS, options, varint};
use super::violation::Violation;
use crate::bundle::MAX_BUNDLE;
use crate::class::Class;
use crate::manifest::ABI;
use crate::policy::Policy;

/// ID of the exchange's transport parameter.
pub const PARAMETER: u64 = 0x2f50_4c02;

/// Version of the list of operations and fields that plugins can use. It increases when an
/// operation or field is added.
pub(super) const CATALOGUE: u64 = 2;

/// Limits on the number and size of the plugins that an endpoint accepts on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Maximum size of a bundle, in bytes.
    pub size: u64,
    /// Maximum total size of the bundles of running plugins and of offers not yet decided, in
    /// bytes.
    pub total: u64,
    /// Maximum number of running plugins plus offers not yet decided.
    pub plugins: u64,
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets { size: 64 << 10, total: 256 << 10, plugins: 16 }
    }
}

impl Budgets {
    /// Limits of an endpoint that accepts no plugins.
    pub const NONE: Budgets = Budgets { size: 0, total: 0, plugins: 0 };
}

/// Value of the transport parameter with which an endpoint declares that it supports the exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Version of the interface between bytecode and connection that the endpoint implements.
    pub abi: u64,
    /// Version of the endpoint's list of operations and fields.
    pub catalogue: u64,
    /// Limits on the plugins that the endpoint accepts. With zeros, the endpoint accepts no plugins
    /// but may still offer some.
    pub budgets: Budgets,
    /// Classes that the policy grants to the plugins of at least one author.
    pub classes: BTreeSet<Class>,
    /// Number of bytes of a bundle's preamble that an OFFER to this endpoint may carry, at most
    /// [`MAX_CARRIED`]. If it is zero, an offer has only a hash, and the endpoint requests the
    /// manifest separately.
    pub carried: u64,
}

impl Parameter {
    /// Returns the parameter that an endpoint with this policy sends. Without a policy, the
    /// endpoint accepts no plugins. `cached` is true if the endpoint caches bundles, because then
    /// the hash in an offer may be enough.
    pub fn of(policy: Option<&Policy>, budgets: Budgets, cached: bool) -> Parameter {
        let classes: BTreeSet<Class> = policy.map(Policy::granted_to_somebody).unwrap_or_default();
        let budgets = if classes.is_empty() { Budgets::NONE } else { budgets };
        let carried = if cached || classes.is_empty() { 0 } else { MAX_CARRIED as u64 };
        Parameter { abi: ABI.into(), catalogue: CATALOGUE, budgets, classes, carried }
    }

    /// Encodes the parameter's value for the wire. `grease` is the number and value of an undefined
    /// option, which peers must skip.
    pub fn write(&self, grease: Option<(u64, &[u8])>) -> Vec<u8> {
        let mut bytes = [0; 128];
        let mut writer = Writer::new(&mut bytes);
        let classes = self.classes.iter().fold(0, |bits, class| bits | bit(*class));
        let Budgets { size, total, plugins } = self.budgets;
        for value in [self.abi, self.catalogue, size, total, plugins, classes, self.carried] {
            // The seven integers take at most 56 bytes, so they always fit.
            let _ = writer.varint(varint(value));
        }
        if let Some((n, value)) = grease {
            let id = varint(31 * (n % (1 << 32)) + 27);
            let _ = writer.atomically(|writer| {
                writer.varint(id)?;
                writer.varint_bytes(value)
            });
        }
        writer.written().to_vec()
    }

    /// Reads the value. Unknown classes and options are skipped.
    ///
    /// # Errors
    /// The value is truncated, or a field is invalid.
    pub fn read(bytes: &[u8]) -> Result<Parameter, Violation> {
        let mut reader = Reader::new(bytes);
        let mut next = || reader.varint().map(equic_wire::VarInt::get).map_err(|_| Violation::Cut);
        let (abi, catalogue) = (next()?, next()?);
        let budgets = Budgets { size: next()?, total: next()?, plugins: next()? };
        let (classes, carried) = (next()?, next()?);
        options(&mut reader)?;
        if budgets.size > MAX_BUNDLE as u64 || budgets.plugins > MAX_OFFERS {
            return Err(Violation::Parameter("a budget exceeds its maximum"));
        }
        if carried > MAX_CARRIED as u64 {
            return Err(Violation::Parameter(
                "the number of bytes that an offer may carry exceeds its maximum",
            ));
        }
        let classes =
            Class::ALL.iter().copied().filter(|class| classes & bit(*class) != 0).collect();
        Ok(Parameter { abi, catalogue, budgets, classes, carried })
    }

    /// Finds this parameter in the encoded transport parameters of the peer. Returns `None` if the
    /// peer does not support the exchange.
    ///
    /// # Errors
    /// Those of [`Parameter::read`].
    pub fn find(parameters: &[u8]) -> Result<Option<Parameter>, Violation> {
        let mut all = RawParameters::new(parameters).filter_map(Result::ok);
        let found = all.find(|parameter| parameter.id.0.get() == PARAMETER);
        found.map(|parameter| Parameter::read(parameter.value)).transpose()
    }
}

/// Returns the bit that stands for a class in the parameter.
fn bit(class: Class) -> u64 {
    match class {
        Class::Observe => 1,
        Class::Tune => 1 << 1,
        Class::Frames => 1 << 2,
        Class::Raise => 1 << 3,
        Class::Choose => 1 << 4,
        // A peer's plugin never gets one of these classes.
        Class::Payload | Class::Never => 0,
    }
}
