//! Operations that a hook defines, and that other hooks call by name. A running hook can only call hooks that do not
//! run: during a call of a hook, the other hooks are lent to the connection, and a called hook is not among them. So
//! there is no recursion.

use super::host::HookContext;

/// Largest depth of nested calls.
const MAX_DEPTH: u32 = 4;

/// A call of an operation that a hook defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProvidedCall<'a> {
    /// Name of the operation, on which the calling and the defining hook agree.
    pub name: &'a str,
    /// Input words.
    pub inputs: &'a [u64],
    /// Budget of the called hook, which is deducted from the caller's: a number of bytecode instructions.
    pub budget: u64,
}

/// Answer of a hook to a call of an operation that it defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provided {
    /// The hook does not define this operation with these words, or the budget is too small.
    Nothing,
    /// The outputs are written. The number is the used part of the budget.
    Done(u64),
}

impl HookContext<'_> {
    /// Calls an operation that another hook defines ([`Hook::provide`](super::Hook::provide)). If several hooks
    /// define it, the one that was attached first is called. Nested hooks can call only each other, and the same
    /// holds for hooks of the application. Returns the used part of the budget. Returns `None`, and sets `outputs` to
    /// zeros, if there is no such operation, if the hook failed or is already running, or if calls are nested too
    /// deep. A hook that failed is detached; the others stay.
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
                    // It is not put back, so it is not called again. Detaching it now would change the places of
                    // hooks that are being called.
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
