//! BPF maps with Rust types for keys and values.

use std::ffi::CString;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::abi::Pod;
use crate::sys::check;

/// Number of entries that are stored by one system call.
const BATCH: usize = 4096;

/// A hash, trie or array of `K` to `V`. Value types of per-CPU maps go through [`lookup_percpu`].
#[derive(Debug)]
pub(crate) struct Map<K, V> {
    fd: OwnedFd,
    max_entries: u32,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Pod, V: Pod> Map<K, V> {
    /// Takes a descriptor after checking that the kernel's sizes are those of `K` and `V`.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Map<K, V>> {
        let info = map_info(fd.as_fd())?;
        if info.key_size as usize != size_of::<K>() || info.value_size as usize != size_of::<V>() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("keys of {} and values of {} bytes", info.key_size, info.value_size),
            ));
        }
        Ok(Map { fd, max_entries: info.max_entries, types: PhantomData })
    }

    pub(crate) fn max_entries(&self) -> u32 {
        self.max_entries
    }

    pub(crate) fn get(&self, key: &K) -> io::Result<Option<V>> {
        let mut value = MaybeUninit::<V>::zeroed();
        // SAFETY: key and value have the sizes of this map's (checked in `new`).
        let returned = unsafe {
            let key = std::ptr::from_ref(key).cast();
            libbpf_sys::bpf_map_lookup_elem(self.fd.as_raw_fd(), key, value.as_mut_ptr().cast())
        };
        // SAFETY: any bytes are a `V`.
        absent_is_none(check(returned)).map(|found| found.map(|_| unsafe { value.assume_init() }))
    }

    pub(crate) fn put(&self, key: &K, value: &V) -> io::Result<()> {
        // SAFETY: key and value have the sizes of this map's (checked in `new`).
        let returned = unsafe {
            let (key, value) = (std::ptr::from_ref(key).cast(), std::ptr::from_ref(value).cast());
            libbpf_sys::bpf_map_update_elem(self.fd.as_raw_fd(), key, value, 0)
        };
        check(returned).map(drop)
    }

    /// Deletes the entry of a key, and says whether there was one.
    pub(crate) fn delete(&self, key: &K) -> io::Result<bool> {
        // SAFETY: the key has the size of this map's (checked in `new`).
        let returned = unsafe {
            libbpf_sys::bpf_map_delete_elem(self.fd.as_raw_fd(), std::ptr::from_ref(key).cast())
        };
        absent_is_none(check(returned)).map(|found| found.is_some())
    }

    /// Stores entries until all are there or the kernel refuses one: how many are there, and why.
    pub(crate) fn put_many(&self, keys: &[K], values: &[V]) -> (usize, io::Result<()>) {
        assert_eq!(keys.len(), values.len(), "a value for each key");
        let mut done = 0;
        while done < keys.len() {
            let mut count = (keys.len() - done).min(BATCH) as u32;
            // SAFETY: both slices have `count` more elements of this map's sizes (checked in `new`).
            let returned = unsafe {
                libbpf_sys::bpf_map_update_batch(
                    self.fd.as_raw_fd(),
                    keys.as_ptr().add(done).cast(),
                    values.as_ptr().add(done).cast(),
                    &raw mut count,
                    std::ptr::null(),
                )
            };
            // The kernel says how far it came, also when it fails.
            done += (count as usize).min(keys.len() - done);
            if let Err(error) = check(returned) {
                return (done, Err(error));
            }
        }
        (done, Ok(()))
    }

    /// Every entry, in no order. Entries that come or go meanwhile may or may not be among them.
    pub(crate) fn entries(&self) -> io::Result<Vec<(K, V)>> {
        // A batch has to hold the fullest hash bucket; the kernel says ENOSPC when it does not.
        let mut batch = 1024.min(self.max_entries.max(1)) as usize;
        loop {
            let mut all = Vec::new();
            match self.batches(batch, &mut |key, value| all.push((key, value))) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && batch < 1 << 20 => {
                    batch *= 4
                }
                other => return other.map(|()| all),
            }
        }
    }

    /// Shows every entry to `visit`, a batch in memory at a time. Some may be shown twice.
    pub(crate) fn visit(&self, mut visit: impl FnMut(K, V)) -> io::Result<()> {
        let mut batch = 4096.min(self.max_entries.max(1)) as usize;
        loop {
            match self.batches(batch, &mut visit) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && batch < 1 << 20 => {
                    batch *= 4
                }
                other => return other,
            }
        }
    }

    fn batches(&self, batch: usize, visit: &mut dyn FnMut(K, V)) -> io::Result<()> {
        let mut keys = vec![MaybeUninit::<K>::zeroed(); batch];
        let mut values = vec![MaybeUninit::<V>::zeroed(); batch];
        // Where to go on: a bucket's number, or for tries a key.
        let (mut next, mut from) = ([0u64; 8], None::<[u64; 8]>);
        assert!(size_of::<K>() <= size_of_val(&next), "a batch position holds a key");
        loop {
            let mut count = batch as u32;
            let start = from.as_mut().map_or(std::ptr::null_mut(), |at| at.as_mut_ptr().cast());
            // SAFETY: the arrays hold `batch` keys and values, `count` says so; the positions are
            // large enough for what the kernel keeps in them.
            let returned = unsafe {
                libbpf_sys::bpf_map_lookup_batch(
                    self.fd.as_raw_fd(),
                    start,
                    next.as_mut_ptr().cast(),
                    keys.as_mut_ptr().cast(),
                    values.as_mut_ptr().cast(),
                    &raw mut count,
                    std::ptr::null(),
                )
            };
            let done = match check(returned) {
                Ok(_) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                Err(error) => return Err(error),
            };
            for (key, value) in keys.iter().zip(&values).take(count as usize) {
                // SAFETY: the buffers start zeroed and any bytes are a `K` and a `V`.
                let (key, value) = unsafe { (key.assume_init(), value.assume_init()) };
                visit(key, value);
            }
            if done {
                return Ok(());
            }
            from = Some(next);
        }
    }
}

