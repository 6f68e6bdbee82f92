//! Tests of the command `equic` as a user sees it, with a file for each part of the command.
//! [`dependencies`] checks the dependencies between crates. Whole experiments are in `tests/long`,
//! and tests of the gateway with servers and attacks are in `tests/e2e`.
//!
//! All of them are one test program, because each needs all the libraries of the command. Tests run
//! in parallel, so each test uses its own names of labs and gateways, its own ports and its own
//! directories.

mod capture;
mod config;
mod daemon;
mod dependencies;
mod doc_commands;
mod doc_toml;
mod exchange;
mod explain;
mod fec;
mod first_plugin;
mod gateway;
mod get;
mod help;
mod hosted;
mod hostile_server;
mod interfaces;
mod manual;
mod metrics;
mod old_names;
mod plugin;
mod plugin_author;
mod qlog;
mod reload_keys;
mod schemas;
mod scripts;
mod serve;
mod service;
mod usage;
mod watch;

use equic_test_kit::commands as common;
