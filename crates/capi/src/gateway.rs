//! Gateways: one that this process loads, or one that another process runs and this one feeds.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ::equic_gateway::{
    Attached, Config, ConnectionIds, Control, Gateway, JoinEvent, Ledger, Mode, ObjectSource,
    SocketHost, TokenKeys,
};
use equic_token::KeyRing;

use crate::arguments::{give, handle, optional_text, text};
use crate::error::{Failure, Result, boundary, boundary_or, c_text, equic_error};
use crate::options::{equic_options, mode, to_config};
use crate::service::equic_service;

/// A gateway: the XDP program, its services, its lists. Made by `equic_gateway_open` and its
/// siblings, ended by `equic_gateway_close`.
pub struct equic_gateway {
    pub(crate) inner: Arc<Inner>,
}

/// The gateway that services refer back to, weakly: closing it detaches it whatever is still held.
pub(crate) struct Inner {
    /// The socket where servers join, if the configuration has one.
    _host: Option<SocketHost>,
    pub(crate) kind: Kind,
    /// Interfaces of the configuration, to attach to if the caller names none.
    interfaces: Vec<String>,
    mode: Mode,
    /// Makers of connection IDs, by the number of the instance.
    ids: Mutex<HashMap<u8, ConnectionIds>>,
}

pub(crate) enum Kind {
    Owned(Box<Gateway>),
    /// With a handle of the gateway the ledger was in when it was asked last.
    Joined(Mutex<Control>, Ledger),
    /// At its socket, where it can be fed and nothing else.
    Connected(Ledger),
}

impl Inner {
    /// Of another process's gateway.
    fn feeding(kind: Kind) -> Inner {
        Inner { _host: None, kind, interfaces: Vec::new(), mode: Mode::Auto, ids: Mutex::default() }
    }

    pub(crate) fn control(&self) -> Result<Control> {
        match &self.kind {
            Kind::Owned(gateway) => Ok(gateway.control().clone()),
            Kind::Joined(control, ledger) => {
                let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(program) = ledger.program_id().filter(|id| *id != control.program_id())
                {
                    // The ledger has moved on to the next gateway.
                    *control = Control::open(Some(&program.to_string()))?;
                }
                Ok(control.clone())
            }
            Kind::Connected(_) => Err(Failure::new(
                equic_error::EQUIC_ERROR_NOT_OWNER,
                "this process feeds the gateway through its socket, which takes no privileges and \
                 gives none: settings, lists and counters are for `equic gateway` and \
                 equic_gateway_join",
            )),
        }
    }

    pub(crate) fn ledger(&self) -> Result<Ledger> {
        match &self.kind {
            Kind::Owned(gateway) => Ok(gateway.ledger()?),
            Kind::Joined(_, ledger) | Kind::Connected(ledger) => Ok(ledger.clone()),
        }
    }

    /// The ring of the gateway's Retry tokens, as it is now.
    pub(crate) fn key_ring(&self) -> Result<KeyRing> {
        match &self.kind {
            Kind::Owned(gateway) => Ok(gateway.control().key_ring()?),
            Kind::Joined(_, ledger) | Kind::Connected(ledger) => {
                ledger.key_ring()?.ok_or_else(no_ring)
            }
        }
    }

    /// What makes the connection IDs of an instance: one for all who ask, so that no ID comes twice.
    pub(crate) fn connection_ids(&self, instance: u8) -> Result<ConnectionIds> {
        let mut all = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ids) = all.get(&instance) {
            return Ok(ids.clone());
        }
        let made = self.ledger()?.connection_ids(instance)?.ok_or_else(no_ring)?;
        all.insert(instance, made.clone());
        Ok(made)
    }

    fn owned(&self) -> Result<&Gateway> {
        match &self.kind {
            Kind::Owned(gateway) => Ok(gateway),
            Kind::Joined(..) | Kind::Connected(_) => Err(Failure::new(
                equic_error::EQUIC_ERROR_NOT_OWNER,
                "this process joined the gateway of another one: only that one attaches and detaches it",
            )),
        }
    }

    fn attached(&self) -> Vec<Attached> {
        self.owned().map(Gateway::attached).unwrap_or_default()
    }
}

