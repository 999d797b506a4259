//! Reads the file of `--trace`.

use super::DEADLINE;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// The events of a trace, as soon as `done` accepts them. A thread of the manager writes the file.
pub async fn traced(path: &Path, done: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let text = std::fs::read_to_string(path).unwrap();
        let whole = format!("{}]", text.trim_end().trim_end_matches(','));
        let events: Vec<Value> = serde_json::from_str(&whole).unwrap_or_default();
        if done(&events) {
            return events;
        }
        assert!(Instant::now() < deadline, "{text}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
