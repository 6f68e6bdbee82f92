//! Congestion control: how much may be in flight on a path, and how fast it may leave.
//!
//! A [`Controller`] decides; one exists per path. [`Algorithm`] names those that come with the
//! transport and makes them. For another, implement [`Controller`] and a [`ControllerFactory`] that makes
//! it, and give that to [`TransportConfig::congestion`](crate::TransportConfig::congestion). Nothing here knows
//! QUIC's packets: another transport drives the same controllers with a [`DeliveryRate`], a [`WindowUsage`] and
//! a [`Pacer`] for each path, as `equic-tcp` does.
//!
//! * `new_reno.rs`: RFC 9002 s.7;
//! * `cubic.rs`: RFC 9438, out of slow start by `hystart.rs` (HyStart++, RFC 9406);
//! * `bbr/`: BBR version 3 (draft-ietf-ccwg-bbr), over the samples of `rate.rs`;
//! * `coupled/`: LIA (RFC 6356) and OLIA, whose windows grow with a look at the connection's other paths;
//! * `classic/`: algorithms of TCP's past, for comparison ([`Classic`]);
//! * `usage.rs`: whether the window is used at all (RFC 9002 s.7.8);
//! * `shared.rs`: a window that many connections between the same two sockets share;
//! * `pacer.rs`: spreads what a window allows over a round trip (RFC 9002 s.7.7).

mod bbr;
mod classic;
mod coupled;
mod cubic;
mod hystart;
mod new_reno;
mod pacer;
mod rate;
mod shared;
#[cfg(test)]
mod tests;
mod usage;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::Timestamp;
pub use crate::recovery::{DeliveryMark, RttEstimator};

pub(crate) use bbr::Bbr;
pub use classic::Classic;
pub(crate) use coupled::{Increase, Siblings};
pub(crate) use cubic::Cubic;
pub(crate) use new_reno::NewReno;
pub use pacer::{Pacer, Rate};
pub use rate::{DeliveryRate, RateSample};
pub use shared::{Share, SharedWindow};
pub use usage::WindowUsage;

/// Input to a congestion controller from packets newly acknowledged by an ACK frame.
#[derive(Debug, Clone, Copy)]
pub struct AckSample<'a> {
    /// Time at which the acknowledgement was taken in.
    pub now: Timestamp,
    /// Bytes that are no longer in flight.
    pub acked: u64,
    /// Time at which the largest packet newly acknowledged was sent.
    pub largest_sent: Timestamp,
    /// Bytes in flight before the acknowledgement.
    pub in_flight: u64,
    /// True if the window was not used up when the packets were sent: then it must not grow
    /// (RFC 9002 s.7.8).
    pub app_limited: bool,
    /// The path's round-trip time, with this sample in it.
    pub rtt: &'a RttEstimator,
    /// Rate at which the path delivers, by samples of acknowledged packets; none if it cannot be told from these packets.
    pub rate: Option<RateSample>,
}

/// Sign that the path is congested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Packets were lost, so many bytes.
    Loss {
        /// Bytes lost.
        bytes: u64,
    },
    /// More packets were marked ECN-CE (RFC 9002 s.7.1).
    Ecn,
}

/// A congestion controller of one path.
///
/// Calls come in this order for an ACK frame: [`Controller::on_packet_lost`] for each packet lost,
/// [`Controller::on_congestion`] if anything was lost or marked, then [`Controller::on_ack`]. The window counts UDP payload bytes.
pub trait Controller: fmt::Debug + Send {
    /// The window is to begin with so many bytes
    /// ([`TransportConfig::initial_window`](crate::TransportConfig::initial_window)); called before anything
    /// else. A controller that has its own idea of that need not heed it.
    fn set_initial_window(&mut self, _window: u64) {}

    /// The sender is TCP, for which RFC 5681 is stricter here and there than RFC 9002; called before anything else.
    fn for_tcp(&mut self) {}

    /// A packet that counts was sent; `in_flight` is with it.
    fn on_sent(&mut self, now: Timestamp, bytes: u64, in_flight: u64);

    /// A packet of `size` bytes was lost; `sent` is what it was marked with when it left, and `lost`
    /// the bytes lost on the path so far, with it.
    fn on_packet_lost(&mut self, _now: Timestamp, _size: u64, _sent: &DeliveryMark, _lost: u64) {}