fn no_ring() -> Failure {
    Failure::new(
        equic_error::EQUIC_ERROR_NOT_FOUND,
        "this process does not have the gateway's key ring: join with EQUIC_TOKEN_KEYS_TAKE, \
         _TAKE_FOR_IDS or _IDS_ONLY, as a user who may serve all services",
    )
}

/// Loads a gateway.
///
/// # Safety
/// `gateway` is NULL or valid for a write.
unsafe fn open(
    gateway: *mut *mut equic_gateway,
    config: impl FnOnce() -> Result<(Config, ObjectSource)>,
) -> equic_error {
    boundary(|| {
        if gateway.is_null() {
            return Err(Failure::argument("`gateway` is NULL"));
        }
        // SAFETY: not NULL; the caller's promise.
        unsafe { gateway.write(std::ptr::null_mut()) };
        let (config, object) = config()?;
        let loaded = Gateway::load(&config, object)?;
        let socket = config.gateway.socket.is_some();
        let _host =
            socket.then(|| SocketHost::start(loaded.control(), &config, false)).transpose()?;
        let kind = Kind::Owned(Box::new(loaded));
        let (interfaces, mode) = (config.gateway.interfaces, config.gateway.mode);
        let inner = Inner { _host, kind, interfaces, mode, ids: Mutex::default() };
        // SAFETY: as above.
        unsafe { give(gateway, Box::into_raw(Box::new(equic_gateway { inner: Arc::new(inner) }))) };
        Ok(())
    })
}

/// Loads a gateway with one service. Needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, as the two below.
/// Nothing is attached yet: that is `equic_gateway_attach`. On failure *gateway is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_open(
    options: *const equic_options,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    // SAFETY: the contract of the API.
    unsafe { open(gateway, || to_config(options)) }
}

/// Loads a gateway as a configuration says, given as text in the format of `equic gateway run
/// --config` (TOML).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_open_config(
    toml: *const c_char,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    // SAFETY: the contract of the API.
    unsafe { open(gateway, || Ok((Config::parse(text(toml, "toml")?)?, ObjectSource::Embedded))) }
}

/// Loads a gateway as a configuration file says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_open_file(
    path: *const c_char,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    // SAFETY: the contract of the API.
    unsafe {
        open(gateway, || {
            Ok((Config::read(Path::new(text(path, "path")?))?, ObjectSource::Embedded))
        })
    }
}

/// Joins a gateway that another process runs, to feed it: this process counts its own connections,
/// and the quota is over the sum. `selector` is an interface, a gateway's name or a program's id;
/// NULL: the only one there is. `name` is what `equic gateway status` calls this process; NULL: its
/// process id. Needs CAP_SYS_ADMIN to find the gateway; feeding it does not.
///
/// When that gateway ends, the next one is joined by itself, with every connection that is open;
/// services and connections stay valid. It is found by `selector` if that is an interface or a name,
/// else by name and interface of the first one, and with CAP_SYS_ADMIN as that one was: a program
/// that gives it up joins by a socket. `equic_gateway_notify` tells what happened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_join(
    selector: *const c_char,
    name: *const c_char,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    let none = equic_token_keys::EQUIC_TOKEN_KEYS_NONE as c_int;
    // SAFETY: the contract of the API.
    unsafe { equic_gateway_join_checking(selector, name, none, gateway) }
}

/// What a server does about the tokens of a gateway's Retry packets, and its connection IDs.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum equic_token_keys {
    /// It does not check tokens.
    EQUIC_TOKEN_KEYS_NONE = 0,
    /// It takes the gateway's key ring (`equic_gateway_ring`) and checks tokens.
    EQUIC_TOKEN_KEYS_TAKE = 1,
    /// It checks tokens, and has the ring already: from a file.
    EQUIC_TOKEN_KEYS_OWN = 2,
    /// It takes the ring, checks tokens, and makes all its connection IDs with it (`equic_gateway_ids`): the
    /// gateway may check them (check_ids).
    EQUIC_TOKEN_KEYS_TAKE_FOR_IDS = 3,
    /// It takes the ring and makes all its connection IDs with it, and does not check tokens: for QUIC
    /// stacks whose tokens are their own.
    EQUIC_TOKEN_KEYS_IDS_ONLY = 4,
}

