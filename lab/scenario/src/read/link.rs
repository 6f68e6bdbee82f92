//! Reads the links of a scenario description, with their loss and their queues.

use std::time::Duration;

use equic_sim::{
    Chance, CoDel, Direction, DirectionError, FqCoDel, Framing, GilbertElliott, Limit, Loss, Queue,
    QueueError, Rate, Red, Wire,
};
use toml::de::DeValue;

use super::table::{
    Reader, Table, boolean, duration, number, numbers, percent, probability, rate, text,
};
use crate::keys::{LINK, LOSS, QUEUE};
use crate::model::Link;
use crate::quantity;

/// Returns the link that a table describes. Returns `None` after it has recorded a mistake.
pub(super) fn link(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Link> {
    let there = direction(reader, table, None);
    let back = match table.inner(reader, "back", &LINK) {
        None => there.clone(),
        Some(back) => {
            for key in ["back", "from", "to"] {
                if back.has(key) {
                    back.complain(reader, key, "the table `back` cannot have this key");
                }
            }
            direction(reader, &back, there.as_ref())
        }
    };
    Some(Link { there: there?, back: back? })
}

/// Reads one direction of a link. A missing key has the value that it has in `base`. If `base` does
/// not have the key either, it has its default value.
fn direction(
    reader: &mut Reader,
    table: &Table<'_, '_>,
    base: Option<&Direction>,
) -> Option<Direction> {
    let mut link = base.cloned().unwrap_or_else(|| Direction::new(1, Duration::ZERO));
    let rate = port_rate(reader, table, base.is_none());
    let delay = match base {
        None => table.need(reader, "delay", duration),
        Some(_) => table.read(reader, "delay", duration),
    };
    let missing = base.is_none() && (rate.is_none() || delay.is_none());
    set(&mut link.rate, rate);
    let wire = &mut link.wire;
    set(&mut wire.delay, delay);
    set(&mut wire.jitter, table.read(reader, "jitter", duration));
    set(&mut wire.reorder_by, table.read(reader, "reorder_by", duration));
    for (key, chance) in [
        ("duplicate", &mut wire.duplicate),
        ("reorder", &mut wire.reorder),
        ("corrupt", &mut wire.corrupt),
    ] {
        set(chance, table.read(reader, key, percent).map(Chance::percent));
    }
    loss(reader, table, wire);
    if let Some(mtu) = table.whole(reader, "mtu") {
        wire.mtu = usize::try_from(mtu).ok();
    }
    let framings = [
        ("none", Framing::None),
        ("ppp", Framing::Ppp),
        ("ethernet", Framing::Ethernet),
        ("ethernet-line", Framing::EthernetLine),
    ];
    set(&mut link.framing, table.choice(reader, "framing", &framings));
    set(&mut link.queue, queue(reader, table));
    if missing || !reader.is_clean() {
        return (!missing).then_some(link);
    }
    if let Err(error) = link.check() {
        let key = match error {
            DirectionError::Rate => "rate",
            DirectionError::Mtu => "mtu",
            DirectionError::Queue(_) => "queue",
            _ => "loss",
        };
        let message = match error {
            DirectionError::Queue(QueueError::SmallerThanAPacket) => {
                format!("{error}: every packet of {} bytes would be dropped", link.mtu())
            }
            _ => error.to_string(),
        };
        table.complain(reader, key, message);
        return None;
    }
    Some(link)
}

/// Reads the rate of a port: a constant, or a trace. Returns `None` if the rate is missing, or
/// after it has recorded a mistake.
fn port_rate(reader: &mut Reader, table: &Table<'_, '_>, needed: bool) -> Option<Rate> {
    if table.has("rate") && table.has("trace") {
        table.complain(
            reader,
            "trace",
            "a link cannot have both a rate and a trace: remove one of the keys",
        );
    }
    let Some(name) = table.read(reader, "trace", text) else {
        if needed && !table.has("rate") && !table.has("trace") {
            table.complain(reader, "rate", "this key is missing: set `rate` or `trace`");
        }
        return table.read(reader, "rate", rate).map(Rate::BitsPerSecond);
    };
    match reader.trace(&name) {
        Ok(trace) => Some(Rate::Trace(trace)),
        Err(message) => {
            table.complain(reader, "trace", message);
            None
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn loss(reader: &mut Reader, table: &Table<'_, '_>, wire: &mut Wire) {
    if !matches!(table.get("loss").map(|value| value.get_ref()), Some(DeValue::Table(_))) {
        set(&mut wire.drop, table.read(reader, "loss", percent).map(Chance::percent));
        return;
    }
    let Some(loss) = table.inner(reader, "loss", &LOSS) else { return };
    wire.drop = Chance::default();
    wire.drop_list = loss.read(reader, "packets", numbers).unwrap_or_default();
    let bits = loss.read(reader, "bit_error_rate", probability);
    let mut chance = |key, usual| loss.read(reader, key, probability).unwrap_or(usual);
    let model = GilbertElliott {
        to_bad: chance("to_bad", 0.0),
        to_good: chance("to_good", 0.0),
        loss_bad: chance("loss_bad", 1.0),
        loss_good: chance("loss_good", 0.0),
    };
    let bursts =
        ["to_bad", "to_good", "loss_bad", "loss_good"].into_iter().any(|key| loss.has(key));
    wire.loss = match (bits, bursts) {
        (Some(_), true) => {
            loss.complain(
                reader,
                "bit_error_rate",
                "a link cannot have both bit errors and Gilbert-Elliott loss: remove one of them",
            );
            Loss::None
        }
        (Some(rate), false) => Loss::BitErrors(rate),
        (None, true) => Loss::GilbertElliott(model),
        (None, false) => Loss::None,
    };
}

fn limit(value: &DeValue<'_>) -> Result<Limit, String> {
    let wrong = "a limit is written as \"100 packets\" or \"30 KB\"";
    let text = text(value).map_err(|_| wrong.to_owned())?;
    match quantity::packets(&text) {
        Some(packets) => packets.map(Limit::Packets),
        // The text does not end with `packets`, so it was meant as a size in bytes. The reported
        // mistake is therefore that of the size.
        None => quantity::bytes(&text).map(Limit::Bytes).map_err(|error| {
            if error.contains("too much") || error.contains("whole number") {
                error
            } else {
                wrong.to_owned()
            }
        }),
    }
}

#[derive(Clone, Copy)]
enum Kind {
    DropTail,
    Red,
    CoDel,
    FqCoDel,
}

/// Keys that are permitted only for some kinds of queues.
const OF_KINDS: [(&str, &[&str]); 10] = [
    ("ecn", &["red", "codel", "fq-codel"]),
    ("min_threshold", &["red"]),
    ("max_threshold", &["red"]),
    ("weight", &["red"]),
    ("max_probability", &["red"]),
    ("gentle", &["red"]),
    ("target", &["codel", "fq-codel"]),
    ("interval", &["codel", "fq-codel"]),
    ("flows", &["fq-codel"]),
    ("quantum", &["fq-codel"]),
];

fn queue(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Queue> {
    if !matches!(table.get("queue")?.get_ref(), DeValue::Table(_)) {
        return table.read(reader, "queue", limit).map(Queue::DropTail);
    }
    let queue = table.inner(reader, "queue", &QUEUE)?;
    let kinds = [
        ("drop-tail", Kind::DropTail),
        ("red", Kind::Red),
        ("codel", Kind::CoDel),
        ("fq-codel", Kind::FqCoDel),
    ];
    if !queue.has("kind") {
        queue.complain(reader, "kind", "this key is missing");
    }
    let kind = queue.choice(reader, "kind", &kinds)?;
    let name = kinds[kind as usize].0;
    for (key, of) in OF_KINDS {
        if queue.has(key) && !of.contains(&name) {
            queue.complain(
                reader,
                key,
                format!("this is a key of {}, not of {name}", of.join(" and ")),
            );
        }
    }
    let most = queue.read(reader, "limit", limit);
    let ecn = queue.read(reader, "ecn", boolean);
    Some(match kind {
        Kind::DropTail => Queue::DropTail(most.unwrap_or(Queue::default().limit())),
        Kind::Red => {
            let mut red = Red::default();
            set(&mut red.limit, most);
            set(&mut red.ecn, ecn);
            set(&mut red.min_threshold, queue.read(reader, "min_threshold", number));
            set(&mut red.max_threshold, queue.read(reader, "max_threshold", number));
            set(&mut red.weight, queue.read(reader, "weight", number));
            set(&mut red.max_probability, queue.read(reader, "max_probability", probability));
            set(&mut red.gentle, queue.read(reader, "gentle", boolean));
            Queue::Red(red)
        }
        Kind::CoDel => {
            let mut codel = control(reader, &queue, CoDel::default());
            set(&mut codel.limit, most);
            set(&mut codel.ecn, ecn);
            Queue::CoDel(codel)
        }
        Kind::FqCoDel => {
            let mut fq = FqCoDel::default();
            fq.codel = control(reader, &queue, fq.codel);
            set(&mut fq.limit, most);
            set(&mut fq.codel.ecn, ecn);
            let small = |read: Option<u64>| read.and_then(|read| u32::try_from(read).ok());
            set(&mut fq.flows, small(queue.whole(reader, "flows")));
            set(&mut fq.quantum, small(queue.whole(reader, "quantum")));
            Queue::FqCoDel(fq)
        }
    })
}

fn control(reader: &mut Reader, queue: &Table<'_, '_>, mut codel: CoDel) -> CoDel {
    set(&mut codel.target, queue.read(reader, "target", duration));
    set(&mut codel.interval, queue.read(reader, "interval", duration));
    codel
}
