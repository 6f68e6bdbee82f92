//! Measures the cost of waking a thread that waits for a datagram. Two threads send one datagram
//! back and forth.

use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use nix::libc;

use crate::kernel::Place;
use crate::message::set;
use crate::{DATAGRAM, Row, thread_time};

/// Number of round trips in a measurement.
const TURNS: usize = 100;
/// Time after which a datagram counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn rows(place: &Place) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let ways = [
        ("send to a thread that waits, wake it, receive", 0),
        ("the same, SO_BUSY_POLL of 50 microseconds", 50),
    ];
    for (name, busy) in ways {
        let sockets = place.sockets()?;
        for socket in &sockets {
            socket.set_read_timeout(Some(PATIENCE))?;
            if busy > 0 {
                set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, busy)?;
            }
        }
        let measure = move || Ok(vec![turns(&sockets)? as f64 / (2 * TURNS) as f64]);
        rows.push(Row { name, columns: &["both ends"], measure: Box::new(measure) });
    }
    Ok(rows)
}

/// Returns the CPU time of both threads together, in nanoseconds.
fn turns([here, there]: &[UdpSocket; 2]) -> io::Result<u64> {
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut buffer = [0; DATAGRAM];
            let start = thread_time()?;
            for _ in 0..TURNS {
                let length = there.recv(&mut buffer)?;
                there.send(&buffer[..length])?;
            }
            Ok::<u64, io::Error>(thread_time()? - start)
        });
        let mut buffer = [0; DATAGRAM];
        let start = thread_time()?;
        for _ in 0..TURNS {
            here.send(&buffer)?;
            here.recv(&mut buffer)?;
        }
        let own = thread_time()? - start;
        let other = other.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        Ok(own + other)
    })
}
