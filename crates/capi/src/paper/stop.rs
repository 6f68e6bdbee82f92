//! Actions of the signal callbacks.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// bpf(2), as in <linux/bpf.h>.
const BPF_LINK_DETACH: libc::c_long = 34;
/// Number of links that are detached by name; the end of the process takes care of all.
const LINKS: usize = 64;
const NONE: c_int = -1;

/// Links of this process, for a handler that must not lock or allocate.
static ATTACHED: [AtomicI32; LINKS] = [const { AtomicI32::new(NONE) }; LINKS];
/// The process they belong to: a child made by `fork` has a copy of all this.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// A link to detach on a signal.
pub(super) fn remember(link: c_int) {
    // SAFETY: no arguments, no failure.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    for place in &ATTACHED {
        if place.compare_exchange(NONE, link, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// A link that is about to be closed: its number may soon be another file's.
pub(super) fn forget(link: c_int) {
    for place in &ATTACHED {
        let _ = place.compare_exchange(link, NONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Detaches and ends the process. Only system calls and atomics: safe in a signal handler.
///
/// The end of the process closes its links, and that takes the program off; but a child it forked
/// has them open too, so they are detached first.
pub(super) fn detach_and_exit() -> ! {
    // SAFETY: async-signal-safe system calls. The attribute begins with the link's descriptor, the
    // rest of it is zero; detaching something that is no link fails and changes nothing.
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
