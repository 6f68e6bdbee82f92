//! Tests of attempts with implementations that misbehave, and of results: how they are written,
//! read, compared and shown.

mod compare;
mod doubts;
mod page;
mod result;
mod runner;
mod runner_schema;
