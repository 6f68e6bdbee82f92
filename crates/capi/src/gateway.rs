//! C functions for gateways: those that this process has loaded, and those of other processes that
//! this process has joined.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ::equic_gateway::{
    Attached, Config, ConnectionIds, Control, Gateway, JoinEvent, Ledger, Mode, ObjectSource,
    SocketHost,
};
use equic_token::KeyRing;

use crate::arguments::{give, handle, optional_text, text};
use crate::error::{Failure, Result, boundary, boundary_or, c_text, equic_error};
use crate::options::{equic_options, mode, to_config};
use crate::service::equic_service;

/// A gateway: the XDP program, its services and its lists. Created by `equic_gateway_open`,
/// `equic_gateway_join` and similar functions. Freed by `equic_gateway_close`.
pub struct equic_gateway {
    pub(crate) inner: Arc<Inner>,
}

/// The gateway behind a handle. Services have only weak references to it, so closing the gateway
/// detaches it even if services still exist.
pub(crate) struct Inner {
    /// The socket through which servers join, if the configuration has one.
    _host: Option<SocketHost>,
    pub(crate) kind: Kind,
    /// Interfaces in the configuration. They are used if the caller names none.
    interfaces: Vec<String>,
    mode: Mode,
    /// Generators of connection IDs, by the `instance` argument of `equic_gateway_ids`.
    ids: Mutex<HashMap<u8, ConnectionIds>>,
}

pub(crate) enum Kind {
    Owned(Box<Gateway>),
    /// A gateway that was joined directly: the ledger that reports connections, and a control
    /// handle of the gateway to which the ledger reported at the last call.
    Joined(Mutex<Control>, Ledger),
    /// A gateway that was joined through its socket. This process can only report connections.
    Connected(Ledger),
}

impl Inner {
    /// Creates the inner state for a gateway of another process.
    pub(crate) fn feeding(kind: Kind) -> Inner {
        Inner { _host: None, kind, interfaces: Vec::new(), mode: Mode::Auto, ids: Mutex::default() }
    }

    pub(crate) fn control(&self) -> Result<Control> {
        match &self.kind {
            Kind::Owned(gateway) => Ok(gateway.control().clone()),
            Kind::Joined(control, ledger) => {
                let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(program) = ledger.program_id().filter(|id| *id != control.program_id())
                {
                    // The ledger now reports to another gateway, so open a control handle of that
                    // one.
                    *control = Control::open(Some(&program.to_string()))?;
                }
                Ok(control.clone())
            }
            Kind::Connected(_) => Err(Failure::new(
                equic_error::EQUIC_ERROR_NOT_OWNER,
                "a process that joined the gateway through its socket can only report connections: for settings, lists and counters, use `equic gateway` or equic_gateway_join",
            )),
        }
    }

    pub(crate) fn ledger(&self) -> Result<Ledger> {
        match &self.kind {
            Kind::Owned(gateway) => Ok(gateway.ledger()?),
            Kind::Joined(_, ledger) | Kind::Connected(ledger) => Ok(ledger.clone()),
        }
    }

    /// Returns the gateway's current key ring.
    pub(crate) fn key_ring(&self) -> Result<KeyRing> {
        match &self.kind {
            Kind::Owned(gateway) => Ok(gateway.control().key_ring()?),
            Kind::Joined(_, ledger) | Kind::Connected(ledger) => {
                ledger.key_ring()?.ok_or_else(no_ring)
            }
        }
    }

    /// Returns the generator of connection IDs with this instance number. All callers share it, so
    /// that no ID is issued twice.
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
                "this process only joined a gateway that another process runs: only that process can attach or detach the gateway",
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
        "this process does not have the gateway's key ring: join with the option token_check = \
         EQUIC_TOKEN_CHECK_GATEWAY_KEYS or issue_ids, as a user who may serve all services",
    )
}

