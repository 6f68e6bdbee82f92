//! The operations of a connection: what can be observed and replaced, one connection at a time.
//!
//! An operation is one decision or action, with a number that never changes, inputs and outputs as
//! 64-bit words, sometimes bytes, and the section that its default follows. [`Operation`] is the
//! list, and the page that the author of a plugin reads.
//!
//! A [`Hook`] is attached to some of them with [`Connection::attach`]: it looks on before or after,
//! or does it itself. Nothing that a hook can ask of its [`HookContext`] calls an operation of the connection; it may call one
//! that another hook defines ([`HookContext::call`]), and that one no hook that runs: there is no recursion. A hook that fails is
//! taken off, and the default runs. A hook that panics takes all hooks of the connection along.
//!
//! Frames that a hook sends are of types that it declared ([`Connection::attach_with_frames`]); it writes no
//! others. What it answers is held within bounds, so that no answer brings a connection to a halt or has it
//! send without end: [`Operation`] says which. What a hook swallows ends like what the network swallows, by
//! the idle timeout, which no hook can put off.
//!
//! * `catalogue.rs`: the operations; `point.rs`: where hooks are attached;
//! * `hooks.rs`: attaching and taking off; one test of one bit where no hook is; `table.rs`: who is attached to
//!   what, and `callees.rs`: those that one call goes to;
//! * `words.rs`: typed values as words and back;
//! * `host.rs`, `messages.rs`: the connection as a hook sees it, and requests of hooks;
//! * `requests.rs`: requests that are carried out between calls: hooks that a hook brings, and the end;
//! * `provided.rs`: operations that a hook defines and another calls;
//! * `share.rs`: the part of packets that frames of hooks get which other hooks brought.
//!
//! The operations are called, and their defaults written, in the folder `connection`.
//!
//! [`Connection::attach`]: crate::Connection::attach
//! [`Connection::attach_with_frames`]: crate::Connection::attach_with_frames

mod callees;
mod catalogue;
mod hooks;
mod host;
mod meaning;
mod messages;
mod point;
mod provided;
mod requests;
mod share;
mod table;
mod words;

pub use crate::connection::{Overruled, TellError};
pub(crate) use callees::{Callees, Watchers};
pub use catalogue::{Description, Operation, PayloadKind};
pub use hooks::HookId;
pub(crate) use hooks::Hooks;
pub use host::{Denied, Field, HookContext};
pub(crate) use host::{Extension, Extensions};
pub(crate) use messages::MAX_MESSAGE;
pub use point::{AttachError, AttachPoint, OwnFrame};
pub use provided::{Provided, ProvidedCall};
pub use requests::HookEvent;
pub(crate) use requests::Request;
pub(crate) use table::{Attached, Lent, Own, Table};
pub(crate) use words::{AbiValue, Word};

/// The bytes of a call.
#[derive(Debug)]
pub enum Bytes<'a> {
    /// It has none.
    None,
    /// To be read.
    In(&'a [u8]),
    /// To be written. What stands there before has no meaning.
    Out(&'a mut [u8]),
}

impl Bytes<'_> {
    /// Whatever they are for.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::None => &[],
            Bytes::In(bytes) => bytes,
            Bytes::Out(bytes) => bytes,
        }
    }

    /// Wipes away what a hook wrote that does not count.
    pub(crate) fn wipe(&mut self) {
        if let Bytes::Out(bytes) = self {
            bytes.fill(0);
        }
    }
}

/// One call of an operation.
#[derive(Debug)]
pub struct Call<'a> {
    /// Operation that is called.
    pub operation: Operation,
    /// Frame type that the operation is called for, where it has one variant for each; else 0.
    pub parameter: u64,
    /// Input words, in the order of the catalogue.
    pub inputs: &'a [u64],
    /// Bytes to read or buffer to write, as the catalogue says.
    pub bytes: Bytes<'a>,
}

/// Answer of a hook to a call of an operation that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The hook did the operation; the outputs are written.
    Done,
    /// The hook leaves this call to the one that was attached before it in the same place, or to the default behaviour.
    Default,
}

/// Reason for which a hook failed; the hook is taken off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookError(pub String);

impl std::fmt::Display for HookError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HookError {}

/// Something that changes or watches a connection: native, as here, or a sandbox with bytecode in it.
pub trait Hook: Send {
    /// The operation is about to run.
    ///
    /// # Errors
    /// It is broken, and taken off.
    fn before(&mut self, host: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        let _ = (host, call);
        Ok(())
    }

    /// In the default's place. `outputs` has a word for each that the catalogue names; at a point with
    /// [`AttachPoint::with_default`] they are what the default answers.
    ///
    /// # Errors
    /// It is broken, and taken off; the default runs.
    fn replace(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let _ = (host, call, outputs);
        Ok(Decision::Default)
    }

    /// The operation has run, and this came of it.
    ///
    /// # Errors
    /// It is broken, and taken off.
    fn after(
        &mut self,
        host: &mut HookContext<'_>,
        call: &Call<'_>,
        outputs: &[u64],
    ) -> Result<(), HookError> {
        let _ = (host, call, outputs);
        Ok(())
    }

    /// True if it defines operations that other hooks may call. It is asked when the hook is attached.
    fn provides(&self) -> bool {
        false
    }

    /// Runs an operation of its own that another hook calls ([`HookContext::call`]), if it says that it [`provides`](Hook::provides)
    /// some. `outputs` has as many words as that one wants, and zeros in them.
    ///
    /// # Errors
    /// It is broken, and taken off; the other goes on without an answer.
    fn provide(
        &mut self,
        host: &mut HookContext<'_>,
        call: &ProvidedCall<'_>,
        outputs: &mut [u64],
    ) -> Result<Provided, HookError> {
        let _ = (host, call, outputs);
        Ok(Provided::Nothing)
    }

    /// Takes in an event about another hook that this one brought ([`HookContext::attach`]).
    ///
    /// # Errors
    /// It is broken, and taken off.
    fn on_event(&mut self, host: &mut HookContext<'_>, event: &HookEvent) -> Result<(), HookError> {
        let _ = (host, event);
        Ok(())
    }

    /// Bytes that it keeps for the connection, such as a sandbox: part of
    /// [`Connection::memory`](crate::Connection::memory).
    fn memory(&self) -> usize {
        0
    }
}
