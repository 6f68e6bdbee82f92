//! Tests of the command `equic-lab` as a user sees it, with a file for each part of the command.
//! Whole experiments are in `tests/long`.
//!
//! All of them are one test program, because each needs all the libraries of the command. Tests run
//! in parallel, so each test uses its own names of labs and gateways, its own ports and its own
//! directories.

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

use equic_test_kit::commands as common;
