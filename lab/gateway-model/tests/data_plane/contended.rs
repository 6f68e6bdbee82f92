//! Tests of the XDP program under unusual conditions: several CPUs charge the same bucket at the
//! same time, and headers are outside of the linear part of the packet buffer.

use crate::packets;
use crate::packets::frame::{DESTINATION_OPTIONS, TPID_8021AD, TPID_8021Q, udp};
use crate::packets::program::{Program, test_run};
use crate::packets::quic;
use crate::packets::script::{START, Script, case};
use equic_gateway::abi;
use equic_gateway::reason::Reason;
use equic_gateway_model::{Rate, Service};
use libbpf_rs::libbpf_sys;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn short() -> Vec<u8> {
    udp("192.0.2.1:1000", "10.0.0.1:443", quic::short(100)).build()
}

fn initial(number: u32) -> Vec<u8> {
    let cid = [number.to_be_bytes(), number.to_be_bytes()].concat();
    let payload = quic::initial().scid(&cid).dcid(&cid).fill(1200).build();
    udp("192.0.2.1:1000", "10.0.0.1:443", payload).build()
}

/// Loads the program with the configuration of a script, and sets a clock that stands still.
fn loaded(script: &Script) -> Program {
    let mut program = Program::default();
    script.play(&mut program, |_, _, _| {});
    // This run sets the clock.
    program.loaded().run(&[0; 60], START);
    program
}

/// Several CPUs charge one bucket at the same time. The number of packets that pass must be exactly
/// the content of the bucket.
#[test]
fn bucket_is_charged_exactly_by_all_cpus() {
    let name = "bucket_is_charged_exactly_by_all_cpus";
    if !packets::is_root() {
        return packets::skip(name, "loading XDP programs needs root");
    }
    const BURST: u64 = 20_000;
    const THREADS: u32 = 4;
    const EACH: u32 = 50_000;
    let limited =
        |service: &mut Service| service.packets_per_source = Rate::per_second(1_000, BURST);
    let mut program = loaded(&case("one bucket").service(limited));
    // Creates the table entry of the source first, so that the threads do not compete for creating
    // it.
    program.loaded().run(&short(), START);
    let fd = program.loaded().program_fd();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| test_run(fd.as_fd(), &short(), EACH, None).expect("BPF_PROG_TEST_RUN"));
        }
    });
    let report = program.report_contended();
    let packets = |reason| report.counters.get(&(0, reason)).map_or(0, |counter| counter.packets);
    let all = u64::from(THREADS * EACH) + 1;
    assert_eq!(packets(Reason::Established), BURST);
    assert_eq!(packets(Reason::RatePackets), all - BURST);
    let (_, source) = report.sources.iter().next().expect("the source");
    assert_eq!((report.sources.len(), source.packets, source.drops), (1, all, all - BURST));
    assert_eq!(source.bytes, 100 * all, "of payload");
}