/// Loads a gateway, and writes its handle to `gateway`.
///
/// # Safety
/// `gateway` must be NULL or valid for a write.
unsafe fn open(
    gateway: *mut *mut equic_gateway,
    config: impl FnOnce() -> Result<(Config, ObjectSource)>,
) -> equic_error {
    boundary(|| {
        if gateway.is_null() {
            return Err(Failure::argument("`gateway` is NULL"));
        }
        // SAFETY: the pointer is not NULL, and the caller upholds the `# Safety` section of this
        // function.
        unsafe { gateway.write(std::ptr::null_mut()) };
        let (config, object) = config()?;
        let loaded = Gateway::load(&config, object)?;
        let socket = config.gateway.socket.is_some();
        let _host =
            socket.then(|| SocketHost::start(loaded.control(), &config, false)).transpose()?;
        let kind = Kind::Owned(Box::new(loaded));
        let (interfaces, mode) = (config.gateway.interfaces, config.gateway.mode);
        let inner = Inner { _host, kind, interfaces, mode, ids: Mutex::default() };
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe { give(gateway, Box::into_raw(Box::new(equic_gateway { inner: Arc::new(inner) }))) };
        Ok(())
    })
}

/// Loads a gateway with one service. Needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, like the two
/// functions below. Does not attach it: call `equic_gateway_attach` next. On failure, *gateway is
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_open(
    options: *const equic_options,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    // SAFETY: the caller follows the pointer rules in equic.h.
    unsafe { open(gateway, || to_config(options)) }
}

/// Loads a gateway from the text of a configuration, in the format of `equic gateway run --config`
/// (TOML).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_open_config(
    toml: *const c_char,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    // SAFETY: the caller follows the pointer rules in equic.h.
    unsafe { open(gateway, || Ok((Config::parse(text(toml, "toml")?)?, ObjectSource::Embedded))) }
}

/// Loads a gateway from a configuration file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_open_file(
    path: *const c_char,
    gateway: *mut *mut equic_gateway,
) -> equic_error {
    // SAFETY: the caller follows the pointer rules in equic.h.
    unsafe {
        open(gateway, || {
            Ok((Config::read(Path::new(text(path, "path")?))?, ObjectSource::Embedded))
        })
    }
}

/// Events that `equic_gateway_notify` reports.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum equic_join_event {
    /// The gateway has ended. Until the library has joined the next one, the kernel enforces no
    /// quota. The library tries to join automatically.
    EQUIC_JOIN_LOST = 1,
    /// The gateway has ended, and the next one cannot be joined. The library keeps trying.
    EQUIC_JOIN_UNREACHABLE = 2,
    /// The library has joined the next gateway.
    EQUIC_JOIN_JOINED = 3,
}

/// Called with an enum equic_join_event, a line for a log (how long no gateway was joined, how many
/// connections count again; valid during the call), and the context passed to
/// `equic_gateway_notify`.
pub type equic_join_callback =
    Option<unsafe extern "C" fn(event: c_int, message: *const c_char, context: *mut c_void)>;

/// The context pointer of a callback. The caller of `equic_gateway_notify` guarantees that any
/// thread may use it.
struct Context(*mut c_void);

// SAFETY: the caller of `equic_gateway_notify` permits the use of the context by any thread.
unsafe impl Send for Context {}
// SAFETY: the caller of `equic_gateway_notify` permits the use of the context by any thread.
unsafe impl Sync for Context {}

impl Context {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Sets a callback, which a thread of the library calls when a joined gateway has ended and when
/// the next one is joined. It replaces an earlier callback. It must not close the gateway. After
/// `equic_gateway_close` and the release of all its services and connections, it is not called
/// again. For a gateway of this process, it is never called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_notify(
    gateway: *const equic_gateway,
    callback: equic_join_callback,
    context: *mut c_void,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
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
                // SAFETY: the callback comes from the caller and gets the arguments that its type
                // documents.
                unsafe { callback(number as c_int, message.as_ptr(), context.pointer()) };
            });
        }
        Ok(())
    })
}

/// Closes a gateway. One of this process is detached from its interfaces. A joined one continues,
/// without the counts of this process. Services and connections of the gateway stay valid but no
/// longer count, and must still be released. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_close(gateway: *mut equic_gateway) {
    boundary(|| {
        if gateway.is_null() {
            return Ok(());
        }
        // SAFETY: `Box::into_raw` in this module created the handle, and the caller closes it only
        // once.
        let gateway = unsafe { Box::from_raw(gateway) };
        // Interfaces are detached explicitly, because another thread may still hold the gateway for
        // a moment, for example to read a counter.
        for attached in gateway.inner.attached() {
            gateway.inner.owned()?.detach(&attached.interface)?;
        }
        Ok(())
    });
}

