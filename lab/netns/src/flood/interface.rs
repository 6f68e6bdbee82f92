//! Properties of an interface that are needed to send frames on it (netdevice(7)).

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::FloodError;

const ETHTOOL_GDRVINFO: u32 = 3;

/// An interface in the calling thread's namespace.
#[derive(Debug)]
pub(super) struct Interface {
    name: String,
    index: i32,
    control: OwnedFd,
}

/// The structure `ethtool_drvinfo` of linux/ethtool.h.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

impl Interface {
    pub(super) fn find(name: &str) -> Result<Self, FloodError> {
        let index = nix::net::if_::if_nametoindex(name)
            .map_err(|e| FloodError::system(format!("find interface {name:?}"), e))?;
        let control = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|e| FloodError::system("open a socket", e))?;
        let index = i32::try_from(index).map_err(|_| {
            FloodError::system("use the name of the interface", io::ErrorKind::InvalidData)
        })?;
        Ok(Self { name: name.to_owned(), index, control })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn index(&self) -> i32 {
        self.index
    }

    /// Link-layer address.
    pub(super) fn mac(&self) -> Result<[u8; 6], FloodError> {
        let mut request = self.request();
        // SAFETY: SIOCGIFHWADDR reads the name and writes a sockaddr into the ifreq, which lives
        // during the call.
        let result =
            unsafe { libc::ioctl(self.control.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
        self.check(result, "read the hardware address of")?;
        // SAFETY: the call succeeded, so the kernel wrote this member.
        let data = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data;
        let mut mac = [0; 6];
        mac.iter_mut().zip(data).for_each(|(to, from)| *to = from.cast_unsigned());
        Ok(mac)
    }

    /// Returns the driver's name. It is empty if the interface has no driver, as for the loopback
    /// interface.
    pub(super) fn driver(&self) -> Result<String, FloodError> {
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut info).cast();
        // SAFETY: SIOCETHTOOL with ETHTOOL_GDRVINFO writes one ethtool_drvinfo to the address in
        // ifru_data. It has that size and lives during the call, like the ifreq.
        let result =
            unsafe { libc::ioctl(self.control.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        if result != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP) {
            return Ok(String::new());
        }
        self.check(result, "ask for the driver of")?;
        let name = info.driver.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: ifreq is plain data. Zeros are a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // if_nametoindex accepted the name, so it fits with its terminating zero.
        let room = request.ifr_name.len() - 1;
        let bytes = self.name.bytes().take(room);
        request.ifr_name.iter_mut().zip(bytes).for_each(|(to, from)| *to = from.cast_signed());
        request
    }

    fn check(&self, result: i32, what: &str) -> Result<(), FloodError> {
        if result == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        Err(FloodError::system(format!("{what} interface {}", self.name), source))
    }
}
