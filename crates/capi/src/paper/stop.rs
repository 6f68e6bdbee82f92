//! The actions of the signal callbacks in the paper's API.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// Command of bpf(2), from <linux/bpf.h>.
const BPF_LINK_DETACH: libc::c_long = 34;
/// Maximum number of BPF links that a signal callback detaches explicitly. The kernel detaches all
/// others when the process ends.
const LINKS: usize = 64;
const NONE: c_int = -1;

/// File descriptors of this process's BPF links. They are atomics, because a signal handler must
/// not lock or allocate.
static ATTACHED: [AtomicI32; LINKS] = [const { AtomicI32::new(NONE) }; LINKS];
/// ID of the process to which the list of links belongs. A child created by `fork` has a copy of
/// the list.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Adds a BPF link that a signal callback must detach.
pub(super) fn remember(link: c_int) {
    // SAFETY: the call has no arguments and cannot fail.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    for place in &ATTACHED {
        if place.compare_exchange(NONE, link, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Removes a BPF link that is about to be closed, because its descriptor may then be reused for
/// another file.
pub(super) fn forget(link: c_int) {
    for place in &ATTACHED {
        let _ = place.compare_exchange(link, NONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Detaches all links, and ends the process. It only uses system calls and atomics, so a signal
/// handler may call it.
///
/// The kernel closes the links when the process ends, which would detach the program. But if the
/// process has forked, the child also has the links open. Therefore, they are detached explicitly
/// first.
pub(super) fn detach_and_exit() -> ! {
    // SAFETY: the system calls are async-signal-safe. The attribute begins with the link's
    // descriptor and is otherwise zero. Detaching a descriptor that is not a link fails without
    // effect.
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
