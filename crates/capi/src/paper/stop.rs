//! Actions of the signal callbacks.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// Command of bpf(2), from <linux/bpf.h>.
const BPF_LINK_DETACH: libc::c_long = 34;
/// Maximum number of links that are detached explicitly. The end of the process detaches all
/// others.
const LINKS: usize = 64;
const NONE: c_int = -1;

/// Links of this process, for a signal handler that must not lock or allocate.
static ATTACHED: [AtomicI32; LINKS] = [const { AtomicI32::new(NONE) }; LINKS];
/// The owning process. A child created by `fork` has a copy of this list.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Adds a link to be detached on a signal.
pub(super) fn remember(link: c_int) {
    // SAFETY: the call has no arguments and cannot fail.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    for place in &ATTACHED {
        if place.compare_exchange(NONE, link, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Removes a link that is about to be closed, because its number may be reused for another file.
pub(super) fn forget(link: c_int) {
    for place in &ATTACHED {
        let _ = place.compare_exchange(link, NONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Detaches all links and ends the process. It uses only system calls and atomics, so it is safe in
/// a signal handler.
///
/// The end of the process would close its links, and detach the program. But a forked child also
/// has them open, so they are detached explicitly first.
pub(super) fn detach_and_exit() -> ! {
    // SAFETY: async-signal-safe system calls. The attribute begins with the link's descriptor, and
    // the rest is zero. Detaching a descriptor that is not a link fails without effect.
    unsafe {
        if OWNER.load(Ordering::Relaxed) == libc::getpid() {
            for place in &ATTACHED {
                let link = place.swap(NONE, Ordering::Relaxed);
                if link != NONE {
                    let attribute = [link as u32, 0];
                    libc::syscall(
                        libc::SYS_bpf,
                        BPF_LINK_DETACH,
                        attribute.as_ptr(),
                        size_of_val(&attribute),
                    );
                }
            }
        }
        libc::_exit(libc::EXIT_SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_remembered_and_forgotten() {
        let held =
            |link| ATTACHED.iter().filter(|place| place.load(Ordering::Relaxed) == link).count();
        remember(1_000_001);
        remember(1_000_002);
        assert_eq!((held(1_000_001), held(1_000_002)), (1, 1));
        forget(1_000_001);
        forget(1_000_001);
        assert_eq!((held(1_000_001), held(1_000_002)), (0, 1));
        forget(1_000_002);
    }
}
