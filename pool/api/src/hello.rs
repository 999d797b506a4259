//! The first message of a stream.

use crate::wire::{optional_name, text};
use crate::{Malformed, limits, v1};
use std::fmt;
use std::sync::Arc;

/// Who speaks.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// Version of the protocol.
    pub version: u32,
    /// A secret that proves who speaks; empty if the broker asks for none.
    pub token: String,
    /// The node that the process says it runs on. A token that names a node counts for more.
    pub node: Option<Arc<str>>,
}

impl TryFrom<v1::Hello> for Hello {
    type Error = Malformed;

    fn try_from(hello: v1::Hello) -> Result<Self, Malformed> {
        let v1::Hello { protocol_version, token, node } = hello;
        text(&token, limits::MAX_TOKEN_BYTES, "Hello.token")?;
        let node = optional_name(&node, limits::MAX_NAME_BYTES, "Hello.node")?;
        Ok(Self { version: protocol_version, token, node })
    }
}

impl From<Hello> for v1::Hello {
    fn from(hello: Hello) -> Self {
        let Hello { version, token, node } = hello;
        Self { protocol_version: version, token, node: node.as_deref().unwrap_or_default().to_owned() }
    }
}

impl fmt::Debug for Hello {
    /// Leaves the token out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, node, .. } = self;
        f.debug_struct("Hello").field("version", version).field("node", node).finish_non_exhaustive()
    }
}
