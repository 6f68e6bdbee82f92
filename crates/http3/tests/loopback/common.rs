//! Helpers that most tests use: requests, and waiting for a condition.

use std::time::Duration;

use equic_http3::Connection;
use http::StatusCode;
use http::uri::PathAndQuery;
use tokio::time::timeout;

pub(crate) use equic_test_kit::http3::{PATIENCE, Running, Watched, loopback, start, start_as};

pub(crate) fn path(path: &str) -> PathAndQuery {
    path.parse().unwrap()
}

/// Sends a GET request for a path and reads the whole response, so that the server counts the
/// request as answered.
pub(crate) async fn get(connection: &Connection, target: &str) -> StatusCode {
    let mut response = connection.get(&path(target)).await.unwrap();
    response.drain().await.unwrap();
    response.status
}

/// Polls until a condition holds, for conditions without a notification.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, waiting).await.is_ok(), "never: {what}");
}

/// Returns and prints the seed of a randomised test: EQUIC_SEED if it is set, otherwise a random
/// number.
pub(crate) fn seed(test: &str) -> u64 {
    let seed = match std::env::var("EQUIC_SEED") {
        Ok(text) => text.parse().expect("EQUIC_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("{test}: EQUIC_SEED={seed}");
    seed
}
