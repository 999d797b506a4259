//! The bitstreams that were used or loaded most recently, in bounded number.

use crate::bitstream::{BitstreamId, Digest};
use crate::node_state::{DigestPrefix, RecentBitstream};
use crate::units::MonotonicTime;
use serde::{Deserialize, Serialize};

/// Maximum number of bitstreams that are remembered. The annotation has room for far fewer.
pub const MAX_RECENT: usize = 256;

/// Bitstreams by last use, the most recent first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Recent(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    name: Option<String>,
    digest: Option<DigestPrefix>,
    used: MonotonicTime,
}

impl Recent {
    /// Records a use of a bitstream at `used`.
    pub(super) fn touch(&mut self, id: &BitstreamId, digest: Option<&Digest>, used: MonotonicTime) {
        let (name, digest) = match id {
            BitstreamId::Name(name) => (Some(name.as_str()), digest.map(DigestPrefix::from)),
            BitstreamId::Digest(digest) => (None, Some(DigestPrefix::from(digest))),
        };
        self.touch_parts(name, digest, used);
    }

    /// Records a use of a bitstream by the parts of its identifier, as a published state has them.
    pub(super) fn touch_parts(
        &mut self,
        name: Option<&str>,
        digest: Option<DigestPrefix>,
        used: MonotonicTime,
    ) {
        // Linear search: most uses are of a bitstream that was used a moment ago and is among the first.
        let found = self.0.iter().position(|entry| match digest {
            Some(_) => entry.digest == digest,
            None => entry.name.as_deref() == name,
        });
        let mut entry = match found {
            Some(index) => self.0.remove(index),
            None => Entry { name: None, digest, used },
        };
        if let Some(name) = name {
            entry.name = Some(name.to_owned());
        }
        entry.used = entry.used.max(used);
        let place = self.0.iter().position(|other| other.used <= entry.used).unwrap_or(self.0.len());
        self.0.insert(place, entry);
        self.0.truncate(MAX_RECENT);
    }

    /// Forgets bitstreams last used before `oldest`.
    pub(super) fn forget_before(&mut self, oldest: MonotonicTime) {
        while self.0.last().is_some_and(|entry| entry.used < oldest) {
            self.0.pop();
        }
    }

    /// The list for a node state measured at `now`.
    pub(super) fn published(&self, now: MonotonicTime) -> Vec<RecentBitstream> {
        self.0
            .iter()
            .map(|entry| RecentBitstream {
                name: entry.name.clone(),
                digest: entry.digest,
                last_used_ago: now - entry.used,
            })
            .collect()
    }
}
