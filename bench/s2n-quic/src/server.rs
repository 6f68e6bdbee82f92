use anyhow::{Result, anyhow};
use bench_contract::perf::{Piece, Request};
use bench_contract::{PERF, Server};
use bytes::Bytes;
use rustls::crypto::aws_lc_rs;
use s2n_quic::provider::tls::rustls::Server as Tls;
use s2n_quic::stream::BidirectionalStream;

pub async fn serve(server: &Server) -> Result<()> {
    let ticketer = aws_lc_rs::Ticketer::new()?;
    let tls =
        bench_contract::tls::server(server, aws_lc_rs::default_provider(), ticketer, &[PERF])?;
    let socket = bench_contract::socket(server.listen)?;
    let mut server = s2n_quic::Server::builder()
        .with_tls(Tls::from(tls))?
        .with_limits(crate::limits()?)?
        .with_io(crate::io(socket, server.listen)?)?
        .start()
        .map_err(|error| anyhow!("{error}"))?;
    bench_contract::ready(server.local_addr()?);
    while let Some(mut connection) = server.accept().await {
        tokio::spawn(async move {
            while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
                tokio::spawn(async move {
                    if let Err(error) = perf(stream).await {
                        eprintln!("stream: {error:#}");
                    }
                });
            }
        });
    }
    Ok(())
}

async fn perf(mut stream: BidirectionalStream) -> Result<()> {
    let mut request = Request::default();
    let mut chunks = [const { Bytes::new() }; 64];
    let mut open = true;
    while open {
        let (count, more) = stream.receive_vectored(&mut chunks).await?;
        for chunk in &mut chunks[..count] {
            request.received(&std::mem::take(chunk));
        }
        open = more;
    }
    request.finished()?;
    while request.left() > 0 {
        let piece = match request.next() {
            Piece::Counted(bytes) => Bytes::copy_from_slice(bytes),
            Piece::Zeros(bytes) => Bytes::from_static(bytes),
        };
        let count = piece.len();
        stream.send(piece).await?;
        request.sent(count);
    }
    stream.finish()?;
    Ok(())
}
