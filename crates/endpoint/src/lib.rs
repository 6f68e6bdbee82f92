//! HTTP/3 server and client with admission hooks.
