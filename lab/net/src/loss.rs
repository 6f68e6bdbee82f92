//! Models of packet loss that depends on earlier packets or on the size of a packet.

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Loss in addition to [`crate::Link::drop`] and [`crate::Link::drop_list`]. All probabilities are
/// numbers from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// No additional loss.
    #[default]
    None,
    /// Each bit is wrong with this probability, independently of other bits, and a packet with a
    /// wrong bit is lost. The bits of [`crate::Link::overhead`] count, too.
    BitErrors(f64),
    /// Loss with a good and a bad state, as on a fading radio link: see [`GilbertElliott`].
    GilbertElliott(GilbertElliott),
}

/// Loss in bursts. The link is in a good or a bad state, each with its own loss probability. It
/// begins in the good state. With each packet, the state may change before the packet's loss is
/// decided.
///
/// E. N. Gilbert, "Capacity of a burst-noise channel" (1960); E. O. Elliott, "Estimates of error
/// rates for codes on burst-noise channels" (1963). `tc netem loss gemodel` has the same parameters
/// in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability that a packet changes the state from good to bad.
    pub to_bad: f64,
    /// Probability that a packet changes the state from bad to good. A bad period lasts 1 /
    /// `to_good` packets on average.
    pub to_good: f64,
    /// Loss probability in the bad state (1 in Gilbert's simplest model).
    pub loss_bad: f64,
    /// Loss probability in the good state (0 in Gilbert's model).
    pub loss_good: f64,
}

impl GilbertElliott {
    /// Returns the long-term fraction of lost packets, from 0 to 1.
    pub fn mean_loss(&self) -> f64 {
        let sum = self.to_bad + self.to_good;
        // If both transition probabilities are 0, the link always stays in the good state.
        let bad = if sum > 0.0 { self.to_bad / sum } else { 0.0 };
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }
}

impl Loss {
    /// Returns true if all probabilities are valid.
    pub(crate) fn is_possible(&self) -> bool {
        let possible = |one: f64| (0.0..=1.0).contains(&one);
        match *self {
            Loss::None => true,
            Loss::BitErrors(rate) => possible(rate),
            Loss::GilbertElliott(GilbertElliott { to_bad, to_good, loss_bad, loss_good }) => {
                [to_bad, to_good, loss_bad, loss_good].into_iter().all(possible)
            }
        }
    }
}

/// A [`Loss`] in use. It has a separate generator of random numbers, so the link's other properties
/// behave the same with and without it.
#[derive(Debug)]
pub(crate) struct LossState {
    loss: Loss,
    rng: Xoshiro256PlusPlus,
    bad: bool,
}

impl LossState {
    pub(crate) fn new(loss: Loss, seed: u64) -> LossState {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6c6f_7373_2e72_7321);
        LossState { loss, rng, bad: false }
    }

    /// Returns true if the next packet is lost. `bytes` is its size on the link.
    pub(crate) fn loses(&mut self, bytes: usize) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::BitErrors(rate) => {
                // This is 1 - (1 - rate)^bits, computed so that it is precise for small rates.
                let bits = 8.0 * bytes as f64;
                let lost = -libm::expm1(bits * libm::log1p(-rate));
                self.rng.random::<f64>() < lost
            }
            Loss::GilbertElliott(model) => {
                let (changes, lost): (f64, f64) = (self.rng.random(), self.rng.random());
                self.bad ^= changes < if self.bad { model.to_good } else { model.to_bad };
                lost < if self.bad { model.loss_bad } else { model.loss_good }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: usize = 200_000;

    fn losses(loss: Loss, bytes: usize) -> Vec<bool> {
        let mut state = LossState::new(loss, 11);
        (0..PACKETS).map(|_| state.loses(bytes)).collect()
    }

    fn share(losses: &[bool]) -> f64 {
        losses.iter().filter(|lost| **lost).count() as f64 / losses.len() as f64
    }

    #[test]
    fn loss_by_bit_errors_has_the_configured_rate() {
        for (rate, bytes) in [(1e-6, 1500), (1e-5, 1500), (1e-4, 100), (1e-9, 1500), (1.0, 1)] {
            let expected = 1.0 - f64::powi(1.0 - rate, 8 * bytes);
            let found = share(&losses(Loss::BitErrors(rate), bytes as usize));
            assert!((found - expected).abs() < 0.002, "{rate} {bytes}: {found}, not {expected}");
        }
        assert_eq!(share(&losses(Loss::BitErrors(0.0), 1500)), 0.0);
        // A packet without bits must never be lost.
        assert_eq!(share(&losses(Loss::BitErrors(0.5), 0)), 0.0);
    }

    #[test]
    fn loss_by_gilbert_elliott_has_its_mean_and_bursts() {
        let model = GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_bad: 1.0, loss_good: 0.0 };
        let found = losses(Loss::GilbertElliott(model), 1500);
        let mean = share(&found);
        assert!((model.mean_loss() - 0.01 / 0.26).abs() < 1e-12);
        assert!((mean - model.mean_loss()).abs() < 0.003, "{mean}");
        // The length of a bad period must have a geometric distribution with an average of four
        // packets.
        let bursts = found.windows(2).filter(|pair| pair[1] && !pair[0]).count();
        let length = found.iter().filter(|lost| **lost).count() as f64 / bursts as f64;
        assert!((3.8..4.2).contains(&length), "{length}");

        let model = GilbertElliott { to_bad: 0.05, to_good: 0.1, loss_bad: 0.5, loss_good: 0.02 };
        let mean = share(&losses(Loss::GilbertElliott(model), 1500));
        assert!((mean - model.mean_loss()).abs() < 0.005, "{mean}, not {}", model.mean_loss());
    }

    #[test]
    fn loss_by_gilbert_elliott_may_stay_in_one_state() {
        let model = GilbertElliott { to_bad: 0.0, to_good: 0.0, loss_bad: 1.0, loss_good: 0.0 };
        assert_eq!(model.mean_loss(), 0.0);
        assert_eq!(share(&losses(Loss::GilbertElliott(model), 1500)), 0.0);
    }

    #[test]
    fn loss_rejects_invalid_probabilities() {
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert!(!Loss::BitErrors(wrong).is_possible());
            let good = GilbertElliott { to_bad: 0.1, to_good: 0.1, loss_bad: 0.1, loss_good: 0.1 };
            for model in [
                GilbertElliott { to_bad: wrong, ..good },
                GilbertElliott { to_good: wrong, ..good },
                GilbertElliott { loss_bad: wrong, ..good },
                GilbertElliott { loss_good: wrong, ..good },
            ] {
                assert!(!Loss::GilbertElliott(model).is_possible());
            }
            assert!(Loss::GilbertElliott(good).is_possible());
        }
    }
}
