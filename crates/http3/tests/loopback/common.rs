//! Helpers of most tests: requests, and waiting for a condition.

use std::time::Duration;

use equic_http3::Connection;
use http::StatusCode;
use http::uri::PathAndQuery;
use tokio::time::timeout;

pub(crate) use crate::running::{PATIENCE, Running, Watched, loopback, start};

pub(crate) fn path(path: &str) -> PathAndQuery {
    path.parse().unwrap()
}

/// GETs a path and reads all of it, so that the server knows it answered.
pub(crate) async fn get(connection: &Connection, target: &str) -> StatusCode {
    let mut response = connection.get(&path(target)).await.unwrap();
    response.drain().await.unwrap();
    response.status
}

/// Waits until a condition holds that sends no notification.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, waiting).await.is_ok(), "never: {what}");
}

/// The seed of a randomised test: EQUIC_SEED, or a new one; printed either way.
pub(crate) fn seed(test: &str) -> u64 {
    let seed = match std::env::var("EQUIC_SEED") {
        Ok(text) => text.parse().expect("EQUIC_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("{test}: EQUIC_SEED={seed}");
    seed
}
