//! Errors of the gateway. Each message says what failed, why, and what to do about it.

use std::io;

use crate::config::ConfigError;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason that an operation on a gateway failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused the operation because the process lacks a capability.
    #[error("{doing} is not permitted{}: run as root (sudo), or give the command {needs}", missing(.lacking))]
    NotPermitted {
        /// The operation that was tried, as text.
        doing: String,
        /// The capabilities that the operation needs.
        needs: &'static str,
        /// The capabilities that this process lacks. Empty if it could not find out.
        lacking: Vec<&'static str>,
    },
    /// This network namespace has no interface with this name.
    #[error("there is no network interface `{name}` in this network namespace{}: `ip link` lists the interfaces", did_you_mean(.similar))]
    NoSuchInterface {
        /// The name as the caller gave it.
        name: String,
        /// Interfaces with similar names.
        similar: Vec<String>,
    },
    /// Another XDP program is attached to the interface. It was not replaced.
    #[error("interface `{interface}` already has an XDP program{}: {}", program(.program_id, .program_name), ways_out(.program_name, .interface))]
    InterfaceBusy {
        /// The interface's name.
        interface: String,
        /// ID of the XDP program on the interface, if the kernel reports it.
        program_id: Option<u32>,
        /// Name of the XDP program on the interface, if the kernel reports it.
        program_name: Option<String>,
    },
    /// This gateway is already attached to the interface.
    #[error("this gateway is already attached to `{interface}`")]
    AlreadyAttached {
        /// The interface's name.
        interface: String,
    },
    /// This gateway is not attached to the interface.
    #[error("this gateway is not attached to `{interface}`")]
    NotAttached {
        /// The interface's name.
        interface: String,
    },
    /// The driver cannot run the XDP program, and the caller asked for native mode.
    #[error(
        "the driver of `{interface}` refuses the XDP program in native mode ({source}): use the mode `generic` or `auto`"
    )]
    NativeRefused {
        /// The interface's name.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The XDP program cannot parse the packets of the interface.
    #[error("cannot protect `{interface}`: {why}")]
    LinkRefused {
        /// The interface's name.
        interface: String,
        /// Says what the XDP program cannot parse, and what to do.
        why: String,
    },
    /// The kernel lacks a feature that the XDP program uses.
    #[error("this kernel ({running}) has no {feature}: the gateway needs Linux {needs} or newer")]
    KernelTooOld {
        /// The feature that is missing.
        feature: &'static str,
        /// The first kernel version that has the feature.
        needs: &'static str,
        /// The version of the running kernel.
        running: String,
    },
    /// The object file does not contain the gateway's XDP program.
    #[error("{object} is not the gateway's program: {why}")]
    BadObject {
        /// Path of the object file, or "the embedded object".
        object: String,
        /// Says what is wrong with the object.
        why: String,
    },
    /// The XDP program and this library were built from different versions of `abi.h`.
    #[error(
        "{what} uses version {found} of the gateway's interface, but this library uses version {expected}: use the command and the library of the gateway's release"
    )]
    AbiVersion {
        /// The object file or the running program that has the other version.
        what: String,
        /// The version of `abi.h` of that file or program.
        found: u32,
        /// The version of `abi.h` of this library.
        expected: u32,
    },
    /// The kernel's verifier rejected the XDP program.
    #[error("the kernel's verifier rejected the program: {line}")]
    Verifier {
        /// The last line of the verifier's log that says something about the error.
        line: String,
        /// The whole log of the verifier.
        log: String,
    },
    /// No gateway is running on this machine.
    #[error("no gateway is running: start one with `equic gateway run -i INTERFACE -p PORT`")]
    NoGateway,
    /// Gateways are running, but only in other network namespaces.
    #[error(
        "no gateway runs in this network namespace. In other namespaces run: {}. Choose one with `--gateway NAME`, or run this command in the gateway's namespace (`nsenter --net=/run/netns/NAME`)", .elsewhere.join(", ")
    )]
    NoGatewayHere {
        /// The gateways in other network namespaces.
        elsewhere: Vec<String>,
    },
    /// Gateways are running, but none matches the selector.
    #[error("no gateway matches `{selector}`; these gateways are running: {}", .running.join(", "))]
    NoSuchGateway {
        /// The selector as the caller gave it: an interface, a name, or a program ID.
        selector: String,
        /// The running gateways.
        running: Vec<String>,
    },
    /// Several gateways match, and the caller did not choose one of them.
    #[error("several gateways match; choose one by interface, name or program id: {}", .running.join(", "))]
    ManyGateways {
        /// The running gateways.
        running: Vec<String>,
    },
    /// A change failed half way, and undoing its first part failed, too.
    #[error(
        "{error}. A part of the change stays in force, because it could not be undone ({undo}): restart the gateway, or reload a valid configuration"
    )]
    NotUndone {
        /// The error that stopped the change half way.
        error: Box<Error>,
        /// The error that prevented undoing the change.
        undo: Box<Error>,
    },
    /// No process listens at the path of the gateway's socket.
    #[error(
        "no gateway listens at `{0}` ({source}): start one with `equic gateway run --socket {0}`", .path.display()
    )]
    NoGatewaySocket {
        /// The path.
        path: std::path::PathBuf,
        /// The system's error when connecting.
        source: io::Error,
    },
    /// A gateway listens at the path, but refused this server.
    #[error("the gateway at `{}` refuses this server: {reason}", .path.display())]
    SocketRefused {
        /// The path.
        path: std::path::PathBuf,
        /// The reason that the gateway gave for its refusal.
        reason: String,
        /// True if another attempt may succeed later, because the gateway is busy.
        busy: bool,
    },
    /// A file that is not a gateway's socket is at the path, so the gateway cannot listen there.
    #[error("cannot listen at `{}`: {why}", .path.display())]
    SocketTaken {
        /// The path.
        path: std::path::PathBuf,
        /// Says what is at the path.
        why: String,
    },
    /// This machine has no user or group with this name.
    #[error("there is no {what} `{name}` on this machine: give a name from `getent {database}`, or a number", database = if *.what == "user" { "passwd" } else { "group" })]
    NoSuchUser {
        /// `user` or `group`.
        what: &'static str,
        /// The name as the caller gave it.
        name: String,
    },
    /// The directory cannot be used for pinning, or something that is not a gateway is pinned in
    /// it.
    #[error("cannot pin at `{}`: {why}", .path.display())]
    Pin {
        /// The directory.
        path: std::path::PathBuf,
        /// Says what is wrong, and what to do.
        why: String,
    },
    /// The gateway that is pinned in the directory has another value of a setting that cannot
    /// change while a gateway runs.
    #[error(
        "the gateway pinned at `{0}` cannot continue with this configuration: {why}. Change these settings back, or run `equic gateway detach --pin {0}` and start the gateway again", .path.display()
    )]
    PinMismatch {
        /// The directory.
        path: std::path::PathBuf,
        /// Names the setting, its old value and its new value.
        why: String,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The gateway has no service with this name or number.
    #[error("the gateway has no service `{name}`{}; its services are {}", did_you_mean(.similar), .known.join(", "))]
    NoSuchService {
        /// The name or number as the caller gave it.
        name: String,
        /// Similar names.
        similar: Vec<String>,
        /// The names of all services.
        known: Vec<String>,
    },
    /// All slots for servers' ledgers are in use.
    #[error(
        "all {slots} server slots of this gateway are in use: end a server (`equic gateway status` lists the servers)"
    )]
    NoFreeLedger {
        /// Number of slots for servers.
        slots: u32,
    },
    /// The deny and allow lists of the address family are full.
    #[error(
        "the deny and allow lists are full ({entries} IPv{family} entries): remove entries, or start the gateway with a larger `acl_entries`"
    )]
    ListFull {
        /// The address family: 4 or 6.
        family: u8,
        /// The capacity of the lists, in entries.
        entries: u32,
    },
    /// There are more entries than the deny and allow lists of the address family can hold. Nothing
    /// was changed.
    #[error(
        "the deny and allow lists have room for {entries} IPv{family} entries, but {needed} are needed: start the gateway with `acl_entries` of {needed} or more"
    )]
    ListTooLong {
        /// The address family: 4 or 6.
        family: u8,
        /// Number of entries that the lists would have.
        needed: u32,
        /// The capacity of the lists, in entries.
        entries: u32,
    },
    /// The configuration has more single listening addresses than the running gateway has room for.
    #[error(
        "the running gateway has room for only {entries} listening addresses: restart the gateway to get room for more"
    )]
    ListenersFull {
        /// Maximum number of single listening addresses.
        entries: u32,
    },
    /// Another process is capturing packets of this gateway.
    #[error(
        "process {pid} is already capturing packets of this gateway: end that process first (if it was killed, wait for two seconds)"
    )]
    CaptureTaken {
        /// ID of the capturing process, in its own pid namespace.
        pid: u32,
    },
    /// The XDP program cannot be run on this frame.
    #[error("a packet of {length} bytes cannot be judged: {why}")]
    BadPacket {
        /// The frame's length in bytes.
        length: usize,
        /// Says what is wrong with the frame.
        why: &'static str,
    },
    /// A map of the running gateway is missing, or differs from its definition in `abi.h`.
    #[error("program {program} is not a gateway that this library can use: {why}")]
    ForeignProgram {
        /// The program's id.
        program: u32,
        /// Says what is missing, or what differs.
        why: String,
    },
    /// Any other error of the system.
    #[error("{doing} failed: {source}{}", advice(.source))]
    System {
        /// The operation that was tried, as text.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// Returns the error for the current `errno`. `doing` names the operation.
    pub(crate) fn last_os(doing: impl Into<String>) -> Error {
        Error::system(doing, io::Error::last_os_error())
    }

    /// Returns the error for an unknown service. `known` lists the names of all services.
    pub(crate) fn no_such_service(name: &str, known: Vec<String>) -> Error {
        let similar = similar(name, known.iter().map(String::as_str));
        Error::NoSuchService { name: name.to_owned(), similar, known }
    }

    /// Returns an error of the system. Permission errors become [`Error::NotPermitted`].
    pub(crate) fn system(doing: impl Into<String>, source: io::Error) -> Error {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Error::not_permitted(doing),
            _ => Error::System { doing: doing.into(), source },
        }
    }

    fn not_permitted(doing: impl Into<String>) -> Error {
        Error::NotPermitted {
            doing: doing.into(),
            needs: "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (CAP_SYS_ADMIN for another process's gateway)",
            lacking: crate::sys::lacking_capabilities(),
        }
    }

    /// Returns true if the configuration or a file that it names is wrong, so that another attempt
    /// would fail, too, until somebody corrects it.
    pub fn is_wrong_configuration(&self) -> bool {
        match self {
            Error::Config(error) => error.is_permanent(),
            Error::NoSuchUser { .. } => true,
            _ => false,
        }
    }

    /// Returns the `errno` behind the error, if the error has one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::System { source, .. } | Error::NativeRefused { source, .. } => {
                source.raw_os_error()
            }
            Error::NotPermitted { .. } => Some(libc::EPERM),
            Error::NoSuchInterface { .. } => Some(libc::ENODEV),
            Error::InterfaceBusy { .. } | Error::AlreadyAttached { .. } => Some(libc::EBUSY),
            _ => None,
        }
    }
}