/// Another thread changes the state of a bucket all the time. The program must either charge a
/// packet, or refuse and count it, and no run may hang. How many packets are refused depends on the
/// processor. It may pass the memory between the CPUs in such a way that no update fails eight
/// times in a row.
#[test]
fn bucket_that_always_changes_loses_no_packet() {
    const PACKETS: u64 = 1_000_000;
    const RUNS: u32 = 50;
    let name = "bucket_that_always_changes_loses_no_packet";
    if !packets::is_root() {
        return packets::skip(name, "loading XDP programs needs root");
    }
    // The clock advances all the time, and a handshake may take no time. So every packet opens the
    // connection again, and is charged to the bucket.
    let limited = |service: &mut Service| {
        service.new_per_service = Rate::per_second(1_000, 1_000_000);
        service.handshake_ns = 0;
    };
    let [ours, theirs] = two_cpus();
    let mut program = loaded(&case("a service's bucket").service(limited));
    program.loaded().run(&initial(1), START);
    let fd = program.loaded().program_fd();
    let (rates, control) = (program.loaded().mapped_rates(), program.loaded().mapped_control());
    // SAFETY: the bucket's word is aligned, stays mapped as long as `rates` lives, and is accessed
    // only atomically.
    let word = unsafe { AtomicU64::from_ptr((&raw mut (*rates.as_ptr()).new_tat).cast()) };
    // SAFETY: the clock's word is aligned, stays mapped as long as `control` lives, and is accessed
    // only atomically.
    let clock = unsafe { AtomicU64::from_ptr(&raw mut (*control.as_ptr()).clock_ns) };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            have(&theirs);
            // The bucket's word gets a different value each time. The values are so far in the past
            // that the bucket is always full.
            for number in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                clock.store(START + number, Ordering::Relaxed);
                for _ in 0..64 {
                    word.fetch_add(1, Ordering::Relaxed);
                }
                word.fetch_min(number, Ordering::Relaxed);
            }
        });
        // This value is created first, so that the other thread ends even if a later statement
        // panics.
        let _done = Done(&done);
        have(&ours);
        for _ in 0..RUNS {
            let repeat = PACKETS as u32 / RUNS;
            test_run(fd.as_fd(), &initial(1), repeat, None).expect("BPF_PROG_TEST_RUN");
        }
    });
    let contended = program.loaded().tally(abi::EQUIC_TALLY_CONTENDED);
    let report = program.report_contended();
    let count = |reason| report.counters.get(&(0, reason)).map_or(0, |counter| counter.packets);
    // Contention must be the only reason for which packets are refused.
    assert_eq!(count(Reason::RateNewService), contended);
    assert_eq!(count(Reason::New) + count(Reason::Underway) + contended, PACKETS + 1);
}

/// Returns two of the CPUs that this thread may run on.
fn two_cpus() -> [CpuSet; 2] {
    let all = sched_getaffinity(Pid::from_raw(0)).expect("sched_getaffinity(2)");
    let mut cpus = (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu) == Ok(true)).map(|cpu| {
        let mut one = CpuSet::new();
        one.set(cpu).map(|()| one).expect("a CPU of the set")
    });
    [(); 2].map(|()| cpus.next().expect("this test needs two CPUs"))
}

/// Pins the calling thread to this CPU, with the highest priority. On a busy machine, the two
/// threads might otherwise run in turns, and then neither changes the word while the other updates
/// it.
fn have(cpu: &CpuSet) {
    sched_setaffinity(Pid::from_raw(0), cpu).expect("sched_setaffinity(2)");
    // SAFETY: setpriority(2) takes only numbers. On Linux, 0 means the calling thread.
    let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    assert_eq!(set, 0, "setpriority(2): {}", std::io::Error::last_os_error());
}

/// Ends the other thread even if this one panics, because the scope waits for it.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Headers are outside of the linear part of the packet buffer, because a driver may put only the
/// Ethernet header there.
#[test]
fn headers_outside_the_linear_part_are_judged() {
    let name = "headers_outside_the_linear_part_are_judged";
    if !packets::is_root() {
        return packets::skip(name, "loading XDP programs needs root");
    }
    let v6 = |src| udp(src, "[fd00::1]:443", quic::initial().fill(1200).build());
    let frames = [
        initial(1),
        udp("192.0.2.1:1000", "10.0.0.1:443", quic::short(60))
            .vlan(TPID_8021AD)
            .vlan(TPID_8021Q)
            .ip_options(10)
            .build(),
        v6("[2001:db8::1]:1000").vlan(TPID_8021Q).build(),
        v6("[2001:db8::1]:1000").extension(DESTINATION_OPTIONS, 2, 16).build(),
    ];
    let mut program = loaded(&case("everything denied").deny("0.0.0.0/0").deny("::/0"));
    // This program accepts a linear part of any size.
    let fd = program.loaded().program_fd();
    for frame in &frames {
        for bytes in (14..80).chain([100, 150, 1_000]) {
            match test_run(fd.as_fd(), frame, 1, Some(bytes)) {
                Ok(action) => assert_eq!(action, libbpf_sys::XDP_DROP, "{bytes} bytes"),
                // Before Linux 6.18, BPF_PROG_TEST_RUN cannot set the size of the linear part.
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
                    return;
                }
            }
        }
    }
}
