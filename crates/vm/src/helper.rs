//! Helpers: functions of the host, with typed parameters, that a program may call by number or by
//! name.
//!
//! The VM reads the parameters from `r1` to `r5` before the helper runs. An integer takes one
//! register. A [`Region`] takes two, for its offset and its length. If a value does not fit into
//! the type of an integer parameter, the program's call ends with a trap.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use thiserror::Error;

use crate::memory::{Memory, Region};
use crate::trap::{HelperError, TrapKind};

/// Selects the data that helpers receive from their host. `Data` may contain borrows, because the
/// helpers can access it only during one call of the program.
///
/// ```
/// struct Counters;
/// impl equic_vm::HelperHost for Counters {
///     type Data<'h> = &'h mut Vec<u64>;
/// }
/// ```
pub trait HelperHost: 'static {
    /// Data that the host passes to each call of a program, and that the helpers can access during
    /// the call.
    type Data<'h>;
}

/// A host that passes no data to its helpers.
impl HelperHost for () {
    type Data<'h> = ();
}

/// Context of a running helper: the host's data, the program's memory, and the remaining budget.
#[derive(Debug)]
pub struct Caller<'c, D> {
    /// The data that the host passed to the program's call.
    pub data: &'c mut D,
    /// The memory of the program that called the helper.
    pub memory: Memory<'c>,
    pub(crate) budget: &'c mut u64,
}

impl<D> Caller<'_, D> {
    /// Takes `cost` from the budget, in addition to the helper's fixed cost. A helper whose work
    /// depends on its arguments must call this function before the work.
    pub fn charge(&mut self, cost: u64) -> Result<(), HelperError> {
        match self.budget.checked_sub(cost) {
            Some(left) => {
                *self.budget = left;
                Ok(())
            }
            None => {
                *self.budget = 0;
                Err(HelperError::Budget)
            }
        }
    }

    /// The remaining budget of the call, in instructions.
    pub fn budget(&self) -> u64 {
        *self.budget
    }
}

mod sealed {
    #[expect(
        unnameable_types,
        reason = "the trait is sealed, so that only this crate can implement traits based on it"
    )]
    pub trait Sealed {}
}

/// A type that a helper can have as a parameter.
pub trait Argument: Sized + sealed::Sealed {
    /// Number of registers that a parameter of this type takes.
    const REGISTERS: usize;
    /// Reads the parameter from the front of `registers`.
    fn read(registers: &[u64]) -> Result<Self, HelperError>;
}

macro_rules! integers {
    ($($integer:ident),*) => {$(
        impl sealed::Sealed for $integer {}
        impl Argument for $integer {
            const REGISTERS: usize = 1;
            #[inline]
            fn read(registers: &[u64]) -> Result<Self, HelperError> {
                let value = registers[0];
                $integer::try_from(value)
                    .map_err(|_| HelperError::Argument { value, bits: $integer::BITS })
            }
        }
    )*};
}
integers!(u8, u16, u32, u64);

impl sealed::Sealed for i64 {}
impl Argument for i64 {
    const REGISTERS: usize = 1;
    #[inline]
    fn read(registers: &[u64]) -> Result<Self, HelperError> {
        Ok(registers[0] as i64)
    }
}

impl sealed::Sealed for i32 {}
/// C's `int`. The upper half of the register is ignored, because clang leaves it undefined in
/// calls.
impl Argument for i32 {
    const REGISTERS: usize = 1;
    #[inline]
    fn read(registers: &[u64]) -> Result<Self, HelperError> {
        Ok(registers[0] as i32)
    }
}

impl sealed::Sealed for Region {}
impl Argument for Region {
    const REGISTERS: usize = 2;
    #[inline]
    fn read(registers: &[u64]) -> Result<Self, HelperError> {
        Ok(Region::new(registers[0], registers[1]))
    }
}

/// A function that can be registered as a helper. It takes a [`Caller`] and up to five
/// [`Argument`]s, and returns the value of `r0`. A closure must declare the type of each of its
/// parameters.
pub trait HelperFn<H: HelperHost, Arguments>: Send + Sync + 'static {
    /// Number of registers that all parameters together take.
    const REGISTERS: usize;
    /// Reads the parameters from the registers, and runs the helper.
    fn run(
        &self,
        caller: &mut Caller<'_, H::Data<'_>>,
        registers: &[u64; 5],
    ) -> Result<u64, HelperError>;
}

macro_rules! helper_functions {
    ($(($($argument:ident),*))*) => {$(
        impl<H, T, $($argument),*> HelperFn<H, ($($argument,)*)> for T
        where
            H: HelperHost,
            $($argument: Argument,)*
            T: for<'c, 'h> Fn(&mut Caller<'c, H::Data<'h>>, $($argument),*) -> Result<u64, HelperError>
                + Send + Sync + 'static,
        {
            const REGISTERS: usize = 0 $(+ $argument::REGISTERS)*;

            #[inline]
            #[allow(unused_mut, unused_variables, unused_assignments, non_snake_case, reason = "by arity")]
            fn run(
                &self,
                caller: &mut Caller<'_, H::Data<'_>>,
                registers: &[u64; 5],
            ) -> Result<u64, HelperError> {
                let mut from = 0;
                $(
                    let $argument = $argument::read(&registers[from..])?;
                    from += $argument::REGISTERS;
                )*
                self(caller, $($argument),*)
            }
        }
    )*};
}
helper_functions!(()(A)(A, B)(A, B, C)(A, B, C, D)(A, B, C, D, E));