/// The number of an `equic_token_keys`.
fn token_keys(number: c_int) -> Result<TokenKeys> {
    use equic_token_keys::*;
    [
        (EQUIC_TOKEN_KEYS_NONE, TokenKeys::None),
        (EQUIC_TOKEN_KEYS_TAKE, TokenKeys::Take),
        (EQUIC_TOKEN_KEYS_OWN, TokenKeys::Own),
        (EQUIC_TOKEN_KEYS_TAKE_FOR_IDS, TokenKeys::TakeForIds),
        (EQUIC_TOKEN_KEYS_IDS_ONLY, TokenKeys::IdsOnly),
    ]
    .into_iter()
    .find(|(code, _)| *code as c_int == number)
    .map(|(_, keys)| keys)
    .ok_or_else(|| Failure::argument(format!("no enum equic_token_keys has the number {number}")))
}

/// As `equic_gateway_join`, for a server that checks the tokens of the gateway's Retry packets with
/// `equic_retry_verify`, or makes its connection IDs with `equic_gateway_ids`: `keys` is an enum
/// equic_token_keys. The gateway refuses to be set to Retry, or to check_ids, while a server has not said so, as its clients
/// would get no further.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_join_checking(
    selector: *const c_char,
    name: *const c_char,
    keys: c_int,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    // SAFETY: the contract of the API, here and below.
    unsafe {
        joined(gateway, name, keys, |name, keys| {
            // SAFETY: as above.
            let control = Control::open(optional_text(selector, "selector")?)?;
            let ledger = control.join_checking(name, keys)?;
            Ok(Kind::Joined(Mutex::new(control), ledger))
        })
    }
}

/// Joins a gateway of another process, by `join`.
///
/// # Safety
/// `gateway` is NULL or valid for a write, `name` NULL or a string of C.
unsafe fn joined(
    gateway: *mut *mut equic_gateway,
    name: *const c_char,
    keys: c_int,
    join: impl FnOnce(&str, TokenKeys) -> Result<Kind>,
) -> equic_error {
    boundary(|| {
        if gateway.is_null() {
            return Err(Failure::argument("`gateway` is NULL"));
        }
        // SAFETY: not NULL; the caller's promise, here and below.
        unsafe { gateway.write(std::ptr::null_mut()) };
        // SAFETY: as above.
        let name = unsafe { optional_text(name, "name") }?;
        let name = name.map_or_else(|| std::process::id().to_string(), str::to_owned);
        let inner = Inner::feeding(join(&name, token_keys(keys)?)?);
        // SAFETY: as above.
        unsafe { give(gateway, Box::into_raw(Box::new(equic_gateway { inner: Arc::new(inner) }))) };
        Ok(())
    })
}

/// Joins the gateway behind a Unix socket (`equic gateway run --socket PATH`), to feed it. Takes no
/// privileges at all. When that gateway ends, the next one at the same path is joined by itself, with
/// every connection that is open; services and connections stay valid. Settings, lists and counters
/// are out of reach (EQUIC_ERROR_NOT_OWNER). `name` as for `equic_gateway_join`.
///
/// EQUIC_ERROR_NO_GATEWAY if nobody listens there; EQUIC_ERROR_REFUSED or EQUIC_ERROR_FULL, with the
/// gateway's reason, if it turns this process away. On failure *gateway is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_connect(
    path: *const c_char,
    name: *const c_char,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    let none = equic_token_keys::EQUIC_TOKEN_KEYS_NONE as c_int;
    // SAFETY: the contract of the API.
    unsafe { equic_gateway_connect_checking(path, name, none, gateway) }
}

/// As `equic_gateway_connect`, for a server that checks the tokens of the gateway's Retry packets with
/// `equic_retry_verify`, or makes its connection IDs with `equic_gateway_ids`: `keys` is an enum equic_token_keys. The
/// gateway gives its ring to users who may serve all its services; others join without it, and `equic_gateway_ring` and
/// `equic_gateway_ids` say so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_connect_checking(
    path: *const c_char,
    name: *const c_char,
    keys: c_int,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    // SAFETY: the contract of the API, here and below.
    unsafe {
        joined(gateway, name, keys, |name, keys| {
            // SAFETY: as above.
            Ok(Kind::Connected(Ledger::connect_checking(text(path, "path")?, name, keys)?))
        })
    }
}

