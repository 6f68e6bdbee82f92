//! Tests with tables of autonomous systems and countries, in the formats of their publishers.

use super::*;

fn of(asn: &[u32], country: &[&str]) -> ListFile {
    ListFile {
        asn: asn.to_vec(),
        country: country.iter().map(|code| (*code).to_owned()).collect(),
        ..ListFile::default()
    }
}

fn nets(list: &ListFile, text: &str) -> Vec<String> {
    let mut found: Vec<IpNet> = list.parse(text.as_bytes(), None).expect("it holds");
    found.sort();
    found.iter().map(ToString::to_string).collect()
}

fn refused(list: &ListFile, text: &str) -> String {
    list.parse(text.as_bytes(), None).expect_err("it does not hold").to_string()
}

const IPTOASN: &str = "1.0.0.0\t1.0.0.255\t13335\tUS\tCLOUDFLARENET\n\
    1.0.1.0\t1.0.3.255\t0\tNone\tNot routed\n\
    1.0.4.0\t1.0.7.255\t38803\tAU\tWPL-AS-AP Wirefreebroadband\n\
    192.0.2.5\t192.0.2.10\t64500\tXX\tSomebody | with, signs \"\n\
    2001:db8::\t2001:db8:0:2:ffff:ffff:ffff:ffff\t64500\tXX\tSomebody\n";

const BLOCKS: &str = "network,autonomous_system_number,autonomous_system_organization\r\n\
    192.0.2.0/25,64500,\"Some, Body \"\"Inc.\"\"\"\r\n\
    192.0.2.128/25,64500,Somebody\r\n\
    198.51.100.0/24,64501,Other\r\n\
    203.0.113.0/24,,\r\n";

const COUNTRIES: &str = "network,geoname_id,registered_country_geoname_id,\
    represented_country_geoname_id,is_anonymous_proxy,is_satellite_provider\n\
    192.0.2.0/24,2921044,2921044,,0,0\n\
    198.51.100.0/24,,6252001,,0,0\n\
    203.0.113.0/24,,,,0,0\n";

const LOCATIONS_CSV: &str = "geoname_id,locale_code,continent_code,continent_name,country_iso_code,\
    country_name,is_in_european_union\n\
    2921044,en,EU,Europe,DE,Germany,1\n\
    6252001,en,NA,\"North America\",US,\"United States\",0\n\
    6255148,en,EU,Europe,,,0\n";

const DELEGATED: &str = "2|ripencc|1700000000|3|19830705|20231114|+0100\n\
    # a comment\n\
    ripencc|*|ipv4|*|2|summary\n\
    ripencc|DE|ipv4|192.0.2.0|384|20000101|allocated|some-id\n\
    ripencc|FR|ipv4|198.51.100.0|256|20000101|assigned|other-id\n\
    ripencc|DE|ipv6|2001:db8::|32|20000101|allocated|some-id\n\
    ripencc|DE|asn|64500|1|20000101|allocated|some-id\n\
    ripencc||ipv4|203.0.113.0|256||available|\n";

