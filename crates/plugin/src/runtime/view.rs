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

/// State that helpers work with while a function runs.
pub(super) struct Context<'h> {
    pub(super) connection: &'h mut (dyn Connection + 'h),
    pub(super) rights: &'h Rights,
    /// The function looks on: it changes nothing.
    pub(super) looks_on: bool,
    pub(super) trace: Option<&'h mut (dyn Trace + 'static)>,
}
