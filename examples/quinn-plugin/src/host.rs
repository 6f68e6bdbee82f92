//! Helper functions that a plugin can call when it runs on a path of quinn. Their numbers, names
//! and costs come from the table of `equic-plugin`.

use equic_plugin::{Class, Granted, HelperInfo, Manifest, helpers as table};
use equic_transport::operation::Field;
use equic_vm::{Caller, HelperError, HelperHost, Helpers, Region};

use crate::Path;

/// Size in bytes of the memory for the arguments of a call: up to eight inputs and eight outputs.
pub(crate) const WORDS: u64 = 128;
/// Upper limit of the congestion window in bytes, which a plugin cannot exceed.
const MOST: u64 = 1 << 30;

/// Marker type for programs that run with the helpers of this module.
#[derive(Debug)]
pub(crate) struct Abi;

impl HelperHost for Abi {
    type Data<'h> = Context<'h>;
}

/// State that the helpers can access while a function of the plugin runs.
pub(crate) struct Context<'h> {
    pub(crate) path: &'h mut Path,
    pub(crate) now: u64,
    pub(crate) manifest: &'h Manifest,
    pub(crate) granted: &'h Granted,
    /// True if the function may only observe, so that it must not set fields.
    pub(crate) looks_on: bool,
}

type Call<'c, 'h> = Caller<'c, Context<'h>>;

/// Returns the helpers that can be implemented with quinn. A plugin that calls any other helper
/// cannot be loaded.
pub(crate) fn helpers() -> Helpers<Abi> {
    let mut helpers = Helpers::new();
    for HelperInfo { number, name, cost, .. } in table() {
        let added = match name {
            "equic_get" => helpers.add(number, name, cost, get),
            "equic_set" => helpers.add(number, name, cost, set),
            "equic_now" => {
                let now = |caller: &mut Call<'_, '_>| Ok(caller.data.now);
                helpers.add(number, name, cost, now)
            }
            "equic_log" => helpers.add(number, name, cost, log),
            _ => continue,
        };
        debug_assert!(added.is_ok(), "{name}");
    }
    helpers
}

/// Returns the minimum congestion window in bytes (RFC 9002 s.7.2).
pub(crate) fn least(datagram_size: u64) -> u64 {
    2 * datagram_size
}

fn read(path: &Path, field: Field) -> Option<u64> {
    Some(match field {
        // The plugin is the only controller, so both fields have the same value.
        Field::CongestionWindow | Field::ControllerWindow => path.window,
        Field::SlowStartThreshold => path.threshold,
        Field::DatagramSize => path.datagram_size,
        Field::BytesInFlight => path.in_flight,
        Field::SmoothedRtt => path.smoothed_rtt,
        Field::MinRtt => path.min_rtt,
        Field::LatestRtt => path.latest_rtt,
        _ => return None,
    })
}

/// Returns `true` if quinn reports this field to a controller.
pub(crate) fn can_be_read(field: Field) -> bool {
    let nothing = Path {
        window: 0,
        threshold: 0,
        in_flight: 0,
        datagram_size: 0,
        smoothed_rtt: 0,
        min_rtt: 0,
        latest_rtt: 0,
    };
    read(&nothing, field).is_some()
}

/// Returns `true` if a controller decides this field in quinn.
pub(crate) fn can_be_set(field: Field) -> bool {
    matches!(field, Field::CongestionWindow | Field::SlowStartThreshold)
}

fn get(caller: &mut Call<'_, '_>, number: u64) -> Result<u64, HelperError> {
    let Context { path, manifest, .. } = &caller.data;
    let field = Field::of(number).filter(|field| manifest.reads.contains(field));
    let value = field.and_then(|field| read(path, field));
    value.ok_or_else(|| {
        HelperError::failed(format!("field {number} is not in the `reads` of the manifest"))
    })
}

fn set(caller: &mut Call<'_, '_>, number: u64, value: u64) -> Result<u64, HelperError> {
    let Context { path, manifest, granted, looks_on, .. } = &mut caller.data;
    if *looks_on {
        return Err(HelperError::failed(
            "a function that runs before or after an operation must not set fields",
        ));
    }
    let field = Field::of(number).filter(|field| manifest.sets.contains(field));
    let value = value.max(least(path.datagram_size));
    let raise = granted.has(Class::Raise);
    match field {
        Some(Field::CongestionWindow) => {
            let most = if raise { MOST } else { path.window };
            path.window = value.min(most);
            Ok(path.window)
        }
        Some(Field::SlowStartThreshold) => {
            path.threshold = if raise { value } else { value.min(path.threshold) };
            Ok(path.threshold)
        }
        _ => {
            Err(HelperError::failed(format!("field {number} is not in the `sets` of the manifest")))
        }
    }
}

/// Logs a message of the plugin, for its developer.
fn log(caller: &mut Call<'_, '_>, text: Region, value: u64) -> Result<u64, HelperError> {
    caller.charge(text.len / 8)?;
    let text = caller.memory.read(text)?;
    let text = String::from_utf8_lossy(&text[..text.len().min(256)]);
    tracing::debug!(value, text = %text.escape_debug(), "message of a plugin");
    Ok(0)
}
