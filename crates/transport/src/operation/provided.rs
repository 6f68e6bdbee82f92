//! Operations that a hook defines and another calls, by name. A call goes from a hook that runs to one that does not: those that
//! may be called are lent to the connection while a hook runs, without that one, and are not among them while they run
//! themselves. So none is ever called by what it calls.

use super::host::HookContext;

/// Calls in calls at most.
const MAX_DEPTH: u32 = 4;

/// A call of an operation that a hook defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProvidedCall<'a> {
    /// Name of the operation, as the hook that defines it and the one that calls it know it.
    pub name: &'a str,
    /// Input words.
    pub inputs: &'a [u64],
    /// Budget of the hook, taken from its caller's, in the caller's units: the instructions of bytecode.
    pub budget: u64,
}

/// Answer of a hook to a call of an operation that it defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provided {
    /// It does not define an operation of this name, with these words, that may be run within the budget.
    Nothing,
    /// The outputs are written, and so much of the budget was used.
    Done(u64),
}

impl HookContext<'_> {
    /// Calls an operation that another hook defines ([`Hook::provide`](super::Hook::provide)): the one that was attached first
    /// of those that do. Hooks that other hooks brought call one another, and so do the others; neither kind the other.
    /// Returns what was used of the budget. None: there is no such operation, or the hook failed, or it runs already
    /// (nothing is called by what it calls), or calls are nested too deep; `outputs` are zeros then, and a hook that
    /// failed is taken off, itself alone.
    pub fn call(&mut self, call: &ProvidedCall<'_>, outputs: &mut [u64]) -> Option<u64> {
        let brought = self.is_brought();
        if self.depth() >= MAX_DEPTH {
            outputs.fill(0);
            return None;
        }
        let mut used = None;
        for place in 0..self.places() {
            let Some(mut callee) = self.borrow(place, brought) else { continue };
            outputs.fill(0);
            let answer = callee.hook.provide(&mut self.deeper(&callee.own), call, outputs);
            self.shallower();
            match answer {
                Ok(Provided::Nothing) => self.give_back(place, callee),
                Ok(Provided::Done(units)) => {
                    self.give_back(place, callee);
                    used = Some(units);
                    break;
                }
                Err(error) => {
                    // It is not given back, so nobody calls it any more. To take it off would move the places of those
                    // that are being called.
                    self.failed(callee.own.id, error);
                    break;
                }
            }
        }
        if used.is_none() {
            outputs.fill(0);
        }
        used
    }
}
