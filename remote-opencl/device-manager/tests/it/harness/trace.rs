//! Reads the file of `--trace`.

use fpga_test_kit::until_async;
use serde_json::Value;
use std::path::Path;

/// The events of a trace, as soon as `done` accepts them. A thread of the manager writes the file.
pub async fn traced(path: &Path, done: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    until_async("the trace to be complete", async || {
        let text = std::fs::read_to_string(path).unwrap();
        let whole = format!("{}]", text.trim_end().trim_end_matches(','));
        let events: Vec<Value> = serde_json::from_str(&whole).unwrap_or_default();
        if done(&events) { Ok(events) } else { Err(text) }
    })
    .await
}
