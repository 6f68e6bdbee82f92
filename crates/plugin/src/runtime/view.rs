//! The connection as helpers see it while a function runs, and the plugin's rights there.

use equic_transport::Timestamp;
use equic_transport::operation::{Denied, Field, HookContext, ProvidedCall};
use equic_vm::HelperError;

use super::Rights;
use super::allotted::Allotted;
use super::allowance::Allowance;
use super::trace::Trace;

/// Reason for which a function that looks on may not call a helper.
const LOOKS_ON: &str =
    "a function that is called before or after, or by another plugin, changes nothing";

/// A connection, as helpers need it.
pub(super) trait Connection {
    /// Nanoseconds on the connection's clock.
    fn now(&self) -> u64;
    fn get(&self, field: Field) -> u64;
    fn get_of(&self, field: Field, part: u64) -> Option<u64>;
    fn set(&mut self, field: Field, value: u64) -> Result<(), Denied>;
    fn queue_frame(&mut self, frame_type: u64, token: u64) -> Result<(), Denied>;
    fn process_payload(&mut self, number: u64, payload: &[u8]) -> Result<(), Denied>;
    fn tell(&mut self, message: &[u8]) -> Result<(), Denied>;
    fn set_timer(&mut self, at: Option<u64>);
    fn call(&mut self, call: &ProvidedCall<'_>, outputs: &mut [u64]) -> Option<u64>;
    /// Other plugins that a call may have to ask.
    fn callable(&mut self) -> u64;
    /// Parts of the connection that are looked at for a field.
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

/// Place that a function runs in, which says what it may change of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// In an operation's place: all that the plugin's classes allow.
    Replaces,
    /// Before or after an operation, or called by another plugin: nothing.
    LooksOn,
}

/// Outputs of a call as its function was given them, and where they stand in the sandbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'h> {
    pub(super) outputs: &'h [u64],
    pub(super) at: u64,
}

/// State that helpers work with while a function runs.
pub(super) struct Context<'h> {
    /// Not for helpers: what a function may do with it depends on its role.
    connection: &'h mut (dyn Connection + 'h),
    role: Role,
    pub(super) rights: &'h Rights,
    pub(super) given: Given<'h>,
    /// The plugin's frame types on the wire; none: they are as in its manifest.
    allotted: Option<&'h Allotted>,
    /// Allowance of a peer's plugin; none: the plugin is the owner's.
    pub(super) allowance: Option<&'h Allowance>,
    /// Instructions of this call's budget that other plugins used, which it called.
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

    /// The number on the wire of a frame type that the plugin names; none: it is none of its own.
    pub(super) fn on_the_wire(&self, named: u64) -> Option<u64> {
        self.allotted.map_or(Some(named), |allotted| allotted.wire(named))
    }

    /// The connection, to be read.
    pub(super) fn connection(&self) -> &dyn Connection {
        self.connection
    }

    /// The connection, to be changed: the only way for a helper to do so.
    ///
    /// # Errors
    /// The function looks on. An object with such a call is not loaded, so this is the second line.
    pub(super) fn change(&mut self) -> Result<&mut (dyn Connection + 'h), HelperError> {
        match self.role {
            Role::Replaces => Ok(self.connection),
            Role::LooksOn => Err(HelperError::failed(LOOKS_ON)),
        }
    }

    /// Tells the application something, which changes nothing of the connection.
    pub(super) fn tell(&mut self, message: &[u8]) -> Result<(), Denied> {
        self.connection.tell(message)
    }

    /// Other plugins that [`Context::call`] may have to ask.
    pub(super) fn callable(&mut self) -> u64 {
        self.connection.callable()
    }

    /// Calls a function of another plugin, which looks on whatever the role of this one is.
    pub(super) fn call(&mut self, call: &ProvidedCall<'_>, outputs: &mut [u64]) -> Option<u64> {
        self.connection.call(call, outputs)
    }
}
