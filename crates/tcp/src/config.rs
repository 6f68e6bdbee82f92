//! Knobs of a connection, with the values that Linux has.

use std::sync::Arc;
use std::time::Duration;

use equic_transport::congestion::{Algorithm, ControllerFactory};

/// Configuration of one end of a connection. Defaults are those of Linux.
#[derive(Debug, Clone)]
pub struct TcpConfig {
    /// Congestion control. CUBIC by default, with HyStart++ (RFC 9406), where Linux has the first HyStart.
    pub congestion: Arc<dyn ControllerFactory>,
    /// Maximum segment size that is announced, in bytes (RFC 9293 s.3.7.1): the MTU without the headers of IP and
    /// TCP. Options come out of it (RFC 6691): 1,460 bytes leave 1,448 of payload beside timestamps.
    pub mss: u16,
    /// Initial window in segments (RFC 6928).
    pub initial_window: u32,
    /// True if selective acknowledgements are offered and accepted (RFC 2018).
    pub sack: bool,
    /// True if timestamps are offered and accepted (RFC 7323 s.3).
    pub timestamps: bool,
    /// True if window scaling is offered and accepted (RFC 7323 s.2); without it, windows end at 65,535 bytes.
    pub window_scaling: bool,
    /// True if the client asks for ECN (RFC 3168). The server always consents, as `net.ipv4.tcp_ecn = 2` has it.
    pub ecn: bool,
    /// True if segments leave at the controller's rate; off, as on Linux without the `fq` queue. Controllers that
    /// need it are paced in any case.
    pub pacing: bool,
    /// Most bytes that may wait for the application or for a gap to be filled: the largest receive window.
    /// 32 MiB (`net.ipv4.tcp_rmem`).
    pub receive_buffer: u64,
    /// True if the receive window begins with 64 KiB and grows with what the application reads in a round trip, as
    /// on Linux (`net.ipv4.tcp_moderate_rcvbuf`), or has its full size from the start.
    pub receive_auto_tuning: bool,
    /// Most bytes that may be outstanding. 4 MiB (`net.ipv4.tcp_wmem`).
    pub send_buffer: u64,
    /// Least time of the retransmission timer beyond the smoothed round trip: 200 ms, where RFC 6298 s.2.4 has
    /// the whole at least a second.
    pub min_rto: Duration,
    /// Retransmission timeout before the first sample of the round trip (RFC 6298 s.2.1).
    pub initial_rto: Duration,
    /// Longest retransmission timeout (RFC 6298 s.2.5).
    pub max_rto: Duration,
    /// Time for which an acknowledgement may wait for a second segment.
    pub delayed_ack: Duration,
    /// Number of segments acknowledged at once at the start and when something is amiss.
    pub quick_acks: u32,
    /// True if a probe is sent when a tail may be lost (RFC 8985 s.7).
    pub tail_loss_probe: bool,
    /// True if Fast Open is in use (RFC 7413): the client has a cookie of this server's from an earlier connection, and
    /// sends data with its SYN; the server takes it, and may answer before the handshake is complete. Both are off on
    /// Linux unless an application asks (`TCP_FASTOPEN`).
    pub fast_open: bool,
    /// Step of the timestamp clock (RFC 7323 s.5.4): a millisecond.
    pub timestamp_granularity: Duration,
}

impl Default for TcpConfig {
    fn default() -> TcpConfig {
        TcpConfig {
            congestion: Arc::new(Algorithm::Cubic),
            mss: 1_460,
            initial_window: 10,
            sack: true,
            timestamps: true,
            window_scaling: true,
            ecn: false,
            pacing: false,
            receive_buffer: 32 << 20,
            receive_auto_tuning: true,
            send_buffer: 4 << 20,
            min_rto: Duration::from_millis(200),
            initial_rto: Duration::from_secs(1),
            max_rto: Duration::from_secs(120),
            delayed_ack: Duration::from_millis(40),
            quick_acks: 16,
            tail_loss_probe: true,
            fast_open: false,
            timestamp_granularity: Duration::from_millis(1),
        }
    }
}

impl TcpConfig {
    /// The same with this congestion control: an [`Algorithm`], or one of your own.
    #[must_use]
    pub fn congestion(mut self, factory: impl ControllerFactory + 'static) -> TcpConfig {
        self.congestion = Arc::new(factory);
        self
    }

    /// Announced shift of the window field: the least with which the receive buffer fits (RFC 7323 s.2.3).
    pub(crate) fn window_shift(&self) -> u8 {
        (0..14).find(|shift| self.receive_buffer >> shift <= 65_535).unwrap_or(14)
    }
}