/// Returns advice for errors of the system whose remedy is the same for every operation.
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            ". This process has reached its limit of open files: raise the limit (`ulimit -n`, or `LimitNOFILE=` in a \
             systemd unit)"
        }
        Some(libc::ENFILE) => {
            ". The machine has reached its limit of open files: end processes that leak them, or raise the sysctl \
             `fs.file-max`"
        }
        _ => "",
    }
}

/// Returns true if the error means that no file descriptor is free.
pub(crate) fn no_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns the first system error in a chain of errors, if there is one.
pub(crate) fn system_error(error: &(dyn std::error::Error + 'static)) -> Option<io::Error> {
    let mut next = Some(error);
    while let Some(one) = next {
        let own = one.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if let Some(number) = own {
            return Some(io::Error::from_raw_os_error(number));
        }
        next = one.source();
    }
    None
}

fn missing(lacking: &[&str]) -> String {
    if lacking.is_empty() { String::new() } else { format!(" (no {})", lacking.join(", no ")) }
}

pub(crate) fn did_you_mean(similar: &[String]) -> String {
    match similar {
        [] => String::new(),
        some => format!(" (did you mean {}?)", some.join(" or ")),
    }
}

fn program(id: &Option<u32>, name: &Option<String>) -> String {
    match (id, name) {
        (Some(id), Some(name)) => format!(" (`{name}`, id {id})"),
        (Some(id), None) => format!(" (id {id})"),
        _ => String::new(),
    }
}

/// Returns advice on how to attach the gateway to an interface on which the XDP program `name` is
/// already attached.
fn ways_out(name: &Option<String>, interface: &str) -> String {
    let stop = match name.as_deref() {
        Some("xdp_dispatcher") => {
            return format!(
                "the program is libxdp's dispatcher, which calls other XDP programs (`xdp-loader status {interface}` lists them) but cannot call the gateway. Detach all of them with `xdp-loader unload {interface} --all`, and move their packet processing behind the gateway, to tc or nftables"
            );
        }
        Some(crate::PROGRAM_NAME) => {
            format!(" (`equic gateway detach --gateway {interface}` detaches it)")
        }
        _ => String::new(),
    };
    format!(
        "stop its owner first{stop}; `equic gateway run -o gateway.wait=true` attaches as soon as the program is gone"
    )
}

/// Returns the names that are most similar to `wanted`, best first, at most three.
pub(crate) fn similar<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let mut near: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| {
            let (lower, name) = (name.to_lowercase(), name);
            let close = strsim::osa_distance(&wanted, &lower) <= 1;
            (strsim::jaro_winkler(&wanted, &lower), close, name)
        })
        .filter(|(score, close, _)| *score > 0.8 || *close)
        .map(|(score, _, name)| (score, name))
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_busy_error_names_the_program_and_the_remedy() {
        let busy = |name: &str| Error::InterfaceBusy {
            interface: "eth0".to_owned(),
            program_id: Some(42),
            program_name: Some(name.to_owned()),
        };
        let said = busy("somebody_elses").to_string();
        assert_eq!(
            said,
            "interface `eth0` already has an XDP program (`somebody_elses`, id 42): stop its owner first; \
             `equic gateway run -o gateway.wait=true` attaches as soon as the program is gone"
        );
        let said = busy(crate::PROGRAM_NAME).to_string();
        assert!(said.contains("`equic gateway detach --gateway eth0`"), "{said}");
        let said = busy("xdp_dispatcher").to_string();
        assert!(
            said.contains("(`xdp_dispatcher`, id 42): the program is libxdp's dispatcher"),
            "{said}"
        );
        assert!(said.contains("`xdp-loader unload eth0 --all`"), "{said}");
    }
}
