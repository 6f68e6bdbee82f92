//! Options for loading a gateway, as a C structure to which later versions can add fields.

use std::ffi::{c_char, c_int};
use std::mem::size_of;
use std::path::PathBuf;
use std::ptr;
use std::str::FromStr;

use ::equic_gateway::{Config, ConfigOption, Listen, Mode, ObjectSource, Policy};

use crate::arguments::{optional_text, texts};
use crate::error::{Failure, Result, boundary, equic_error};
use crate::versioned::{self, Versioned};

/// What happens to a source that holds as many connections as its limit.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum equic_policy {
    /// Drops packets that would open another connection. Established connections, and handshakes in
    /// progress, continue.
    EQUIC_POLICY_NEW = 0,
    /// The paper's Algorithm 1: drops every packet of a source with more connections than its
    /// limit.
    EQUIC_POLICY_STRICT = 1,
    /// Like EQUIC_POLICY_NEW, but handshakes in progress count, too: until they are complete, or
    /// for the service's handshake_timeout (10 s). For servers that cannot close excess
    /// connections.
    EQUIC_POLICY_UNDERWAY = 2,
}

/// How the program is attached to an interface.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum equic_mode {
    /// The mode in the configuration. Without a configuration, the same as EQUIC_MODE_AUTO.
    EQUIC_MODE_CONFIGURED = 0,
    /// Native if the driver supports it, otherwise generic.
    EQUIC_MODE_AUTO = 1,
    /// Only native: in the driver, before the kernel allocates anything.
    EQUIC_MODE_NATIVE = 2,
    /// Generic: after the driver. Works on every interface, but costs more.
    EQUIC_MODE_GENERIC = 3,
}

/// Options of `equic_gateway_open`, which creates a gateway with one service. For several services,
/// use a configuration (`equic_gateway_open_file`).
///
/// Call `equic_options_init` first. It sets the defaults, and `size`, so that programs built with
/// an older header keep working. Strings are only read during the call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct equic_options {
    /// sizeof(equic_options) of the caller.
    pub size: usize,
    /// Name of the gateway in `equic gateway status`. NULL: "equic".
    pub name: *const c_char,
    /// Name of the service in settings and reports. NULL: "quic".
    pub service: *const c_char,
    /// Ports and addresses of the server, separated by commas or blanks: `443`, or
    /// `192.0.2.1:443, [2001:db8::1]:443`. NULL: the port in `port`, on every address.
    pub listen: *const c_char,
    /// UDP port, used if `listen` is NULL. The default is 443.
    pub port: u16,
    /// Settings: strings "KEY=VALUE" with a NULL behind the last one, or NULL for none. Keys and
    /// values are those of `equic gateway run -o`, such as "max_connections=100",
    /// "new_per_source=20/s burst 40" and "gateway.dry_run=true". `equic gateway settings` lists
    /// them.
    pub settings: *const *const c_char,
    /// Object file with the XDP program. NULL: the copy inside the library.
    pub object: *const c_char,
}

impl Default for equic_options {
    fn default() -> equic_options {
        equic_options {
            size: size_of::<equic_options>(),
            name: ptr::null(),
            service: ptr::null(),
            listen: ptr::null(),
            port: 443,
            settings: ptr::null(),
            object: ptr::null(),
        }
    }
}

// SAFETY: the structure is `repr(C)` and begins with `size`. All fields are integers and pointers.
unsafe impl Versioned for equic_options {
    const INIT: &'static str = "equic_options_init";
    const FIRST_SIZE: usize = size_of::<equic_options>();

    fn defaults(size: usize) -> equic_options {
        equic_options { size, ..equic_options::default() }
    }
}

/// Sets the defaults. `size` must be sizeof(equic_options).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn equic_options_init(
    options: *mut equic_options,
    size: usize,
) -> equic_error {
    // SAFETY: the caller follows the pointer rules in equic.h.
    boundary(|| unsafe { versioned::init(options, size) })
}

