//! Settings of a TCP connection, with the defaults of Linux.

use std::sync::Arc;
use std::time::Duration;

use equic_transport::congestion::{Algorithm, TcpControllerFactory};

/// Configuration of one end of a TCP connection. The defaults are those of Linux.
#[derive(Debug, Clone)]
pub struct TcpConfig {
    /// Congestion control. The default is CUBIC with HyStart++ (RFC 9406). Linux uses the original
    /// HyStart.
    pub congestion: Arc<dyn TcpControllerFactory>,
    /// Maximum segment size to announce, in bytes (RFC 9293 s.3.7.1). It is the MTU minus the
    /// headers of IP and TCP without options. Options reduce the payload (RFC 6691): with 1,460
    /// bytes and timestamps, a segment carries 1,448 bytes of payload.
    pub mss: u16,
    /// Initial congestion window, in segments (RFC 6928).
    pub initial_window: u32,
    /// Offers and accepts selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offers and accepts timestamps (RFC 7323 s.3).
    pub timestamps: bool,
    /// Offers and accepts window scaling (RFC 7323 s.2). Without it, windows are limited
    /// to 65,535 bytes.
    pub window_scaling: bool,
    /// True if the client requests ECN (RFC 3168). The server always accepts it, as with
    /// `net.ipv4.tcp_ecn = 2`.
    pub ecn: bool,
    /// True if segments are paced at the controller's rate. The default is false, as on Linux
    /// without the `fq` queue. Controllers that need pacing are always paced.
    pub pacing: bool,
    /// Largest receive window in bytes: the limit on data that waits for the application or for
    /// missing data. The default is 32 MiB (`net.ipv4.tcp_rmem`).
    pub receive_buffer: u64,
    /// True if the receive window begins with 64 KiB and grows with the bytes that the application
    /// reads per round trip, as on Linux (`net.ipv4.tcp_moderate_rcvbuf`). If false, the window has
    /// its full size from the start.
    pub receive_auto_tuning: bool,
    /// Largest number of bytes sent but not cumulatively acknowledged. The default is 4 MiB
    /// (`net.ipv4.tcp_wmem`).
    pub send_buffer: u64,
    /// Minimum of the variance term that is added to the smoothed round-trip time in the
    /// retransmission timeout. The default is 200 ms, as on Linux. In contrast, RFC 6298 s.2.4
    /// requires a total timeout of at least one second.
    pub min_rto: Duration,
    /// Retransmission timeout before the first round-trip sample (RFC 6298 s.2.1).
    pub initial_rto: Duration,
    /// Largest retransmission timeout (RFC 6298 s.2.5).
    pub max_rto: Duration,
    /// Time for which an acknowledgement waits for a second segment.
    pub delayed_ack: Duration,
    /// Number of segments that are acknowledged without delay, at the start of a connection and
    /// after a segment that was not in order.
    pub quick_acks: u32,
    /// Enables tail loss probes (RFC 8985 s.7).
    pub tail_loss_probe: bool,
    /// Enables Fast Open (RFC 7413). The client is then assumed to have a cookie from an
    /// earlier connection, and sends data with its SYN. The server accepts the data, and may answer
    /// before the handshake is complete. On Linux, an application must request this
    /// (`TCP_FASTOPEN`).
    pub fast_open: bool,
    /// Resolution of the timestamp clock (RFC 7323 s.5.4). The default is one millisecond.
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
    /// Sets the congestion controller: an [`Algorithm`], a [`Classic`](crate::Classic) one or a
    /// custom one.
    #[must_use]
    pub fn congestion(mut self, factory: impl TcpControllerFactory + 'static) -> TcpConfig {
        self.congestion = Arc::new(factory);
        self
    }

    /// Returns the window scale to announce: the smallest shift with which the window field can
    /// express the receive buffer (RFC 7323 s.2.3).
    pub(crate) fn window_shift(&self) -> u8 {
        (0..14).find(|shift| self.receive_buffer >> shift <= 65_535).unwrap_or(14)
    }
}
