//! Reads the application of a flow: the key `application`, and the table whose name is the
//! application's.

use std::time::Duration;

use equic_sim::{
    Application, Call, LEAST_MESSAGE, MAX_UNITS, Object, Page, Requests, Streams, Video,
};

use super::table::{Reader, Table, bytes, duration, name, names, rate};
use crate::keys::{CALL, OBJECT, PAGE, REQUESTS, STREAMS, Section, VIDEO};
use crate::problem::instead;

/// Largest number of objects of a page.
const MAX_OBJECTS: usize = 10_000;

/// Largest size of a request or a response, in bytes. A larger one would never complete.
const MAX_BYTES: u64 = 1 << 50;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bulk,
    Requests,
    Streams,
    Page,
    Video,
    Call,
}

const KINDS: [(&str, Kind); 6] = [
    ("bulk", Kind::Bulk),
    ("requests", Kind::Requests),
    ("streams", Kind::Streams),
    ("page", Kind::Page),
    ("video", Kind::Video),
    ("call", Kind::Call),
];

/// Returns the application of a flow. Returns `None` for a single transfer, or after it has
/// recorded a mistake.
pub(super) fn application(reader: &mut Reader, flow: &Table<'_, '_>) -> Option<Application> {
    let kind = flow.choice(reader, "application", &KINDS).unwrap_or(Kind::Bulk);
    for (key, of) in &KINDS[1..] {
        if flow.has(key) && *of != kind {
            let named = if flow.has("application") { KINDS[kind as usize].0 } else { "bulk" };
            let message = format!(
                "this table has no effect, because this flow's application is {named}: write application = \"{key}\""
            );
            flow.complain(reader, key, message);
        }
    }
    if kind == Kind::Bulk {
        return None;
    }
    if flow.has("size") {
        flow.complain(
            reader,
            "size",
            "only the application `bulk` has this key: set the size in the table of the application",
        );
    }
    let (key, section): (&'static str, &'static Section) = match kind {
        Kind::Bulk => return None,
        Kind::Requests => ("requests", &REQUESTS),
        Kind::Streams => ("streams", &STREAMS),
        Kind::Page => ("page", &PAGE),
        Kind::Video => ("video", &VIDEO),
        Kind::Call => ("call", &CALL),
    };
    if !flow.has(key) {
        flow.complain(reader, key, "this table is missing");
    }
    let table = flow.inner(reader, key, section)?;
    match kind {
        Kind::Bulk => None,
        Kind::Requests => requests(reader, &table).map(Application::Requests),
        Kind::Streams => streams(reader, &table).map(Application::Streams),
        Kind::Page => page(reader, &table).map(Application::Page),
        Kind::Video => video(reader, &table).map(Application::Video),
        Kind::Call => call(reader, &table).map(Application::Call),
    }
}

/// Reads a size of at least one byte.
fn some_bytes(value: &toml::de::DeValue<'_>) -> Result<u64, String> {
    let read = bytes(value)?;
    let possible = (1..=MAX_BYTES).contains(&read);
    possible.then_some(read).ok_or_else(|| "the size must be from 1 B to 1 PiB".to_owned())
}

/// Reads a duration above zero.
fn some_time(value: &toml::de::DeValue<'_>) -> Result<Duration, String> {
    let read = duration(value)?;
    (!read.is_zero()).then_some(read).ok_or_else(|| "the time must be above 0 s".to_owned())
}

fn request(reader: &mut Reader, table: &Table<'_, '_>) -> u64 {
    table.read(reader, "request", some_bytes).unwrap_or(500)
}