/// Converts the caller's options to a configuration, and to the source of the XDP program.
///
/// # Safety
/// `options` must be NULL, or point to options whose strings are NULL or NUL-terminated. Its settings
/// must be NULL, or end with NULL.
pub(crate) unsafe fn to_config(options: *const equic_options) -> Result<(Config, ObjectSource)> {
    // SAFETY: the caller upholds the `# Safety` section of this function, here and below.
    let options = unsafe { versioned::read(options) }?;
    let mut config = Config::for_port(options.port);
    // SAFETY: the caller upholds the `# Safety` section of this function.
    let text = |value: *const c_char, name: &str| unsafe { optional_text(value, name) };
    if let Some(name) = text(options.name, "name")? {
        config.gateway.name = name.to_owned();
    }
    let [service] = config.services.as_mut_slice() else {
        return Err(Failure::argument("no service"));
    };
    if let Some(name) = text(options.service, "service")? {
        service.name = name.to_owned();
    }
    match text(options.listen, "listen")? {
        Some(listen) => service.listen = listeners(listen)?,
        None if options.port == 0 => {
            return Err(Failure::argument("neither `port` nor `listen` is set: set one of them"));
        }
        None => {}
    }
    // SAFETY: the caller upholds the `# Safety` section of this function.
    let settings = unsafe { texts(options.settings, "settings") }?;
    let settings = settings.into_iter().map(ConfigOption::parse);
    config.set_options(&settings.collect::<std::result::Result<Vec<_>, _>>()?)?;
    let object = match text(options.object, "object")? {
        Some(path) => ObjectSource::Path(PathBuf::from(path)),
        None => ObjectSource::Embedded,
    };
    config.validate()?;
    Ok((config, object))
}

fn listeners(text: &str) -> Result<Vec<Listen>> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
    let listen = words.map(|word| parse(word, "listen")).collect::<Result<Vec<Listen>>>()?;
    if listen.is_empty() {
        Err(Failure::argument("`listen` contains no port: write, for example, \"443\""))
    } else {
        Ok(listen)
    }
}

fn parse<T: FromStr>(text: &str, name: &str) -> Result<T>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| {
        Failure::new(equic_error::EQUIC_ERROR_CONFIG, format!("`{name}`: {error}"))
    })
}

/// Returns the policy that a number of the C enum `equic_policy` stands for.
pub(crate) fn policy(number: c_int) -> Result<Policy> {
    const NEW: c_int = equic_policy::EQUIC_POLICY_NEW as c_int;
    const STRICT: c_int = equic_policy::EQUIC_POLICY_STRICT as c_int;
    const UNDERWAY: c_int = equic_policy::EQUIC_POLICY_UNDERWAY as c_int;
    match number {
        NEW => Ok(Policy::New),
        STRICT => Ok(Policy::Strict),
        UNDERWAY => Ok(Policy::Underway),
        other => Err(Failure::argument(format!(
            "{other} is not a valid policy: use EQUIC_POLICY_NEW, EQUIC_POLICY_UNDERWAY or EQUIC_POLICY_STRICT"
        ))),
    }
}

