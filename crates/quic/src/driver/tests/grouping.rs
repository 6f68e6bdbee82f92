//! Tests of how many messages are made before they are sent. A fake system replaces the socket:
//! sending takes a time that the test sets.

use std::cell::{Cell as Value, RefCell};
use std::ops::Range;

use super::*;
use crate::send_sockets::MessageSender;
use crate::sendmsg::Outgoing;

/// Accepts messages, and has a simulated clock.
struct Fake {
    start: Instant,
    passed: Value<Duration>,
    /// Simulated time for sending one datagram.
    each: Duration,
    /// True if the fake socket is blocked.
    blocked: Value<bool>,
    /// The bytes of the accepted messages.
    taken: RefCell<Vec<Vec<u8>>>,
}

impl Fake {
    fn new(each: Duration) -> Fake {
        Fake {
            start: Instant::now(),
            passed: Value::default(),
            each,
            blocked: Value::new(false),
            taken: RefCell::default(),
        }
    }
}

impl MessageSender for &Fake {
    fn max_segments(self) -> usize {
        44
    }

    fn send(self, outgoing: &Outgoing<'_>) -> io::Result<usize> {
        if self.blocked.get() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let datagrams = outgoing.bytes.len().div_ceil(outgoing.segment);
        self.passed.set(self.passed.get() + self.each * datagrams as u32);
        self.taken.borrow_mut().push(outgoing.bytes.to_vec());
        Ok(outgoing.bytes.len())
    }

    fn clock(self) -> Instant {
        self.start + self.passed.get()
    }
}

/// Gives the only connection a turn.
fn turn(idle: &mut Idle, fake: &Fake, turns: usize) -> Sent {
    let now = idle.driver.socket.now();
    let mut state = idle.connections[0].lock();
    let State { connection, grouping, .. } = &mut *state;
    let limits = SendLimits { messages: turns, bytes: SEND_QUANTUM };
    idle.driver.batch.send(connection, grouping, now, fake, limits)
}

/// Returns the number of bytes that the task makes before it calls the system. The system first
/// refuses them, and takes them later. `hear` runs before that and gives the connection something
/// to hear.
async fn made_at_once(each: Duration, turns: usize, hear: impl FnOnce(&mut Idle)) -> u64 {
    let mut idle = Idle::new(1, 8 << 20, 3 << 20).await;
    let fake = Fake::new(each);
    // The loop runs until the time of a message is known.
    while fake.taken.borrow().len() < 8 {
        assert_eq!(turn(&mut idle, &fake, MAX_MESSAGES), Sent::Some);
    }
    hear(&mut idle);
    let before = idle.in_flight()[0];
    fake.taken.borrow_mut().clear();
    fake.blocked.set(true);
    assert_eq!(turn(&mut idle, &fake, turns), Sent::Blocked);
    let made = idle.in_flight()[0] - before;
    assert!(idle.driver.batch.flush(&fake).is_err());
    fake.blocked.set(false);
    idle.driver.batch.flush(&fake).unwrap();
    let taken = std::mem::take(&mut *fake.taken.borrow_mut());
    assert_eq!(taken.iter().map(Vec::len).sum::<usize>() as u64, made, "bytes were lost");
    assert_eq!(taken.len() as u64, made.div_ceil(MESSAGE));
    idle.driver.batch.flush(&fake).unwrap();
    assert!(fake.taken.borrow().is_empty(), "bytes were sent twice");
    made
}

/// Returns the range of bytes in `count` messages of 44 datagrams. Each has less than [`MESSAGE`]
/// bytes.
fn messages(count: u64) -> Range<u64> {
    (count - 1) * MESSAGE..count * MESSAGE
}

#[tokio::test]
async fn grouping_makes_four_messages_where_offload_works() {
    let made = made_at_once(Duration::from_nanos(60), MAX_MESSAGES, |_| {}).await;
    assert!(messages(4).contains(&made), "{made}");
}

#[tokio::test]
async fn grouping_makes_one_message_where_it_is_split() {
    let made = made_at_once(Duration::from_nanos(400), MAX_MESSAGES, |_| {}).await;
    assert!(messages(1).contains(&made), "{made}");
}

/// The client sends a request on a stream. With `waits`, a task of the server waits for streams.
/// Returns `true` if a task was notified.
fn ask(idle: &mut Idle, waits: bool) -> bool {
    let now = idle.driver.socket.now();
    let client = &mut idle.clients[0];
    let id = client.open(Direction::Bidirectional).unwrap();
    client.streams().write(id, b"GET /").unwrap();
    let mut state = idle.connections[0].lock();
    if waits {
        let cx = Context::from_waker(std::task::Waker::noop());
        assert!(state.poll_accept(Direction::Bidirectional, &cx).is_pending());
    }
    let remote = state.connection.remote_address();
    let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    let mut buffer = vec![0; 2048];
    while let Some(sent) = client.poll_transmit(now, &mut buffer) {
        state.connection.handle_datagram(now, arrival, &mut buffer[..sent.size]);
    }
    state.notify_application()
}

/// The answer to the request must not wait for a group of the connection's other messages.
#[tokio::test]
async fn grouping_stops_once_an_application_was_notified_of_data() {
    let each = Duration::from_nanos(60);
    let made = made_at_once(each, MAX_MESSAGES, |idle| assert!(ask(idle, true))).await;
    assert!(messages(1).contains(&made), "{made}");
    // Without a task that waits for streams, no task is notified, and there is no answer.
    let made = made_at_once(each, MAX_MESSAGES, |idle| assert!(!ask(idle, false))).await;
    assert!(messages(4).contains(&made), "{made}");
}

/// With many connections, the turn of one of them is a single message.
#[tokio::test]
async fn grouping_makes_no_more_messages_than_the_turn_has() {
    let made = made_at_once(Duration::from_nanos(60), 1, |_| {}).await;
    assert!(messages(1).contains(&made), "{made}");
}

/// A turn ends after the same number of bytes, whether messages are sent in groups or one by one.
#[tokio::test]
async fn turn_has_256_kib_with_and_without_grouping() {
    for each in [60, 400] {
        let mut idle = Idle::new(1, 8 << 20, 3 << 20).await;
        let fake = Fake::new(Duration::from_nanos(each));
        for _ in 0..6 {
            let before = idle.in_flight()[0];
            assert_eq!(turn(&mut idle, &fake, MAX_MESSAGES), Sent::Some);
            let sent = idle.in_flight()[0] - before;
            assert!((256 << 10..(256 << 10) + MESSAGE).contains(&sent), "{sent}");
        }
    }
}

/// Once an application was notified of data, a turn has half as many bytes. The task then receives
/// sooner, and does not wait for the runtime.
#[tokio::test]
async fn turn_has_128_kib_once_an_application_was_notified_of_data() {
    let mut idle = Idle::new(1, 8 << 20, 3 << 20).await;
    assert!(ask(&mut idle, true));
    let mut before = idle.in_flight()[0];
    // The limit applies to sixteen messages. Each turn has three.
    for number in 0..10 {
        assert!(idle.work(), "there is more");
        let sent = idle.in_flight()[0] - before;
        let least = if number < 6 { 128 << 10 } else { 256 << 10 };
        assert!((least..least + MESSAGE).contains(&sent), "{number}: {sent}");
        assert!(
            idle.driver.batch.has_sent(idle.driver.receive_after),
            "{number}: the task receives"
        );
        before += sent;
    }
}
