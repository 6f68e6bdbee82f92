//! Checks that every error type of the API implements `Error`.

use std::error::Error;

use equic_quic::operation::{AttachError, Denied, HookError};
use equic_quic::{
    AcceptError, BindError, ClosePathError, ConfigError, ConnectError, ConnectionError,
    DatagramError, ExportError, MigrateError, OpenPathError, PathError, ReadError, ReadToEndError,
    SettingError, StartError, TellError, WriteError,
};

/// The bounds permit that a task returns the error with `?`.
fn is_error<E: Error + Send + Sync + 'static>() -> &'static str {
    std::any::type_name::<E>().rsplit("::").next().unwrap()
}

#[test]
fn error_types_implement_error() {
    let errors = [
        is_error::<AcceptError>(),
        is_error::<BindError>(),
        is_error::<ClosePathError>(),
        is_error::<ConfigError>(),
        is_error::<ConnectError>(),
        is_error::<ConnectionError>(),
        is_error::<DatagramError>(),
        is_error::<ExportError>(),
        is_error::<MigrateError>(),
        is_error::<OpenPathError>(),
        is_error::<PathError>(),
        is_error::<ReadError>(),
        is_error::<ReadToEndError>(),
        is_error::<SettingError>(),
        is_error::<StartError>(),
        is_error::<TellError>(),
        is_error::<WriteError>(),
    ];
    let root = include_str!("../../src/lib.rs");
    let (_, exported) = root.split_once("\npub use ").unwrap();
    let names = exported.split(|char: char| !char.is_alphanumeric());
    let names: Vec<&str> = names.filter(|name| name.ends_with("Error")).collect();
    assert_eq!(names.len(), errors.len(), "{names:?}");
    for name in names {
        assert!(errors.contains(&name), "{name} is not tested here");
    }
    is_error::<AttachError>();
    is_error::<Denied>();
    is_error::<HookError>();
}
