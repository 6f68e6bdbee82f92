//! Flags that a QUIC server and client have in common.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use equic_endpoint::{Congestion, KeyLog};

use crate::failure::{Done, Failure};

/// How the transport is to behave.
#[derive(Args)]
pub struct QuicArgs {
    /// Congestion control of what is sent
    #[arg(long, value_enum, value_name = "ALGORITHM", default_value = "cubic")]
    congestion: Algorithm,
    /// Append TLS secrets to this file, for packet analysers: whoever has it can read the connections
    #[arg(long, value_name = "FILE")]
    keylog: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Algorithm {
    /// RFC 9002
    Newreno,
    /// RFC 9438 with HyStart++
    Cubic,
    /// Version 3
    Bbr,
}

impl QuicArgs {
    /// What was chosen.
    pub fn congestion(&self) -> Congestion {
        match self.congestion {
            Algorithm::Newreno => Congestion::NewReno,
            Algorithm::Cubic => Congestion::Cubic,
            Algorithm::Bbr => Congestion::Bbr,
        }
    }

    /// The file for secrets, open.
    pub fn key_log(&self) -> Done<Option<KeyLog>> {
        let Some(path) = &self.keylog else { return Ok(None) };
        KeyLog::open(path).map(Some).map_err(|error| {
            Failure::because(format_args!("cannot write {}", path.display()), error)
        })
    }
}
