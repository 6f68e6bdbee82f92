//! A model of TLS above a TCP connection. It covers the round trips and bytes of the handshake, and
//! the overhead of records. Nothing is encrypted or parsed. Both ends know the length of each
//! flight of the handshake instead.

/// Largest amount of application data in a record, in bytes (RFC 8446 s.5.1).
const RECORD: u64 = 1 << 14;

/// Length of a record header in bytes.
const HEADER: u64 = 5;

/// Version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246) with ECDHE and AES-GCM. The handshake takes two round trips, or one with
    /// resumption.
    Tls12,
    /// TLS 1.3 (RFC 8446). The handshake takes one round trip, or none with early data.
    #[default]
    Tls13,
}

/// The kind of TLS handshake that a connection makes. Both ends must have the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsConfig {
    /// Version of TLS.
    pub version: TlsVersion,
    /// True if a session is resumed. The server then sends no certificate.
    pub resumption: bool,
    /// True if the client sends application data with its first flight (RFC 8446 s.2.3). This needs
    /// TLS 1.3 and resumption.
    pub early_data: bool,
    /// True if a TLS 1.2 client sends application data directly after its Finished, without waiting
    /// for the server's Finished (RFC 7918). With resumption, the server's Finished comes first, so
    /// this has no effect.
    pub false_start: bool,
    /// Size of the server's certificate chain in bytes.
    pub certificates: u64,
}

impl Default for TlsConfig {
    fn default() -> TlsConfig {
        TlsConfig {
            version: TlsVersion::Tls13,
            resumption: false,
            early_data: false,
            false_start: false,
            certificates: 3_000,
        }
    }
}

impl TlsConfig {
    /// Returns the size on the connection, in bytes, of `bytes` of application data in records.
    pub fn sealed(&self, bytes: u64) -> u64 {
        bytes.saturating_add(bytes.div_ceil(RECORD).saturating_mul(self.overhead()))
    }

    /// Returns the number of bytes that a record adds to its content: the header, the explicit
    /// nonce or the content type, and the tag.
    fn overhead(&self) -> u64 {
        match self.version {
            TlsVersion::Tls12 => HEADER + 8 + 16,
            TlsVersion::Tls13 => HEADER + 1 + 16,
        }
    }

    fn has_early_data(&self) -> bool {
        self.version == TlsVersion::Tls13 && self.resumption && self.early_data
    }

    /// Returns the sizes of the handshake's flights in bytes, including their records. The client
    /// and the server send the flights in turn, beginning with the client.
    fn flights(&self) -> Vec<u64> {
        let sealed = |bytes: u64| bytes + self.overhead();
        let plain = |bytes: u64| bytes + HEADER;
        let change_cipher_spec = plain(1);
        // A ClientHello has 512 bytes, because browsers pad it. A session ticket makes it longer.
        let client_hello = plain(512) + if self.resumption { 130 } else { 0 };
        match (self.version, self.resumption) {
            (TlsVersion::Tls13, resumption) => {
                let server_hello = plain(122) + change_cipher_spec;
                // These are EncryptedExtensions and Finished. Without resumption, Certificate and
                // CertificateVerify are added (RSA, 2,048 bits).
                let certificate = if resumption { 0 } else { self.certificates + 13 + 264 };
                let server = server_hello + sealed(6 + 36 + certificate);
                if self.has_early_data() {
                    // With early data, the client's last flight is counted as part of its first
                    // one. In reality it may follow at any point of the early data, but nothing
                    // waits for it.
                    let last = change_cipher_spec + sealed(4) + sealed(36);
                    return vec![client_hello + last, server];
                }
                vec![client_hello, server, change_cipher_spec + sealed(36)]
            }
            (TlsVersion::Tls12, false) => {
                // These are ServerHello, Certificate, ServerKeyExchange (P-256, RSA) and
                // ServerHelloDone.
                let server = plain(90) + plain(self.certificates + 10) + plain(333) + plain(4);
                // First the client's ClientKeyExchange and Finished, then the server's
                // NewSessionTicket and Finished.
                let client = plain(70) + change_cipher_spec + sealed(16);
                vec![client_hello, server, client, plain(200) + change_cipher_spec + sealed(16)]
            }
            (TlsVersion::Tls12, true) => {
                let finished = change_cipher_spec + sealed(16);
                vec![client_hello, plain(90) + finished, finished]
            }
        }
    }
}

/// One end of a TLS session. The caller writes the number of bytes that [`Session::poll_write`]
/// returns to the connection, and reports received bytes with [`Session::on_received`]. Only the
/// last record of each direction is short, because records are filled without regard to the
/// application's writes.
#[derive(Debug)]
pub struct Session {
    config: TlsConfig,
    client: bool,
    /// Sizes of the handshake's flights in bytes. The ends send them in turn, beginning with the
    /// client.
    flights: Vec<u64>,
    /// Number of flights that this end has sent. The next field is the number of flights that it
    /// has received.
    gone: usize,
    came: usize,
    /// Number of bytes received of the current flight.
    part: u64,
    /// Bytes of received records with application data. The next field is the number of bytes of
    /// application data that were read.
    records: u64,
    read: u64,
    /// Application data that waits to be written, in bytes.
    waiting: u64,
}

impl Session {
    /// Creates the client's end. The client sends first.
    pub fn client(config: TlsConfig) -> Session {
        Session::new(config, true)
    }

