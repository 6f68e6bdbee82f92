//! The command as a user runs it, a file for each part of it; [`arrows`] looks at how the workspace
//! is built. Whole experiments are in `tests/long`, the gateway with servers and attacks in `tests/e2e`.
//!
//! One program for all of them, as each is linked to everything that the command is. Tests run side by
//! side: names of labs and gateways, ports and folders are each test's own.

mod arrows;
mod author;
mod bench;
mod bench_endpoint;
mod bench_endpoint_tcp;
mod bench_extras;
mod bench_list;
mod bench_results;
mod bench_run;
mod bench_transport;
mod bench_trouble;
mod capture;
#[path = "../common/mod.rs"]
mod common;
mod config;
mod daemon;
mod exchange;
mod explain;
mod fec;
mod first_plugin;
mod gateway;
mod get;
mod help;
mod interop;
mod interop_list;
mod lab_run;
mod manual;
mod metrics;
mod moves;
mod nsquic;
mod plugin;
mod plugin_limits;
mod qlog;
mod reload_keys;
mod reproduce_plugins;
mod scripts;
mod serve;
mod service;
mod sim;
mod usage;
mod watch;
