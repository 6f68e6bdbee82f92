//! The operations of a connection, which hooks can observe and replace.
//!
//! An operation is one decision or action. It has a number that never changes, 64-bit words as
//! inputs and outputs, and in some cases bytes. A section of an RFC specifies its default.
//! [`Operation`] lists all operations for authors of hooks and plugins.
//!
//! A [`Hook`] is attached to some operations of a connection with [`Connection::attach`]. It is
//! called before or after an operation, or in place of its default. The methods of its
//! [`HookContext`] call no operations of the connection. A hook may call an operation that another
//! hook defines ([`HookContext::call`]), but not a hook that is already running. Recursion is
//! therefore impossible.
//!
//! A hook that fails is detached, and the default runs. If a hook panics, all hooks of the
//! connection are detached.
//!
//! A hook sends only frame types that it has declared ([`Connection::attach_with_frames`]). Its
//! answers are limited as [`Operation`] documents, so that no answer stops a connection or makes it
//! send without limit. If a hook drops all packets, the connection ends as on a network that loses
//! everything: by the idle timeout, which no hook can extend.
//!
//! * `catalogue.rs`: the operations; `meaning.rs`: their words; `point.rs`: where hooks are
//!   attached;
//! * `hooks.rs`: attaches and detaches hooks; an operation without hooks costs a test of one bit.
//!   `table.rs`: which hooks are attached to which operations; `callees.rs`: the hooks of one call;
//! * `words.rs`: converts typed values to words and back;
//! * `host.rs`, `messages.rs`: what a hook can read of the connection, and its requests;
//! * `requests.rs`: requests that are carried out between calls, such as attaching another hook or
//!   closing;
//! * `provided.rs`: operations that a hook defines for other hooks;
//! * `share.rs`: the share of packets for frames of nested hooks, which other hooks have attached.
//!
//! The folder `connection` calls the operations and implements their defaults.
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

/// The bytes that a call carries.
#[derive(Debug)]
pub enum Bytes<'a> {
    /// The call carries no bytes.
    None,
    /// Bytes that the hook can read.
    In(&'a [u8]),
    /// A buffer that the hook can write. Its initial content is undefined.
    Out(&'a mut [u8]),
}

impl Bytes<'_> {
    /// The bytes that a call of an operation carries.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::None => &[],
            Bytes::In(bytes) => bytes,
            Bytes::Out(bytes) => bytes,
        }
    }

    /// Clears the buffer, because what the hook wrote is not used.
    pub(crate) fn wipe(&mut self) {
        if let Bytes::Out(bytes) = self {
            bytes.fill(0);
        }
    }
}

/// One call of an operation.
#[derive(Debug)]
pub struct Call<'a> {
    /// The operation that is called.
    pub operation: Operation,
    /// Frame type of the call, if the operation has frame types; otherwise 0.
    pub parameter: u64,
    /// Input words, in the order in which the catalogue names them.
    pub inputs: &'a [u64],
    /// Bytes to read or buffer to write, as documented for the operation.
    pub bytes: Bytes<'a>,
}

/// Tells what a hook that may replace an operation has done in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The hook carried out the operation, and has written the output words.
    Done,
    /// The hook leaves this call to the hook that was attached before it. If there is no such hook,
    /// the default runs.
    Default,
}

/// The reason why a hook failed. A hook that fails is detached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookError(pub String);

impl std::fmt::Display for HookError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HookError {}

/// Observes or changes the operations of a connection. A hook is native code, or a sandbox that
/// runs bytecode.
pub trait Hook: Send {
    /// Called before the operation runs.
    ///
    /// # Errors
    /// An error means that the hook has failed. It is detached.
    fn before(&mut self, host: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        let _ = (host, call);
        Ok(())
    }

    /// Called in place of the default. `outputs` has one word for each output of the operation. At
    /// a point with [`AttachPoint::with_default`], the words hold the default's answer.
    ///
    /// # Errors
    /// An error means that the hook has failed. It is detached, and the default runs.
    fn replace(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let _ = (host, call, outputs);
        Ok(Decision::Default)
    }

    /// Called after the operation has run, with its outputs.
    ///
    /// # Errors
    /// An error means that the hook has failed. It is detached.
    fn after(
        &mut self,
        host: &mut HookContext<'_>,
        call: &Call<'_>,
        outputs: &[u64],
    ) -> Result<(), HookError> {
        let _ = (host, call, outputs);
        Ok(())
    }

    /// Returns true if the hook defines operations that other hooks may call. The connection calls
    /// this once, when the hook is attached.
    fn provides(&self) -> bool {
        false
    }

    /// Runs an operation that this hook defines, because another hook calls it
    /// ([`HookContext::call`]). The connection calls this method only if [`Hook::provides`] returns
    /// true. `outputs` has as many words as the calling hook expects, all initially zero.
    ///
    /// # Errors
    /// An error means that this hook has failed. It is detached, and the calling hook continues
    /// without an answer.
    fn provide(
        &mut self,
        host: &mut HookContext<'_>,
        call: &ProvidedCall<'_>,
        outputs: &mut [u64],
    ) -> Result<Provided, HookError> {
        let _ = (host, call, outputs);
        Ok(Provided::Nothing)
    }

    /// Receives an event about another hook that this hook has attached ([`HookContext::attach`]).
    ///
    /// # Errors
    /// An error means that this hook has failed. It is detached.
    fn on_event(&mut self, host: &mut HookContext<'_>, event: &HookEvent) -> Result<(), HookError> {
        let _ = (host, event);
        Ok(())
    }

    /// Returns the memory that the hook holds for the connection, in bytes, for example that of a
    /// sandbox. It is included in [`Connection::memory`](crate::Connection::memory).
    fn memory(&self) -> usize {
        0
    }
}
