//! A gateway in user space, for tests of servers. Like the XDP program, it answers Initial packets
//! without a token with Retry packets, and forwards valid packets. It opens a socket for each
//! client. The server sees that socket's address as the client's, so the tokens contain it.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use equic_token::{ConnectionId, IdFormat, IdGenerator, KeyRing, RetryToken};

/// Name of the service to which the servers belong.
pub const SERVICE: &str = "web";

/// Number of packets seen, by kind.
#[derive(Default)]
pub struct Counts {
    /// Retry packets.
    pub retries: AtomicUsize,
    /// Initial packets with a valid token.
    pub proved: AtomicUsize,
    /// Initial packets with an invalid token.
    pub refused: AtomicUsize,
    /// Short header packets with a valid connection ID.
    pub ids: AtomicUsize,
    /// Short header packets with an invalid connection ID, which are dropped.
    pub forged_ids: AtomicUsize,
}

/// A running gateway. Dropping it stops it.
pub struct Gateway {
    /// Address that clients send to.
    pub address: SocketAddr,
    /// Numbers of the packets that the gateway has seen.
    pub counts: Arc<Counts>,
    /// True if the gateway must consider the server dead: the gateway then sends stateless resets
    /// and forwards no packets.
    pub dead: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Work {
    ring: KeyRing,
    /// Format of the server's connection IDs, or `None` if the server cannot choose them.
    ids: Option<IdFormat>,
    retry_ids: IdGenerator,
    server: SocketAddr,
    front: Arc<UdpSocket>,
    counts: Arc<Counts>,
    dead: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    clients: Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>,
}

/// Time for which a thread waits for a packet before it checks whether it must stop.
const LOOK: Duration = Duration::from_millis(20);

fn socket() -> Arc<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    socket.set_read_timeout(Some(LOOK)).expect("a time");
    Arc::new(socket)
}

impl Gateway {
    /// Starts a gateway in front of `server`. `ids` is the format of the server's connection IDs.
    pub fn start(ring: &KeyRing, ids: Option<IdFormat>, server: SocketAddr) -> Gateway {
        let front = socket();
        let address = front.local_addr().expect("it is bound");
        let (counts, stop) = (Arc::<Counts>::default(), Arc::<AtomicBool>::default());
        let dead = Arc::<AtomicBool>::default();
        let format = IdFormat::new(8, 0).expect("a format");
        let work = Arc::new(Work {
            ring: ring.clone(),
            ids,
            retry_ids: IdGenerator::new(format, &[], ring.clone()).expect("random numbers"),
            server,
            front,
            counts: Arc::clone(&counts),
            dead: Arc::clone(&dead),
            stop: Arc::clone(&stop),
            clients: Mutex::default(),
        });
        let thread = Some(std::thread::spawn(move || work.serve()));
        Gateway { address, counts, dead, stop, thread }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the gateway did not panic");
        }
    }
}

/// Returns DCID, SCID and token of an Initial packet of version 1.
fn initial(packet: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    // The first byte is not checked exactly, because a returning client may clear the Fixed Bit
    // (RFC 9287).
    if packet.first()? & 0xb0 != 0x80 || packet.get(1..5)? != [0, 0, 0, 1] {
        return None;
    }
    let (dcid, rest) = counted(packet.get(5..)?)?;
    let (scid, rest) = counted(rest)?;
    let first = usize::from(*rest.first()?);
    let (length, rest) = match first >> 6 {
        0 => (first, rest.get(1..)?),
        1 => ((first & 0x3f) << 8 | usize::from(*rest.get(1)?), rest.get(2..)?),
        _ => return None,
    };
    Some((dcid, scid, rest.get(..length)?))
}

fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

