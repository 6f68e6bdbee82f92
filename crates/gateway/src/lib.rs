//! XDP gateway for QUIC servers: quotas, rates and lists enforced in the kernel, driven live by the server.

pub mod model;
