//! Answers requests on the streams of a server.

use anyhow::Result;

use crate::perf::Request;
use crate::{ReceiveStream, SendStream};

/// Reads a request from a stream and writes the response to it.
pub async fn answer(mut to: impl SendStream, mut from: impl ReceiveStream) -> Result<()> {
    let mut request = Request::default();
    while from.receive(|data| request.received(data)).await? {}
    request.finished()?;
    while request.left() > 0 {
        let piece = request.next();
        let count = piece.len();
        to.send(piece).await?;
        request.sent(count);
    }
    to.finish().await
}
