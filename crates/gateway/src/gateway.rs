use std::path::PathBuf;
use std::time::Duration;
use serde::Serialize;
use crate::{Config, Result, Mode, Ledger, Control, Reason};
pub enum ObjectSource { Embedded, Path(PathBuf), Bytes(Vec<u8>) }
#[derive(Default)] pub struct LoadOptions { pub test_clock: bool, pub explain: bool, pub seed: Option<u64> }
pub struct Gateway { }
#[derive(Serialize)] pub struct Attached { pub ifindex: u32, pub interface: String, pub native: bool, pub notice: Option<String> }
impl Gateway {
    pub fn load(config: &Config, object: ObjectSource) -> Result<Gateway> { unreachable!() }
    pub fn load_with(config: &Config, object: ObjectSource, options: LoadOptions) -> Result<Gateway> { unreachable!() }
    pub fn attach(&self, interface: &str, mode: Mode) -> Result<Attached> { unreachable!() }
    pub fn detach(&self, interface: &str) -> Result<()> { unreachable!() }
    pub fn attached(&self) -> Vec<Attached> { unreachable!() }
    /// One per process: every call gives the same ledger.
    pub fn ledger(&self) -> Result<Ledger> { unreachable!() }
    pub fn control(&self) -> &Control { unreachable!() }
    pub fn set_clock(&self, now: Duration) { unreachable!() }
    pub fn test_run(&self, packet: &[u8], ifindex: Option<u32>) -> Result<TestRun> { unreachable!() }
    pub fn judge(&self, packet: &[u8]) -> Result<Judgement> { unreachable!() }
}
pub enum Action { Aborted, Drop, Pass, Tx, Redirect, Other(u32) }
pub struct TestRun { pub action: Action, pub duration: Duration }
#[derive(Serialize)] pub struct Judgement { /// None: not to a service
 pub verdict: Option<Verdict>, pub dropped: bool }
#[derive(Serialize)] pub struct Verdict { pub reason: Reason, pub service: String, pub source: String, pub connections: u32, pub version: Option<u32>, pub dcid: String, pub scid: String }