#[test]
fn every_format_is_read() {
    let somebody = [
        "192.0.2.5/32",
        "192.0.2.6/31",
        "192.0.2.8/31",
        "192.0.2.10/32",
        "2001:db8::/63",
        "2001:db8:0:2::/64",
    ];
    assert_eq!(nets(&of(&[64500], &[]), IPTOASN), somebody);
    assert_eq!(nets(&of(&[], &["xx"]), IPTOASN), somebody);
    assert_eq!(nets(&of(&[13335], &["AU"]), IPTOASN), ["1.0.0.0/24", "1.0.4.0/22"]);
    // Adjacent prefixes must be merged.
    assert_eq!(nets(&of(&[64500], &[]), BLOCKS), ["192.0.2.0/24"]);
    assert_eq!(
        nets(&of(&[], &["DE"]), DELEGATED),
        ["192.0.2.0/24", "192.0.3.0/25", "2001:db8::/32"]
    );
    let dbip = "1.0.0.0,1.0.0.255,AU\n2001:db8::,2001:db8::ffff,DE\n";
    assert_eq!(nets(&of(&[], &["DE"]), dbip), ["2001:db8::/112"]);
    // IPv4-mapped addresses must be merged with the IPv4 addresses that they mean.
    let mapped = "::ffff:1.0.0.0,::ffff:1.0.0.255,AU\n1.0.1.0,1.0.1.255,AU\n";
    assert_eq!(nets(&of(&[], &["AU"]), mapped), ["1.0.0.0/23"]);
    let dbip = "\"1.0.0.0\",\"1.0.0.255\",\"64500\",\"Somebody, Inc.\"\n";
    assert_eq!(nets(&of(&[64500], &[]), dbip), ["1.0.0.0/24"]);
    let ipinfo = "start_ip,end_ip,country,asn\n192.0.2.0,192.0.2.255,DE,AS64500\n";
    assert_eq!(nets(&of(&[64500], &["FR"]), ipinfo), ["192.0.2.0/24"]);
}