/// Returns a Retry packet (RFC 9000 s.17.2.5, RFC 9001 s.5.8).
fn retry(original: &[u8], client: &[u8], source: &[u8], token: &[u8]) -> Vec<u8> {
    let length = |id: &[u8]| u8::try_from(id.len()).expect("at most 20 bytes");
    let mut packet = vec![0xf0, 0, 0, 0, 1, length(client)];
    packet.extend_from_slice(client);
    packet.push(length(source));
    packet.extend_from_slice(source);
    packet.extend_from_slice(token);
    let pseudo = [&[length(original)], original, &packet].concat();
    let key = 0xbe0c_690b_9f66_575a_1d76_6b54_e368_c84e_u128.to_be_bytes();
    let nonce = [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).expect("16 bytes"));
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(pseudo), &mut []).expect("a tag");
    packet.extend_from_slice(tag.as_ref());
    packet
}

impl Work {
    fn serve(self: Arc<Work>) {
        let mut packet = [0; 2048];
        let mut threads = Vec::new();
        while !self.stop.load(SeqCst) {
            let Ok((length, from)) = self.front.recv_from(&mut packet) else { continue };
            let behind = self.behind(from, &mut threads);
            self.judge(&packet[..length], from, &behind);
        }
        for thread in threads {
            thread.join().expect("it did not panic");
        }
    }

    /// Returns the socket that represents a client to the server. For a new client, starts a thread
    /// that forwards the server's packets to the client.
    fn behind(
        self: &Arc<Work>,
        from: SocketAddr,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Arc<UdpSocket> {
        let mut clients = self.clients.lock().expect("nobody panics");
        let behind = clients.entry(from).or_insert_with(|| {
            let behind = socket();
            behind.connect(self.server).expect("loopback");
            let (work, back) = (Arc::clone(self), Arc::clone(&behind));
            threads.push(std::thread::spawn(move || {
                let mut packet = [0; 2048];
                while !work.stop.load(SeqCst) {
                    if let Ok(length) = back.recv(&mut packet) {
                        let _ = work.front.send_to(&packet[..length], from);
                    }
                }
            }));
            behind
        });
        Arc::clone(behind)
    }

    fn judge(&self, packet: &[u8], from: SocketAddr, behind: &UdpSocket) {
        let client = behind.local_addr().expect("it is bound");
        if packet.first().is_some_and(|first| first & 0x80 == 0) {
            if let Some(format) = self.ids {
                let id = packet.get(1..=format.len()).unwrap_or_default();
                if format.open(&self.ring, id).is_err() {
                    self.counts.forged_ids.fetch_add(1, SeqCst);
                    return;
                }
                self.counts.ids.fetch_add(1, SeqCst);
                if self.dead.load(SeqCst) {
                    // Answer with a stateless reset (RFC 9000 s.10.3).
                    let token =
                        format.reset_token(&self.ring, SERVICE, id).expect("it is the ring's");
                    let reset = [&[0x5a; 5][..], &token].concat();
                    if reset.len() < packet.len() {
                        let _ = self.front.send_to(&reset, from);
                    }
                    return;
                }
            }
        } else if let Some((dcid, scid, token)) = initial(packet) {
            // The packet has no token, or one from a NEW_TOKEN frame, which only the server can
            // check.
            if token.first().is_none_or(|first| first & 0x80 != 0) {
                let source = self.retry_ids.generate();
                let original = ConnectionId::new(dcid).expect("at most 20 bytes");
                let token = RetryToken::new(client, original, source, self.ring.now());
                let Ok(token) = token.seal(&self.ring) else { return };
                let answer = retry(dcid, scid, source.as_bytes(), &token);
                assert!(answer.len() <= packet.len(), "it never amplifies");
                self.counts.retries.fetch_add(1, SeqCst);
                let _ = self.front.send_to(&answer, from);
                return;
            }
            // The Destination Connection ID is not compared with the token, because a client uses
            // the server's own ID once the server has answered (RFC 9000 s.7.2).
            let token = RetryToken::authenticate(&self.ring, self.ring.now(), token);
            if token.is_ok_and(|token| token.client == client) {
                self.counts.proved.fetch_add(1, SeqCst);
            } else {
                self.counts.refused.fetch_add(1, SeqCst);
                return;
            }
        }
        let _ = behind.send(packet);
    }
}
