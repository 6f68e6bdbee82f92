//! Threads that do not receive the application's signals.

use std::mem::MaybeUninit;
use std::ptr;

/// Runs `work` with all signals blocked in this thread. Threads that `work` starts inherit the
/// mask. The heartbeat and sweeper threads must not receive a signal for which the application
/// waits in its own thread.
pub(crate) fn blocked<T>(work: impl FnOnce() -> T) -> T {
    let _restore = Mask::block_all();
    work()
}

struct Mask(libc::sigset_t);

impl Mask {
    fn block_all() -> Mask {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigfillset` fills `all`, and `pthread_sigmask` fills `before`. With SIG_BLOCK
        // and valid pointers, neither call fails.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Mask(before.assume_init())
        }
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: the pointer refers to a valid mask, which was saved earlier.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_sigint() -> bool {
        let mut now = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: without a new set, the call only stores the current mask in `now`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), libc::SIGINT) == 1
        }
    }

    #[test]
    fn signals_are_blocked_in_new_threads_and_the_mask_is_restored() {
        assert!(!blocks_sigint());
        let inside = blocked(|| std::thread::spawn(blocks_sigint).join().unwrap());
        assert!(inside);
        assert!(!blocks_sigint());
    }
}
