//! The transport parameter by which an endpoint says that it knows the exchange, and what it takes.

use std::collections::BTreeSet;

use equic_wire::params::RawParameters;
use equic_wire::{Reader, Writer};

use super::frame::{MAX_CARRIED, MAX_OFFERS, options, varint};
use super::violation::Violation;
use crate::bundle::MAX_BUNDLE;
use crate::class::Class;
use crate::manifest::ABI;
use crate::policy::Policy;

/// Number of the transport parameter.
pub const PARAMETER: u64 = 0x2f50_4c02;

/// Version of the catalogue of operations and fields. It grows when an operation or field is added.
pub(super) const CATALOGUE: u64 = 2;

/// Limits on what an endpoint takes of plugins in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Bytes of a plugin's bundle.
    pub size: u64,
    /// Bytes of all bundles at a time: those that run, and those on their way.
    pub total: u64,
    /// Plugins at a time, and offers that are not answered yet.
    pub plugins: u64,
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets { size: 64 << 10, total: 256 << 10, plugins: 16 }
    }
}

impl Budgets {
    /// Nothing is taken.
    pub const NONE: Budgets = Budgets { size: 0, total: 0, plugins: 0 };
}

/// Value of the transport parameter by which an endpoint declares the exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Interface between bytecode and connection.
    pub abi: u64,
    /// Version of the catalogue of operations.
    pub catalogue: u64,
    /// Limits on what the endpoint takes; zero: it takes nothing, and may still offer.
    pub budgets: Budgets,
    /// Classes that somebody's plugins are granted.
    pub classes: BTreeSet<Class>,
    /// Bytes of a bundle's preamble that an OFFER to the endpoint may carry, [`MAX_CARRIED`] at most; zero: an offer is a
    /// hash, and its manifest is sent if it is asked for.
    pub carried: u64,
}

impl Parameter {
    /// The parameter of an endpoint that takes plugins under this policy; without one it takes none. `cached`: it keeps
    /// bundles, so that a hash may be all that it needs of one.
    pub fn of(policy: Option<&Policy>, budgets: Budgets, cached: bool) -> Parameter {
        let classes: BTreeSet<Class> = policy.map(Policy::granted_to_somebody).unwrap_or_default();
        let budgets = if classes.is_empty() { Budgets::NONE } else { budgets };
        let carried = if cached || classes.is_empty() { 0 } else { MAX_CARRIED as u64 };
        Parameter { abi: ABI.into(), catalogue: CATALOGUE, budgets, classes, carried }
    }

    /// The value on the wire. `grease` is the number and value of an option without meaning.
    pub fn write(&self, grease: Option<(u64, &[u8])>) -> Vec<u8> {
        let mut bytes = [0; 128];
        let mut writer = Writer::new(&mut bytes);
        let classes = self.classes.iter().fold(0, |bits, class| bits | bit(*class));
        let Budgets { size, total, plugins } = self.budgets;
        for value in [self.abi, self.catalogue, size, total, plugins, classes, self.carried] {
            // 56 bytes at most.
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

    /// Reads the value. Classes and options that are not known are skipped.
    ///
    /// # Errors
    /// It is cut, or has a value that cannot be.
    pub fn read(bytes: &[u8]) -> Result<Parameter, Violation> {
        let mut reader = Reader::new(bytes);
        let mut next = || reader.varint().map(equic_wire::VarInt::get).map_err(|_| Violation::Cut);
        let (abi, catalogue) = (next()?, next()?);
        let budgets = Budgets { size: next()?, total: next()?, plugins: next()? };
        let (classes, carried) = (next()?, next()?);
        options(&mut reader)?;
        if budgets.size > MAX_BUNDLE as u64 || budgets.plugins > MAX_OFFERS {
            return Err(Violation::Parameter("a budget is larger than there can be"));
        }
        if carried > MAX_CARRIED as u64 {
            return Err(Violation::Parameter("an offer carries less of a preamble than that"));
        }
        let classes =
            Class::ALL.iter().copied().filter(|class| classes & bit(*class) != 0).collect();
        Ok(Parameter { abi, catalogue, budgets, classes, carried })
    }

    /// The parameter among all that a peer declared; none: it does not know the exchange.
    ///
    /// # Errors
    /// As [`Parameter::read`].
    pub fn find(parameters: &[u8]) -> Result<Option<Parameter>, Violation> {
        let mut all = RawParameters::new(parameters).filter_map(Result::ok);
        let found = all.find(|parameter| parameter.id.0.get() == PARAMETER);
        found.map(|parameter| Parameter::read(parameter.value)).transpose()
    }
}

/// A class's bit in the parameter.
fn bit(class: Class) -> u64 {
    match class {
        Class::Observe => 1,
        Class::Tune => 1 << 1,
        Class::Frames => 1 << 2,
        Class::Raise => 1 << 3,
        Class::Choose => 1 << 4,
        // A peer's plugin never gets these, so there is nothing to say of them.
        Class::Payload | Class::Never => 0,
    }
}
