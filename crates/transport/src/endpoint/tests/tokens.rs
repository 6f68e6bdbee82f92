//! Tests tokens of endpoints that share a key: their lifetimes, and the limit on incomplete
//! attempts from one address.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::*;

/// Time since the Unix epoch at which each test begins.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A server process with its own clock, which started some time before the test.
struct Process {
    endpoint: Endpoint,
    /// Time for which the process has run when the test begins. Its timestamps count from its
    /// start.
    uptime: Duration,
}

impl Process {
    /// Creates a process whose clock is ahead of the correct time by `skew` seconds.
    fn new(uptime: Duration, skew: i64) -> Process {
        let right = EPOCH - uptime;
        let start = right.as_secs().checked_add_signed(skew).map(Duration::from_secs).unwrap();
        Process::with_key(TokenKey::new([7; 32], WallClock::starting_at(start)), uptime)
    }

    fn with_key(key: TokenKey, uptime: Duration) -> Process {
        // Each process gets another seed. With the same random numbers, two processes would issue
        // the same tokens.
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let seed = [NEXT.fetch_add(1, Ordering::Relaxed); 32];
        let endpoint = seeded_server(seed, |config| config.token_key = Some(key.clone()));
        Process { endpoint, uptime }
    }

    fn timestamp(&self, since: Duration) -> Timestamp {
        Timestamp::START + self.uptime + since
    }

    /// Sends a Retry packet at the time `since` after the test began. Returns its Source Connection
    /// ID and its token.
    fn retry(&mut self, since: Duration) -> (ConnectionId, Vec<u8>) {
        let (now, mut response) = (self.timestamp(since), Vec::new());
        let datagram = initial(KnownVersion::V1, first_id(), &[]);
        let received =
            self.endpoint.handle_datagram(now, from(client_address()), &datagram, &mut response);
        assert!(self.endpoint.retry(now, incoming(received), &mut response));
        match Datagram::new(&response, ParseOptions::default()).next() {
            Some(Ok(Packet::Retry(retry))) => (retry.scid(), retry.token().to_vec()),
            other => panic!("the endpoint sent no Retry packet: {other:?}"),
        }
    }

    fn new_token(&mut self, since: Duration) -> Vec<u8> {
        let now = self.timestamp(since);
        self.endpoint.new_token(now, client_address().ip(), KnownVersion::V1).unwrap()
    }

    /// Returns whether a token validates the client's address at the time `since` after the test
    /// began. The attempt itself is dropped.
    fn validates(&mut self, since: Duration, (dcid, token): (ConnectionId, &[u8])) -> bool {
        let (now, mut response) = (self.timestamp(since), Vec::new());
        let datagram = initial(KnownVersion::V1, dcid, token);
        match self.endpoint.handle_datagram(now, from(client_address()), &datagram, &mut response) {
            Received::Incoming(incoming) => {
                let validated = incoming.is_validated();
                self.endpoint.ignore(incoming);
                validated
            }
            Received::Respond => {
                assert_eq!(close_code(dcid, &mut response), TransportErrorCode::INVALID_TOKEN);
                false
            }
            other => panic!("{other:?}"),
        }
    }
}

// RFC 9000 s.8.1.4 #7
#[test]
fn retry_token_holds_for_its_lifetime_at_every_process_with_the_key() {
    let old = || Process::new(30 * DAY, 0);
    let young = || Process::new(SECOND, 0);
    // Timestamps begin at zero in each process. So a restarted process is the same case as another
    // process that started later.
    for (mut maker, mut other) in [(old(), young()), (young(), old()), (old(), old())] {
        let (dcid, token) = maker.retry(Duration::ZERO);
        for (since, valid) in
            [(0, true), (14, true), (15, false), (60, false), (29 * 86_400, false)]
        {
            let since = SECOND * since;
            assert_eq!(other.validates(since, (dcid, &token)), valid, "{since:?}");
            assert_eq!(maker.validates(since, (dcid, &token)), valid, "{since:?}, at its maker");
        }
    }
}

