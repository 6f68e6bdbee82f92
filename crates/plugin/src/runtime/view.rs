//! The interface through which helpers use the connection while a plugin's function runs. It
//! enforces the plugin's rights.

use equic_transport::Timestamp;
use equic_transport::operation::{Denied, Field, HookContext, ProvidedCall};
use equic_vm::HelperError;

use super::Rights;
use super::allotted::Allotted;
use super::allowance::Allowance;
use super::trace::Trace;

/// Error message if a function that may only observe calls a helper that changes the connection.
const LOOKS_ON: &str = "a function that runs before or after an operation, or that another plugin calls, must not change anything";

/// The methods of a connection that helpers use.
pub(super) trait Connection {
    /// Returns the time in nanoseconds on the connection's clock.
    fn now(&self) -> u64;
    fn get(&self, field: Field) -> u64;
    fn get_of(&self, field: Field, part: u64) -> Option<u64>;
    fn set(&mut self, field: Field, value: u64) -> Result<(), Denied>;
    fn queue_frame(&mut self, frame_type: u64, token: u64) -> Result<(), Denied>;
    fn process_payload(&mut self, number: u64, payload: &[u8]) -> Result<(), Denied>;
    fn tell(&mut self, message: &[u8]) -> Result<(), Denied>;
    fn set_timer(&mut self, at: Option<u64>);
    fn call(&mut self, call: &ProvidedCall<'_>, outputs: &mut [u64]) -> Option<u64>;
    /// Returns the number of other plugins that may have to be searched for an operation.
    fn callable(&mut self) -> u64;
    /// Returns the number of objects of the connection, such as streams, that must be searched to
    /// read a field.
    fn parts_of(&self, field: Field) -> u64;
}

impl Connection for HookContext<'_> {
    fn now(&self) -> u64 {
        HookContext::now(self).as_nanos()
    }

    fn get(&self, field: Field) -> u64 {
        HookContext::get(self, field)
    }

    fn get_of(&self, field: Field, part: u64) -> Option<u64> {
        HookContext::get_of(self, field, part)
    }

    fn set(&mut self, field: Field, value: u64) -> Result<(), Denied> {
        HookContext::set(self, field, value)
    }

    fn queue_frame(&mut self, frame_type: u64, token: u64) -> Result<(), Denied> {
        HookContext::queue_frame(self, frame_type, token)
    }

    fn process_payload(&mut self, number: u64, payload: &[u8]) -> Result<(), Denied> {
        HookContext::process_payload(self, number, payload)
    }

    fn tell(&mut self, message: &[u8]) -> Result<(), Denied> {
        HookContext::tell(self, message)
    }

    fn set_timer(&mut self, at: Option<u64>) {
        HookContext::set_timer(self, at.map(Timestamp::from_nanos));
    }

    fn call(&mut self, call: &ProvidedCall<'_>, outputs: &mut [u64]) -> Option<u64> {
        HookContext::call(self, call, outputs)
    }

    fn callable(&mut self) -> u64 {
        HookContext::callable(self) as u64
    }

    fn parts_of(&self, field: Field) -> u64 {
        HookContext::parts_of(self, field) as u64
    }
}

/// Role of a function. It decides whether the function may change the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The function replaces an operation. It may change what the plugin's classes permit.
    Replaces,
    /// The function only observes: it runs before or after an operation, or another plugin called
    /// it.
    LooksOn,
}

/// The outputs of a call as the function received them, and their position in the sandbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'h> {
    pub(super) outputs: &'h [u64],
    pub(super) at: u64,
}

/// The data that helpers need while a function runs.
pub(super) struct Context<'h> {
    /// Helpers use the connection only through the methods of `Context`, because the function's
    /// role decides what they may change.
    connection: &'h mut (dyn Connection + 'h),
    role: Role,
    pub(super) rights: &'h Rights,
    pub(super) given: Given<'h>,
    /// Translation of the plugin's frame types to those on the wire. `None` if they are the same as
    /// in its manifest.
    allotted: Option<&'h Allotted>,
    /// Allowance of steps for a peer's plugin. `None` if the plugin is the owner's.
    pub(super) allowance: Option<&'h Allowance>,
    /// Steps of this call's budget that went to other plugins that the function called.
    pub(super) used_by_others: u64,
    pub(super) trace: Option<&'h mut (dyn Trace + 'static)>,
}

impl<'h> Context<'h> {
    pub(super) fn new(
        connection: &'h mut (dyn Connection + 'h),
        role: Role,
        rights: &'h Rights,
        given: Given<'h>,
        allotted: Option<&'h Allotted>,
        trace: Option<&'h mut (dyn Trace + 'static)>,
    ) -> Context<'h> {
        let (allowance, used_by_others) = (None, 0);
        Context { connection, role, rights, given, allotted, allowance, used_by_others, trace }
    }

    /// Returns the number on the wire of a frame type in the manifest, or `None` if the plugin does
    /// not define that type.
    pub(super) fn on_the_wire(&self, named: u64) -> Option<u64> {
        self.allotted.map_or(Some(named), |allotted| allotted.wire(named))
    }

    /// Returns the connection for read access.
    pub(super) fn connection(&self) -> &dyn Connection {
        self.connection
    }

    /// Returns the connection for changes. Helpers have no other way to change it.
    ///
    /// # Errors
    /// The function may only observe. Plugins that contain such calls are not loaded, so this is a
    /// second line of defense.
    pub(super) fn change(&mut self) -> Result<&mut (dyn Connection + 'h), HelperError> {
        match self.role {
            Role::Replaces => Ok(self.connection),
            Role::LooksOn => Err(HelperError::failed(LOOKS_ON)),
        }
    }

    /// Sends a message to the application. Observing functions may do so, because it does not
    /// change the connection.
    pub(super) fn tell(&mut self, message: &[u8]) -> Result<(), Denied> {
        self.connection.tell(message)
    }

    /// Returns the number of other plugins that [`Context::call`] may have to search.
    pub(super) fn callable(&mut self) -> u64 {
        self.connection.callable()
    }

    /// Calls a function of another plugin. That function may only observe, whatever the role of the
    /// caller is.
    pub(super) fn call(&mut self, call: &ProvidedCall<'_>, outputs: &mut [u64]) -> Option<u64> {
        self.connection.call(call, outputs)
    }
}
