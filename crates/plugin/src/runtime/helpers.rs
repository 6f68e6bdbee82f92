//! Helpers, which are functions of the host that bytecode may call. A plugin only has the helpers
//! that its classes permit, so bytecode that calls another helper does not load. If a plugin
//! accesses a field that its manifest does not declare, the call ends and the plugin is detached.

use equic_transport::operation::{Denied, Field, ProvidedCall};
use equic_vm::{Caller, HelperError, Helpers, Region};

use super::abi::{Abi, HELPERS, field};
use super::trace::printable;
use super::view::{Context, Given};
use crate::class::{Class, class_of_setting};
use crate::manifest::{MAX_WORDS, Manifest};
use crate::policy::Granted;

/// Steps charged for each object of the connection, such as a stream, that a helper has to search
/// through.
const PART: u64 = 50;

/// Steps charged for each plugin that is searched when a plugin calls an operation of another
/// plugin.
const ASKED: u64 = 200;

/// Maximum length of a line in a plugin's log, in bytes. The rest of the line is cut off.
const MAX_LINE: u64 = 256;

/// Returns the helpers that a plugin may call.
pub(super) fn table(manifest: &Manifest, granted: &Granted) -> Helpers<Abi> {
    let mut helpers = Helpers::new();
    for helper in HELPERS {
        let declared = match helper.name {
            "equic_get" | "equic_get_of" => !manifest.reads.is_empty(),
            "equic_set" => !manifest.sets.is_empty(),
            "equic_call" => !manifest.calls.is_empty(),
            _ => true,
        };
        if !declared || helper.class.is_some_and(|class| !granted.has(class)) {
            continue;
        }
        let (number, name, cost) = (helper.number, helper.name, helper.cost);
        let added = match name {
            "equic_get" => helpers.add(number, name, cost, get),
            "equic_get_of" => helpers.add(number, name, cost, get_of),
            "equic_set" => helpers.add(number, name, cost, set),
            "equic_now" => helpers.add(number, name, cost, now),
            "equic_log" => helpers.add(number, name, cost, log),
            "equic_tell" => helpers.add(number, name, cost, tell),
            "equic_set_timer" => helpers.add(number, name, cost, set_timer),
            "equic_queue_frame" => helpers.add(number, name, cost, queue_frame),
            "equic_process_payload" => helpers.add(number, name, cost, process_payload),
            "equic_call" => helpers.add(number, name, cost, call),
            "equic_call_default" => helpers.add(number, name, cost, call_default),
            _ => unreachable!("a test checks that the table has every helper"),
        };
        debug_assert!(added.is_ok(), "{name}");
    }
    helpers
}

type Call<'c, 'h> = Caller<'c, Context<'h>>;

fn known(number: u64) -> Result<Field, HelperError> {
    field(number).ok_or_else(|| HelperError::failed(format!("there is no field {number}")))
}

/// Returns the field with this number, if the plugin may read it.
fn readable(caller: &Call<'_, '_>, number: u64) -> Result<Field, HelperError> {
    let field = known(number)?;
    if !caller.data.rights.may_read(field) {
        return Err(HelperError::failed(format!("{field:?} is not in the manifest's `reads`")));
    }
    Ok(field)
}

/// Charges steps for reading a field that requires a search, for example through all streams. The
/// helper's own cost already includes one searched object.
fn charge_parts(caller: &mut Call<'_, '_>, field: Field) -> Result<(), HelperError> {
    if matches!(field, Field::ApplicationWaits | Field::NextPath) {
        let others = caller.data.connection().parts_of(field).saturating_sub(1);
        caller.charge(others.saturating_mul(PART))?;
    }
    Ok(())
}

fn get(caller: &mut Call<'_, '_>, number: u64) -> Result<u64, HelperError> {
    let field = readable(caller, number)?;
    charge_parts(caller, field)?;
    Ok(caller.data.connection().get(field))
}

/// Reads a field of one path or of one stream.
fn get_of(caller: &mut Call<'_, '_>, number: u64, part: u64) -> Result<u64, HelperError> {
    let field = readable(caller, number)?;
    charge_parts(caller, field)?;
    Ok(caller.data.connection().get_of(field, part).unwrap_or(u64::MAX))
}

