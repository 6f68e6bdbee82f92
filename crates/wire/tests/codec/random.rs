//! Checks the same properties as the fuzz targets. The inputs are random bytes, and valid input in
//! which a few bytes are changed.
//!
//! `EQUIC_CASES` is the number of inputs, `EQUIC_SEED` the seed.

use crate::support::frames::ROWS;
use crate::support::{cases, hex, laws, seed};
use equic_wire::Side;
use equic_wire::frame::Frames;
use equic_wire::params::TransportParameters;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

/// Payloads of several valid frames, which the test changes. The test also changes the examples of
/// single frames.
const PAYLOADS: [&str; 11] = [
    "011f1e0000000000",
    "0241f40a0203010540640701",
    "03404543e801020304050680011170",
    "040805671005040c0640400568656c6c6f0704746f6b65",
    "0e048010000005776f726c640b08000a00026162080c72657374",
    "1081000000110480100000124064130314091504091640641703",
    "18050204deadbeef000102030405060708090a0b0c0d0e0f19041a31323334353637381b3837363534333231",
    "1c0a06036261641d410003627965",
    "40af0102800061a8033103616263307a7a7a",
    "3e02144064010301003fc0000000ffffffff05000000030140407e75033e7e760140407e77014041",
    "7e7805020103c0ffee5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a7e794100077e7a087e7b087e7c090a",
];

/// Valid transport parameters, which the test changes. Those with an
/// original_destination_connection_id are a server's, and the others are a client's.
const PARAMETERS: [&str; 4] = [
    "00083132333435363738010480007530030245c0040481000000080240640f043132333410000210000000000000000000000000000000001b06677265617365",
    "0f000504801000000604801000000704801000000901030a01050b0240640c000e0108c0000000ff04de1b0243e8",
    "0f0131110c000000016b3343cf0000000120048000ffff6ab2003e01023c0102",
    "00000f04313233340d2dc000020101bb0000000000000000000000000000000000000461626364000102030405060708090a0b0c0d0e0f",
];

fn mutate(rng: &mut StdRng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(0..4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..5) {
            0 => bytes[at] = rng.random(),
            1 => bytes[at] ^= 1 << rng.random_range(0..8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, *[0, 0x3f, 0x40, 0x7f, 0x80, 0xff].choose(rng).unwrap()),
            _ => drop(bytes.remove(at)),
        }
    }
}

/// Returns random bytes, or a copy of one or two of `valid`, with a few bytes changed.
fn input(rng: &mut StdRng, valid: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = if rng.random_ratio(1, 4) {
        let mut bytes = vec![0; rng.random_range(0..80)];
        rng.fill_bytes(&mut bytes);
        bytes
    } else {
        let first = valid.choose(rng).expect("there are some").clone();
        let second = valid.choose(rng).expect("there are some");
        if rng.random() { [&first[..], second].concat() } else { first }
    };
    mutate(rng, &mut bytes);
    bytes
}

/// Checks that `law` holds for many inputs. If an input breaks it, prints that input and panics.
fn hold(law: Law, seed: u64, default_cases: u32, valid: &[Vec<u8>]) {
    let mut rng = StdRng::seed_from_u64(seed);
    for index in 0..cases(default_cases) {
        let bytes = input(&mut rng, valid);
        let result = std::panic::catch_unwind(|| law(&bytes));
        assert!(result.is_ok(), "input {index} of EQUIC_SEED={seed}: {bytes:02x?}");
    }
}

#[test]
fn random_sources_are_valid() {
    for payload in PAYLOADS.map(hex) {
        assert!(Frames::new(&payload).expect("it is not empty").all(|frame| frame.is_ok()));
    }
    for parameters in PARAMETERS.map(hex) {
        let sender = if parameters.starts_with(&[0]) { Side::Server } else { Side::Client };
        TransportParameters::parse(&parameters, sender).expect("it is legal");
    }
}

#[test]
fn random_payloads() {
    let examples = ROWS.iter().flat_map(|row| row.examples).map(|example| example.payload());
    let payloads: Vec<Vec<u8>> = PAYLOADS.map(hex).into_iter().chain(examples).collect();
    hold(laws::frames, seed(), 100_000, &payloads);
}

#[test]
fn random_parameters() {
    hold(laws::transport_parameters, seed(), 100_000, &PARAMETERS.map(hex));
}

/// A check of a property that must hold for any bytes. It panics if the property does not hold.
type Law = fn(&[u8]);

/// Checks the properties with the seed inputs of the fuzz targets.
#[test]
fn seeds_of_the_fuzz_targets() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");
    let targets: [(&str, Law); 2] =
        [("wire_frames", laws::frames), ("wire_transport_parameters", laws::transport_parameters)];
    for (target, law) in targets {
        let folder = std::fs::read_dir(format!("{seeds}/{target}")).expect("it is in the tree");
        let mut played = 0;
        for entry in folder {
            let input = std::fs::read(entry.expect("it can be listed").path());
            law(&input.expect("it can be read"));
            played += 1;
        }
        assert!(played >= 2, "{target}: {played}");
    }
}

#[test]
fn random_datagrams() {
    let packets = [include_str!("../vectors/v1.txt"), include_str!("../vectors/v2.txt")]
        .iter()
        .flat_map(|vectors| vectors.lines())
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| ["server_initial", "retry", "short"].contains(name))
        .map(|(_, packet)| [vec![0, 0], hex(packet)].concat())
        .chain([hex("0000800000000004010203040201020000000a0a0a0a0a")])
        .chain([hex("0001e0000000010401020304001400112233445566778899aabbccddeeff00112233")]);
    hold(laws::datagram, seed(), 100_000, &packets.collect::<Vec<_>>());
}
