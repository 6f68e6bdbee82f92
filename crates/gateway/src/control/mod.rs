use std::time::Duration;
use serde::Serialize;
use ipnet::IpNet;
use crate::*;
pub struct Control {}
#[derive(Serialize)] pub struct Found { pub program_id: u32, pub name: String, pub owner_pid: u32, pub interfaces: Vec<Interface> }
#[derive(Serialize)] pub struct Interface { pub ifindex: u32, pub name: Option<String>, pub native: Option<bool> }
#[derive(Serialize)] pub struct Status {}
#[derive(Serialize)] pub struct CounterRow { pub service: String, pub reason: Reason, pub packets: u64, pub bytes: u64, pub dropped: u64 }
#[derive(Serialize)] pub struct SourceRow { pub source: String, pub services: Vec<String>, pub connections: u32, pub packets: u64, pub bytes: u64, pub drops: u64 }
#[derive(Serialize)] pub struct Change { pub service: Option<String>, pub key: String, pub old: String, pub new: String }
#[derive(Serialize)] pub struct ListEntry { pub prefix: IpNet, pub action: ListAction, pub expires_in: Option<Duration> }
#[derive(Serialize)] pub enum ListAction { Deny, Allow }
pub enum SortBy { Packets, Bytes, Drops, Connections }
pub struct Events {}
#[derive(Serialize)] pub struct Event {}
impl Events { pub fn poll(&mut self, _timeout: Duration) -> Result<Vec<Event>> { unreachable!() } }
impl Control {
    pub fn find() -> Result<Vec<Found>> { unreachable!() }
    /// by interface name, gateway name or program id
    pub fn open(selector: Option<&str>) -> Result<Control> { unreachable!() }
    pub fn status(&self) -> Result<Status> { unreachable!() }
    pub fn counters(&self) -> Result<Vec<CounterRow>> { unreachable!() }
    pub fn sources(&self, top: usize, by: SortBy) -> Result<Vec<SourceRow>> { unreachable!() }
    pub fn set(&self, key: &str, value: &str) -> Result<Vec<Change>> { unreachable!() }
    pub fn deny(&self, prefix: IpNet, ttl: Option<Duration>) -> Result<()> { unreachable!() }
    pub fn allow(&self, prefix: IpNet, ttl: Option<Duration>) -> Result<()> { unreachable!() }
    pub fn forget(&self, prefix: IpNet) -> Result<bool> { unreachable!() }
    pub fn lists(&self) -> Result<Vec<ListEntry>> { unreachable!() }
    pub fn join(&self, name: &str) -> Result<Ledger> { unreachable!() }
    /// removes ledgers of dead servers, expired list entries
    pub fn sweep(&self) -> Result<Swept> { unreachable!() }
    /// takes the program off its interfaces; only our own links
    pub fn detach(&self) -> Result<Vec<Interface>> { unreachable!() }
    pub fn events(&self) -> Result<Events> { unreachable!() }
    /// a fresh unattached copy with all state, for `judge`
    pub fn snapshot(&self, object: ObjectSource) -> Result<Gateway> { unreachable!() }
}
#[derive(Serialize)] pub struct Swept { pub ledgers: u32, pub list_entries: u32 }