#[test]
fn retry_token_tolerates_a_small_skew_and_is_never_valid_for_longer() {
    for skew in [-3600, -3, -2, -1, 0, 1, 5, 14, 15, 3600] {
        let mut maker = Process::new(DAY, 0);
        let mut other = Process::new(SECOND, skew);
        let (dcid, token) = maker.retry(Duration::ZERO);
        let valid: Vec<u32> =
            (0..60).filter(|since| other.validates(SECOND * *since, (dcid, &token))).collect();
        let expected: Vec<u32> = match skew {
            // The clock of the other process is behind by more than is tolerated, so at first the
            // token's time is in its future.
            -3600 => vec![],
            -3..=0 => ((-2 - skew).max(0) as u32..(15 - skew) as u32).collect(),
            _ => (0..15u32.saturating_sub(skew as u32)).collect(),
        };
        assert_eq!(valid, expected, "a clock that is {skew} s ahead");
        assert!(valid.len() <= 15 + 2, "the token is valid for at most the lifetime and the skew");
    }
}

#[test]
fn retry_token_is_not_extended_by_a_clock_that_is_set_back() {
    let set_back = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&set_back);
    let clock = WallClock::new(move |now| {
        let time = EPOCH + (now - Timestamp::START);
        if seen.load(Ordering::Relaxed) { time - 3600 * SECOND } else { time }
    });
    let mut process = Process::with_key(TokenKey::new([7; 32], clock), Duration::ZERO);
    let (dcid, token) = process.retry(Duration::ZERO);
    set_back.store(true, Ordering::Relaxed);
    assert!(
        process.validates(14 * SECOND, (dcid, &token)),
        "the process ignores a clock that is set back"
    );
    // Continue until well after the clock of each process has passed the token's timestamp.
    for since in (15..8000).step_by(5) {
        assert!(!process.validates(SECOND * since, (dcid, &token)), "{since}");
    }
}

#[test]
fn retry_token_has_the_shorter_lifetime_of_two_servers() {
    let with = |lifetime: u32| {
        let mut process = Process::new(DAY, 0);
        process.endpoint.config.retry_token_lifetime = SECOND * lifetime;
        process
    };
    for (own, others) in [(15, 60), (60, 15)] {
        let (dcid, token) = with(own).retry(Duration::ZERO);
        let mut other = with(others);
        assert!(other.validates(14 * SECOND, (dcid, &token)));
        assert!(!other.validates(15 * SECOND, (dcid, &token)), "{own} and {others} s");
    }
}

#[test]
fn new_token_is_valid_for_a_day_at_every_process_with_the_key() {
    for (maker, other) in [(30 * DAY, SECOND), (SECOND, 30 * DAY)] {
        let (mut maker, mut other) = (Process::new(maker, 0), Process::new(other, 0));
        let tokens: Vec<Vec<u8>> = (0..3).map(|_| maker.new_token(Duration::ZERO)).collect();
        assert!(other.validates(DAY - SECOND, (first_id(), &tokens[0])));
        assert!(!other.validates(DAY, (first_id(), &tokens[1])));
        assert!(!maker.validates(DAY, (first_id(), &tokens[2])));
        let mut stranger = Process::with_key(
            TokenKey::new([8; 32], WallClock::starting_at(EPOCH)),
            Duration::ZERO,
        );
        assert!(
            !stranger.validates(SECOND, (first_id(), &tokens[2])),
            "a process with another key rejects the token"
        );
    }
}

/// RFC 9000 s.8.1.3: a token must be valid only once, whichever socket of a process receives it.
#[test]
fn new_token_is_good_once_at_all_endpoints_with_clones_of_the_key() {
    let key = TokenKey::new([7; 32], WallClock::starting_at(EPOCH));
    let mut sockets: Vec<Process> =
        (0..8).map(|_| Process::with_key(key.clone(), Duration::ZERO)).collect();
    for giver in 0..sockets.len() {
        let token = sockets[giver].new_token(SECOND);
        let validated = sockets
            .iter_mut()
            .filter_map(|socket| socket.validates(2 * SECOND, (first_id(), &token)).then_some(()));
        assert_eq!(validated.count(), 1);
    }
    // Another process has its own memory of used tokens, so it accepts the token once more.
    let token = sockets[0].new_token(SECOND);
    assert!(sockets[0].validates(2 * SECOND, (first_id(), &token)));
    let mut other = Process::new(SECOND, 0);
    assert!(other.validates(2 * SECOND, (first_id(), &token)));
    assert!(!other.validates(2 * SECOND, (first_id(), &token)));
}

