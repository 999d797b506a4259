//! Version 1 of the text: the fields of a [`NodeState`] with their names.

use super::{EncodeError, Unreadable, json, malformed};
use crate::node_state::{LeftOut, NodeState};
use serde::{Deserialize, Serialize};

pub(super) const VERSION: u32 = 1;

/// End of a text that leaves nothing out.
const WHOLE: &str = "\"truncated\":0}";

#[derive(Serialize)]
struct Text<'a> {
    v: u32,
    #[serde(flatten)]
    state: &'a NodeState,
    /// [`LeftOut::total`], for readers that do not know [`LeftOut`].
    truncated: u32,
}

#[derive(Deserialize)]
struct OnlyTruncated {
    #[serde(default)]
    truncated: u32,
}

pub(super) fn write(state: &NodeState) -> Result<String, EncodeError> {
    serde_json::to_string(&Text { v: VERSION, state, truncated: state.left_out.total() }).map_err(json)
}

pub(super) fn read(text: &str) -> Result<NodeState, Unreadable> {
    let mut state: NodeState = serde_json::from_str(text).map_err(malformed)?;
    if state.left_out.is_nothing() && !text.ends_with(WHOLE) {
        let OnlyTruncated { truncated } = serde_json::from_str(text).map_err(malformed)?;
        if truncated > 0 {
            state.left_out = LeftOut::guessed(truncated, &state);
        }
    }
    Ok(state)
}
