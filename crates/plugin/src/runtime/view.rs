//! The connection as helpers see it while a function runs, and the plugin's rights there.

use equic_transport::Timestamp;
use equic_transport::operation::{Denied, Field, Host, ProvidedCall};

use super::Rights;
use super::trace::Trace;

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
}

impl Connection for Host<'_> {
    fn now(&self) -> u64 {
        Host::now(self).as_nanos()
    }

    fn get(&self, field: Field) -> u64 {
        Host::get(self, field)
    }

    fn get_of(&self, field: Field, part: u64) -> Option<u64> {
        Host::get_of(self, field, part)
    }

    fn set(&mut self, field: Field, value: u64) -> Result<(), Denied> {
        Host::set(self, field, value)
    }

    fn queue_frame(&mut self, frame_type: u64, token: u64) -> Result<(), Denied> {
        Host::queue_frame(self, frame_type, token)
    }

    fn process_payload(&mut self, number: u64, payload: &[u8]) -> Result<(), Denied> {
        Host::process_payload(self, number, payload)
    }

    fn tell(&mut self, message: &[u8]) -> Result<(), Denied> {
        Host::tell(self, message)
    }

    fn set_timer(&mut self, at: Option<u64>) {
        Host::set_timer(self, at.map(Timestamp::from_nanos));
    }

    fn call(&mut self, call: &ProvidedCall<'_>, outputs: &mut [u64]) -> Option<u64> {
        Host::call(self, call, outputs)
    }
}

/// Place that a function runs in, which says what it may change of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// In an operation's place: all that the plugin's classes allow.
    Replaces,
    /// Before or after an operation: it sets nothing, and may ask for frames to be sent.
    LooksOn,
    /// Another plugin has called it: nothing, since that one may have no class for it.
    Provides,
}

/// State that helpers work with while a function runs.
pub(super) struct Context<'h> {
    pub(super) connection: &'h mut (dyn Connection + 'h),
    pub(super) rights: &'h Rights,
    pub(super) role: Role,
    /// Instructions of this call's budget that other plugins used, which it called.
    pub(super) used_by_others: u64,
    pub(super) trace: Option<&'h mut (dyn Trace + 'static)>,
}
