//! The gaps between the uses of a node's bitstreams, as its collector counts them, and the annotation with which it
//! publishes them (S-11).
//!
//! The annotation lies beside the node state and not in it: only the registry reads it, demand changes over minutes, and
//! the state goes to all schedulers twice a second. Both are written by one request, so that the API server sees no more
//! of them and the age of one is that of the other.

use super::{BINS, FADE_AT, Gaps, ONE, middle};
use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_core::node_state::DigestPrefix;
use fpga_core::units::{Millis, MonotonicTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Node annotation, written by the collector: the gaps between uses of each bitstream.
pub const REUSE_ANNOTATION: &str = "fpga-scheduling.io/reuse";
/// Maximum length of an annotation that is written, in bytes: about sixty bitstreams.
pub const MAX_BYTES: usize = 8_192;
/// Maximum length of an annotation that is read, in bytes.
const MAX_DECODED_BYTES: usize = 16_384;
/// Maximum number of boards of a node.
const MAX_BOARDS: usize = 16;
/// Maximum number of bitstreams of a board; the one unused for the longest time is forgotten.
const MAX_BITSTREAMS: usize = 64;
/// Version of the annotation.
const VERSION: u32 = 1;

/// A bitstream as events name it. The name or the digest may be unknown, but not both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UsedBitstream {
    /// Name of the accelerator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Start of the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<DigestPrefix>,
}

/// The gaps between the uses of each bitstream on each board of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReuseLog(BTreeMap<String, Vec<Logged>>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Logged {
    bitstream: UsedBitstream,
    #[serde(with = "as_sparse")]
    gaps: Gaps,
}

/// What an annotation says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReuse {
    v: u32,
    /// The boards with a use, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub boards: BTreeMap<String, BoardReuse>,
}

/// The bitstreams of one board.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BoardReuse {
    /// The bitstreams.
    pub used: Vec<BitstreamReuse>,
    /// Number of bitstreams that had no room in the annotation: those used least.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

/// The gaps between the uses of one bitstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BitstreamReuse {
    /// The bitstream.
    #[serde(flatten)]
    pub bitstream: UsedBitstream,
    /// Time from the start of the last use to the measurement.
    #[serde(rename = "idleMs")]
    pub idle: Millis,
    /// Bins that have gaps, each with its count in sixteenths.
    gaps: Vec<(u8, u16)>,
}

impl UsedBitstream {
    /// The bitstream of an event; `None` for kernels from source, whose name is no file's.
    #[must_use]
    pub fn of(id: &BitstreamId, digest: Option<&Digest>) -> Option<Self> {
        match id {
            BitstreamId::Digest(digest) => Some(Self { name: None, digest: Some(digest.into()) }),
            BitstreamId::Name(name) if name.contains('/') => None,
            BitstreamId::Name(name) => {
                Some(Self { name: Some(name.clone()), digest: digest.map(Into::into) })
            }
        }
    }

    fn is_of(&self, id: &BitstreamId, digest: Option<&Digest>) -> bool {
        let prefix = |digest: &Digest| Some(DigestPrefix::from(digest)) == self.digest;
        match id {
            BitstreamId::Digest(digest) => self.name.is_none() && prefix(digest),
            BitstreamId::Name(name) => {
                self.name.as_ref() == Some(name) && digest.map_or(self.digest.is_none(), prefix)
            }
        }
    }

    /// Whether the bitstream has this identifier.
    #[must_use]
    pub fn is(&self, id: &BitstreamId) -> bool {
        match id {
            BitstreamId::Name(name) => self.name.as_deref() == Some(name),
            BitstreamId::Digest(digest) => self.digest == Some(digest.into()),
        }
    }
}

impl ReuseLog {
    /// Records that the bitstream of an event was used on `board` from the moment `at` on. Uses that begin before the
    /// last known one add nothing, since events come in the order of their ends.
    pub fn used(&mut self, board: &str, id: &BitstreamId, digest: Option<&Digest>, at: MonotonicTime) {
        if !self.0.contains_key(board) {
            if self.0.len() >= MAX_BOARDS {
                return;
            }
            self.0.insert(board.to_owned(), Vec::new());
        }
        let Some(known) = self.0.get_mut(board) else { return };
        if let Some(logged) = known.iter_mut().find(|logged| logged.bitstream.is_of(id, digest)) {
            if logged.gaps.last().is_none_or(|last| at > last) {
                logged.gaps.used(at);
            }
            return;
        }
        let Some(bitstream) = UsedBitstream::of(id, digest) else { return };
        if known.len() >= MAX_BITSTREAMS {
            let oldest = (0..known.len()).min_by_key(|index| known[*index].gaps.last());
            oldest.map(|oldest| known.swap_remove(oldest));
        }
        let mut gaps = Gaps::default();
        gaps.used(at);
        known.push(Logged { bitstream, gaps });
    }

