use super::*;

#[test]
fn rate_round_trips_through_text() {
    let cases = [
        ("20/s burst 40", 20.0, 40, "20/s burst 40"),
        ("20/s", 20.0, 20, "20/s"),
        ("300/min", 5.0, 300, "300/min"),
        ("300/m burst 5", 5.0, 5, "300/min burst 5"),
        (" 36 / h ", 0.01, 36, "36/h"),
        ("10MB/s burst 1MB", 1e7, 1_000_000, "10000000/s burst 1000000"),
        ("100000/s", 100_000.0, 100_000, "100000/s"),
        ("1KiB/s", 1024.0, 1024, "1024/s"),
        ("5000/s", 5000.0, 5000, "5000/s"),
    ];
    for (text, per_second, burst, shown) in cases {
        let rate: Rate = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!((rate.units_per_second() - per_second).abs() < 1e-9, "{text}");
        assert_eq!(rate.burst(), burst, "{text}");
        assert_eq!(rate.to_string(), shown, "{text}");
        assert_eq!(shown.parse(), Ok(rate), "{text}");
    }
    assert_eq!("off".parse(), Ok(Rate::OFF));
    assert_eq!("0".parse(), Ok(Rate::OFF));
    assert_eq!(Rate::OFF.to_string(), "off");
    assert!(Rate::per_second(0, 7).is_off());
}

/// A rate of packets or connections must never be displayed with a unit of bytes.
#[test]
fn rate_of_bytes_prints_byte_units() {
    for text in ["10MB/s burst 1MB", "100kB/s", "1500/s", "3GB/h burst 7MB", "off"] {
        let rate: Rate = text.parse().unwrap();
        assert_eq!(rate.of_bytes().to_string(), text);
        assert!(!rate.to_string().contains('B'), "{rate}");
        assert_eq!(rate.to_string().parse(), Ok(rate));
    }
}

#[test]
fn rate_errors_show_a_valid_example() {
    for text in [
        "",
        "20",
        "/s",
        "20/",
        "20/day",
        "x/s",
        "20/s burst",
        "20/s burst x",
        "-1/s",
        "1.5/s",
        "20/s 40",
    ] {
        let error = text.parse::<Rate>().expect_err(text).to_string();
        assert!(error.contains("20/s burst 40"), "{text}: {error}");
    }
    assert!("0/s".parse::<Rate>().unwrap_err().to_string().contains("off"));
    assert!("1/s burst 0".parse::<Rate>().unwrap_err().to_string().contains("at least 1"));
    assert!("99999999999999999999/s".parse::<Rate>().is_err());
    assert!("99999999999GB/s".parse::<Rate>().is_err());
}

#[test]
fn rate_burst_admits_exactly_that_many() {
    // Simulates the bucket of docs/policy.md. At one instant, `burst` units must pass, and one more
    // must not.
    for (amount, burst) in [(20, 40), (3, 1), (7, 7), (1_000_003, 17), (10_000_000, 1_000_000)] {
        let abi = Rate::per_second(amount, burst).to_abi();
        let cost = |units: u64| {
            let charged = u128::from(units) * u128::from(abi.cost_ns);
            (charged >> abi::EQUIC_RATE_SHIFT) as u64
        };
        assert!(cost(burst) <= abi.burst_ns, "{amount}/s burst {burst}");
        assert!(cost(burst + 1) > abi.burst_ns, "{amount}/s burst {burst}");
    }
}

#[test]
fn rate_round_trips_through_the_abi() {
    for text in [
        "20/s burst 40",
        "300/min",
        "1/h",
        "7/min burst 3",
        "10MB/s burst 1MB",
        "off",
        "1/s",
        "999983/s burst 12",
    ] {
        let rate: Rate = text.parse().unwrap();
        let back = Rate::from_abi(rate.to_abi());
        assert!((back.units_per_second() - rate.units_per_second()).abs() < 1e-6, "{text} {back}");
        assert_eq!(back.burst(), rate.burst(), "{text} became {back}");
    }
    let huge = Rate::per_second(u64::MAX, u64::MAX).to_abi();
    assert!(huge.cost_ns >= 1 && huge.burst_ns >= 1);
    let slow: Rate = "1/h burst 18446744073709551615".parse().unwrap();
    assert_eq!(slow.to_abi().burst_ns, u64::MAX);
}

#[test]
fn duration_round_trips_through_text() {
    let cases = [
        ("250ms", 250_000_000, "250ms"),
        ("1s", 1_000_000_000, "1s"),
        ("1.5s", 1_500_000_000, "1500ms"),
        ("10m", 600_000_000_000, "10m"),
        ("10min", 600_000_000_000, "10m"),
        ("90 sec", 90_000_000_000, "90s"),
        ("1h30m", 5_400_000_000_000, "90m"),
        ("1d", 86_400_000_000_000, "1d"),
        ("0", 0, "0s"),
        ("0s", 0, "0s"),
        ("5us", 5_000, "5us"),
    ];
    for (text, nanos, shown) in cases {
        let duration = parse_duration(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(duration.as_nanos(), nanos, "{text}");
        assert_eq!(format_duration(duration), shown, "{text}");
        assert_eq!(parse_duration(shown), Ok(duration), "{text}");
    }
    for text in [
        "",
        "10",
        "s",
        "1x",
        "1.s",
        ".5s",
        "-1s",
        "1 2s3",
        "99999999999d",
        "1.1.1s",
        "1.0000000001s",
    ] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

#[test]
fn size_parses_units_and_rejects_invalid_text() {
    assert_eq!(parse_size("64KiB"), Ok(65_536));
    assert_eq!(parse_size("10 MB"), Ok(10_000_000));
    assert_eq!(parse_size("1_500"), Ok(1_500));
    for text in ["", "KB", "1.5MB", "-1", "1TB", "0x10"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}
