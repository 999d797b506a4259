//! Boards that people have taken out of rotation: a cordoned board keeps its containers and gets no new ones.
//!
//! `kubectl fpga cordon` writes them into an annotation of the node, [`CordonedBoards`]. The node's collector reads the
//! annotation and publishes the cordons with the node's state ([`crate::node_state::NodeState::cordons`]). All other
//! programs read the state alone.

use crate::units::WallTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Node annotation, written by `kubectl fpga cordon`: the boards that are out of rotation, each with the reason and the
/// time.
pub const CORDONED_BOARDS_ANNOTATION: &str = "fpga-scheduling.io/cordoned-boards";
/// Maximum number of boards in an annotation.
pub const MAX_CORDONED_BOARDS: usize = 256;
/// Maximum length of a [`CordonReason`], in bytes.
pub const MAX_REASON_BYTES: usize = 128;
/// Maximum length of a board's id, in bytes.
const MAX_BOARD_BYTES: usize = 63;
/// Maximum length of an annotation, in bytes.
const MAX_BYTES: usize = 65_536;

/// Why a board is out of rotation, for people. Empty if nobody gave a reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CordonReason(String);

/// The removal of a board from rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// Why.
    #[serde(default, skip_serializing_if = "CordonReason::is_empty")]
    pub reason: CordonReason,
    /// Since when, milliseconds since the Unix epoch on the clock of the person who did it.
    #[serde(rename = "sinceMs")]
    pub since: WallTime,
}

/// The annotation [`CORDONED_BOARDS_ANNOTATION`]: the cordons of a node by the ids of its boards. Text form: a JSON
/// object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CordonedBoards(BTreeMap<String, Cordon>);

/// The reason why a text is no [`CordonReason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReason {
    /// The text is longer than [`MAX_REASON_BYTES`].
    #[error("a reason has at most {MAX_REASON_BYTES} bytes, and this one has {0}")]
    TooLong(usize),
    /// The text has a control character.
    #[error("a reason is one line of plain text, without control characters")]
    ControlCharacter,
}

/// The reason why an annotation can't be read, or a board not be added to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCordons {
    /// The text is too long.
    #[error("it has {0} bytes; at most {MAX_BYTES} are read")]
    TooLong(usize),
    /// The text is no JSON object of cordons.
    #[error("it is no object of boards like {{\"dm0\":{{\"reason\":\"fan\",\"sinceMs\":1}}}}: {0}")]
    Malformed(String),
    /// There are more boards than [`MAX_CORDONED_BOARDS`].
    #[error("it has more than {MAX_CORDONED_BOARDS} boards")]
    TooMany,
    /// A board's id is empty or longer than 63 bytes.
    #[error("the id of a board has 1 to {MAX_BOARD_BYTES} bytes, and {0:?} has not")]
    Board(String),
}

impl CordonReason {
    /// Whether nobody gave a reason.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl CordonedBoards {
    /// The annotation with this text.
    ///
    /// # Errors
    /// [`InvalidCordons`]
    pub fn parse(text: &str) -> Result<Self, InvalidCordons> {
        if text.len() > MAX_BYTES {
            return Err(InvalidCordons::TooLong(text.len()));
        }
        let parsed: Self =
            serde_json::from_str(text).map_err(|error| InvalidCordons::Malformed(error.to_string()))?;
        parsed.check()
    }

    /// The annotation with one more board. The newer cordon of a board replaces the older one.
    ///
    /// # Errors
    /// [`InvalidCordons`]
    pub fn with(mut self, board: &str, cordon: Cordon) -> Result<Self, InvalidCordons> {
        self.0.insert(board.to_owned(), cordon);
        self.check()
    }

    /// The annotation without this board.
    #[must_use]
    pub fn without(mut self, board: &str) -> Self {
        self.0.remove(board);
        self
    }

    /// The cordon of a board; `None` if the board is in rotation.
    #[must_use]
    pub fn get(&self, board: &str) -> Option<&Cordon> {
        self.0.get(board)
    }

    /// Its text; `None` if no board is out of rotation.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        if self.0.is_empty() { None } else { serde_json::to_string(self).ok() }
    }

    fn check(self) -> Result<Self, InvalidCordons> {
        if self.0.len() > MAX_CORDONED_BOARDS {
            return Err(InvalidCordons::TooMany);
        }
        match self.0.keys().find(|board| board.is_empty() || board.len() > MAX_BOARD_BYTES) {
            Some(board) => Err(InvalidCordons::Board(board.clone())),
            None => Ok(self),
        }
    }
}

impl FromStr for CordonReason {
    type Err = InvalidReason;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for CordonReason {
    type Error = InvalidReason;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.len() > MAX_REASON_BYTES {
            Err(InvalidReason::TooLong(text.len()))
        } else if text.contains(char::is_control) {
            Err(InvalidReason::ControlCharacter)
        } else {
            Ok(Self(text))
        }
    }
}

impl From<CordonReason> for String {
    fn from(reason: CordonReason) -> Self {
        reason.0
    }
}

impl fmt::Display for Cordon {
    /// For people: `cordoned: fan is loud`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cordoned")?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cordon(reason: &str) -> Cordon {
        Cordon { reason: reason.parse().unwrap(), since: WallTime(5) }
    }

    #[test]
    fn boards_are_cordoned_and_uncordoned_and_the_text_reads_back() {
        let none = CordonedBoards::default();
        assert_eq!(none.text(), None);
        let one = none.clone().with("dm0", cordon("fan is loud")).unwrap();
        let text = one.text().unwrap();
        assert_eq!(text, r#"{"dm0":{"reason":"fan is loud","sinceMs":5}}"#);
        assert_eq!(CordonedBoards::parse(&text).unwrap(), one);
        let again = one.with("dm0", cordon("")).unwrap();
        assert_eq!(again.text().unwrap(), r#"{"dm0":{"sinceMs":5}}"#);
        assert_eq!((again.get("dm0"), again.get("dm1")), (Some(&cordon("")), None));
        assert_eq!(again.without("dm1").without("dm0"), none);
    }

    #[test]
    fn a_text_that_is_no_annotation_says_what_to_write() {
        let problem = |text: &str| CordonedBoards::parse(text).unwrap_err().to_string();
        assert!(problem("dm0").contains(r#"{"dm0":{"reason":"fan","sinceMs":1}}"#));
        assert!(problem(r#"{"":{"sinceMs":1}}"#).contains("1 to 63 bytes"));
        let long = format!(r#"{{"dm0":{{"reason":"{}","sinceMs":1}}}}"#, "x".repeat(129));
        assert!(problem(&long).contains("at most 128 bytes"));
        assert!(problem(&" ".repeat(MAX_BYTES + 1)).contains("65537 bytes"));
        let many: BTreeMap<String, Cordon> =
            (0..257).map(|number| (format!("dm{number}"), cordon(""))).collect();
        assert!(problem(&serde_json::to_string(&many).unwrap()).contains("more than 256"));
        assert_eq!("a\u{1b}[2J".parse::<CordonReason>(), Err(InvalidReason::ControlCharacter));
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_reads_back(text in "\\PC{0,64}") {
            if let Ok(boards) = CordonedBoards::parse(&text) {
                let again = boards.text().map_or(Ok(CordonedBoards::default()), |text| CordonedBoards::parse(&text));
                prop_assert_eq!(again, Ok(boards));
            }
        }
    }
}