/// What `equic_gateway_notify` tells.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum equic_join_event {
    /// The gateway has ended: no quota holds in the kernel until the next one is joined, which happens by
    /// itself.
    EQUIC_JOIN_LOST = 1,
    /// It has ended, and the next one cannot be joined; that is tried on.
    EQUIC_JOIN_UNREACHABLE = 2,
    /// The next one is joined.
    EQUIC_JOIN_JOINED = 3,
}

/// Called with an enum equic_join_event, a line for a log (how long nobody listened, how many
/// connections count again; valid during the call), and what was given to `equic_gateway_notify`.
pub type equic_join_callback =
    Option<unsafe extern "C" fn(event: c_int, message: *const c_char, context: *mut c_void)>;

/// The context of a callback, which the caller promises to be for any thread.
struct Context(*mut c_void);

// SAFETY: the contract of `equic_gateway_notify`.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Has `callback` called, from a thread of the library, when a gateway that was joined has ended and
/// when the next one is joined; in place of the callback before. It must not close the gateway, and is
/// not called any more when `equic_gateway_close` and the release of its services and connections
/// have returned. A gateway of this process's own has nothing to tell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_notify(
    gateway: *const equic_gateway,
    callback: equic_join_callback,
    context: *mut c_void,
) -> equic_error {
    boundary(|| {
        // SAFETY: the contract of the API.
        let gateway = unsafe { handle(gateway, "gateway") }?;
        let callback = callback.ok_or_else(|| Failure::argument("`callback` is NULL"))?;
        let context = Context(context);
        if let Kind::Joined(_, ledger) | Kind::Connected(ledger) = &gateway.inner.kind {
            ledger.notify(move |event| {
                let number = match event {
                    JoinEvent::Lost { .. } => equic_join_event::EQUIC_JOIN_LOST,
                    JoinEvent::Joined { .. } => equic_join_event::EQUIC_JOIN_JOINED,
                    _ => equic_join_event::EQUIC_JOIN_UNREACHABLE,
                };
                let message = c_text(&event.to_string());
                // SAFETY: the caller's function, with what it was promised.
                unsafe { callback(number as c_int, message.as_ptr(), context.pointer()) };
            });
        }
        Ok(())
    })
}

/// Ends a gateway: the program leaves its interfaces (one that was joined stays, and only this
/// process's counts go). Services and connections taken from it stay valid, count for nobody any
/// more, and are still to be released. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_close(gateway: *mut equic_gateway) {
    boundary(|| {
        if gateway.is_null() {
            return Ok(());
        }
        // SAFETY: made by `Box::into_raw` in this module, and closed once.
        let gateway = unsafe { Box::from_raw(gateway) };
        // Another thread may hold it for a moment longer, reading a counter.
        for attached in gateway.inner.attached() {
            gateway.inner.owned()?.detach(&attached.interface)?;
        }
        Ok(())
    });
}

/// Attaches the program to a network interface; may be called for several. NULL: to every interface
/// the configuration names. `mode` is an enum equic_mode. If one of several fails, those before it
/// are detached again. A program that is there already is never replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_attach(
    gateway: *const equic_gateway,
    interface: *const c_char,
    mode: c_int,
) -> equic_error {
    boundary(|| {
        // SAFETY: the contract of the API.
        let (gateway, interface) =
            unsafe { (handle(gateway, "gateway")?, optional_text(interface, "interface")?) };
        let owned = gateway.inner.owned()?;
        let mode = self::mode(mode, gateway.inner.mode)?;
        let configured = || gateway.inner.interfaces.iter().map(String::as_str).collect();
        let wanted: Vec<&str> = interface.map_or_else(configured, |one| vec![one]);
        if wanted.is_empty() {
            return Err(Failure::argument(
                "`interface` is NULL, and the configuration names no interface",
            ));
        }
        for (index, interface) in wanted.iter().enumerate() {
            if let Err(error) = owned.attach(interface, mode) {
                for before in &wanted[..index] {
                    // It was attached a moment ago; if it is gone by now, so much the better.
                    let _ = owned.detach(before);
                }
                return Err(error.into());
            }
        }
        Ok(())
    })
}

