//! BPF maps with Rust types for keys and values.

use std::ffi::CString;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::abi::Pod;
use crate::sys::check;

/// Maximum number of entries that one system call stores.
const BATCH: usize = 4096;

/// A hash map, trie or array with keys `K` and values `V`. For per-CPU arrays see [`PerCpuArray`].
#[derive(Debug)]
pub(crate) struct Map<K, V> {
    fd: OwnedFd,
    max_entries: u32,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Pod, V: Pod> Map<K, V> {
    /// Wraps the descriptor of a map. Fails if the sizes that the kernel reports differ from those
    /// of `K` and `V`.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Map<K, V>> {
        let info = map_info(fd.as_fd())?;
        if info.key_size as usize != size_of::<K>() || info.value_size as usize != size_of::<V>() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("keys of {} bytes and values of {} bytes", info.key_size, info.value_size),
            ));
        }
        Ok(Map { fd, max_entries: info.max_entries, types: PhantomData })
    }

    pub(crate) fn max_entries(&self) -> u32 {
        self.max_entries
    }

    pub(crate) fn get(&self, key: &K) -> io::Result<Option<V>> {
        let mut value = MaybeUninit::<V>::zeroed();
        // SAFETY: key and value have the sizes of this map, as `new` has checked.
        let returned = unsafe {
            let key = std::ptr::from_ref(key).cast();
            libbpf_sys::bpf_map_lookup_elem(self.fd.as_raw_fd(), key, value.as_mut_ptr().cast())
        };
        // SAFETY: every bit pattern is a valid `V`.
        absent_is_none(check(returned)).map(|found| found.map(|_| unsafe { value.assume_init() }))
    }

    pub(crate) fn put(&self, key: &K, value: &V) -> io::Result<()> {
        // SAFETY: key and value have the sizes of this map, as `new` has checked.
        let returned = unsafe {
            let (key, value) = (std::ptr::from_ref(key).cast(), std::ptr::from_ref(value).cast());
            libbpf_sys::bpf_map_update_elem(self.fd.as_raw_fd(), key, value, 0)
        };
        check(returned).map(drop)
    }

    /// Deletes the entry of a key. Returns true if there was one.
    pub(crate) fn delete(&self, key: &K) -> io::Result<bool> {
        // SAFETY: the key has the key size of this map, as `new` has checked.
        let returned = unsafe {
            libbpf_sys::bpf_map_delete_elem(self.fd.as_raw_fd(), std::ptr::from_ref(key).cast())
        };
        absent_is_none(check(returned)).map(|found| found.is_some())
    }

    /// Stores entries until all are stored or the kernel refuses one. Returns the number of stored
    /// entries, and the error.
    pub(crate) fn put_many(&self, keys: &[K], values: &[V]) -> (usize, io::Result<()>) {
        assert_eq!(keys.len(), values.len(), "the numbers of keys and values must be equal");
        let mut done = 0;
        while done < keys.len() {
            let mut count = (keys.len() - done).min(BATCH) as u32;
            // SAFETY: both slices have `count` more elements with this map's sizes, as `new` has
            // checked.
            let returned = unsafe {
                libbpf_sys::bpf_map_update_batch(
                    self.fd.as_raw_fd(),
                    keys.as_ptr().add(done).cast(),
                    values.as_ptr().add(done).cast(),
                    &raw mut count,
                    std::ptr::null(),
                )
            };
            // The kernel sets `count` to the number of stored entries even if it fails.
            done += (count as usize).min(keys.len() - done);
            if let Err(error) = check(returned) {
                return (done, Err(error));
            }
        }
        (done, Ok(()))
    }

    /// Returns every entry, unordered. Entries that are added or removed during the call may be
    /// missing from the result.
    pub(crate) fn entries(&self) -> io::Result<Vec<(K, V)>> {
        // A batch must hold the fullest hash bucket. If it does not, the kernel returns ENOSPC.
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

    /// Calls `visit` for every entry, but keeps only one batch in memory. If the map changes, some
    /// entries may be visited twice.
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
        // Start of the next batch: the index of a bucket or, for tries, a key.
        let (mut next, mut from) = ([0u64; 8], None::<[u64; 8]>);
        assert!(
            size_of::<K>() <= size_of_val(&next),
            "the batch position must have room for a key"
        );
        loop {
            let mut count = batch as u32;
            let start = from.as_mut().map_or(std::ptr::null_mut(), |at| at.as_mut_ptr().cast());
            // SAFETY: the arrays have room for `batch` keys and values, and `count` is that number.
            // The positions are large enough for the data that the kernel stores in them.
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
                // SAFETY: the buffers are zeroed at first, and every bit pattern is a valid `K` and
                // `V`.
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

/// An array with one `V` per CPU and element.
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
        // SAFETY: the call has no arguments.
        let cpus = check(unsafe { libbpf_sys::libbpf_num_possible_cpus() })? as usize;
        Ok(PerCpuArray { map: fd, cpus, max_entries: info.max_entries, of: PhantomData })
    }

    /// Returns the number of CPUs, and the values of all CPUs for all elements. The values of
    /// element `i` are `[i * cpus..][..cpus]`.
    pub(crate) fn read_all(&self) -> io::Result<(usize, Vec<V>)> {
        let total = self.max_entries as usize;
        let mut keys = vec![0u32; total];
        let mut values = vec![MaybeUninit::<V>::zeroed(); total * self.cpus];
        let (mut count, mut next) = (self.max_entries, 0u64);
        // SAFETY: `keys` and `values` have room for `count` elements, with one value per possible
        // CPU.
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
        // SAFETY: the buffer is zeroed at first, and every bit pattern is a valid `V`.
        Ok((self.cpus, values.iter().map(|value| unsafe { value.assume_init() }).collect()))
    }
}

/// Returns the kernel's description of a map.
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
    // SAFETY: the name and the options are valid during the call.
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
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the whole value of element 0, whatever its size is.
pub(crate) fn first_value(map: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut value = vec![0u8; (map_info(map)?.value_size as usize).next_multiple_of(8)];
    let key = 0u32;
    // SAFETY: `value` has the size that the kernel reports for a value of this map.
    check(unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            value.as_mut_ptr().cast(),
        )
    })?;
    Ok(value)
}

/// Returns the value of element 0 as a `T`.
pub(crate) fn first_value_as<T: Pod>(map: BorrowedFd<'_>) -> io::Result<T> {
    let bytes = first_value(map)?;
    if bytes.len() < size_of::<T>() {
        let what = format!("values of {} bytes", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    // SAFETY: `bytes` has the size of `T`, and every bit pattern is a valid `T`.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