fn set(caller: &mut Call<'_, '_>, number: u64, value: u64) -> Result<u64, HelperError> {
    let field = known(number)?;
    let data = &mut *caller.data;
    if !data.rights.may_set(field) {
        return Err(HelperError::failed(format!("{field:?} is not in the manifest's `sets`")));
    }
    let class = class_of_setting(field).unwrap_or(Class::Never);
    if !data.rights.has(class) {
        return Err(HelperError::failed(format!("setting {field:?} needs the class `{class}`")));
    }
    let value = match field {
        // A plugin without the class `raise` can only lower the window.
        Field::CongestionWindow if !data.rights.has(Class::Raise) => {
            value.min(data.connection().get(Field::ControllerWindow))
        }
        Field::SlowStartThreshold if !data.rights.has(Class::Raise) => {
            value.min(data.connection().get(field))
        }
        _ => value,
    };
    let connection = data.change()?;
    match connection.set(field, value) {
        Ok(()) => Ok(connection.get(field)),
        Err(denied) => Err(HelperError::failed(denied.to_string())),
    }
}

fn now(caller: &mut Call<'_, '_>) -> Result<u64, HelperError> {
    Ok(caller.data.connection().now())
}

fn log(caller: &mut Call<'_, '_>, text: Region, value: u64) -> Result<u64, HelperError> {
    caller.charge(text.len / 8)?;
    let kept = Region::new(text.offset, text.len.min(MAX_LINE));
    caller.memory.read(text)?;
    if caller.data.trace.is_some() {
        let line = String::from_utf8_lossy(caller.memory.read(kept)?);
        let line = printable(line.trim_end_matches('\0'), MAX_LINE as usize);
        if let Some(trace) = caller.data.trace.as_deref_mut() {
            trace.on_log(&line, value);
        }
    }
    Ok(0)
}

/// Sends a plugin's message to the application. Returns 1, or 0 if too many messages are waiting.
fn tell(caller: &mut Call<'_, '_>, message: Region) -> Result<u64, HelperError> {
    // The charge is for the memory that holds the message until the application reads it.
    caller.charge(message.len / 4)?;
    let message = caller.memory.read(message)?;
    match caller.data.tell(message) {
        Ok(()) => Ok(1),
        Err(Denied::Full) => Ok(0),
        Err(denied) => Err(HelperError::failed(denied.to_string())),
    }
}

fn set_timer(caller: &mut Call<'_, '_>, at: u64) -> Result<u64, HelperError> {
    caller.data.change()?.set_timer((at != u64::MAX).then_some(at));
    Ok(0)
}

/// Queues a frame that the plugin will write later. Returns 1, or 0 if too many frames of the
/// plugin are queued.
fn queue_frame(caller: &mut Call<'_, '_>, frame: u64, token: u64) -> Result<u64, HelperError> {
    let denied = || HelperError::failed(Denied::FrameType.to_string());
    let frame = caller.data.on_the_wire(frame).ok_or_else(denied)?;
    let now = caller.data.connection().now();
    if caller.data.allowance.is_some_and(|allowance| !allowance.queue_frame(now)) {
        return Ok(0);
    }
    match caller.data.change()?.queue_frame(frame, token) {
        Ok(()) => Ok(1),
        Err(Denied::Full) => Ok(0),
        Err(denied) => Err(HelperError::failed(denied.to_string())),
    }
}

/// Makes the connection process a packet's payload that the plugin has recovered, as if the lost
/// packet had arrived. Returns 1, or 0 if too many requests are waiting.
fn process_payload(
    caller: &mut Call<'_, '_>,
    number: u64,
    payload: Region,
) -> Result<u64, HelperError> {
    caller.charge(payload.len / 8)?;
    let payload = caller.memory.read(payload)?;
    match caller.data.change()?.process_payload(number, payload) {
        Ok(()) => Ok(1),
        Err(Denied::TooMany) => Ok(0),
        Err(denied) => Err(HelperError::failed(denied.to_string())),
    }
}