#[test]
fn countries_by_location() {
    let of = |code: &str| {
        let found = of(&[], &[code]).parse(COUNTRIES.as_bytes(), Some(LOCATIONS_CSV.as_bytes()));
        found.map(|nets| nets.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(of("DE").unwrap(), ["192.0.2.0/24"]);
    assert_eq!(of("US").unwrap(), ["198.51.100.0/24"], "where it is registered");
    assert!(of("FR").unwrap_err().to_string().contains("the file contains no prefix of FR"));
    let missing = refused(&self::of(&[], &["DE"]), COUNTRIES);
    assert!(missing.contains("set `locations`"), "{missing}");
    let wrong = self::of(&[], &["DE"]).parse(COUNTRIES.as_bytes(), Some(b"id,code\n1,DE\n"));
    assert!(
        wrong
            .unwrap_err()
            .to_string()
            .contains("1:1: the file has no header with the columns `geoname_id`")
    );
}

#[test]
fn what_does_not_hold_is_told_by_line() {
    let one = of(&[64500], &[]);
    for (text, line, said) in [
        ("", 0, "the file contains no prefix of AS64500"),
        ("192.0.2.0/24\n", 1, "unknown format of the prefix table"),
        ("network,country\n192.0.2.0/24,DE\n", 1, "the file has no column of AS numbers"),
        (DELEGATED, 1, "the file has no column of AS numbers"),
        ("network,asn\n192.0.2.0/24,1\nnonsense,64500\n", 3, "`nonsense`"),
        ("network,asn\n192.0.2.0/24,x\n", 2, "`x` is not an AS number"),
        ("network,asn\n192.0.2.0/24\n", 2, "has 1 columns, but needs at least 2"),
        ("network,asn\n\"192.0.2.0/24,64500\n", 2, "an opening quote without a closing quote"),
        (
            "network,asn\n\"192.0.2.0/24\"x,64500\n",
            2,
            "between a closing quote and the next separator",
        ),
        ("192.0.2.0\t192.0.2.9\t64500\n192.0.2.9\t192.0.2.0\t1\n", 2, "is not a valid range"),
        ("192.0.2.0\t192.0.2.9\t64500\n192.0.2.9\t2001:db8::\t1\n", 2, "is not a valid range"),
        ("network,asn\n192.0.2.0/24,64501\n", 0, "the file contains no prefix of AS64500"),
    ] {
        let error = refused(&one, text);
        let place = if line == 0 { String::new() } else { format!("{line}:1: ") };
        assert!(error.starts_with(&place) && error.contains(said), "{text:?}: {error}");
    }
    let country = of(&[], &["DE"]);
    for (row, said) in [
        ("r|DE|ipv4|192.0.2.0|0|", "`0` is not a valid number of addresses"),
        ("r|DE|ipv4|255.255.255.0|257|", "`257` is not a valid number of addresses"),
        ("r|DE|ipv6|2001:db8::|129|", "2001:db8::/129"),
        ("r|DE|ipv4|2001:db8::|32|", "`2001:db8::` is not ipv4"),
    ] {
        let error = refused(&country, &format!("2|ripencc|1\n{row}\n"));
        assert!(error.starts_with("2:1: ") && error.contains(said), "{row}: {error}");
    }
}

#[test]
fn hostile_files_take_bounded_memory() {
    let one = of(&[64500], &[]);
    let long = format!("network,asn\n{}\n", "x".repeat(LONGEST_LINE + 1));
    assert!(refused(&one, &long).contains("is longer than"));
    let wide = format!("network,asn\n{}\n", ",".repeat(COLUMNS));
    assert!(refused(&one, &wide).contains("more than 64 columns"));
    // Reading stops after a thousand bad lines.
    let bad = format!("network,asn\n{}", "bad,1\n".repeat(50_000));
    let ConfigError::Problems { problems, more, .. } = one.parse(bad.as_bytes(), None).unwrap_err()
    else {
        panic!("problems");
    };
    assert!(problems.len() + more <= BAD);
    // Each of these ranges consists of 254 prefixes.
    let row = "::1\tffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe\t64500\n";
    let many = row.repeat(MOST / 254 + 2);
    assert!(refused(&one, &many).contains("prefixes are selected"));
    let garbage = of(&[64500], &[]).parse(b"network,asn\n\xff\xfe,1\n", None).unwrap_err();
    assert!(garbage.to_string().contains("2:1: the line is not UTF-8"));
}

#[test]
fn a_configuration_names_them() {
    let text = "deny_files = [\"a.txt\", { file = \"asn.csv\", asn = [64500], country = [\"DE\"] }]\n\
                [[service]]\nname = \"web\"\nlisten = [\"443\"]\n";
    let config = super::super::Config::parse(text).unwrap();
    assert_eq!(config.deny_files[0], ListFile::plain("a.txt"));
    assert_eq!(config.deny_files[1], ListFile { file: "asn.csv".into(), ..of(&[64500], &["DE"]) });
    let json = serde_json::to_string(&config.deny_files).unwrap();
    assert_eq!(json, r#"["a.txt",{"file":"asn.csv","asn":[64500],"country":["DE"]}]"#);
    assert_eq!(serde_json::from_str::<Vec<ListFile>>(&json).unwrap(), config.deny_files);
    for (files, said) in [
        ("[{ asn = [1] }]", "the file is missing"),
        ("[{ file = \"a\" }]", "has neither `asn` nor `country`"),
        ("[{ file = \"a\", country = [\"Germany\"] }]", "`Germany` is not a country code"),
        ("[{ file = \"a\", asn = [-1] }]", "deny_files.asn"),
        ("[{ file = \"a\", asns = [1] }]", "did you mean `asn`?"),
        ("[7]", "a path, or a table"),
    ] {
        let error = super::super::Config::parse(
            &text.replacen("[\"a.txt\"", &files[..files.len() - 1], 1).replacen(
                ", { file = \"asn.csv\", asn = [64500], country = [\"DE\"] }]",
                "]",
                1,
            ),
        )
        .unwrap_err()
        .to_string();
        assert!(error.starts_with("1:") && error.contains(said), "{files}: {error}");
    }
}

/// As with [`parse_prefix`], an IPv4-mapped range must not become 0.0.0.0/0.
#[test]
fn range_of_all_mapped_addresses_is_refused() {
    let row = |first: &str, last: &str| format!("{first}\t{last}\t64500\tXX\tA\n");
    let whole = row("::ffff:0.0.0.0", "::ffff:255.255.255.255");
    assert!(refused(&of(&[64500], &[]), &whole).contains("0.0.0.0/0"));
    let around = row("::fffe:0:0", "::ffff:ffff:ffff");
    assert_eq!(nets(&of(&[64500], &[]), &around), ["::fffe:0:0/95"], "IPv6 only");
    let part = row("::ffff:192.0.2.0", "::ffff:192.0.2.255");
    assert_eq!(nets(&of(&[64500], &[]), &part), ["192.0.2.0/24"]);
}
