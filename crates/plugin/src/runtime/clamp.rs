//! Limits the answers of a plugin's functions to what the plugin's classes permit. The transport
//! itself limits the answers of every hook, so that no answer stalls a connection (see its
//! `connection/bounds.rs`). This module adds limits for plugins that have the class `tune` but not
//! `raise`: they must not send more than the connection would send without them.

use equic_transport::operation::{Field, Operation};

use super::Rights;
use super::view::Connection;
use crate::class::Class;

/// Maximum number of consecutive probe timeouts that double the timeout (RFC 9002 s.6.2.1). The
/// transport uses the same number.
const DOUBLINGS: u64 = 10;

/// Returns the outputs of a function, limited to what the plugin's classes permit.
pub(super) fn clamp(
    operation: Operation,
    inputs: &[u64],
    outputs: &mut [u64],
    connection: &dyn Connection,
    rights: &Rights,
) {
    let (Some(answer), false) = (outputs.first_mut(), rights.has(Class::Raise)) else { return };
    match operation {
        Operation::CongestionWindow => {
            *answer = (*answer).min(of_path(connection, Field::ControllerWindow, inputs));
        }
        Operation::PacingRate => {
            *answer = (*answer).min(of_path(connection, Field::ControllerPacingRate, inputs));
        }
        Operation::PtoBackoff => {
            let count = inputs.first().copied().unwrap_or(0).min(DOUBLINGS);
            *answer = (*answer).max(1 << count);
        }
        Operation::SetTimer => {
            // RFC 9002 s.6.2.1: each consecutive probe timeout doubles the timeout. A timer for
            // packets that may be declared lost by then is not a probe timeout.
            let sent = connection.get(Field::LastElicitingSent);
            if sent == u64::MAX {
                return;
            }
            let count = connection.get(Field::PtoCount).min(DOUBLINGS);
            let wait = connection.get(Field::SmoothedRtt).saturating_mul(1 << count);
            let soonest = sent.saturating_add(wait).min(connection.get(Field::LossTime));
            *answer = (*answer).max(soonest);
        }
        _ => {}
    }
}

/// Reads a field of the path whose number is the first input.
fn of_path(connection: &dyn Connection, field: Field, inputs: &[u64]) -> u64 {
    let path = inputs.first().and_then(|path| connection.get_of(field, *path));
    path.unwrap_or_else(|| connection.get(field))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use equic_transport::operation::{Denied, ProvidedCall};

    use super::*;
    use crate::policy::Granted;

    struct Fields(BTreeMap<u16, u64>);

    impl Connection for Fields {
        fn now(&self) -> u64 {
            0
        }

        fn get(&self, field: Field) -> u64 {
            self.0[&(field as u16)]
        }

        fn get_of(&self, _: Field, _: u64) -> Option<u64> {
            None
        }

        fn set(&mut self, field: Field, _: u64) -> Result<(), Denied> {
            Err(Denied::ReadOnly(field))
        }

        fn queue_frame(&mut self, _: u64, _: u64) -> Result<(), Denied> {
            Err(Denied::FrameType)
        }

        fn process_payload(&mut self, _: u64, _: &[u8]) -> Result<(), Denied> {
            Err(Denied::TooMany)
        }

        fn tell(&mut self, _: &[u8]) -> Result<(), Denied> {
            Err(Denied::Full)
        }

        fn set_timer(&mut self, _: Option<u64>) {}

        fn call(&mut self, _: &ProvidedCall<'_>, _: &mut [u64]) -> Option<u64> {
            None
        }

        fn callable(&mut self) -> u64 {
            0
        }

        fn parts_of(&self, _: Field) -> u64 {
            1
        }
    }

    /// Returns the time for which the loss detection timer is set if a plugin asks for the time
    /// `answer` after `count` consecutive probe timeouts.
    fn timer(answer: u64, count: u64, loss_time: u64, class: Class) -> u64 {
        let rights = Rights {
            reads: 0,
            sets: 0,
            calls: Vec::new(),
            granted: Granted::of([class].into_iter()),
        };
        let fields = Fields(BTreeMap::from([
            (Field::PtoCount as u16, count),
            (Field::SmoothedRtt as u16, 10),
            (Field::LastElicitingSent as u16, 1_000),
            (Field::LossTime as u16, loss_time),
        ]));
        let mut outputs = [answer];
        clamp(Operation::SetTimer, &[], &mut outputs, &fields, &rights);
        outputs[0]
    }

    #[test]
    fn clamp_doubles_the_least_interval_of_consecutive_probes() {
        let none = u64::MAX;
        assert_eq!(timer(0, 0, none, Class::Tune), 1_010);
        assert_eq!(timer(0, 3, none, Class::Tune), 1_080);
        assert_eq!(timer(0, 40, none, Class::Tune), 1_000 + (10 << DOUBLINGS));
        assert_eq!(timer(5_000, 3, none, Class::Tune), 5_000, "later is no harm");
        assert_eq!(timer(0, 3, 1_005, Class::Tune), 1_005, "a loss is found when it is one");
        assert_eq!(timer(0, 3, none, Class::Raise), 0);
    }
}