    /// Forgets a board that has left.
    pub fn forget(&mut self, board: &str) {
        self.0.remove(board);
    }

    /// The text of the annotation at the moment `now`. If there is too much for [`MAX_BYTES`], bitstreams that are used
    /// least are left out.
    #[must_use]
    pub fn text(&self, now: MonotonicTime) -> String {
        let mut all: Vec<(&String, &Logged, f32)> = Vec::new();
        for (board, known) in &self.0 {
            all.extend(known.iter().map(|logged| (board, logged, logged.gaps.profile(now).cold[0])));
        }
        all.sort_by(|(_, _, a), (_, _, b)| b.total_cmp(a));
        let mut reuse = NodeReuse { v: VERSION, boards: BTreeMap::new() };
        let mut room = MAX_BYTES;
        for (board, logged, _) in all {
            let idle = logged.gaps.last().map_or(Millis::ZERO, |last| now - last);
            let published =
                BitstreamReuse { bitstream: logged.bitstream.clone(), idle, gaps: logged.gaps.sparse() };
            let of_board = reuse.boards.entry(board.clone()).or_default();
            // The frame of a board has less than 128 bytes, with an id of 63.
            let frame = if of_board.used.is_empty() { 128 } else { 1 };
            let length = frame + serde_json::to_string(&published).map_or(MAX_BYTES, |text| text.len());
            if length <= room {
                room -= length;
                of_board.used.push(published);
            } else {
                of_board.left_out += 1;
            }
        }
        serde_json::to_string(&reuse).unwrap_or_default()
    }
}

impl NodeReuse {
    /// What an annotation says; `None` if it can't be understood, breaks a bound, or is of another version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_DECODED_BYTES {
            return None;
        }
        let parsed: Self = serde_json::from_str(text).ok()?;
        let is_valid = |used: &BitstreamReuse| {
            let counts = used.gaps.iter().map(|(_, count)| u32::from(*count));
            used.gaps.iter().all(|(bin, _)| usize::from(*bin) < BINS)
                && used.gaps.is_sorted_by(|(a, _), (b, _)| a < b)
                && counts.sum::<u32>() < FADE_AT
        };
        let boards = || parsed.boards.values();
        let is_valid = parsed.v == VERSION
            && boards().len() <= MAX_BOARDS
            && boards().all(|board| board.used.len() <= MAX_BITSTREAMS && board.used.iter().all(is_valid));
        is_valid.then_some(parsed)
    }
}

impl BitstreamReuse {
    /// Number of gaps that are remembered.
    #[must_use]
    pub fn gaps_known(&self) -> u32 {
        self.gaps.iter().map(|(_, count)| u32::from(*count)).sum::<u32>() / ONE
    }

    /// Mean of the gaps; 0 without any.
    #[must_use]
    pub fn mean_gap(&self) -> Millis {
        let count: u64 = self.gaps.iter().map(|(_, count)| u64::from(*count)).sum();
        let time = self.gaps.iter().map(|(bin, count)| middle(usize::from(*bin)) * f64::from(*count));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        let time = time.sum::<f64>() as u64;
        Millis(time / count.max(1))
    }

    /// The effect on the slots of its board, `age` after the measurement, provided that there was no use since.
    #[must_use]
    pub fn profile(&self, age: Millis) -> super::ReuseProfile {
        let last = MonotonicTime::START;
        Gaps::of(&self.gaps, last).profile(last + self.idle + age)
    }
}

impl Gaps {
    fn of(sparse: &[(u8, u16)], last: MonotonicTime) -> Self {
        let mut gaps = Self { last: Some(last), ..Self::default() };
        for (bin, count) in sparse {
            if let Some(counted) = gaps.counts.get_mut(usize::from(*bin)) {
                *counted += u32::from(*count);
                gaps.total += u32::from(*count);
            }
        }
        gaps
    }

    /// The bins that have gaps, with their counts, which are below [`FADE_AT`].
    fn sparse(&self) -> Vec<(u8, u16)> {
        let counted = (0..).zip(self.counts).filter(|(_, count)| *count > 0);
        counted.map(|(bin, count)| (bin, u16::try_from(count).unwrap_or(u16::MAX))).collect()
    }
}