impl<K, V> AsFd for Map<K, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An array with a `V` per CPU and element.
#[derive(Debug)]
pub(crate) struct PerCpuArray<V> {
    map: OwnedFd,
    cpus: usize,
    max_entries: u32,
    of: PhantomData<fn() -> V>,
}

impl<V: Pod> PerCpuArray<V> {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<PerCpuArray<V>> {
        let info = map_info(fd.as_fd())?;
        if info.value_size as usize != size_of::<V>() || !size_of::<V>().is_multiple_of(8) {
            let what = format!("values of {} bytes", info.value_size);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        // SAFETY: no arguments.
        let cpus = check(unsafe { libbpf_sys::libbpf_num_possible_cpus() })? as usize;
        Ok(PerCpuArray { map: fd, cpus, max_entries: info.max_entries, of: PhantomData })
    }

    /// The values of all CPUs for elements `0..max_entries`: element `i` is `[i * cpus..][..cpus]`.
    pub(crate) fn read_all(&self) -> io::Result<(usize, Vec<V>)> {
        let total = self.max_entries as usize;
        let mut keys = vec![0u32; total];
        let mut values = vec![MaybeUninit::<V>::zeroed(); total * self.cpus];
        let (mut count, mut next) = (self.max_entries, 0u64);
        // SAFETY: `keys` and `values` hold `count` elements, values one per possible CPU.
        let returned = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                self.map.as_raw_fd(),
                std::ptr::null_mut(),
                (&raw mut next).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        absent_is_none(check(returned))?;
        // SAFETY: the buffer starts zeroed and any bytes are a `V`.
        Ok((self.cpus, values.iter().map(|value| unsafe { value.assume_init() }).collect()))
    }
}

/// The kernel's description of a map.
pub(crate) fn map_info(map: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_map_info> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes.
    check(unsafe {
        libbpf_sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    Ok(info)
}

/// Creates an array of `entries` values of `value_size` bytes that processes can map.
pub(crate) fn create_mappable_array(
    name: &str,
    value_size: usize,
    entries: u32,
) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    // SAFETY: name and options live through the call.
    let returned = unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_ARRAY,
            name.as_ptr(),
            size_of::<u32>() as u32,
            value_size as u32,
            entries,
            &raw const options,
        )
    };
    let fd = check(returned)?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The whole value of element 0, whatever its size.
pub(crate) fn first_value(map: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut value = vec![0u8; (map_info(map)?.value_size as usize).next_multiple_of(8)];
    let key = 0u32;
    // SAFETY: `value` has room for what the kernel says a value takes.
    check(unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            value.as_mut_ptr().cast(),
        )
    })?;
    Ok(value)
}

/// The value of element 0, which has as many bytes as a `T`.
pub(crate) fn first_value_as<T: Pod>(map: BorrowedFd<'_>) -> io::Result<T> {
    let bytes = first_value(map)?;
    if bytes.len() < size_of::<T>() {
        let what = format!("values of {} bytes", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    // SAFETY: there are enough bytes, and any bytes are a `T`.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