    /// Packets were acknowledged.
    fn on_ack(&mut self, sample: &AckSample<'_>);

    /// Congestion, once per round trip: `largest_sent` is when the largest packet lost or marked was
    /// sent; a signal from before the last reaction is no news (RFC 9002 s.7.3.2).
    fn on_congestion(&mut self, now: Timestamp, largest_sent: Timestamp, signal: Signal);

    /// Packets given up turned out to have arrived: the last reaction may have been for nothing.
    fn on_spurious_loss(&mut self, now: Timestamp);

    /// Nothing came through for several PTOs (RFC 9002 s.7.6).
    fn on_persistent_congestion(&mut self, now: Timestamp);

    /// TCP's retransmission timer expired (RFC 5681 s.3.1, RFC 6298 s.5): everything in flight may be lost.
    /// [`Controller::on_spurious_loss`] says if that was wrong. QUIC has no such timer and does not call it.
    fn on_retransmission_timeout(&mut self, now: Timestamp) {
        self.on_persistent_congestion(now);
    }

    /// The path now takes datagrams of so many bytes.
    fn on_datagram_size(&mut self, size: u16);

    /// A hook wants another window, in bytes: from there on it is this controller's. Returns whether it is: a
    /// controller whose window follows from what it measures has none to set.
    fn set_window(&mut self, _window: u64) -> bool {
        false
    }

    /// A hook wants another slow start threshold, in bytes; none: slow start goes on. Returns whether it is so.
    fn set_slow_start_threshold(&mut self, _threshold: Option<u64>) -> bool {
        false
    }

    /// The congestion window in bytes.
    fn window(&self) -> u64;

    /// The slow start threshold in bytes; none: not left yet, or the algorithm has none.
    fn slow_start_threshold(&self) -> Option<u64>;

    /// Rate at which packets should be sent. It is asked for once for all datagrams that leave in one message to the system, so
    /// that what follows from those in [`Controller::on_sent`] counts from the next message on.
    fn pacing_rate(&self, rtt: &RttEstimator) -> Rate {
        let factor = if self.slow_start_threshold().is_none() { 2.0 } else { PACING_GAIN };
        Rate::of_window(self.window(), rtt.smoothed(), factor)
    }

    /// True if the algorithm works only if packets leave at [`Controller::pacing_rate`]: then they are paced also
    /// where pacing is off otherwise, as it is for TCP.
    fn needs_pacing(&self) -> bool {
        false
    }

    /// Name of the controller's state, for logs; slow start or congestion avoidance unless it has others.
    fn state(&self) -> &'static str {
        match self.slow_start_threshold() {
            Some(threshold) if self.window() >= threshold => "congestion_avoidance",
            _ => "slow_start",
        }
    }

    /// Name of the algorithm, for logs.
    fn name(&self) -> &'static str;
}

/// Makes the controllers of connections: [`TransportConfig::congestion`](crate::TransportConfig::congestion).
///
/// ```
/// use std::sync::Arc;
/// use equic_transport::congestion::{AckSample, Controller, ControllerFactory, Signal};
/// use equic_transport::{Timestamp, TransportConfig};
///
/// /// A window of so many bytes, whatever happens.
/// #[derive(Debug)]
/// struct Fixed(u64);
///
/// impl Controller for Fixed {
///     fn on_sent(&mut self, _: Timestamp, _: u64, _: u64) {}
///     fn on_ack(&mut self, _: &AckSample<'_>) {}
///     fn on_congestion(&mut self, _: Timestamp, _: Timestamp, _: Signal) {}
///     fn on_spurious_loss(&mut self, _: Timestamp) {}
///     fn on_persistent_congestion(&mut self, _: Timestamp) {}
///     fn on_datagram_size(&mut self, _: u16) {}
///     fn window(&self) -> u64 {
///         self.0
///     }
///     fn slow_start_threshold(&self) -> Option<u64> {
///         Some(0)
///     }
///     fn name(&self) -> &'static str {
///         "fixed"
///     }
/// }
///
/// impl ControllerFactory for Fixed {
///     fn start(&self, _: u16, _: u64) -> Box<dyn Controller> {
///         Box::new(Fixed(self.0))
///     }
/// }
///
/// let config = TransportConfig { congestion: Arc::new(Fixed(20_000)), ..TransportConfig::default() };
/// # assert_eq!(config.congestion.start(1200, 0).window(), 20_000);
/// ```
pub trait ControllerFactory: fmt::Debug + Send + Sync {
    /// A controller for a new path that takes datagrams of `datagram` bytes of UDP payload. `seed` is for
    /// those that spread their probes by chance, lest flows keep step.
    fn start(&self, datagram: u16, seed: u64) -> Box<dyn Controller>;

