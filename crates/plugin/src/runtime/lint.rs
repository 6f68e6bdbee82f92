//! Finds faults in a plugin's code for the plugin's author: uses of helpers, fields and frame types
//! that the manifest does not declare. The host enforces the same rules while the plugin runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use equic_transport::operation::Field;
use equic_vm::{Config, Program};

use super::abi::{HELPERS, field};
use super::helpers;
use crate::bundle::Bundle;
use crate::class::{Class, class_of_setting};
use crate::manifest::{Calls, Manifest};
use crate::policy::Granted;

/// Returns the faults in the code of a bundle, one sentence for each. Returns an empty list if the
/// object cannot be loaded, because loading reports the reason. A field or frame type is checked
/// only if the code passes it as a constant.
pub fn lint(bundle: &Bundle<'_>) -> Vec<String> {
    let manifest = bundle.manifest();
    let mut found = BTreeSet::new();
    let Some(program) = load(bundle, manifest) else { return Vec::new() };
    let attached = manifest.operations.iter().map(|one| &one.function);
    for name in attached.chain(manifest.provides.iter().map(|one| &one.function)) {
        let Some(entry) = program.entry(name) else { continue };
        for (helper, first) in program.helper_calls(entry) {
            if let Some(fault) = fault(manifest, helper, first) {
                found.insert(format!("`{name}` {fault}"));
            }
        }
    }
    found.into_iter().collect()
}

/// Loads the bundle's object with all helpers available, whatever the manifest declares.
fn load(bundle: &Bundle<'_>, manifest: &Manifest) -> Option<Program<super::abi::Abi>> {
    let mut all = manifest.clone();
    (all.reads, all.sets) = (Field::ALL.to_vec(), Field::ALL.to_vec());
    if all.calls.is_empty() {
        all.calls.push(Calls { operation: String::new(), inputs: 0, outputs: 0 });
    }
    let helpers = helpers::table(&all, &Granted::everything());
    let mut config = Config::default();
    config.memory = manifest.memory;
    Program::load(bundle.code(), Arc::new(helpers), &config).ok()
}

/// Returns the fault in a call of a helper, or `None` if the call is correct. `first` is the first
/// argument of the call if it is a constant.
fn fault(manifest: &Manifest, helper: &str, first: Option<u64>) -> Option<String> {
    let needs = HELPERS.iter().find(|one| one.name == helper).and_then(|one| one.class);
    if let Some(class) = needs.filter(|class| !manifest.capabilities.contains(class)) {
        return Some(format!(
            "calls {helper}, which needs the capability `{class}`: add it to `capabilities` in the manifest"
        ));
    }
    match helper {
        "equic_get" | "equic_get_of" => undeclared(first, &manifest.reads, "reads", |_| true),
        "equic_set" => {
            let can_be_set = |field| class_of_setting(field).is_some();
            let fault = undeclared(first, &manifest.sets, "sets", can_be_set);
            let class = first.and_then(field).and_then(class_of_setting);
            fault.or_else(|| not_granted(manifest, class))
        }
        "equic_call" => {
            let number = manifest.calls.len() as u64;
            let place = first.unwrap_or(0);
            (place >= number).then(|| {
                format!("calls operation {place} of `calls` (from 0), but the manifest has only {number}")
            })
        }
        "equic_queue_frame" => {
            let declared = |frame: &u64| manifest.owns(Some(*frame));
            let frame = first.filter(|frame| !declared(frame))?;
            Some(format!(
                "queues frames of type {frame:#x}: add this type as `[[frames]]` to the manifest"
            ))
        }
        _ => None,
    }
}

fn not_granted(manifest: &Manifest, class: Option<Class>) -> Option<String> {
    let class = class.filter(|class| !manifest.capabilities.contains(class))?;
    Some(format!(
        "sets a field that needs the capability `{class}`: add it to `capabilities` in the manifest"
    ))
}

/// Returns a fault if the field does not exist or is not in the manifest's list `key`. If the field
/// is not a constant, returns a fault only if the list is empty.
fn undeclared(
    number: Option<u64>,
    declared: &[Field],
    key: &str,
    allowed: impl Fn(Field) -> bool,
) -> Option<String> {
    let Some(number) = number else {
        let what = || {
            format!(
                "{key} a field that the manifest does not list: add the name of the field to `{key}`"
            )
        };
        return declared.is_empty().then(what);
    };
    match field(number) {
        None => Some(format!("{key} field {number}, which does not exist")),
        Some(field) if !allowed(field) => {
            Some(format!("{key} the field {field:?}, which cannot be set"))
        }
        Some(field) if !declared.contains(&field) => {
            Some(format!("{key} the field {field:?}: add \"{field:?}\" to `{key}` in the manifest"))
        }
        Some(_) => None,
    }
}
