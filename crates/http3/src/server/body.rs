//! The content of a response, which is read or generated only when it can be sent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::Context;
use super::files::{FileLookup, Identity};

/// Largest number of bytes that are passed to QUIC at a time.
pub(super) const CHUNK: usize = 64 * 1024;
static ZEROES: [u8; CHUNK] = [0; CHUNK];

/// Number of file descriptors that are reserved for sockets, logs and everything else.
const OTHER_DESCRIPTORS: u64 = 128;

/// Returns the number of files that the server may open under the process's current limit. It is at
/// least 1.
pub(super) fn room_for_files() -> usize {
    use nix::sys::resource::{Resource, getrlimit};
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let room = limit.saturating_sub(OTHER_DESCRIPTORS.min(limit / 2)).max(1);
    usize::try_from(room).unwrap_or(usize::MAX)
}

pub(super) enum Body {
    Text(Bytes),
    Zeroes(u64),
    File(Source),
}

/// A range of a file, which is the content of a response. The file is closed while the client does
/// not read, and opened again later, so that slow clients hold no descriptors.
pub(super) struct Source {
    pub path: String,
    pub identity: Identity,
    pub offset: u64,
    pub left: u64,
    pub open: Option<Arc<OpenFile>>,
}

/// An open file, with its permit from the limit of open files.
pub(super) struct OpenFile {
    file: File,
    context: Arc<Context>,
    _permit: OwnedSemaphorePermit,
}

impl OpenFile {
    pub(super) fn new(
        file: File,
        context: &Arc<Context>,
        permit: OwnedSemaphorePermit,
    ) -> Arc<OpenFile> {
        context.stats.0.files_opened.add(1);
        Arc::new(OpenFile { file, context: Arc::clone(context), _permit: permit })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.context.stats.0.files_closed.add(1);
    }
}

impl Body {
    pub(super) fn left(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Zeroes(left) | Self::File(Source { left, .. }) => *left,
        }
    }

    /// Closes the file of a body, to free its descriptor while nothing is sent. The next call of
    /// `next` opens it again.
    pub(super) fn rest(&mut self) {
        if let Self::File(source) = self {
            source.open = None;
        }
    }

    /// Returns the next `want` bytes. `want` must not exceed [`CHUNK`] or the bytes that are left.
    pub(super) async fn next(&mut self, context: &Arc<Context>, want: usize) -> io::Result<Bytes> {
        match self {
            Self::Text(text) => Ok(text.split_to(want)),
            Self::Zeroes(left) => {
                *left -= want as u64;
                Ok(Bytes::from_static(&ZEROES[..want]))
            }
            Self::File(source) => source.read(context, want).await,
        }
    }
}

impl Source {
    async fn read(&mut self, context: &Arc<Context>, want: usize) -> io::Result<Bytes> {
        let open = match &self.open {
            Some(open) => Arc::clone(open),
            None => Arc::clone(self.open.insert(reopen(context, &self.path, self.identity).await?)),
        };
        let offset = self.offset;
        let read = tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; want];
            // Fails if the file has become shorter. The response then cannot be completed.
            open.file.read_exact_at(&mut buffer, offset).map(|()| buffer)
        });
        let buffer = read.await.map_err(io::Error::other)??;
        self.offset += want as u64;
        self.left -= want as u64;
        Ok(buffer.into())
    }
}

async fn reopen(
    context: &Arc<Context>,
    path: &str,
    identity: Identity,
) -> io::Result<Arc<OpenFile>> {
    let permit = Arc::clone(&context.open_files).acquire_owned().await.map_err(io::Error::other)?;
    let Some(root) = &context.files else { return Err(io::ErrorKind::NotFound.into()) };
    match root.find(path).await {
        FileLookup::File { file, identity: found, .. } if found == identity => {
            Ok(OpenFile::new(file, context, permit))
        }
        FileLookup::Failed(error) => Err(error),
        _ => Err(io::Error::other("the file has changed during the response")),
    }
}
