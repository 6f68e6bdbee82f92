//! Tests the public interface of this crate: its front page fits on one screen, and every error
//! type implements `Error`.

use std::error::Error;

use equic_transport::congestion::UnknownAlgorithm;
use equic_transport::operation::{AttachError, Denied, HookError, TellError};
use equic_transport::{
    AcceptError, ClosePathError, CloseReason, ConnectionError, DatagramError, ExportError,
    MigrateError, OpenPathError, SettingError, StartError, StreamError, WriteError,
};

/// Largest number of items on the front page of the crate's documentation. Each item takes a line,
/// and one screen has no more lines.
const ONE_SCREEN: usize = 58;

const ROOT: &str = include_str!("../src/lib.rs");

/// Returns the names that the root of the crate exports.
fn exported() -> Vec<String> {
    let mut names = Vec::new();
    for statement in ROOT.split("\npub use ").skip(1) {
        let (statement, _) = statement.split_once(';').unwrap();
        let list = match statement.split_once('{') {
            Some((_, list)) => list.trim_end_matches('}'),
            None => statement.rsplit("::").next().unwrap(),
        };
        let list = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.extend(list.map(str::to_owned));
    }
    names
}

#[test]
fn facade_fits_one_screen() {
    let modules: Vec<&str> =
        ROOT.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    // The module `null` needs a feature that no released program enables, and `qlog` a feature that
    // all released programs enable.
    assert_eq!(modules, ["congestion", "crypto", "null", "operation", "qlog", "token"]);
    let exported = exported();
    assert!(exported.len() > 30 && exported.iter().any(|name| name == "Connection"));
    let items = modules.len() + exported.len();
    assert!(items <= ONE_SCREEN, "{items} items: {modules:?} {exported:?}");
    let other = ROOT.lines().find(|line| {
        line.starts_with("pub ") && !line.starts_with("pub use ") && !line.starts_with("pub mod ")
    });
    assert_eq!(other, None, "the root defines nothing itself");
}

/// Errors must be `Send`, `Sync` and `'static`, so that a task can return them with `?`.
fn is_error<E: Error + Send + Sync + 'static>() -> &'static str {
    std::any::type_name::<E>().rsplit("::").next().unwrap()
}

#[test]
fn facade_errors_implement_error() {
    let errors = [
        is_error::<AcceptError>(),
        is_error::<ClosePathError>(),
        is_error::<CloseReason>(),
        is_error::<ConnectionError>(),
        is_error::<DatagramError>(),
        is_error::<ExportError>(),
        is_error::<MigrateError>(),
        is_error::<OpenPathError>(),
        is_error::<SettingError>(),
        is_error::<StartError>(),
        is_error::<StreamError>(),
        is_error::<TellError>(),
        is_error::<WriteError>(),
    ];
    for name in exported().iter().filter(|name| name.ends_with("Error")) {
        assert!(errors.contains(&name.as_str()), "{name} is not in the list of this test");
    }
    is_error::<AttachError>();
    is_error::<Denied>();
    is_error::<HookError>();
    is_error::<UnknownAlgorithm>();
}
