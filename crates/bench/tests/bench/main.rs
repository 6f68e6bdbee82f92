//! Programs that do not do what they say, and results: written, read, compared, shown.

mod compare;
mod doubts;
#[path = "../common/fixture.rs"]
mod fixture;
mod liars;
mod page;
mod result;
mod runner_schema;
mod tumi8;