/// Calls an operation that another plugin provides. Returns 1 if that plugin answered, otherwise 0.
fn call(caller: &mut Call<'_, '_>, at: u64, words: Region) -> Result<u64, HelperError> {
    let calls = &caller.data.rights.calls;
    let wanted = usize::try_from(at).ok().and_then(|at| calls.get(at)).ok_or_else(|| {
        HelperError::failed(format!(
            "the call number {at} is out of range: the manifest has {} `calls`",
            calls.len()
        ))
    })?;
    let length = 8 * (wanted.inputs + wanted.outputs) as u64;
    if words.len != length {
        let what = format!("{} takes {length} bytes of words, not {}", wanted.operation, words.len);
        return Err(HelperError::failed(what));
    }
    // The memory region is checked before the call, because the outputs will be written there.
    caller.memory.read(words)?;
    let (mut inputs, mut outputs) = ([0; MAX_WORDS], [0; MAX_WORDS]);
    let (inputs, outputs) = (&mut inputs[..wanted.inputs], &mut outputs[..wanted.outputs]);
    for (word, at) in inputs.iter_mut().zip((words.offset..).step_by(8)) {
        *word = caller.memory.read_u64(at)?;
    }
    let asked = caller.data.callable();
    caller.charge(asked.saturating_mul(ASKED))?;
    let budget = caller.budget();
    let made = ProvidedCall { name: &wanted.operation, inputs, budget };
    let used = caller.data.call(&made, outputs);
    let from = words.offset + 8 * wanted.inputs as u64;
    for (word, at) in outputs.iter().zip((from..).step_by(8)) {
        caller.memory.write_u64(at, *word)?;
    }
    let units = used.unwrap_or(0);
    caller.data.used_by_others = caller.data.used_by_others.saturating_add(units);
    caller.charge(units)?;
    Ok(used.is_some().into())
}

/// Writes the default implementation's answer to the outputs again, as the function found it when
/// it was called. The default ran before the function. It cannot run now, because the connection is
/// borrowed, and the default may call operations of this plugin.
fn call_default(caller: &mut Call<'_, '_>) -> Result<u64, HelperError> {
    let Given { outputs, at } = caller.data.given;
    for (word, at) in outputs.iter().zip((at..).step_by(8)) {
        caller.memory.write_u64(at, *word)?;
    }
    Ok(outputs.first().copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A plugin with every class must get every helper. A plugin with only the class `tune` must
    /// get none of the helpers in the last list.
    #[test]
    fn helper_is_provided_if_the_class_permits_it() {
        let manifest = |more: &str| {
            let text = format!(
                "code = \"sha256:{}\"\nname = \"x\"\nversion = \"1.0.0\"\nauthor = \"x\"\nabi = 2\nsteps = 1\n{more}
                 [[operations]]\noperation = \"AckPolicy\"\nanchor = \"replace\"\nfunction = \"f\"",
                "0".repeat(64)
            );
            Manifest::parse(text.as_bytes()).unwrap()
        };
        let all =
            "capabilities = [\"observe\", \"tune\", \"frames\", \"raise\", \"choose\", \"payload\"]
            reads = [\"MinRtt\"]\nsets = [\"SmoothedRtt\"]
            [[calls]]\noperation = \"other.one\"\ninputs = 1\noutputs = 1";
        let made = |more: &str| {
            let manifest = manifest(more);
            let granted = Granted::of(manifest.capabilities.iter().copied());
            format!("{:?}", table(&manifest, &granted))
        };
        let (everything, nothing) = (made(all), made("capabilities = [\"tune\"]"));
        let numbers: BTreeSet<u32> = HELPERS.iter().map(|helper| helper.number).collect();
        assert_eq!(numbers.len(), HELPERS.len());
        for helper in HELPERS {
            assert!(everything.contains(helper.name), "{}", helper.name);
        }
        for name in [
            "equic_get",
            "equic_get_of",
            "equic_set",
            "equic_queue_frame",
            "equic_process_payload",
            "equic_call",
        ] {
            assert!(!nothing.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
