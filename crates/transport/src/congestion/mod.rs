//! Congestion control: limits the bytes in flight on a path and the rate at which packets are sent.
//!
//! Each path has a [`Controller`]. [`Algorithm`] creates the controllers of this crate. To use
//! another one, implement [`Controller`] and a [`ControllerFactory`], and set
//! [`TransportConfig::congestion`](crate::TransportConfig::congestion). Controllers do not depend
//! on QUIC packets. Another transport can use them with a [`DeliveryRate`], a [`WindowUsage`] and a
//! [`Pacer`] for each path, as `equic-tcp` does with each [`TcpController`].
//!
//! * `new_reno.rs`: RFC 9002 s.7;
//! * `cubic.rs`: RFC 9438, with `hystart.rs` for slow start (HyStart++, RFC 9406), and the variant
//!   of Google QUIC ([`GoogleQuic`]);
//! * `bbr/`: BBR version 3 (draft-ietf-ccwg-bbr), which uses the samples of `rate.rs`;
//! * `coupled/`: LIA (RFC 6356) and OLIA, whose growth depends on the connection's other paths;
//! * `usage.rs`: whether the window is fully used (RFC 9002 s.7.8);
//! * `shared.rs`: a window that many connections between the same two sockets share;
//! * `tcp.rs`: the traits of controllers for TCP;
//! * `pacer.rs`: spreads the packets of a window over a round trip (RFC 9002 s.7.7).

mod bbr;
mod coupled;
mod cubic;
mod hystart;
mod new_reno;
mod pacer;
mod rate;
pub(crate) mod shared;
mod tcp;
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
pub(crate) use coupled::{Increase, Siblings};
pub(crate) use cubic::Cubic;
pub use cubic::GoogleQuic;
pub(crate) use new_reno::NewReno;
pub use pacer::{Pacer, Rate};
pub use rate::{DeliveryRate, RateSample};
pub use tcp::{TcpController, TcpControllerFactory};
pub use usage::WindowUsage;

/// Input to a congestion controller when an ACK frame newly acknowledges packets.
#[derive(Debug, Clone, Copy)]
pub struct AckSample<'a> {
    /// Time at which the ACK frame is processed.
    pub now: Timestamp,
    /// Number of newly acknowledged bytes, which are no longer in flight.
    pub acked: u64,
    /// Time at which the largest newly acknowledged packet was sent, which is the one with the
    /// highest number.
    pub largest_sent: Timestamp,
    /// Bytes in flight before the acknowledgement.
    pub in_flight: u64,
    /// True if the congestion window was not full when the packets were sent. The window must then
    /// not grow (RFC 9002 s.7.8).
    pub app_limited: bool,
    /// RTT of the path, including the sample of this ACK frame.
    pub rtt: &'a RttEstimator,
    /// Sample of the delivery rate. `None` if the acknowledged packets do not provide one.
    pub rate: Option<RateSample>,
}

/// A signal that the path is congested: loss, or an ECN mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Packets were lost.
    Loss {
        /// Number of bytes that were lost.
        bytes: u64,
    },
    /// More packets were marked ECN-CE (RFC 9002 s.7.1).
    Ecn,
}

/// A congestion controller of one path.
///
/// For an ACK frame, the transport makes calls in this order: [`Controller::on_packet_lost`] for
/// each packet lost, [`Controller::on_congestion`] if anything was lost or marked, then
/// [`Controller::on_ack`]. The congestion window counts UDP payload bytes.
pub trait Controller: fmt::Debug + Send {
    /// Sets the initial congestion window in bytes
    /// ([`TransportConfig::initial_window`](crate::TransportConfig::initial_window)). The transport
    /// calls this before anything else. A controller may ignore the value.
    fn set_initial_window(&mut self, _window: u64) {}

    /// Called when a packet was sent that counts as in flight. `bytes` is its size. `in_flight` is
    /// the number of bytes in flight, including this packet.
    fn on_sent(&mut self, now: Timestamp, bytes: u64, in_flight: u64);

    /// Called when a packet of `size` bytes was lost. `sent` is the delivery mark that was created
    /// when the packet was sent. `lost` is the number of bytes lost on the path so far, including
    /// this packet.
    fn on_packet_lost(&mut self, _now: Timestamp, _size: u64, _sent: &DeliveryMark, _lost: u64) {}