/// Returns the mode that a number of the C enum `equic_mode` stands for.
pub(crate) fn mode(number: c_int, configured: Mode) -> Result<Mode> {
    const CONFIGURED: c_int = equic_mode::EQUIC_MODE_CONFIGURED as c_int;
    const AUTO: c_int = equic_mode::EQUIC_MODE_AUTO as c_int;
    const NATIVE: c_int = equic_mode::EQUIC_MODE_NATIVE as c_int;
    const GENERIC: c_int = equic_mode::EQUIC_MODE_GENERIC as c_int;
    match number {
        CONFIGURED => Ok(configured),
        AUTO => Ok(Mode::Auto),
        NATIVE => Ok(Mode::Native),
        GENERIC => Ok(Mode::Generic),
        other => Err(Failure::argument(format!(
            "{other} is not a valid mode: use EQUIC_MODE_CONFIGURED, EQUIC_MODE_AUTO, EQUIC_MODE_NATIVE or EQUIC_MODE_GENERIC"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString};

    use ::equic_gateway::Rate;

    use super::*;
    use equic_error::*;

    /// The structure of a caller that was built with a future version, which has more fields at the
    /// end.
    #[repr(C)]
    struct Newer {
        known: equic_options,
        more: [u8; 24],
    }

    fn pointers(texts: &[&CStr]) -> Vec<*const c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    }

    fn config(options: &equic_options) -> Result<Config> {
        // SAFETY: the strings in these tests are literals.
        unsafe { to_config(options) }.map(|(config, _)| config)
    }

    #[test]
    fn options_default_to_port_443_without_limits() {
        let config = config(&equic_options::default()).unwrap();
        assert_eq!(config, Config::for_port(443));
    }

    #[test]
    fn options_all_reach_the_configuration() {
        let settings = [
            c"policy=strict",
            c"max_connections=5",
            c"gateway.dry_run=true",
            c"web.new_per_source = 20/s burst 40",
            c"new_per_service=300/min",
            c"bytes_per_source=10MB/s burst 1MB",
            c"gateway.source_prefix_v6=56",
        ];
        let settings = pointers(&settings);
        let options = equic_options {
            name: c"edge".as_ptr(),
            service: c"web".as_ptr(),
            listen: c"192.0.2.1:443, [2001:db8::1]:443 8443".as_ptr(),
            settings: settings.as_ptr(),
            ..equic_options::default()
        };
        let config = config(&options).unwrap();
        assert_eq!(config.gateway.name, "edge");
        let service = &config.services[0];
        assert_eq!(service.name, "web");
        assert_eq!(service.listen.len(), 3);
        assert_eq!(
            (service.policy, service.max_connections, config.gateway.dry_run),
            (Policy::Strict, 5, true)
        );
        assert_eq!(service.new_per_source, Rate::per_second(20, 40));
        assert_eq!(service.new_per_service.to_string(), "300/min");
        assert_eq!(config.gateway.source_prefix_v6, 56);
        assert_eq!(service.bytes_per_source, "10MB/s burst 1MB".parse().unwrap());
    }

    #[test]
    fn settings_are_checked_by_the_table() {
        let long = CString::new(format!("policy={}", "x".repeat(1 << 20))).unwrap();
        let refused: [(&[&CStr], equic_error, &str); 10] = [
            (&[c"max_conections=5"], EQUIC_ERROR_CONFIG, "did you mean max_connections?"),
            (&[c"retry_hold=2h"], EQUIC_ERROR_CONFIG, "1s to 1h"),
            (&[c"max_connections=-1"], EQUIC_ERROR_CONFIG, "`max_connections`: `-1` is not"),
            (&[c"new_per_source=fast"], EQUIC_ERROR_CONFIG, "`new_per_source`"),
            (&[c"policy"], EQUIC_ERROR_CONFIG, "KEY=VALUE"),
            (&[c"policy=new", c"policy=strict"], EQUIC_ERROR_CONFIG, "given twice"),
            (&[c"other.policy=new"], EQUIC_ERROR_NO_SUCH_SERVICE, "`other`"),
            (&[c"gateway.sources=1"], EQUIC_ERROR_CONFIG, "64 to 16777216"),
            (&[&long], EQUIC_ERROR_CONFIG, "at most 4096"),
            (&[c"policy=new", c"\xff=1"], EQUIC_ERROR_INVALID_ARGUMENT, "UTF-8"),
        ];
        for (settings, code, part) in refused {
            let settings = pointers(settings);
            let failure =
                config(&equic_options { settings: settings.as_ptr(), ..equic_options::default() })
                    .unwrap_err();
            assert_eq!(failure.code, code, "{}", failure.message);
            assert!(failure.message.contains(part), "{} has no {part}", failure.message);
            assert!(failure.message.len() < 1000, "{}", failure.message);
        }
    }

    #[test]
    fn options_that_are_invalid_are_named() {
        let default = equic_options::default();
        let refused = [
            (equic_options { port: 0, ..default }, EQUIC_ERROR_INVALID_ARGUMENT, "`port`"),
            (
                equic_options { listen: c"443, nowhere".as_ptr(), ..default },
                EQUIC_ERROR_CONFIG,
                "nowhere",
            ),
            (
                equic_options { listen: c" ,".as_ptr(), ..default },
                EQUIC_ERROR_INVALID_ARGUMENT,
                "`listen`",
            ),
            (equic_options { name: c"".as_ptr(), ..default }, EQUIC_ERROR_CONFIG, "name"),
            (
                equic_options { service: c"\xff".as_ptr(), ..default },
                EQUIC_ERROR_INVALID_ARGUMENT,
                "UTF-8",
            ),
            (
                equic_options { size: 0, ..default },
                EQUIC_ERROR_INVALID_ARGUMENT,
                "equic_options_init",
            ),
            (
                equic_options { size: equic_options::FIRST_SIZE - 1, ..default },
                EQUIC_ERROR_INVALID_ARGUMENT,
                "equic_options_init",
            ),
        ];
        for (options, code, part) in refused {
            let failure = config(&options).unwrap_err();
            assert_eq!(failure.code, code, "{}", failure.message);
            assert!(failure.message.contains(part), "{} has no {part}", failure.message);
        }
        // SAFETY: NULL is permitted.
        assert!(unsafe { to_config(ptr::null()) }.is_err());
    }

    #[test]
    fn options_of_a_newer_caller_work_if_new_fields_are_zero() {
        let mut newer = Newer { known: equic_options::default(), more: [0xaa; 24] };
        // SAFETY: the structure has `size` bytes.
        let code = unsafe { equic_options_init((&raw mut newer).cast(), size_of::<Newer>()) };
        assert_eq!(code, EQUIC_OK);
        assert_eq!(
            (newer.known.size, newer.known.port, newer.more),
            (size_of::<Newer>(), 443, [0; 24])
        );
        // SAFETY: the structure has `size` bytes.
        assert!(unsafe { to_config((&raw const newer).cast()) }.is_ok());
        newer.more[3] = 1;
        // SAFETY: the structure has `size` bytes.
        let failure = unsafe { to_config((&raw const newer).cast()) }.map(|_| ()).unwrap_err();
        assert!(failure.message.contains("does not know"), "{}", failure.message);
    }
}