    /// Creates the server's end.
    pub fn server(config: TlsConfig) -> Session {
        Session::new(config, false)
    }

    fn new(config: TlsConfig, client: bool) -> Session {
        let flights = config.flights();
        let (gone, came, part, records, read, waiting) = (0, 0, 0, 0, 0, 0);
        Session { config, client, flights, gone, came, part, records, read, waiting }
    }

    /// Returns the size of a flight of the client or of the server, by its number.
    fn flight(&self, client: bool, number: usize) -> Option<u64> {
        self.flights.get(2 * number + usize::from(!client)).copied()
    }

    /// Returns `true` if this end has sent all its flights.
    fn all_gone(&self) -> bool {
        self.flight(self.client, self.gone).is_none()
    }

    /// Returns `true` if all flights of both ends were sent and received.
    pub fn is_complete(&self) -> bool {
        self.gone + self.came == self.flights.len()
    }

    /// Queues `bytes` of application data.
    pub fn write(&mut self, bytes: u64) {
        self.waiting = self.waiting.saturating_add(bytes);
    }

    /// Returns `true` if application data may be sent.
    pub fn may_send(&self) -> bool {
        let left = self.flights.len() - self.gone - self.came;
        let early = match self.config.version {
            // The first flight of the server and the last flight of the client each contain a
            // Finished (RFC 8446 s.2).
            TlsVersion::Tls13 => true,
            TlsVersion::Tls12 => self.client && self.config.false_start,
        };
        self.all_gone() && (left == 0 || early)
    }

    /// Returns the number of bytes to write to the connection now. Call it until it returns zero.
    pub fn poll_write(&mut self) -> u64 {
        // The two ends send their flights in turn.
        let turn = if self.client { self.came == self.gone } else { self.came > self.gone };
        if turn && let Some(flight) = self.flight(self.client, self.gone) {
            self.gone += 1;
            return flight;
        }
        if self.waiting == 0 || !self.may_send() {
            return 0;
        }
        self.config.sealed(std::mem::take(&mut self.waiting))
    }

    /// Returns `true` if this end has passed all its flights and all queued application data to the
    /// connection.
    pub fn has_written(&self) -> bool {
        self.waiting == 0 && self.all_gone()
    }

    /// Processes `bytes` that the connection received.
    pub fn on_received(&mut self, bytes: u64) {
        let mut bytes = bytes;
        while let Some(flight) = self.flight(!self.client, self.came) {
            let part = bytes.min(flight - self.part);
            (self.part, bytes) = (self.part + part, bytes - part);
            if self.part < flight {
                return;
            }
            (self.came, self.part) = (self.came + 1, 0);
        }
        self.records = self.records.saturating_add(bytes);
    }

    /// Returns the number of bytes of application data records that were received since the last
    /// call. Callers that know the boundaries of records use this method instead of
    /// [`Session::read`].
    pub fn take_records(&mut self) -> u64 {
        std::mem::take(&mut self.records)
    }

    /// Returns the number of bytes of application data in complete records that were not read yet.
    /// `finished` is true if the stream has ended, so that the last record is complete.
    pub fn read(&mut self, finished: bool) -> u64 {
        let whole = RECORD + self.config.overhead();
        let rest = (self.records % whole).saturating_sub(self.config.overhead());
        let opened = self.records / whole * RECORD + if finished { rest } else { 0 };
        let new = opened - self.read;
        self.read = opened;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connects both ends without delay, and counts half round trips until the client's application
    /// data has arrived at the server.
    fn half_round_trips(config: TlsConfig) -> u32 {
        let (mut client, mut server) = (Session::client(config), Session::server(config));
        client.write(100_000);
        for trips in 1..20 {
            let (from, to) = if trips % 2 == 1 {
                (&mut client, &mut server)
            } else {
                (&mut server, &mut client)
            };
            loop {
                match from.poll_write() {
                    0 => break,
                    bytes => to.on_received(bytes),
                }
            }
            let came = server.read(false);
            if came > 0 {
                assert_eq!(came + server.read(true), 100_000);
                return trips;
            }
        }
        panic!("nothing came: {config:?}");
    }

    #[test]
    fn tls_handshakes_take_their_round_trips() {
        let full = TlsConfig::default();
        let old = TlsConfig { version: TlsVersion::Tls12, ..full };
        let resumed = TlsConfig { resumption: true, ..full };
        assert_eq!(half_round_trips(full), 3);
        assert_eq!(half_round_trips(resumed), 3);
        assert_eq!(half_round_trips(TlsConfig { early_data: true, ..resumed }), 1);
        // Without resumption, early data has no effect.
        assert_eq!(half_round_trips(TlsConfig { early_data: true, ..full }), 3);
        assert_eq!(half_round_trips(old), 5);
        assert_eq!(half_round_trips(TlsConfig { false_start: true, ..old }), 3);
        assert_eq!(half_round_trips(TlsConfig { resumption: true, ..old }), 3);
    }

    #[test]
    fn tls_certificates_are_sent_in_full_handshakes_only() {
        let bytes = |config: TlsConfig| config.flights().iter().sum::<u64>();
        let full = TlsConfig::default();
        let less = TlsConfig { certificates: 0, ..full };
        assert_eq!(bytes(full) - bytes(less), 3_000);
        assert!(bytes(TlsConfig { resumption: true, ..full }) < bytes(less));
        assert!((3_500..4_500).contains(&bytes(full)), "{}", bytes(full));
    }
}
