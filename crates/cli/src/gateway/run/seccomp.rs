//! Restricts the system calls of a gateway's process after it is set up, with seccomp(2) and an
//! allow-list.
//!
//! A call that is not permitted fails with EPERM. It does not end the process, because a gateway
//! that has ended protects nothing.
//!
//! A deny-list would permit every new system call of later kernels, so this is an allow-list. The
//! filters have these effects:
//!
//! * bpf(2) may not load programs. An attacker in this process can therefore load no code into the
//!   kernel.
//! * Sockets may belong to four address families only.
//! * clone(2) may create threads but no processes. clone3(2) fails with ENOSYS, because a filter
//!   cannot read its arguments. libc then uses clone(2).
//! * No memory is both writable and executable.
//! * Signals can only be sent to threads of the process itself.
//!
//! If the filters cannot be installed, the gateway does not start, and the error names
//! `-o gateway.seccomp=false`. The crate `seccompiler` needs no C library, unlike `libseccomp`.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

use crate::failure::{Failure, Result};

/// System calls that are permitted with any arguments.
const ALLOWED: &[libc::c_long] = &[
    // Memory. mmap(2) and mprotect(2) are not here, because their arguments are restricted below.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Descriptors.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_lseek,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    // Files: the configuration, /proc, lists, the saved bans, pins, and the path of the socket.
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    // Needed to write another copy of the file with the keys for servers.
    libc::SYS_ftruncate,
    libc::SYS_memfd_create,
    // Sockets. Their creation is restricted below to some address families.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Threads, time, and signals within this process.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_membarrier,
    libc::SYS_nanosleep,
    libc::SYS_prctl,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    // The process's own identity and privileges, and information about the machine.
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getuid,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Older system calls with the same purposes, which exist on x86-64 but not on newer architectures.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[libc::c_long] = &[];

/// Permitted address families of sockets: AF_UNIX for the socket at which servers join, AF_INET and
/// AF_INET6 for Prometheus, AF_NETLINK for notifications about interfaces.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Requests of ioctl(2) that are refused, because they have effects outside this process: simulated
/// terminal input (TIOCSTI), commands to the console (TIOCLINUX), and signals to another process
/// when a descriptor becomes ready (FIOSETOWN, SIOCSPGRP).
const IOCTL_REFUSED: [u64; 4] = [0x5412, 0x541c, 0x8901, 0x8902];

/// Commands of fcntl(2) that are refused, because they make the kernel send any signal to any
/// process of this user: F_SETOWN, F_SETSIG, F_SETOWN_EX.
const FCNTL_REFUSED: [u64; 3] = [8, 10, 15];

/// Permitted commands of bpf(2), by their numbers in `enum bpf_cmd` of linux/bpf.h. They act on
/// maps (except freezing), pins and links, and return information about objects. Loading programs
/// or types (5, 18), running a program (10), and attaching without a link (8, 9, 17) are not
/// permitted.
const BPF: [u64; 25] =
    [0, 1, 2, 3, 4, 6, 7, 11, 12, 13, 14, 15, 16, 19, 20, 21, 23, 24, 25, 26, 27, 28, 30, 31, 34];

/// Restricts all threads of this process to the permitted system calls, permanently.
///
/// # Errors
/// The kernel or the architecture does not support the filters.
pub(super) fn restrict() -> Result {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::because("cannot restrict system calls", error)
            .help("`-o gateway.seccomp=false` starts without this restriction")
    };
    for program in filters().map_err(|e| failed(&e))? {
        apply_filter_all_threads(&program).map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// Returns the filters in the order in which they must be installed. The kernel applies the
/// strictest result of all filters.
fn filters() -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let errno = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    // The arguments of clone3(2) are in memory, which a filter cannot read. If clone3(2) fails with
    // ENOSYS, libc uses clone(2).
    let no_clone3 = SeccompFilter::new(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        SeccompAction::Allow,
        errno(libc::ENOSYS),
        arch,
    )?;
    let allowed = SeccompFilter::new(rules()?, errno(libc::EPERM), SeccompAction::Allow, arch)?;
    Ok([no_clone3.try_into()?, allowed.try_into()?])
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules() -> Result<Rules, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let any = ALLOWED.iter().chain(OLD).chain(&[libc::SYS_clone3]);
    let mut rules: Rules = any.map(|call| (*call, Vec::new())).collect();
    // Creates a condition on one argument of a call. Only the argument's lower 32 bits count.
    let when = |argument: u8, operation: SeccompCmpOp, value: u64| {
        let length = SeccompCmpArgLen::Dword;
        SeccompRule::new(vec![SeccompCondition::new(argument, length, operation, value)?])
    };
    let without =
        |argument: u8, flag: libc::c_int| when(argument, MaskedEq(flag.unsigned_abs().into()), 0);
    let all_but = |argument: u8, refused: &[u64]| {
        let length = SeccompCmpArgLen::Dword;
        let conditions = refused
            .iter()
            .map(|value| SeccompCondition::new(argument, length.clone(), SeccompCmpOp::Ne, *value));
        SeccompRule::new(conditions.collect::<Result<_, _>>()?)
    };
    rules.insert(libc::SYS_ioctl, vec![all_but(1, &IOCTL_REFUSED)?]);
    rules.insert(libc::SYS_fcntl, vec![all_but(1, &FCNTL_REFUSED)?]);
    // A process of root may signal many others. Permit only signals to this process's threads, and
    // only changes of this process's limits.
    rules.insert(libc::SYS_tgkill, vec![when(0, Eq, std::process::id().into())?]);
    rules.insert(libc::SYS_prlimit64, vec![when(0, Eq, 0)?]);
    // Permit new threads but no new processes.
    let thread: u64 = libc::CLONE_THREAD.unsigned_abs().into();
    rules.insert(libc::SYS_clone, vec![when(0, MaskedEq(thread), thread)?]);
    // Memory is either writable or executable, and mprotect(2) cannot make it both. Libraries can
    // still be loaded, but no code can be generated.
    let either = vec![without(2, libc::PROT_EXEC)?, without(2, libc::PROT_WRITE)?];
    rules.insert(libc::SYS_mmap, either);
    rules.insert(libc::SYS_mprotect, vec![without(2, libc::PROT_EXEC)?]);
    let families = FAMILIES.map(|family| when(0, Eq, family.unsigned_abs().into()));
    rules.insert(libc::SYS_socket, families.into_iter().collect::<Result<_, _>>()?);
    let commands = BPF.map(|command| when(0, Eq, command));
    rules.insert(libc::SYS_bpf, commands.into_iter().collect::<Result<_, _>>()?);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    fn call(number: libc::c_long, arguments: [libc::c_long; 4]) -> Result<libc::c_long, i32> {
        let [a, b, c, d] = arguments;
        // SAFETY: the calls below are either refused by the filters, or take only numbers and null
        // pointers.
        let returned = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
        if returned >= 0 {
            Ok(returned)
        } else {
            Err(Error::last_os_error().raw_os_error().unwrap())
        }
    }

    /// Runs a function in a thread to which the filters are applied. Other threads of the test
    /// process stay unrestricted.
    fn restricted<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let work = || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            for program in filters().unwrap() {
                seccompiler::apply_filter(&program).unwrap();
            }
            work()
        };
        std::thread::spawn(work).join().expect("it does not panic")
    }

    #[test]
    fn seccomp_refuses_calls_that_a_gateway_does_not_need() {
        let (path, map) = (c"/bin/true".as_ptr() as libc::c_long, libc::MAP_PRIVATE);
        let anonymous = libc::c_long::from(map | libc::MAP_ANONYMOUS);
        let limit = libc::RLIMIT_NOFILE as libc::c_long;
        let (read_write, execute) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_EXEC);
        let forbidden: Vec<(&str, libc::c_long, [libc::c_long; 4])> = vec![
            ("execve", libc::SYS_execve, [path, 0, 0, 0]),
            ("execveat", libc::SYS_execveat, [libc::AT_FDCWD.into(), path, 0, 0]),
            ("fork", libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0]),
            ("ptrace", libc::SYS_ptrace, [libc::PTRACE_TRACEME.into(), 0, 0, 0]),
            ("mount", libc::SYS_mount, [path, path, path, 0]),
            ("setuid", libc::SYS_setuid, [0; 4]),
            ("kill", libc::SYS_kill, [0; 4]),
            ("signal to another process", libc::SYS_tgkill, [1, 1, 0, 0]),
            ("limits of another process", libc::SYS_prlimit64, [1, limit, 0, 0]),
            ("input of the terminal", libc::SYS_ioctl, [0, 0x5412, path, 0]),
            ("owner of a descriptor", libc::SYS_ioctl, [0, 0x8901, 0, 0]),
            ("signal of a descriptor", libc::SYS_fcntl, [0, 10, 0, 0]),
            // The kernel reads only the lower 32 bits of the command number, so the upper bits must
            // not hide it from the filter.
            ("signal of a descriptor, disguised", libc::SYS_fcntl, [0, 1 << 32 | 10, 0, 0]),
            ("packet socket", libc::SYS_socket, [17, libc::SOCK_RAW.into(), 0, 0]),
            ("program load", libc::SYS_bpf, [5, 0, 0, 0]),
            ("types load", libc::SYS_bpf, [18, 0, 0, 0]),
            ("test run", libc::SYS_bpf, [10, 0, 0, 0]),
            ("W^X", libc::SYS_mmap, [0, 4096, (read_write | execute).into(), anonymous]),
        ];
        for (what, number, arguments) in forbidden {
            let answer = restricted(move || call(number, arguments));
            assert_eq!(answer, Err(libc::EPERM), "{what}");
        }
        assert_eq!(restricted(|| call(libc::SYS_clone3, [0; 4])), Err(libc::ENOSYS));
        let error = restricted(|| std::process::Command::new("/bin/true").status());
        assert!(error.is_err(), "{error:?}");
    }

    #[test]
    fn seccomp_permits_calls_that_a_gateway_needs() {
        let without_filters = call(libc::SYS_bpf, [0; 4]);
        restricted(move || {
            let text = std::fs::read_to_string("/proc/self/stat").unwrap();
            assert!(!text.is_empty());
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("a"), "b").unwrap();
            std::fs::rename(folder.path().join("a"), folder.path().join("c")).unwrap();
            folder.close().unwrap();
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
            // SAFETY: signal 0 is not delivered; the call only checks that the thread exists.
            assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), 0) }, 0);
            nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
            let (reader, _writer) = std::os::unix::net::UnixStream::pair().unwrap();
            reader.set_nonblocking(true).unwrap();
            std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            nix::net::if_::if_nametoindex("lo").unwrap();
            // The call passes the filter. The kernel then rejects it as it does without filters,
            // because the map has no attributes.
            assert_eq!(call(libc::SYS_bpf, [0; 4]), without_filters);
            nix::unistd::User::from_name("root").unwrap().unwrap();
        });
    }
}
