//! Measures how long it takes to read the state of a gateway with full tables: `make
//! bench-reading`.
//!
//! Measures milliseconds per read. `equic gateway watch` reads the state once per second, and the
//! metrics once per scrape. Reads of all kinds are interleaved. BPF_PROG_TEST_RUN fills the tables,
//! and nothing is attached. Everything is measured twice: with empty deny and allow lists, and with
//! a million entries.

use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use equic_gateway::{
    Config, Control, Gateway, Guard, IpNet, ListAction, ObjectSource, Origin, SortBy, parse_list,
};
use equic_netns::flood::frame::udp_frame;
use equic_report::schema::Machine;
use equic_report::stats::Sample;
use equic_report::table::{Column, Style, Table};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ROUNDS: usize = 40;
/// Number of sources: the default size of both tables.
const SOURCES: u32 = 65_536;
const CONNECTIONS: u32 = 10_000;
/// Number of entries of the deny list in the second measurement.
const LISTED: u32 = 1_000_000;

type Reading = (&'static str, fn(&Control) -> equic_gateway::Result<()>);

const READINGS: [Reading; 7] = [
    ("counters", |control| control.counters().map(|rows| drop(black_box(rows)))),
    ("every source (watch)", |control| {
        control.source_samples().map(|samples| drop(black_box(samples)))
    }),
    ("top 20 sources", |control| {
        control.sources(20, SortBy::Packets).map(|rows| drop(black_box(rows)))
    }),
    ("status (metrics)", |control| control.status().map(|status| drop(black_box(status)))),
    ("servers", |control| control.ledgers().map(|ledgers| drop(black_box(ledgers)))),
    ("who is listed", |control| {
        control.listed(IpNet::from(address(7))).map(|entry| _ = black_box(entry))
    }),
    ("a copy, asked about a packet (explain)", |control| {
        let copy = control.snapshot(ObjectSource::Embedded)?;
        copy.judge(&opening(7)).map(|judgement| drop(black_box(judgement)))
    }),
];

fn address(number: u32) -> IpAddr {
    // An address of 198.18.0.0/15, which is reserved for benchmarks (RFC 2544).
    Ipv4Addr::from_bits(0xc612_0000 + number).into()
}

/// Returns a packet with a long header of a reserved version (RFC 9000 s.15). It opens a connection
/// attempt, so the program adds an entry to both tables.
fn opening(number: u32) -> Vec<u8> {
    let mut payload = vec![0; 1200];
    payload[..6].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8]);
    payload[6..10].copy_from_slice(&number.to_be_bytes());
    payload[14] = 8;
    payload[15..19].copy_from_slice(&number.to_be_bytes());
    let source = SocketAddr::new(address(number), 50_000);
    let target = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 443));
    udp_frame([2; 6], [4; 6], source, target, &payload).expect("one family, 1200 bytes")
}

fn main() -> Result<()> {
    let mut config = Config::for_port(443);
    config.gateway.name = format!("reading-{}", std::process::id());
    config.gateway.acl_entries = LISTED;
    let gateway = Gateway::load(&config, ObjectSource::Embedded)?;
    let control = gateway.control();
    let service = gateway.ledger()?.service_at(0)?;
    let held: Vec<Guard> =
        (0..CONNECTIONS).map(|n| service.opened(SocketAddr::new(address(n), 50_000))).collect();
    for number in 0..SOURCES {
        gateway.test_run(&opening(number), None)?;
    }
    println!("{}", measured(control, "Reading a gateway, lists empty")?);
    let text: String = (0..LISTED).map(|n| format!("{}\n", Ipv4Addr::from_bits(n << 4))).collect();
    let begun = Instant::now();
    let list = parse_list(text.as_bytes())?;
    let read = begun.elapsed();
    let list: Vec<_> = list.into_iter().map(|prefix| (prefix, ListAction::Deny)).collect();
    control.replace(Origin::Config, &[ListAction::Deny], &list)?;
    let put = begun.elapsed() - read;
    println!(
        "{}",
        measured(control, &format!("Reading a gateway, {LISTED} entries on its lists"))?
    );
    println!("{LISTED} lines of a list file: read in {read:.2?}, on the list in {put:.2?}");
    for full in control.status()?.tables {
        println!("{:>8} of {} entries: {}", full.entries, full.capacity, full.name);
    }
    drop(held);
    println!("\n{}", Machine::read()?);
    Ok(())
}

/// Measures every kind of read once per round, over several rounds. Returns the results as text.
fn measured(control: &Control, title: &str) -> Result<String> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); READINGS.len()];
    for _ in 0..ROUNDS {
        for ((_, read), times) in READINGS.iter().zip(&mut times) {
            let begun = Instant::now();
            read(control)?;
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    let columns = [
        Column::text("reading"),
        Column::number("median").unit("ms"),
        Column::number("95 % interval").unit("ms"),
    ];
    let mut table = Table::new(columns).title(title.to_owned());
    for ((what, _), times) in READINGS.iter().zip(times) {
        let sample: Sample = times.into_iter().collect();
        let interval = sample.median_95().ok_or("too few rounds")?;
        table.row([
            (*what).to_owned(),
            format!("{:.2}", sample.median().ok_or("no rounds")?),
            format!("{:.2} to {:.2}", interval.low, interval.high),
        ]);
    }
    Ok(table.render(Style::stdout()).to_string())
}
