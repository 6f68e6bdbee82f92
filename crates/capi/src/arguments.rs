//! Reads arguments that come from C: strings, addresses, and pointers for results. All of them are
//! checked before they are used.

use std::ffi::{CStr, c_char};
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{AF_INET, AF_INET6, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::error::{Failure, Result};

/// Returns a reference to the handle that a C program passed. Fails if the pointer is NULL.
///
/// # Safety
/// `handle` must be NULL or valid for `'a`.
pub(crate) unsafe fn handle<'a, T>(handle: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: the caller upholds the `# Safety` section of this function.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::argument(format!("`{name}` is NULL")))
}

/// Reads a string argument that may be NULL. Returns `None` for NULL.
///
/// # Safety
/// `text` must be NULL or a NUL-terminated string that lives for `'a`.
pub(crate) unsafe fn optional_text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the pointer is not NULL, and the caller upholds the `# Safety` section of this
    // function.
    let text = unsafe { CStr::from_ptr(text) };
    match text.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Failure::argument(format!(
            "`{name}` is not UTF-8: \"{}\"",
            text.to_bytes().escape_ascii()
        ))),
    }
}

/// Reads a string argument. Fails if it is NULL.
///
/// # Safety
/// That of [`optional_text`].
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: the caller upholds the `# Safety` section of this function.
    unsafe { optional_text(text, name) }?
        .ok_or_else(|| Failure::argument(format!("`{name}` is NULL")))
}

/// Reads an array of strings that ends with NULL. Returns no strings if the array is NULL.
///
/// # Safety
/// `array` must be NULL, or an array of strings as [`text`] requires them, with a NULL behind the
/// last one.
pub(crate) unsafe fn texts<'a>(array: *const *const c_char, name: &str) -> Result<Vec<&'a str>> {
    let mut all = Vec::new();
    while !array.is_null() {
        // SAFETY: no element before this one is NULL, so this one is in the array, too.
        let element = unsafe { array.add(all.len()).read() };
        // SAFETY: the caller upholds the `# Safety` section of this function.
        match unsafe { optional_text(element, name) }? {
            Some(text) => all.push(text),
            None => break,
        }
    }
    Ok(all)
}

/// Writes a result to the location `place` of the C program. Does nothing if `place` is NULL.
///
/// # Safety
/// `place` must be NULL or valid for a write.
pub(crate) unsafe fn give<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the pointer is not NULL, and the caller upholds the `# Safety` section of this
        // function.
        unsafe { place.write(value) }
    }
}