/// A helper without its parameter types, so that helpers of different types fit into one table.
/// Errors are boxed, so that a result fits into two registers.
pub(crate) trait Run<H: HelperHost>: Send + Sync {
    fn run(
        &self,
        caller: &mut Caller<'_, H::Data<'_>>,
        registers: &[u64; 5],
    ) -> Result<u64, Box<HelperError>>;
}

struct Typed<T, Arguments> {
    function: T,
    arguments: PhantomData<fn(Arguments)>,
}

impl<H: HelperHost, Arguments, T: HelperFn<H, Arguments>> Run<H> for Typed<T, Arguments> {
    #[inline]
    fn run(
        &self,
        caller: &mut Caller<'_, H::Data<'_>>,
        registers: &[u64; 5],
    ) -> Result<u64, Box<HelperError>> {
        self.function.run(caller, registers).map_err(Box::new)
    }
}

/// A helper that was added to a table.
pub(crate) struct Helper<H: HelperHost> {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) cost: u32,
    pub(crate) run: Box<dyn Run<H>>,
}

impl<H: HelperHost> Helper<H> {
    /// Returns the trap that ends a call when this helper fails.
    pub(crate) fn trap(&self, error: HelperError) -> TrapKind {
        match error {
            HelperError::Budget => TrapKind::Budget,
            error => TrapKind::Helper { number: self.number, name: self.name.clone(), error },
        }
    }
}

/// Reason why a helper cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Another helper with this number is already registered.
    #[error("a helper with the number {0} already exists: give each helper a different number")]
    Number(u32),
    /// Another helper with this name is already registered.
    #[error("a helper with the name {0} already exists: give each helper a different name")]
    Name(String),
    /// The parameters need more than the five argument registers.
    #[error("helper {name} needs {registers} registers for its parameters, and there are only 5")]
    Parameters {
        /// The helper.
        name: String,
        /// Number of registers that the helper's parameters need.
        registers: usize,
    },
    /// The cost is larger than any budget can be.
    #[error("helper {name} costs {cost} instructions, and the limit is 2^30")]
    Cost {
        /// The helper.
        name: String,
        /// Cost of the helper in instructions.
        cost: u32,
    },
    /// The table has more helpers than a program can refer to.
    #[error("more than 65536 helpers were registered, which is the limit")]
    TooMany,
}

/// The table of helpers that a program can call. It is needed to load the program.
pub struct Helpers<H: HelperHost> {
    table: Vec<Helper<H>>,
    by_number: HashMap<u32, u32>,
    by_name: HashMap<String, u32>,
    /// Functions through which compiled code calls the helpers, in the same order as the helpers.
    pub(crate) shims: crate::jit::Shims,
}

impl<H: HelperHost> Default for Helpers<H> {
    fn default() -> Self {
        Helpers {
            table: Vec::new(),
            by_number: HashMap::new(),
            by_name: HashMap::new(),
            shims: crate::jit::Shims::default(),
        }
    }
}

impl<H: HelperHost> fmt::Debug for Helpers<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.table.iter().map(|helper| (&helper.name, helper.number)))
            .finish()
    }
}

impl<H: HelperHost> Helpers<H> {
    /// Creates an empty table of helpers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a helper. Programs call it by `number`, or by `name` as an `extern` function. Each
    /// call takes `cost` instructions from the budget before the helper runs.
    pub fn add<Arguments: 'static, T: HelperFn<H, Arguments>>(
        &mut self,
        number: u32,
        name: &str,
        cost: u32,
        helper: T,
    ) -> Result<&mut Self, RegisterError> {
        let registers = T::REGISTERS;
        if registers > 5 {
            return Err(RegisterError::Parameters { name: name.to_owned(), registers });
        }
        if cost > 1 << 30 {
            return Err(RegisterError::Cost { name: name.to_owned(), cost });
        }
        let place = self.table.len() as u32;
        if place > u32::from(u16::MAX) {
            return Err(RegisterError::TooMany);
        }
        if self.by_number.contains_key(&number) {
            return Err(RegisterError::Number(number));
        }
        if self.by_name.contains_key(name) {
            return Err(RegisterError::Name(name.to_owned()));
        }
        self.by_number.insert(number, place);
        self.by_name.insert(name.to_owned(), place);
        let run = Box::new(Typed { function: helper, arguments: PhantomData });
        self.shims.push::<H, Typed<T, Arguments>>();
        self.table.push(Helper { number, name: name.to_owned(), cost, run });
        Ok(self)
    }

    pub(crate) fn place(&self, number: u32) -> Option<u32> {
        self.by_number.get(&number).copied()
    }

    pub(crate) fn number_of(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).map(|place| self.table[*place as usize].number)
    }

    pub(crate) fn get(&self, place: u32) -> &Helper<H> {
        &self.table[place as usize]
    }
}
