//! The result matrix: the result of each case for each pair of client and server. It is written as
//! the QUIC Interop Runner's JSON with the additional fields `reason`, `seconds` and `logs`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::{Case, CaseResult, Outcome};

/// The results of all cells of a run.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    /// Names of the clients, in the order of the matrix's rows.
    pub clients: Vec<String>,
    /// Names of the servers, in the order of the matrix's columns.
    pub servers: Vec<String>,
    /// The cases that were run.
    pub cases: Vec<Case>,
    /// Address of each implementation's web page, by name.
    pub urls: BTreeMap<String, String>,
    /// Results, by client, server and case.
    pub cells: BTreeMap<(String, String, Case), Outcome>,
}

/// Start and end of a run, in seconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// Start of the run.
    pub start: f64,
    /// End of the run.
    pub end: f64,
}

impl Matrix {
    /// Returns the abbreviations of those cases between a client and a server that have the result
    /// `verdict`.
    pub fn letters(&self, client: &str, server: &str, verdict: CaseResult) -> Vec<&'static str> {
        let became = |case: &&Case| {
            self.cell(client, server, **case).is_some_and(|cell| cell.verdict == verdict)
        };
        self.cases.iter().filter(became).map(|case| case.abbreviation()).collect()
    }

    /// Returns the result of a case between a client and a server, or `None` if the case did not
    /// run.
    pub fn cell(&self, client: &str, server: &str, case: Case) -> Option<&Outcome> {
        self.cells.get(&(client.to_owned(), server.to_owned(), case))
    }

    /// Returns the number of cells with the result `verdict`.
    pub fn count(&self, verdict: CaseResult) -> usize {
        self.cells.values().filter(|cell| cell.verdict == verdict).count()
    }

    /// Returns the result in the QUIC Interop Runner's JSON. It has a list of cases for each pair,
    /// ordered by client and then by server.
    pub fn json(&self, times: Times, log_dir: &str) -> Value {
        let tests: BTreeMap<&str, Value> = self
            .cases
            .iter()
            .map(|case| {
                let words = json!({ "name": case.name(), "desc": case.description() });
                (case.abbreviation(), words)
            })
            .collect();
        let pairs = self.clients.iter().flat_map(|client| {
            self.servers.iter().map(move |server| (client.as_str(), server.as_str()))
        });
        let results: Vec<Vec<Value>> = pairs
            .map(|(client, server)| {
                self.cases.iter().map(|case| self.entry(client, server, *case)).collect()
            })
            .collect();
        json!({
            "start_time": times.start,
            "end_time": times.end,
            "log_dir": log_dir,
            "servers": self.servers,
            "clients": self.clients,
            "urls": self.urls,
            "tests": tests,
            "quic_version": "0x1",
            "results": results,
            "measurements": [],
        })
    }

    fn entry(&self, client: &str, server: &str, case: Case) -> Value {
        let mut entry = json!({ "abbr": case.abbreviation(), "name": case.name(), "result": null });
        if let Some(cell) = self.cell(client, server, case) {
            entry["result"] = json!(cell.verdict);
            entry["seconds"] = json!((cell.seconds * 1000.0).round() / 1000.0);
            if !cell.why.is_empty() {
                entry["reason"] = json!(cell.why);
            }
            if let Some(logs) = &cell.logs {
                entry["logs"] = json!(logs);
            }
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_json_has_the_format_of_the_runner() {
        let mut matrix = Matrix {
            clients: vec!["a".to_owned()],
            servers: vec!["b".to_owned(), "c".to_owned()],
            cases: vec![Case::Handshake, Case::V2],
            ..Matrix::default()
        };
        let outcome = |verdict, why: &str| Outcome {
            verdict,
            why: why.to_owned(),
            seconds: 0.25,
            logs: None,
        };
        let mut put = |server: &str, case, outcome| {
            matrix.cells.insert(("a".to_owned(), server.to_owned(), case), outcome);
        };
        put("b", Case::Handshake, outcome(CaseResult::Succeeded, ""));
        put("b", Case::V2, outcome(CaseResult::Failed, "it is wrong"));
        put("c", Case::Handshake, outcome(CaseResult::Unsupported, "it says so"));
        let json = matrix.json(Times { start: 1.0, end: 2.0 }, "logs");
        assert_eq!(json["tests"]["V2"]["name"], "v2");
        assert_eq!(json["results"][0][0]["result"], "succeeded");
        assert_eq!(json["results"][0][1]["result"], "failed");
        assert_eq!(json["results"][0][1]["reason"], "it is wrong");
        assert_eq!(json["results"][1][0]["result"], "unsupported");
        assert_eq!(json["results"][1][1]["result"], Value::Null);
        assert_eq!(matrix.letters("a", "b", CaseResult::Succeeded), ["H"]);
        assert_eq!(matrix.count(CaseResult::Failed), 1);
    }
}
