//! Settings of measured programs that may differ from the defaults.

use anyhow::{Result, bail};
use rustls::CipherSuite;

use crate::{BUFFER, PAYLOAD, unsupported};

/// Requested settings. `None` stands for the default, which is the same for all implementations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// SO_RCVBUF, in bytes.
    pub rcvbuf: Option<usize>,
    /// SO_SNDBUF, in bytes.
    pub sndbuf: Option<usize>,
    /// UDP segmentation offload (UDP_SEGMENT).
    pub gso: Option<bool>,
    /// Congestion control algorithm.
    pub congestion: Option<Congestion>,
    /// Largest UDP payload in bytes, or size of a TCP segment.
    pub mtu: Option<u16>,
    /// The cipher suite.
    pub cipher: Option<Cipher>,
}

/// A congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 9438.
    Cubic,
    /// NewReno (RFC 9002 s.7, or RFC 6582 for TCP).
    NewReno,
    /// BBR, in the version that the stack implements.
    Bbr,
}

/// A cipher suite of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// TLS_AES_128_GCM_SHA256.
    Aes128,
    /// TLS_CHACHA20_POLY1305_SHA256.
    ChaCha20,
}

impl Knobs {
    /// Parses a command-line option and its value. Returns false if the option is not one of these
    /// settings.
    pub(crate) fn take(&mut self, word: &str, value: &str) -> Result<bool> {
        match word {
            "--rcvbuf" => self.rcvbuf = Some(value.parse()?),
            "--sndbuf" => self.sndbuf = Some(value.parse()?),
            "--gso" => {
                self.gso = Some(match value {
                    "on" => true,
                    "off" => false,
                    _ => bail!("the value must be on or off"),
                });
            }
            "--congestion" => {
                self.congestion = Some(match value {
                    "cubic" => Congestion::Cubic,
                    "newreno" => Congestion::NewReno,
                    "bbr" => Congestion::Bbr,
                    _ => unsupported(value),
                });
            }
            "--mtu" => self.mtu = Some(value.parse()?),
            "--cipher" => {
                self.cipher = Some(match value {
                    "aes128" => Cipher::Aes128,
                    "chacha20" => Cipher::ChaCha20,
                    _ => unsupported(value),
                });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the SO_RCVBUF to set, in bytes.
    pub fn receive_buffer(&self) -> usize {
        self.rcvbuf.unwrap_or(BUFFER)
    }

    /// Returns the SO_SNDBUF to set, in bytes.
    pub fn send_buffer(&self) -> usize {
        self.sndbuf.unwrap_or(BUFFER)
    }

    /// Returns the largest UDP payload, in bytes.
    pub fn payload(&self) -> u16 {
        self.mtu.unwrap_or(PAYLOAD)
    }

    /// Returns the congestion control algorithm.
    pub fn congestion(&self) -> Congestion {
        self.congestion.unwrap_or(Congestion::Cubic)
    }

    /// Returns the cipher suite, which is the only one that the program permits.
    pub fn cipher(&self) -> Cipher {
        self.cipher.unwrap_or(Cipher::Aes128)
    }
}

impl Congestion {
    /// Returns the algorithm's name as programs print it in their settings.
    pub fn name(self) -> &'static str {
        match self {
            Congestion::Cubic => "cubic",
            Congestion::NewReno => "newreno",
            Congestion::Bbr => "bbr",
        }
    }
}

impl Cipher {
    /// Returns the cipher suite as rustls names it.
    pub fn suite(self) -> CipherSuite {
        match self {
            Cipher::Aes128 => CipherSuite::TLS13_AES_128_GCM_SHA256,
            Cipher::ChaCha20 => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        }
    }

    /// Returns the cipher suite's name in RFC 8446.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes128 => "TLS_AES_128_GCM_SHA256",
            Cipher::ChaCha20 => "TLS_CHACHA20_POLY1305_SHA256",
        }
    }
}