/// Reads the address of a peer. IPv4-mapped IPv6 addresses become IPv4.
///
/// # Safety
/// `peer` must be NULL or point to `length` readable bytes.
pub(crate) unsafe fn peer(peer: *const sockaddr, length: socklen_t) -> Result<SocketAddr> {
    if peer.is_null() {
        return Err(Failure::argument("the peer's address is NULL"));
    }
    let length = length as usize;
    let short = |needs: usize| {
        Failure::argument(format!(
            "the peer's address has {length} bytes, but its address family needs {needs}"
        ))
    };
    let family_end = offset_of!(sockaddr, sa_family) + size_of::<sa_family_t>();
    if length < family_end {
        return Err(short(family_end));
    }
    // SAFETY: the family is within the `length` readable bytes. The read may be unaligned.
    let family = unsafe { (&raw const (*peer).sa_family).read_unaligned() };
    match i32::from(family) {
        AF_INET if length < size_of::<sockaddr_in>() => Err(short(size_of::<sockaddr_in>())),
        AF_INET => {
            // SAFETY: `length` bytes are readable, and the structure is not longer. All bit
            // patterns are valid for it.
            let v4 = unsafe { peer.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
        }
        AF_INET6 if length < size_of::<sockaddr_in6>() => Err(short(size_of::<sockaddr_in6>())),
        AF_INET6 => {
            // SAFETY: `length` bytes are readable, and the structure is not longer. All bit
            // patterns are valid for it.
            let v6 = unsafe { peer.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr).to_canonical();
            Ok(SocketAddr::new(ip, u16::from_be(v6.sin6_port)))
        }
        other => Err(Failure::argument(format!(
            "the peer's address family is {other}, but must be AF_INET or AF_INET6"
        ))),
    }
}

/// Reads the address of a peer like [`peer`], if the length is not given. The address family
/// determines the length.
///
/// # Safety
/// `address` must be NULL, or point to a `sockaddr_in`, a `sockaddr_in6`, or another structure that
/// begins with a readable family.
pub(crate) unsafe fn peer_of_any_length(address: *const sockaddr) -> Result<SocketAddr> {
    if address.is_null() {
        return Err(Failure::argument("the peer's address is NULL"));
    }
    // SAFETY: the pointer is not NULL, and the family is readable. The read may be unaligned.
    let family = unsafe { (&raw const (*address).sa_family).read_unaligned() };
    let length = match i32::from(family) {
        AF_INET => size_of::<sockaddr_in>(),
        AF_INET6 => size_of::<sockaddr_in6>(),
        _ => offset_of!(sockaddr, sa_family) + size_of::<sa_family_t>(),
    };
    // SAFETY: the `# Safety` section of this function requires that all bytes of an address of this
    // family are readable.
    unsafe { peer(address, length as socklen_t) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn v4() -> sockaddr_in {
        // SAFETY: plain integers.
        let mut address: sockaddr_in = unsafe { std::mem::zeroed() };
        address.sin_family = AF_INET as sa_family_t;
        address.sin_port = 4433u16.to_be();
        address.sin_addr.s_addr = u32::from(Ipv4Addr::new(192, 0, 2, 7)).to_be();
        address
    }

    fn v6(ip: &str) -> sockaddr_in6 {
        // SAFETY: plain integers.
        let mut address: sockaddr_in6 = unsafe { std::mem::zeroed() };
        address.sin6_family = AF_INET6 as sa_family_t;
        address.sin6_port = 4433u16.to_be();
        address.sin6_addr.s6_addr = ip.parse::<Ipv6Addr>().unwrap().octets();
        address
    }

    fn read<T>(address: &T, length: usize) -> Result<SocketAddr> {
        assert!(length <= size_of::<T>());
        // SAFETY: `address` has `length` bytes.
        let sized = unsafe { peer(ptr::from_ref(address).cast(), length as socklen_t) };
        // SAFETY: `address` is a complete sockaddr_in or sockaddr_in6.
        let unsized_ = unsafe { peer_of_any_length(ptr::from_ref(address).cast()) };
        if let Ok(sized) = &sized {
            assert_eq!(*sized, unsized_.unwrap());
        }
        sized
    }

    #[test]
    fn addresses_are_read_by_their_family() {
        assert_eq!(read(&v4(), 16).unwrap(), "192.0.2.7:4433".parse().unwrap());
        assert_eq!(read(&v6("2001:db8::7"), 28).unwrap(), "[2001:db8::7]:4433".parse().unwrap());
        assert_eq!(read(&v6("::ffff:192.0.2.7"), 28).unwrap(), "192.0.2.7:4433".parse().unwrap());
    }

    #[test]
    fn addresses_that_are_short_null_or_foreign_are_refused() {
        for length in 0..16 {
            assert!(read(&v4(), length).is_err(), "{length}");
        }
        for length in 0..28 {
            assert!(read(&v6("::1"), length).is_err(), "{length}");
        }
        // SAFETY: NULL is permitted.
        unsafe {
            assert!(peer(ptr::null(), 128).is_err());
            assert!(peer_of_any_length(ptr::null()).is_err());
        }
        let mut unix = v4();
        unix.sin_family = libc::AF_UNIX as sa_family_t;
        assert!(read(&unix, 16).unwrap_err().message.contains("family is 1"));
    }

    #[test]
    fn addresses_need_no_alignment() {
        let mut bytes = [0u8; 29];
        let address = v6("2001:db8::1");
        // SAFETY: the array has 28 bytes after the first one.
        unsafe { bytes.as_mut_ptr().add(1).cast::<sockaddr_in6>().write_unaligned(address) };
        // SAFETY: the array has 28 readable bytes after the first one.
        let read = unsafe { peer(bytes.as_ptr().add(1).cast(), 28) };
        assert_eq!(read.unwrap(), "[2001:db8::1]:4433".parse().unwrap());
    }

    #[test]
    fn texts_must_be_utf8_and_not_null() {
        // SAFETY: the strings are literals.
        unsafe {
            assert_eq!(text(c"eth0".as_ptr(), "interface").unwrap(), "eth0");
            assert!(
                text(ptr::null(), "interface").unwrap_err().message.contains("`interface` is NULL")
            );
            assert!(text(c"\xff".as_ptr(), "key").unwrap_err().message.contains("\\xff"));
            assert_eq!(optional_text(ptr::null(), "key").unwrap(), None);
        }
    }
}
