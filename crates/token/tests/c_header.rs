//! Compares the gateway's `bpf/proof.h`, compiled natively, with this crate: for the test vectors
//! that both read, for thousands of random inputs, and for these inputs with any one byte changed.
//! Also compiles the header for BPF.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use equic_token::{
    Clock, ConnectionId, Epoch, IdError, IdFormat, Key, KeyRing, RetryToken, SealError, TokenError,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");
const REPLY: usize = 120;

/// Values of `enum equic_proof` in C.
const OK: u32 = 0;
const MALFORMED: u32 = 2;

fn bpf_folder() -> PathBuf {
    Path::new(FOLDER).join("../gateway/bpf")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the path of the C program. It is built once, with warnings as errors and with the
/// undefined behaviour sanitizer.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("proof");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        run(Command::new(compiler)
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"])
            .args(["-fsanitize=undefined", "-fno-sanitize-recover=all", "-I"])
            .arg(bpf_folder())
            .arg(Path::new(FOLDER).join("tests/c/proof.c"))
            .arg("-o")
            .arg(&program));
        program
    })
}

/// The `struct request` of proof.c.
#[derive(Clone)]
struct Request {
    op: u8,
    remote: SocketAddr,
    id_format: (u8, u8),
    now: u64,
    first: ConnectionId,
    second: ConnectionId,
    token: [u8; RetryToken::LEN],
    server: u64,
    nonce: u128,
    service: String,
    ring: KeyRing,
}

fn cid_bytes(id: ConnectionId) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..id.len()].copy_from_slice(id.as_bytes());
    bytes[20] = u8::try_from(id.len()).unwrap();
    bytes
}