    /// A factory for the paths of one connection, which a connection asks for once and then makes all its controllers
    /// with: they may have something in common, as those of [`Algorithm::Lia`] do. None: the controllers of a
    /// connection know nothing of each other, and this factory makes them.
    fn for_connection(&self) -> Option<Arc<dyn ControllerFactory>> {
        None
    }
}

/// RFC 9002 s.7.7: slightly above one window a round trip, lest the pacer starve the window.
const PACING_GAIN: f64 = 1.25;

/// RFC 9002 s.7.2, kMinimumWindow in datagrams.
const MINIMUM_WINDOW: u64 = 2;

/// RFC 9002 s.7.2: ten datagrams, limited to the larger of 14,720 bytes or two datagrams.
pub fn initial_window(datagram: u16) -> u64 {
    let datagram = u64::from(datagram);
    (10 * datagram).min((2 * datagram).max(14_720))
}

/// The algorithms that come with the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// RFC 9002 s.7.
    NewReno,
    /// RFC 9438 with HyStart++.
    #[default]
    Cubic,
    /// BBR version 3 (draft-ietf-ccwg-bbr).
    Bbr,
    /// NewReno whose paths grow together, so that a connection takes no more of a bottleneck that they share than one
    /// path alone would (RFC 6356, LIA). With one path it is TCP's NewReno.
    Lia,
    /// As [`Algorithm::Lia`], and quicker to leave paths that are congested (Khalili et al.: MPTCP is not
    /// Pareto-optimal, CoNEXT 2012, OLIA). With one path it is TCP's NewReno.
    Olia,
}

impl ControllerFactory for Algorithm {
    fn start(&self, datagram: u16, seed: u64) -> Box<dyn Controller> {
        match self {
            Algorithm::NewReno => Box::new(NewReno::new(datagram)),
            Algorithm::Cubic => Box::new(Cubic::new(datagram)),
            Algorithm::Bbr => Box::new(Bbr::new(datagram, seed)),
            // Without siblings.
            Algorithm::Lia => Siblings::new(Increase::Lia).start(datagram, seed),
            Algorithm::Olia => Siblings::new(Increase::Olia).start(datagram, seed),
        }
    }

    fn for_connection(&self) -> Option<Arc<dyn ControllerFactory>> {
        let increase = match self {
            Algorithm::NewReno | Algorithm::Cubic | Algorithm::Bbr => return None,
            Algorithm::Lia => Increase::Lia,
            Algorithm::Olia => Increase::Olia,
        };
        Some(Arc::new(Siblings::new(increase)))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Algorithm::NewReno => "newreno",
            Algorithm::Cubic => "cubic",
            Algorithm::Bbr => "bbr",
            Algorithm::Lia => "lia",
            Algorithm::Olia => "olia",
        })
    }
}

/// The text names no [`Algorithm`], or no [`Classic`] one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAlgorithm {
    text: String,
    known: &'static str,
}

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no congestion control: {}", self.text, self.known)
    }
}

impl std::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Algorithm, UnknownAlgorithm> {
        match text {
            "newreno" => Ok(Algorithm::NewReno),
            "cubic" => Ok(Algorithm::Cubic),
            "bbr" => Ok(Algorithm::Bbr),
            "lia" => Ok(Algorithm::Lia),
            "olia" => Ok(Algorithm::Olia),
            other => Err(UnknownAlgorithm {
                text: other.to_owned(),
                known: "`newreno`, `cubic`, `bbr`, `lia` or `olia`",
            }),
        }
    }
}

/// For controllers: the round trip as a divisor, never zero.
fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64().max(1e-6)
}
