//! The bitstreams that were used or loaded lately, most recent first, in bounded number.

use crate::bitstream::{BitstreamId, Digest};
use crate::node_state::{DigestPrefix, RecentBitstream};
use crate::units::MonotonicTime;
use serde::{Deserialize, Serialize};

/// Most bitstreams that are remembered; far fewer fit into the annotation.
pub const MAX_RECENT: usize = 256;

/// Bitstreams by last use.
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
    /// Notes that a bitstream was used at `used`.
    pub(super) fn touch(&mut self, id: &BitstreamId, digest: Option<&Digest>, used: MonotonicTime) {
        let (name, digest) = match id {
            BitstreamId::Name(name) => (Some(name.as_str()), digest.map(DigestPrefix::from)),
            BitstreamId::Digest(digest) => (None, Some(DigestPrefix::from(digest))),
        };
        self.touch_parts(name, digest, used);
    }

    /// Like [`Self::touch`], from the parts of a published state.
    pub(super) fn touch_parts(
        &mut self,
        name: Option<&str>,
        digest: Option<DigestPrefix>,
        used: MonotonicTime,
    ) {
        // The usual bitstream was used a moment ago and is among the first.
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

    /// Forgets what was last used before `oldest`.
    pub(super) fn forget_before(&mut self, oldest: MonotonicTime) {
        while self.0.last().is_some_and(|entry| entry.used < oldest) {
            self.0.pop();
        }
    }

    /// The list as it is published.
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