impl Request {
    fn bytes(&self) -> Vec<u8> {
        let (family, address) = match self.remote.ip() {
            IpAddr::V4(v4) => (4, v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => (6, v6),
        };
        let (id_len, server_len) = self.id_format;
        let mut bytes = vec![self.op, family, id_len, server_len];
        bytes.extend(self.remote.port().to_be_bytes());
        bytes.extend([0; 2]);
        bytes.extend(self.now.to_le_bytes());
        bytes.extend(address.octets());
        bytes.extend(cid_bytes(self.first));
        bytes.extend(cid_bytes(self.second));
        bytes.extend(self.token);
        bytes.extend(self.server.to_le_bytes());
        bytes.extend(self.nonce.to_le_bytes());
        let mut name = [0; 32];
        name.iter_mut().take(31).zip(self.service.bytes()).for_each(|(to, byte)| *to = byte);
        bytes.extend(name);
        bytes.extend(&self.ring.to_bytes()[..]);
        assert_eq!(bytes.len(), 344);
        bytes
    }

    /// Returns this crate's result, encoded as the `struct reply` of proof.c.
    fn reply(&self) -> [u8; REPLY] {
        let mut reply = [0; REPLY];
        let mut result = OK;
        match self.op {
            0 => match RetryToken::new(self.remote, self.first, self.second, self.now)
                .seal(&self.ring)
            {
                Ok(token) => reply[8..88].copy_from_slice(&token),
                Err(SealError::ConnectionId) => result = MALFORMED,
            },
            1 => match RetryToken::open(
                &self.ring,
                self.now,
                self.remote,
                self.second.as_bytes(),
                &self.token,
            ) {
                Ok(token) => reply[88..112].copy_from_slice(&cid_bytes(token.original)),
                Err(error) => result = token_error(error),
            },
            2 => match self.format().and_then(|format| {
                let server = &self.server.to_le_bytes()[..format.server_id_len()];
                format.seal(&self.ring, server, self.nonce)
            }) {
                Ok(id) => reply[88..112].copy_from_slice(&cid_bytes(id)),
                Err(error) => result = id_error(error),
            },
            4 => match self.format().and_then(|format| {
                format.reset_token(&self.ring, &self.service, self.first.as_bytes())
            }) {
                Ok(token) => reply[8..24].copy_from_slice(&token),
                Err(error) => result = id_error(error),
            },
            _ => match self
                .format()
                .and_then(|format| format.open(&self.ring, self.first.as_bytes()))
            {
                Ok(proven) => reply[112..].copy_from_slice(&proven.server_id),
                Err(error) => result = id_error(error),
            },
        }
        reply[..4].copy_from_slice(&result.to_le_bytes());
        reply
    }

    fn format(&self) -> Result<IdFormat, IdError> {
        IdFormat::new(self.id_format.0.into(), self.id_format.1.into())
    }
}

fn token_error(error: TokenError) -> u32 {
    match error {
        TokenError::NewToken => 1,
        TokenError::Malformed => MALFORMED,
        TokenError::UnknownEpoch => 3,
        TokenError::Forged => 4,
        TokenError::Expired => 5,
        TokenError::Early => 6,
    }
}

fn id_error(error: IdError) -> u32 {
    match error {
        IdError::Format | IdError::Malformed => MALFORMED,
        IdError::UnknownEpoch => 3,
        IdError::Forged => 4,
        IdError::Random => panic!("C draws no random numbers"),
    }
}

/// Sends all requests to the C program, and compares each reply with this crate's result. Returns
/// how often each result occurred.
fn compare(requests: &[Request]) -> [usize; 7] {
    let mut file = tempfile::tempfile().unwrap();
    for request in requests {
        file.write_all(&request.bytes()).unwrap();
    }
    std::io::Seek::rewind(&mut file).unwrap();
    let output = Command::new(program()).stdin(Stdio::from(file)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (replies, rest) = output.stdout.as_chunks::<REPLY>();
    assert_eq!((replies.len(), rest.len()), (requests.len(), 0));
    let mut results = [0; 7];
    for (index, (request, reply)) in requests.iter().zip(replies).enumerate() {
        assert_eq!(reply, &request.reply(), "request {index}, operation {}", request.op);
        results[usize::from(reply[0])] += 1;
    }
    results
}

fn some_ring(rng: &mut StdRng) -> KeyRing {
    let key = |rng: &mut StdRng| Key::from_bytes(rng.random::<[u8; 16]>());
    let first = Epoch::new(rng.random_range(0..7)).unwrap();
    let mut ring = KeyRing::new(Clock::Monotonic, first, key(rng));
    for _ in 0..rng.random_range(0..8) {
        ring.announce(key(rng)).unwrap();
        ring.advance().unwrap();
    }
    ring
}

fn some_id(rng: &mut StdRng) -> ConnectionId {
    let mut bytes = [0; 20];
    rng.fill_bytes(&mut bytes);
    ConnectionId::cut(&bytes[..rng.random_range(0..=20)])
}

fn some_request(rng: &mut StdRng) -> Request {
    let address: IpAddr = if rng.random() {
        IpAddr::from(rng.random::<[u8; 4]>())
    } else {
        // The address must not be ::ffff:a.b.c.d. The gateway drops packets with such an address,
        // and a socket reports it as IPv4.
        Ipv6Addr::from(rng.random::<u128>() | 1 << 127).into()
    };
    let mut token = [0; RetryToken::LEN];
    rng.fill_bytes(&mut token);
    Request {
        op: 0,
        remote: SocketAddr::new(address, rng.random()),
        id_format: (rng.random_range(0..32), rng.random_range(0..12)),
        now: rng.random_range(0..1 << 48),
        first: some_id(rng),
        second: some_id(rng),
        token,
        server: rng.random(),
        nonce: rng.random(),
        service: (0..rng.random_range(0..40)).map(|_| rng.random_range('a'..='z')).collect(),
        ring: some_ring(rng),
    }
}

fn seeded() -> StdRng {
    let seed = std::env::var("EQUIC_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(2026);
    println!("EQUIC_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

#[test]
fn c_header_agrees_on_the_test_vectors() {
    let path = Path::new(FOLDER).join("tests/data/vectors.txt");
    let said = run(Command::new(program()).arg("vectors").arg(&path));
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(said.trim(), lines.len().to_string());
    assert!(lines.len() > 30);
    for line in lines {
        holds(line);
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let text = if text == "-" { "" } else { text };
    let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn ring_of(key: &str, epoch: &str) -> KeyRing {
    let key = Key::from_bytes(unhex(key).try_into().unwrap());
    KeyRing::new(Clock::Monotonic, Epoch::new(epoch.parse().unwrap()).unwrap(), key)
}

fn holds(line: &str) {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields[..] {
        // This crate uses the SipHash of a library that tests itself with these vectors.
        ["sip", ..] => {}
        ["token", key, epoch, now, family, address, port, original, retry, token] => {
            let ring = ring_of(key, epoch);
            let bytes: [u8; 16] = unhex(address).try_into().unwrap();
            let address = IpAddr::from(bytes).to_canonical();
            assert_eq!(address.is_ipv4(), family == "4");
            let remote = SocketAddr::new(address, port.parse().unwrap());
            let id = |text| ConnectionId::new(&unhex(text)).unwrap();
            let content = RetryToken::new(remote, id(original), id(retry), now.parse().unwrap());
            let sealed = content.seal(&ring).unwrap();
            assert_eq!(sealed[..], unhex(token), "{line}");
            let dcid = unhex(retry);
            let opened = RetryToken::open(&ring, content.issued, remote, &dcid, &sealed);
            assert_eq!(opened, Ok(content), "{line}");
        }
        ["id", key, epoch, len, server, nonce, id] => {
            let ring = ring_of(key, epoch);
            let server = unhex(server);
            let format = IdFormat::new(len.parse().unwrap(), server.len()).unwrap();
            let mut number = [0; 16];
            let nonce = unhex(nonce);
            number[..nonce.len()].copy_from_slice(&nonce);
            let made = format.seal(&ring, &server, u128::from_le_bytes(number)).unwrap();
            assert_eq!(made.as_bytes(), unhex(id), "{line}");
            let proven = format.open(&ring, &unhex(id)).unwrap();
            assert_eq!(proven.server_id[..server.len()], server, "{line}");
        }
        ["reset", key, epoch, len, server_bytes, service, id, token] => {
            let format = IdFormat::new(len.parse().unwrap(), server_bytes.parse().unwrap());
            let service = if service == "-" { "" } else { service };
            let made = format.unwrap().reset_token(&ring_of(key, epoch), service, &unhex(id));
            let made = made.unwrap();
            assert_eq!(made[..], unhex(token), "{line}");
        }
        _ => panic!("not a vector: {line}"),
    }
}

#[test]
fn c_header_agrees_on_any_input() {
    let mut rng = seeded();
    let mut requests = Vec::new();
    for _ in 0..5000 {
        let request = some_request(&mut rng);
        for op in 0..5 {
            requests.push(Request { op, ..request.clone() });
        }
    }
    let results = compare(&requests);
    assert!(results[OK as usize] > 1000 && results[MALFORMED as usize] > 1000, "{results:?}");
}

#[test]
fn c_header_agrees_on_tokens_with_any_byte_changed() {
    let mut rng = seeded();
    let mut requests = Vec::new();
    for _ in 0..200 {
        let (original, retry) = ([1; 20], [2; 20]);
        let length = |rng: &mut StdRng| rng.random_range(8..=20);
        let mut request = some_request(&mut rng);
        request.first = ConnectionId::cut(&original[..length(&mut rng)]);
        request.second = ConnectionId::cut(&retry[..length(&mut rng)]);
        let content = RetryToken::new(request.remote, request.first, request.second, request.now);
        request.token = content.seal(&request.ring).unwrap();
        request.op = 1;
        requests.push(request.clone());
        for at in 0..RetryToken::LEN {
            let mut other = request.clone();
            other.token[at] ^= rng.random_range(1..=255);
            requests.push(other);
        }
        for change in [-20_000_i64, -2_001, -2_000, 14_999, 15_000, 15_001, i64::MAX] {
            let now = request.now.saturating_add_signed(change);
            requests.push(Request { now, ..request.clone() });
        }
        let remote = SocketAddr::new(request.remote.ip(), request.remote.port() ^ 1);
        requests.push(Request { remote, ..request.clone() });
        requests.push(Request { remote: some_request(&mut rng).remote, ..request.clone() });
        requests.push(Request { second: some_id(&mut rng), ..request.clone() });
        requests.push(Request { ring: some_ring(&mut rng), ..request });
    }
    let results = compare(&requests);
    assert!(results.iter().all(|count| *count > 0), "every answer was there: {results:?}");
}

#[test]
fn c_header_agrees_on_ids_with_any_byte_changed() {
    let mut rng = seeded();
    let formats: Vec<(u8, u8)> = (8..=20)
        .flat_map(|len| (0..=8).map(move |server| (len, server)))
        .filter(|(len, server)| IdFormat::new((*len).into(), (*server).into()).is_ok())
        .collect();
    let mut requests = Vec::new();
    for id_format in &formats {
        let mut request = Request { id_format: *id_format, ..some_request(&mut rng) };
        let format = request.format().unwrap();
        let server = &request.server.to_le_bytes()[..format.server_id_len()];
        request.first = format.seal(&request.ring, server, request.nonce).unwrap();
        request.op = 3;
        requests.push(Request { op: 2, ..request.clone() });
        requests.push(Request { op: 4, ..request.clone() });
        requests.push(request.clone());
        for at in 0..request.first.len() {
            let mut bytes = request.first.as_bytes().to_vec();
            bytes[at] ^= rng.random_range(1..=255);
            let changed = Request { first: ConnectionId::cut(&bytes), ..request.clone() };
            requests.push(Request { op: 4, ..changed.clone() });
            requests.push(changed);
        }
        let other = *formats.choose(&mut rng).unwrap();
        requests.push(Request { id_format: other, ..request.clone() });
        requests.push(Request { ring: some_ring(&mut rng), ..request });
    }
    let results = compare(&requests);
    assert!(results[0] >= 3 * formats.len() && results[4] > 500, "{results:?}");
}

/// Compiles proof.h with the flags of the gateway's program. Stack frames must not exceed the limit
/// of Linux 6.1 for a global function.
#[test]
fn c_header_compiles_for_bpf() {
    let named = std::env::var("CLANG").ok();
    let known = (16..=30).rev().map(|version| format!("clang-{version}"));
    let there = |clang: &String| Command::new(clang).arg("--version").output().is_ok();
    let clang = named.into_iter().chain(["clang".to_owned()]).chain(known).find(there);
    let clang = clang.expect("clang is there: the gateway's build needs it, too");
    let machine = run(Command::new("cc").arg("-dumpmachine"));
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("proof.bpf.o");
    File::create(&object).unwrap();
    run(Command::new(clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c"])
        .arg(format!("-I/usr/include/{}", machine.trim()))
        .arg("-I")
        .arg(bpf_folder())
        .arg(Path::new(FOLDER).join("tests/c/proof.bpf.c"))
        .arg("-o")
        .arg(&object));
    assert!(object.metadata().unwrap().len() > 1000);
}