/// Begins a connection attempt with a fresh token for `address`.
fn attempt(endpoint: &mut Endpoint, address: &str, number: u64) -> Incoming {
    let remote: SocketAddr = address.parse().unwrap();
    let token = endpoint.new_token(NOW, remote.ip(), KnownVersion::V1).unwrap();
    let datagram = initial(KnownVersion::V1, id(&number.to_be_bytes()), &token);
    incoming(endpoint.handle_datagram(NOW, from(remote), &datagram, &mut Vec::new()))
}

/// RFC 9000 s.21.3: an attacker who collected tokens at an address must not be able to flood that
/// address later.
#[test]
fn new_token_of_an_address_whose_attempts_do_not_complete_validates_nothing() {
    let (victim, other) = ("192.0.2.1:4000", "192.0.2.2:4000");
    let mut endpoint = server();
    let mut validated = 0;
    for number in 0..1000 {
        let incoming = attempt(&mut endpoint, victim, number);
        validated += u32::from(incoming.is_validated());
        let (handle, mut connection) = endpoint.accept(NOW, incoming).unwrap();
        // An attempt that the server closes or removes must still count as incomplete.
        if number % 2 == 0 {
            connection.close(NOW, VarInt::from_u32(0), "");
            endpoint.remove(handle);
        }
    }
    assert_eq!(validated, 16);
    // Other addresses must not be affected. A client at the victim's address must be treated like a
    // client without a token.
    assert!(attempt(&mut endpoint, other, 1000).is_validated());
    let mut response = Vec::new();
    let incoming = attempt(&mut endpoint, victim, 1001);
    assert!(!incoming.is_validated() && incoming.may_retry());
    assert!(endpoint.retry(NOW, incoming, &mut response) && !response.is_empty());
}

#[test]
fn new_token_of_attempts_to_which_nothing_is_sent_does_not_count() {
    let mut endpoint = server();
    for number in 0..200 {
        let incoming = attempt(&mut endpoint, "192.0.2.1:4000", number);
        assert!(incoming.is_validated(), "{number}");
        let mut response = Vec::new();
        match number % 3 {
            0 => endpoint.ignore(incoming),
            1 => assert!(endpoint.refuse(incoming, &mut response)),
            _ => assert!(endpoint.retry(NOW, incoming, &mut response)),
        }
    }
    let server =
        ServerConfig { tls: configs().1, transport: transport(), preferred_addresses: None };
    let server = Arc::new(server);
    for number in 200..300 {
        endpoint.set_server(Some(Arc::clone(&server)));
        let incoming = attempt(&mut endpoint, "192.0.2.1:4000", number);
        assert!(incoming.is_validated(), "{number}");
        endpoint.set_server(None);
        assert!(endpoint.accept(NOW, incoming).is_err());
    }
}

#[test]
fn new_token_of_a_client_that_completes_its_handshakes_stays_good() {
    let (mut pair, config) = Pair::trusting();
    // Count the Retry packets that clients without a token receive.
    pair.retries = Some(0);
    let first = pair.connect(&config);
    pair.settle();
    for number in 0..40 {
        let address = client_address().ip();
        let token = pair.ends[1].new_token(pair.now, address, KnownVersion::V1).unwrap();
        let handle = pair.connect(&config);
        assert!(pair.connection(0, handle).set_token(token));
        pair.settle();
        assert!(pair.connection(0, handle).is_connected());
        assert_eq!(pair.retries, Some(1), "{number}: the token was enough");
    }
    assert!(pair.ends[1].by_token.is_empty());
    assert!(pair.connection(0, first).is_connected());
}
