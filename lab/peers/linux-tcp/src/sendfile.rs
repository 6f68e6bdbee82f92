//! The server without TLS. The kernel sends its responses with sendfile(2).

use std::fs::File;
use std::io::Write as _;

use anyhow::{Result, ensure};
use equic_bench_contract::perf::{PERIOD, Request, pattern_bytes};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::sendfile::sendfile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;

/// Length of the file, in bytes. It is a multiple of the pattern's period.
const LENGTH: u64 = 64 * PERIOD as u64;
/// Maximum length of a request, in bytes.
const MOST: usize = 64 << 10;

/// Creates a file in memory that contains the pattern.
pub fn pattern() -> Result<File> {
    let mut file = File::from(memfd_create("pattern", MFdFlags::MFD_CLOEXEC)?);
    for _ in 0..LENGTH / PERIOD as u64 {
        file.write_all(pattern_bytes(0, PERIOD as u64))?;
    }
    Ok(file)
}

/// Reads the request of a connection and answers it.
pub async fn answer(mut stream: TcpStream, file: &File) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Request::default();
    let mut buffer = vec![0; MOST];
    loop {
        match stream.read(&mut buffer).await? {
            0 => break,
            count => request.received(&buffer[..count]),
        }
    }
    request.finished()?;
    while request.left() > 0 {
        let Some(at) = request.at() else {
            let head = request.next();
            stream.write_all(&head).await?;
            request.sent(head.len());
            continue;
        };
        let from = at % LENGTH;
        let count = usize::try_from(request.left().min(LENGTH - from))?;
        let sent = stream.async_io(Interest::WRITABLE, || {
            let mut offset = from.cast_signed();
            Ok(sendfile(&stream, file, Some(&mut offset), count)?)
        });
        let sent = sent.await?;
        ensure!(sent > 0, "the in-memory file is shorter than the requested number of bytes");
        request.sent(sent);
    }
    Ok(stream.shutdown().await?)
}
