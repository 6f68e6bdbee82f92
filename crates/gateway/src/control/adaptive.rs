//! Reads the state of services that use Retry only under load (docs/policy.md s.8, "Adaptive").

use serde::Serialize;

use super::Control;
use crate::abi;
use crate::sys;

/// State of a service with `retry = "adaptive"`. Such a service requires clients to validate their
/// addresses only under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Adaptive {
    /// True while new clients need a Retry token.
    pub asking: bool,
    /// Time since the service began to require Retry tokens, in milliseconds, or 0 if it does not
    /// require them now.
    pub asking_for_ms: u64,
    /// Time until the service stops requiring tokens, in milliseconds, unless the rate
    /// `retry_above` is exceeded again. 0 if it does not require tokens now.
    pub calm_in_ms: u64,
    /// Number of times that the service began to require Retry tokens.
    pub began: u64,
}

impl Control {
    /// Returns the state of every service, by index. It is `None` for a service without `retry =
    /// "adaptive"`. The call is cheap.
    pub fn adaptive(&self) -> Vec<Option<Adaptive>> {
        let now = if self.maps.load.test_clock == 0 {
            sys::monotonic_ns()
        } else {
            self.maps.control.read().clock_ns
        };
        let (services, rates) = (self.maps.services.read(), self.maps.rates.read());
        let live = services.iter().take_while(|service| service.name[0] != 0);
        let adapts =
            |service: &abi::equic_service| u32::from(service.retry) == abi::EQUIC_RETRY_ADAPTIVE;
        live.zip(&rates.adaptive).map(|(one, state)| adapts(one).then(|| of(state, now))).collect()
    }
}

fn of(state: &abi::equic_adaptive, now: u64) -> Adaptive {
    const MILLISECOND: u64 = 1_000_000;
    let asking = now < state.until_ns;
    // The XDP program stores `until_ns` before `since_ns`. Between the two stores, `since_ns` is
    // still the time at which the service began to require tokens the last time before.
    let since = if asking { now.saturating_sub(state.since_ns) } else { 0 };
    Adaptive {
        asking,
        asking_for_ms: since / MILLISECOND,
        calm_in_ms: state.until_ns.saturating_sub(now).div_ceil(MILLISECOND),
        began: state.began,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adaptive_retry_ends_at_its_time() {
        let second = 1_000_000_000;
        let state =
            abi::equic_adaptive { tat: 0, since_ns: 5 * second, until_ns: 35 * second, began: 2 };
        let asking = Adaptive { asking: true, asking_for_ms: 10_000, calm_in_ms: 20_000, began: 2 };
        assert_eq!(of(&state, 15 * second), asking);
        let calm = Adaptive { asking: false, asking_for_ms: 0, calm_in_ms: 0, began: 2 };
        assert!(of(&state, 35 * second - 1).asking);
        assert_eq!(of(&state, 35 * second), calm);
        assert_eq!(of(&abi::equic_adaptive::default(), 7), Adaptive { began: 0, ..calm });
    }
}