fn requests(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Requests> {
    let count = table.whole(reader, "count").unwrap_or(100);
    let concurrent = table.whole(reader, "concurrent").unwrap_or(1);
    let think = table.read(reader, "think", duration).unwrap_or_default();
    let request = request(reader, table);
    let response = table.need(reader, "response", some_bytes)?;
    Some(Requests { count, request, response, think, concurrent })
}

fn streams(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Streams> {
    if !table.has("count") {
        table.complain(reader, "count", "this key is missing");
    }
    let count = table.whole(reader, "count");
    let bytes = table.need(reader, "size", some_bytes);
    Some(Streams { count: count?, bytes: bytes? })
}

fn page(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Page> {
    let request = request(reader, table);
    if !table.has("object") {
        table.complain(
            reader,
            "object",
            "a page needs at least one object: write [[flow.page.object]]",
        );
    }
    let tables = table.inners(reader, "object", &OBJECT);
    if tables.is_empty() || tables.len() > MAX_OBJECTS {
        table.complain(reader, "object", format!("a page has from 1 to {MAX_OBJECTS} objects"));
        return None;
    }
    let mut found: Vec<(String, u64)> = Vec::new();
    for object in &tables {
        let called = object.need(reader, "name", name);
        let bytes = object.need(reader, "size", some_bytes);
        let (Some(called), Some(bytes)) = (called, bytes) else { continue };
        if found.iter().any(|(other, _)| *other == called) {
            object.complain(reader, "name", format!("two objects are called {called}"));
        }
        found.push((called, bytes));
    }
    if found.len() < tables.len() {
        return None;
    }
    let known: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let mut after: Vec<Vec<usize>> = Vec::new();
    for object in &tables {
        let mut before = Vec::new();
        for wanted in object.read(reader, "after", names).unwrap_or_default() {
            match known.iter().position(|name| *name == wanted) {
                Some(index) if before.contains(&index) => {
                    object.complain(
                        reader,
                        "after",
                        format!("the object {wanted} is listed twice"),
                    );
                }
                Some(index) => before.push(index),
                None => {
                    let message =
                        format!("there is no object `{wanted}`; {}", instead(&wanted, &known));
                    object.complain(reader, "after", message);
                }
            }
        }
        after.push(before);
    }
    if let Some(stuck) = circle(&after) {
        let message = format!(
            "the object {} waits for itself, because the keys `after` form a cycle",
            known[stuck]
        );
        tables[stuck].complain(reader, "after", message);
    }
    let objects = found.into_iter().zip(after);
    let objects = objects.map(|((name, bytes), after)| Object { name, bytes, after }).collect();
    Some(Page { request, objects })
}

/// Returns an object that would never be requested, because its dependencies form a cycle. Returns
/// `None` if there is no such object.
fn circle(after: &[Vec<usize>]) -> Option<usize> {
    let mut missing: Vec<usize> = after.iter().map(Vec::len).collect();
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); after.len()];
    for (object, before) in after.iter().enumerate() {
        before.iter().for_each(|one| behind[*one].push(object));
    }
    let mut ready: Vec<usize> = (0..after.len()).filter(|one| missing[*one] == 0).collect();
    while let Some(done) = ready.pop() {
        for next in &behind[done] {
            missing[*next] -= 1;
            ready.extend((missing[*next] == 0).then_some(*next));
        }
    }
    missing.iter().position(|missing| *missing > 0)
}

fn video(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Video> {
    let rate = table.need(reader, "rate", rate);
    if rate == Some(0) {
        table.complain(reader, "rate", "the rate of a video must be above 0");
    }
    let length = table.need(reader, "length", some_time);
    let segment = table.read(reader, "segment", some_time).unwrap_or(Duration::from_secs(2));
    let buffer = table.read(reader, "buffer", duration).unwrap_or(Duration::from_secs(4));
    let ahead = table.read(reader, "ahead", duration).unwrap_or(Duration::from_secs(30));
    if ahead < buffer.max(segment) {
        let message = "`ahead` must not be shorter than `segment` or `buffer`";
        let key = if table.has("ahead") { "ahead" } else { "buffer" };
        table.complain(reader, key, message);
    }
    let request = request(reader, table);
    let (rate, length) = (rate?, length?);
    let segments = length.as_nanos().div_ceil(segment.as_nanos());
    if segments > MAX_UNITS.into() {
        table.complain(reader, "length", format!("a video can have at most {MAX_UNITS} segments"));
    }
    let segments = u64::try_from(segments).unwrap_or(MAX_UNITS).min(MAX_UNITS);
    Some(Video { rate, segment, segments, buffer, ahead, request })
}

fn call(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Call> {
    let length = table.need(reader, "length", some_time);
    let every = table.read(reader, "every", some_time).unwrap_or(Duration::from_millis(20));
    let message = table.read(reader, "message", bytes).unwrap_or(160);
    if !(LEAST_MESSAGE.into()..=65_000).contains(&message) {
        let told = format!("a message must have {LEAST_MESSAGE} to 65000 bytes");
        table.complain(reader, "message", told);
    }
    let deadline = table.read(reader, "deadline", some_time);
    let count = length?.as_nanos().div_ceil(every.as_nanos());
    if count > MAX_UNITS.into() {
        table.complain(reader, "length", format!("a call can have at most {MAX_UNITS} messages"));
    }
    Some(Call {
        count: u64::try_from(count).unwrap_or(MAX_UNITS).min(MAX_UNITS),
        message: u32::try_from(message).unwrap_or(LEAST_MESSAGE),
        every,
        deadline: deadline.unwrap_or(Duration::from_millis(150)),
    })
}