    /// Called when packets were acknowledged.
    fn on_ack(&mut self, sample: &AckSample<'_>);

    /// Called for a signal of congestion. `largest_sent` is the time at which the largest lost or
    /// marked packet was sent. If that packet was sent before the last reaction, the controller
    /// must not react again (RFC 9002 s.7.3.2).
    fn on_congestion(&mut self, now: Timestamp, largest_sent: Timestamp, signal: Signal);

    /// Called when packets that were declared lost turn out to have arrived. The last reaction to a
    /// loss may therefore have been wrong.
    fn on_spurious_loss(&mut self, now: Timestamp);

    /// Called for persistent congestion: all packets in a period of several PTOs were lost (RFC
    /// 9002 s.7.6).
    fn on_persistent_congestion(&mut self, now: Timestamp);

    /// Called when the path's datagram size has changed.
    fn on_datagram_size(&mut self, size: u16);

    /// Returns the congestion window in bytes.
    fn window(&self) -> u64;

    /// Returns the slow start threshold in bytes. Returns `None` during the initial slow start, or
    /// if the algorithm has no threshold.
    fn slow_start_threshold(&self) -> Option<u64>;

    /// Returns the pacing rate. It is read once for all datagrams that are passed to the system
    /// together. If sending these datagrams ([`Controller::on_sent`]) changes the rate, the new
    /// rate applies only to the next ones.
    fn pacing_rate(&self, rtt: &RttEstimator) -> Rate {
        let factor = if self.slow_start_threshold().is_none() { 2.0 } else { PACING_GAIN };
        Rate::of_window(self.window(), rtt.smoothed(), factor)
    }

    /// Returns true if the algorithm depends on pacing at [`Controller::pacing_rate`]. The
    /// transport then paces packets even if pacing is off. It is off by default, as for TCP.
    fn needs_pacing(&self) -> bool {
        false
    }

    /// Returns the name of the controller's current state, for logs. By default, this is slow start
    /// or congestion avoidance.
    fn state(&self) -> &'static str {
        match self.slow_start_threshold() {
            Some(threshold) if self.window() >= threshold => "congestion_avoidance",
            _ => "slow_start",
        }
    }

    /// Returns the name of the algorithm, for logs.
    fn name(&self) -> &'static str;

    /// Returns the controller if its window can be set from outside. Returns `None`, the default,
    /// if the controller derives its window from measurements.
    fn adjustable(&mut self) -> Option<&mut dyn AdjustableController> {
        None
    }
}

/// A [`Controller`] whose state can be set from outside: by a hook, or by an endpoint that knows
/// the path from other connections (RFC 9040 s.7).
pub trait AdjustableController: Controller {
    /// Sets the congestion window in bytes.
    fn set_window(&mut self, window: u64);

    /// Sets the slow start threshold in bytes. With `None`, slow start continues.
    fn set_slow_start_threshold(&mut self, threshold: Option<u64>);
}

/// Creates the controllers of connections. Set a factory with
/// [`TransportConfig::congestion`](crate::TransportConfig::congestion).
///
/// ```
/// use std::sync::Arc;
/// use equic_transport::congestion::{AckSample, Controller, ControllerFactory, Signal};
/// use equic_transport::{Timestamp, TransportConfig};
///
/// /// A fixed window in bytes.
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
/// let config = TransportConfig::default().with_congestion(Arc::new(Fixed(20_000)));
/// # assert_eq!(config.congestion.start(1200, 0).window(), 20_000);
/// ```
pub trait ControllerFactory: fmt::Debug + Send + Sync {
    /// Creates a controller for a new path. `datagram` is the datagram size in bytes of UDP
    /// payload. `seed` lets a controller randomize its probes, so that flows do not synchronize.
    fn start(&self, datagram: u16, seed: u64) -> Box<dyn Controller>;

    /// Returns a factory for the paths of one connection, so that their controllers can share
    /// state, as for [`Algorithm::Lia`]. Each connection calls this once. If the result is `None`,
    /// the connection uses this factory, and its controllers share no state.
    fn for_connection(&self) -> Option<Arc<dyn ControllerFactory>> {
        None
    }
}

/// RFC 9002 s.7.7: the pacing rate is slightly more than one window per round trip, so that pacing
/// does not underutilize the window.
const PACING_GAIN: f64 = 1.25;

/// RFC 9002 s.7.2: smallest congestion window in datagrams (kMinimumWindow).
const MINIMUM_WINDOW: u64 = 2;

/// Returns the initial window of RFC 9002 s.7.2 in bytes: ten datagrams, limited to the larger of
/// 14,720 bytes and two datagrams.
pub fn initial_window(datagram: u16) -> u64 {
    let datagram = u64::from(datagram);
    (10 * datagram).min((2 * datagram).max(14_720))
}

/// The congestion control algorithms of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// NewReno (RFC 9002 s.7).
    NewReno,
    /// CUBIC (RFC 9438) with HyStart++. This is the default.
    #[default]
    Cubic,
    /// BBR version 3 (draft-ietf-ccwg-bbr).
    Bbr,
    /// LIA (RFC 6356): NewReno with coupled growth. All paths of a connection together take no more
    /// of a shared bottleneck than one path would. With a single path, LIA is TCP's NewReno.
    Lia,
    /// OLIA (Khalili et al.: MPTCP is not Pareto-optimal, CoNEXT 2012): like [`Algorithm::Lia`],
    /// but moves away from congested paths faster. With a single path, OLIA is TCP's NewReno.
    Olia,
}

impl ControllerFactory for Algorithm {
    fn start(&self, datagram: u16, seed: u64) -> Box<dyn Controller> {
        match self {
            Algorithm::NewReno => Box::new(NewReno::new(datagram)),
            Algorithm::Cubic => Box::new(Cubic::new(datagram)),
            Algorithm::Bbr => Box::new(Bbr::new(datagram, seed)),
            // The caller did not ask for a connection's factory, so this path is the only one in
            // its group.
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

/// Error for a text that names no [`Algorithm`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAlgorithm(String);

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = "`newreno`, `cubic`, `bbr`, `lia` or `olia`";
        write!(f, "`{}` is no congestion control: {known}", self.0)
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
            other => Err(UnknownAlgorithm(other.to_owned())),
        }
    }
}

/// Returns a duration in seconds. The result is never zero, so that it can be a divisor.
fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64().max(1e-6)
}