/// Attaches the program to a network interface. May be called for several. With NULL, attaches to
/// all interfaces in the configuration. If one of these fails, those before it are detached again.
/// `mode` is an enum equic_mode. An XDP program that is already there is never replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_attach(
    gateway: *const equic_gateway,
    interface: *const c_char,
    mode: c_int,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
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
                    // This call attached the interface. If another thread has already detached it,
                    // that is not an error.
                    let _ = owned.detach(before);
                }
                return Err(error.into());
            }
        }
        Ok(())
    })
}

/// Detaches the program from a network interface, or from all with NULL. Counts, lists and limits
/// are kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_detach(
    gateway: *const equic_gateway,
    interface: *const c_char,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
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

/// An interface that the program is attached to.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct equic_attachment {
    /// The interface's index.
    pub if_index: u32,
    /// 1: in the driver (native). 0: generic.
    pub native: c_int,
    /// The interface's name. The size is IF_NAMESIZE.
    pub interface: [c_char; 16],
    /// A notice for the operator, for example why the mode is not native. Empty if there is no
    /// notice. A longer text is cut.
    pub notice: [c_char; 256],
}

/// Returns the number of interfaces that the program is attached to. 0 for a joined gateway.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_attachments(gateway: *const equic_gateway) -> usize {
    // SAFETY: the caller follows the pointer rules in equic.h.
    boundary_or(0, || Ok(unsafe { handle(gateway, "gateway") }?.inner.attached().len()))
}

/// Describes one of the interfaces that the program is attached to, by its index from 0. Returns
/// EQUIC_ERROR_NOT_FOUND for an index beyond the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_gateway_attachment(
    gateway: *const equic_gateway,
    number: usize,
    attachment: *mut equic_attachment,
) -> equic_error {
    boundary(|| {
        // SAFETY: the caller follows the pointer rules in equic.h.
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
        // SAFETY: the caller follows the pointer rules in equic.h.
        unsafe { give(attachment, found) };
        Ok(())
    })
}

/// Copies text to a NUL-terminated array. Text that is too long is cut off between two characters.
fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    let end = (0..N.min(text.len() + 1)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    for (to, from) in array.iter_mut().zip(text[..end].bytes()) {
        *to = from as c_char;
    }
    array
}

/// Returns the service of this name, for counting its connections. With NULL, there must be exactly
/// one service. The caller must release it with `equic_service_release`. On failure, *service is
/// NULL.
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
        // SAFETY: the pointer is not NULL, and the caller follows the pointer rules in equic.h,
        // here and below.
        unsafe { service.write(std::ptr::null_mut()) };
        // SAFETY: the caller follows the pointer rules in equic.h.
        let (gateway, name) =
            unsafe { (handle(gateway, "gateway")?, optional_text(name, "name")?) };
        let ledger = gateway.inner.ledger()?;
        let found = match name {
            Some(name) => ledger.service(name)?,
            None if ledger.service_at(1).is_ok() => {
                return Err(Failure::argument(
                    "the gateway has several services: pass the name of one of them",
                ));
            }
            None => ledger.service_at(0)?,
        };
        let found = equic_service::new(found, Arc::downgrade(&gateway.inner));
        // SAFETY: the caller follows the pointer rules in equic.h.
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
    fn text_that_is_too_long_is_cut_between_characters() {
        assert_eq!(read(fixed::<8>("")), "");
        assert_eq!(read(fixed::<8>("eth0")), "eth0");
        assert_eq!(read(fixed::<8>("1234567")), "1234567");
        assert_eq!(read(fixed::<8>("12345678")), "1234567");
        assert_eq!(read(fixed::<8>("123456\u{e9}8")), "123456");
        assert_eq!(fixed::<4>("\u{20ac}\u{20ac}")[3], 0);
    }
}
