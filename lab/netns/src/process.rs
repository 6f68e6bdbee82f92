//! Starts children that end with this process, and pins threads and children to CPUs.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

type Order = (Command, Sender<io::Result<Child>>);

/// Starts `command` from a thread that lives as long as this process.
///
/// The child of a command from [`Namespace::command`](crate::Namespace::command) asks the kernel to
/// kill it when its parent ends. For the kernel, the parent is the *thread* that started the child.
/// A child started with [`Command::spawn`] therefore dies with the calling thread. A child started
/// with this function dies with the process.
///
/// # Errors
/// Fails as [`Command::spawn`] does.
pub fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts programs has ended");
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        // If the thread cannot be started, `inbox` is dropped, and every `send` below fails.
        let _ = std::thread::Builder::new().name("lab-spawner".into()).spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let (reply, answer) = channel();
    spawner.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Lets the child of `command` run only on `cpus` (numbers as in `/proc/cpuinfo`).
///
/// # Errors
/// Fails with `InvalidInput` if `cpus` is empty, or if a number exceeds the kernel's CPU set
/// (1023). A CPU that the machine does not have makes the start of the child fail with `EINVAL`.
pub fn pin_command(command: &mut Command, cpus: &[usize]) -> io::Result<()> {
    let set = cpu_set(cpus)?;
    // SAFETY: the closure runs between fork and exec. sched_setaffinity(2) is one system call on
    // memory that the closure owns, and it neither allocates nor locks.
    unsafe {
        command.pre_exec(move || Ok(sched_setaffinity(Pid::from_raw(0), &set)?));
    }
    Ok(())
}

/// Pins the calling thread, and threads that it starts later, to `cpus`.
///
/// # Errors
/// Fails as [`pin_command`] does. If the machine does not have one of the CPUs, fails at once with
/// `EINVAL`.
pub fn pin_thread(cpus: &[usize]) -> io::Result<()> {
    Ok(sched_setaffinity(Pid::from_raw(0), &cpu_set(cpus)?)?)
}

fn cpu_set(cpus: &[usize]) -> io::Result<CpuSet> {
    let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidInput, message);
    if cpus.is_empty() {
        return Err(invalid("the list of CPUs for the process is empty".into()));
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu)
            .map_err(|_| invalid(format!("CPU {cpu} is beyond {}", CpuSet::count() - 1)))?;
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_pinning_holds_for_children_and_threads() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "grep Cpus_allowed_list /proc/self/status"]);
        pin_command(&mut command, &[0]).unwrap();
        let out = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(out.split_whitespace().last(), Some("0"));
        let status = std::thread::spawn(|| {
            pin_thread(&[0]).unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        assert!(status.join().unwrap().contains("Cpus_allowed_list:\t0\n"));
    }

    #[test]
    fn cpu_pinning_refuses_impossible_cpus() {
        assert_eq!(pin_thread(&[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(pin_thread(&[5000]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let mut command = Command::new("/bin/true");
        pin_command(&mut command, &[1000]).unwrap();
        assert_eq!(command.spawn().unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn children_outlive_the_thread_that_spawned_them() {
        let mut child = std::thread::spawn(|| {
            let mut command = Command::new("/bin/cat");
            command.stdin(std::process::Stdio::piped());
            // SAFETY: prctl(2) with this option takes an integer.
            unsafe {
                command.pre_exec(|| {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    Ok(())
                });
            }
            spawn(command).unwrap()
        })
        .join()
        .unwrap();
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "killed with the thread that asked for it");
    }
}
