use super::*;

/// The fields of a packet that tests compare: seconds and nanoseconds, data, length.
type Seen = (Option<(u64, u32)>, Vec<u8>, usize);

fn all(file: &[u8]) -> Result<Vec<Seen>, String> {
    let mut seen = Vec::new();
    let each = |packet: Captured<'_>| {
        seen.push((
            packet.time.map(|time| (time.as_secs(), time.subsec_nanos())),
            packet.data.to_vec(),
            packet.length,
        ));
        assert_eq!(packet.number, seen.len() as u64);
        Ok(())
    };
    read_from(file, each).map_err(|wrong| wrong.of("x.pcap").to_string())?;
    Ok(seen)
}

fn pcap(magic: u32, link: u32, packets: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [magic, 0x0004_0002, 0, 0, 65_535, link] {
        file.extend(word.to_le_bytes());
    }
    for (index, packet) in packets.iter().enumerate() {
        let length = u32::try_from(packet.len()).unwrap();
        for word in [100 + u32::try_from(index).unwrap(), 5, length, length + 10] {
            file.extend(word.to_le_bytes());
        }
        file.extend(*packet);
    }
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let length = u32::try_from(12 + padded).unwrap();
    let mut block = [kind.to_le_bytes(), length.to_le_bytes()].concat();
    block.extend(body);
    block.resize(8 + padded, 0);
    block.extend(length.to_le_bytes());
    block
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pcapng(link: u32, data: &[u8]) -> Vec<u8> {
    let mut file = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
    // Option if_tsresol with the value 9: times in nanoseconds.
    file.extend(block(1, &words(&[link, 0, 9 | 1 << 16, 9, 0])));
    let mut packet = words(&[0, 0, 1_500_000_000, u32::try_from(data.len()).unwrap(), 99]);
    packet.extend(data);
    file.extend(block(6, &packet));
    file.extend(block(3, &[words(&[u32::try_from(data.len()).unwrap()]), data.to_vec()].concat()));
    file
}

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

#[test]
fn capture_is_read_in_pcap_and_pcapng_format() {
    let two = all(&pcap(MICROSECONDS, 1, &[b"one", b"three"])).unwrap();
    assert_eq!(
        two,
        [(Some((100, 5000)), b"one".to_vec(), 13), (Some((101, 5000)), b"three".to_vec(), 15)]
    );
    assert_eq!(all(&pcap(NANOSECONDS, 1, &[b"x"])).unwrap()[0].0, Some((100, 5)));
    // The upper bits announce a frame checksum of 4 bytes.
    assert_eq!(all(&pcap(MICROSECONDS, 1 | 0x4400_0000, &[b"x"])).unwrap().len(), 1);
    let next = all(&pcapng(1, b"frame")).unwrap();
    assert_eq!(
        next,
        [(Some((1, 500_000_000)), b"frame".to_vec(), 99), (None, b"frame".to_vec(), 5)]
    );
}

#[test]
fn capture_buffer_grows_for_long_packets() {
    let long = vec![7; 3 * BUFFER];
    let packets = all(&pcap(MICROSECONDS, 1, &[b"x", &long, b"y"])).unwrap();
    assert_eq!(packets.iter().map(|packet| packet.1.len()).collect::<Vec<_>>(), [1, long.len(), 1]);
}

#[test]
fn capture_errors_tell_bad_files_apart() {
    let whole = pcap(MICROSECONDS, 1, &[b"one", b"three"]);
    let cases: [(&[u8], &str); 7] = [
        (b"", "the file is empty"),
        (
            b"GET / HTTP/1.1\r\n and so on and so forth, long enough",
            "neither in pcap nor in pcapng format",
        ),
        (&whole[..10], "neither in pcap nor in pcapng format"),
        (&whole[..whole.len() - 1], "after packet 1, the file ends in the middle of a packet"),
        (&pcap(MICROSECONDS, 113, &[b"x"]), "not Ethernet"),
        (&pcapng(101, b"x"), "not Ethernet"),
        (&[pcap(MICROSECONDS, 1, &[]), vec![0xff; 64]].concat(), "after packet 0"),
    ];
    for (file, part) in cases {
        let error = all(file).expect_err(part);
        assert!(error.contains(part), "{part}: {error}");
        assert!(error.starts_with("cannot read x.pcap: ") && error.contains("\n  "), "{error}");
    }
}

#[test]
fn capture_that_is_damaged_causes_no_panic() {
    let seed = std::env::var("EQUIC_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("EQUIC_SEED={seed}");
    let mut rng = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed);
    let originals = [pcap(MICROSECONDS, 1, &[&[1; 60], &[2; 90]]), pcapng(1, &[3; 77])];
    for round in 0..10_000 {
        let mut file = originals[round % 2].clone();
        for _ in 0..rand::Rng::random_range(&mut rng, 1..8) {
            let at = rand::Rng::random_range(&mut rng, 0..file.len());
            file[at] = rand::Rng::random(&mut rng);
        }
        file.truncate(rand::Rng::random_range(&mut rng, 0..=file.len()));
        // Any result is allowed. The call must only neither panic nor hang.
        let _ = all(&file);
    }
}
