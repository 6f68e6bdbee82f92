//! Operations that a hook defines and that other hooks call by name. While a hook runs, the
//! connection holds the other hooks in a list. A hook that is called is taken out of this list. So
//! a running hook can only call hooks that are not running, and there is no recursion.

use super::host::HookContext;

/// Largest depth of calls from one hook to another.
const MAX_DEPTH: u32 = 4;

/// A call of an operation that another hook defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProvidedCall<'a> {
    /// Name of the operation, on which the calling hook and the defining hook have agreed.
    pub name: &'a str,
    /// Input words of the call.
    pub inputs: &'a [u64],
    /// Instruction budget of the called hook, in bytecode instructions. The instructions that it
    /// uses are deducted from the caller's budget.
    pub budget: u64,
}

/// Answer of a hook to a call of an operation that it defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provided {
    /// The hook does not define an operation with this name and this number of words, or the budget
    /// is too small.
    Nothing,
    /// The hook has written the outputs. The number is how many instructions of the budget it used.
    Done(u64),
}

impl HookContext<'_> {
    /// Calls an operation that another hook defines ([`Hook::provide`](super::Hook::provide)), and
    /// returns the part of the budget that the other hook used.
    ///
    /// If several hooks define the operation, the one that was attached first is called. Nested
    /// hooks can call only nested hooks, and hooks of the application only hooks of the
    /// application.
    ///
    /// Returns `None`, and sets `outputs` to zeros, if there is no such operation, if the other
    /// hook failed or is already running, or if calls are nested too deep. A hook that failed is
    /// detached; the others stay attached.
    pub fn call(&mut self, call: &ProvidedCall<'_>, outputs: &mut [u64]) -> Option<u64> {
        let nested = self.is_nested();
        if self.depth() >= MAX_DEPTH {
            outputs.fill(0);
            return None;
        }
        let mut used = None;
        for place in 0..self.places() {
            let Some(mut callee) = self.borrow(place, nested) else { continue };
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
                    // The failed hook is not put back, so it is not called again. Detaching it now
                    // would change the positions of hooks that are being called.
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
