//! The command `equic-lab` as a user runs it, a file for each part of it. Whole experiments are in `tests/long`.
//!
//! One program for all of them, as each is linked to everything that the command is. Tests run side by
//! side: names of labs and gateways, ports and folders are each test's own.

mod bench;
mod bench_endpoint;
mod bench_endpoint_tcp;
mod bench_extras;
mod bench_list;
mod bench_results;
mod bench_run;
mod bench_transport;
mod bench_trouble;
mod help;
mod interop;
mod interop_list;
mod net;
mod net_run;
mod nsquic;
mod plugin;
mod plugin_limits;
mod qlog;
mod reproduce_plugins;
mod scene;
mod sim;
mod usage;

use equic_testing as common;