/// Detaches the program from a network interface; NULL: from all. Counts, lists and limits stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_detach(
    gateway: *const equic_gateway,
    interface: *const c_char,
) -> equic_error {
    boundary(|| {
        // SAFETY: the contract of the API.
        let (gateway, interface) =
            unsafe { (handle(gateway, "gateway")?, optional_text(interface, "interface")?) };
        let owned = gateway.inner.owned()?;
        match interface {
            Some(interface) => owned.detach(interface)?,
            None => {
                for attached in owned.attached() {
                    owned.detach(&attached.interface)?;
                }
            }
        }
        Ok(())
    })
}

/// An interface the program is on.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct equic_attachment {
    /// The interface's index.
    pub if_index: u32,
    /// 1: in the driver; 0: generic.
    pub native: c_int,
    /// The interface's name; as long as IF_NAMESIZE.
    pub interface: [c_char; 16],
    /// What its owner should know, for example why it is not native; empty if nothing. Cut at the
    /// end if it is longer.
    pub notice: [c_char; 256],
}

/// How many interfaces the program is on; 0 for a gateway that was joined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_attachments(gateway: *const equic_gateway) -> usize {
    // SAFETY: the contract of the API.
    boundary_or(0, || Ok(unsafe { handle(gateway, "gateway") }?.inner.attached().len()))
}

/// One of the interfaces the program is on, by number from 0 on; EQUIC_ERROR_NOT_FOUND behind the
/// last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_attachment(
    gateway: *const equic_gateway,
    number: usize,
    attachment: *mut equic_attachment,
) -> equic_error {
    boundary(|| {
        // SAFETY: the contract of the API.
        let attached = unsafe { handle(gateway, "gateway") }?.inner.attached();
        let Some(attached) = attached.get(number) else {
            let message = format!(
                "the gateway is on {} interfaces: there is no number {number}",
                attached.len()
            );
            return Err(Failure::new(equic_error::EQUIC_ERROR_NOT_FOUND, message));
        };
        let found = equic_attachment {
            if_index: attached.ifindex,
            native: attached.native.into(),
            interface: fixed(&attached.interface),
            notice: fixed(attached.notice.as_deref().unwrap_or_default()),
        };
        // SAFETY: the contract of the API.
        unsafe { give(attachment, found) };
        Ok(())
    })
}

/// Text in an array, NUL-terminated, cut between characters if it is too long.
fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    let end = (0..N.min(text.len() + 1)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    for (to, from) in array.iter_mut().zip(text[..end].bytes()) {
        *to = from as c_char;
    }
    array
}

/// The service of that name, to count connections to it; NULL: the only one there is. To be released with `equic_service_release`. On failure *service is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_service(
    gateway: *const equic_gateway,
    name: *const c_char,
    service: *mut *mut equic_service,
) -> equic_error {
    boundary(|| {
        if service.is_null() {
            return Err(Failure::argument("`service` is NULL"));
        }
        // SAFETY: not NULL; the contract of the API, here and below.
        unsafe { service.write(std::ptr::null_mut()) };
        // SAFETY: as above.
        let (gateway, name) =
            unsafe { (handle(gateway, "gateway")?, optional_text(name, "name")?) };
        let ledger = gateway.inner.ledger()?;
        let found = match name {
            Some(name) => ledger.service(name)?,
            None if ledger.service_at(1).is_ok() => {
                return Err(Failure::argument("the gateway has several services: name one"));
            }
            None => ledger.service_at(0)?,
        };
        let found = equic_service::new(found, Arc::downgrade(&gateway.inner));
        // SAFETY: as above.
        unsafe { give(service, Box::into_raw(Box::new(found))) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<const N: usize>(array: [c_char; N]) -> String {
        let bytes = array.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn handles_may_be_used_from_any_thread() {
        fn shared<T: Send + Sync>() {}
        shared::<equic_gateway>();
        shared::<equic_service>();
        shared::<crate::service::equic_connection>();
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(read(fixed::<8>("")), "");
        assert_eq!(read(fixed::<8>("eth0")), "eth0");
        assert_eq!(read(fixed::<8>("1234567")), "1234567");
        assert_eq!(read(fixed::<8>("12345678")), "1234567");
        assert_eq!(read(fixed::<8>("123456\u{e9}8")), "123456");
        assert_eq!(fixed::<4>("\u{20ac}\u{20ac}")[3], 0);
    }
}