/// Gaps in a checkpoint: the bins that have some, and the last use.
mod as_sparse {
    use super::Gaps;
    use fpga_core::units::MonotonicTime;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(gaps: &Gaps, serializer: S) -> Result<S::Ok, S::Error> {
        (gaps.sparse(), gaps.last()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Gaps, D::Error> {
        let (gaps, last) = <(Vec<(u8, u16)>, Option<MonotonicTime>)>::deserialize(deserializer)?;
        Ok(last.map_or_else(Gaps::default, |last| Gaps::of(&gaps, last)))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(log: &mut ReuseLog, board: &str, bitstream: &str, at: u64) {
        log.used(board, &BitstreamId::Name(bitstream.to_owned()), None, MonotonicTime(at));
    }

    fn every(log: &mut ReuseLog, board: &str, bitstream: &str, period: u64, until: u64) {
        (0..until / period).for_each(|use_| used(log, board, bitstream, use_ * period));
    }

    #[test]
    fn what_is_read_has_the_profile_of_what_was_counted() {
        let mut log = ReuseLog::default();
        every(&mut log, "dm0", "sobel", 1_000, 100_000);
        let text = log.text(MonotonicTime(99_500));
        assert_eq!(
            text,
            r#"{"v":1,"boards":{"dm0":{"used":[{"name":"sobel","idleMs":500,"gaps":[[19,1584]]}]}}}"#
        );
        let restored: ReuseLog = serde_json::from_str(&serde_json::to_string(&log).unwrap()).unwrap();
        assert_eq!(restored, log);
        let read = NodeReuse::parse(&text).unwrap();
        let sobel = &read.boards["dm0"].used[0];
        assert_eq!(sobel.gaps_known(), 99);
        assert!((724..=1_024).contains(&sobel.mean_gap().0), "{}", sobel.mean_gap());
        let mut gaps = Gaps::default();
        (0..100).for_each(|use_| gaps.used(MonotonicTime(use_ * 1_000)));
        assert_eq!(sobel.profile(Millis(700)), gaps.profile(MonotonicTime(99_000 + 1_200)));
        assert_eq!(NodeReuse::parse(&ReuseLog::default().text(MonotonicTime(5))).unwrap().boards.len(), 0);
    }

    #[test]
    fn uses_that_began_at_once_or_earlier_are_one() {
        let mut log = ReuseLog::default();
        for at in [5, 5, 3, 9] {
            used(&mut log, "dm0", "sobel", at);
        }
        let read = NodeReuse::parse(&log.text(MonotonicTime(9))).unwrap();
        assert_eq!(read.boards["dm0"].used[0].gaps_known(), 1);
    }

    #[test]
    fn kernels_from_source_are_no_bitstream() {
        assert_eq!(UsedBitstream::of(&BitstreamId::Name("kube-fpga/source".into()), None), None);
        let digest: Digest = format!("sha256:{}", "0a".repeat(32)).parse().unwrap();
        let both = UsedBitstream::of(&BitstreamId::Name("mm".into()), Some(&digest)).unwrap();
        assert!(both.is(&BitstreamId::Name("mm".into())) && both.is(&BitstreamId::Digest(digest)));
        assert!(!both.is(&BitstreamId::Name("sobel".into())));
    }

    #[test]
    fn what_is_used_least_has_no_room_and_is_counted() {
        let mut log = ReuseLog::default();
        for bitstream in 0..MAX_BITSTREAMS {
            let name = format!("{bitstream:0200}");
            every(&mut log, "dm0", &name, 1_000 + 10 * bitstream as u64, 50_000);
        }
        let text = log.text(MonotonicTime(50_000));
        assert!(text.len() <= MAX_BYTES, "{}", text.len());
        let read = NodeReuse::parse(&text).unwrap();
        let board = &read.boards["dm0"];
        assert_eq!(board.used.len() + board.left_out as usize, MAX_BITSTREAMS);
        assert!(board.left_out > 0 && board.used[0].bitstream.name == Some(format!("{:0200}", 0)));
    }

    #[test]
    fn no_peer_makes_it_grow_and_what_has_left_is_forgotten() {
        let mut log = ReuseLog::default();
        for peer in 0..1_000_u64 {
            used(&mut log, &format!("b{peer}"), "sobel", peer);
            used(&mut log, "b0", &format!("x{peer}"), peer);
        }
        assert_eq!((log.0.len(), log.0["b0"].len()), (MAX_BOARDS, MAX_BITSTREAMS));
        log.forget("b0");
        assert_eq!(log.0.len(), MAX_BOARDS - 1);
    }

    #[test]
    fn garbage_says_nothing() {
        let one = |gaps: &str| {
            format!(r#"{{"v":1,"boards":{{"b":{{"used":[{{"name":"x","idleMs":1,"gaps":{gaps}}}]}}}}}}"#)
        };
        assert!(NodeReuse::parse(&one("[[3,16]]")).is_some());
        for text in [
            String::new(),
            "7".into(),
            r#"{"v":2}"#.into(),
            one("[[64,1]]"),
            one("[[3,16],[3,16]]"),
            one("[[3,8000],[4,8000]]"),
            one("[[3,-1]]"),
            format!(r#"{{"v":1}}{}"#, " ".repeat(MAX_DECODED_BYTES)),
        ] {
            assert_eq!(NodeReuse::parse(&text), None, "{text}");
        }
    }
}
