//! What a device manager and a node plugin say to each other: one line of JSON each, on a connection of its own.

use crate::bitstream::Digest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of both messages. A plugin refuses requests of another one.
const VERSION: u32 = 1;
/// Longest line, with its end.
pub const MAX_MESSAGE_BYTES: usize = 4 << 10;
/// Longest id of a board.
const MAX_BOARD_BYTES: usize = 128;
/// Longest reason, in characters. As JSON a character takes up to six bytes.
const MAX_REASON_CHARS: usize = 600;

/// The question whether the container with a token may have a bitstream on a board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateRequest {
    /// SHA-256 of the token that the session has shown. The token itself stays in the manager.
    pub token: Digest,
    /// Id of the board.
    pub board: String,
    /// The bitstream.
    pub bitstream: Digest,
    /// Where the bitstream comes from.
    pub origin: Origin,
    /// Whether a slot of the board has the bitstream.
    pub residency: Residency,
    /// Whether other sessions use the board.
    pub others: Others,
}

/// Where a bitstream comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// The client sends it.
    Client,
    /// It is a file of the node, which the administrator has put there.
    OfNode,
    /// The manager builds it from source, and counts it as a bitstream.
    Source,
}

/// Whether a slot of the board has a bitstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Residency {
    /// A slot has it: nothing is reconfigured.
    Resident,
    /// No slot has it.
    Absent,
}

/// Whether other sessions use a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Others {
    /// No other session needs a slot.
    Idle,
    /// Kernels of other sessions run or wait.
    Busy,
}

/// The answer of the node plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GateAnswer {
    /// The container may have the bitstream.
    Allowed,
    /// It may ask again in a moment; the reason says what it waits for.
    Wait(String),
    /// It may not have the bitstream, for this reason.
    Refused(String),
}

/// A message with its version.
#[derive(Serialize, Deserialize)]
struct Versioned<M> {
    version: u32,
    #[serde(flatten)]
    message: M,
}

/// An answer as a field.
#[derive(Serialize, Deserialize)]
struct Answered {
    answer: GateAnswer,
}

/// The reason why a message can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidMessage {
    /// The text is no message.
    #[error("the message can't be understood: {0}")]
    Content(#[from] serde_json::Error),
    /// The message has another version.
    #[error(
        "the message has version {0}, and this program knows version {VERSION}: install matching versions"
    )]
    Version(u32),
    /// The id of the board is too long.
    #[error("the id of the board has {0} bytes, of {MAX_BOARD_BYTES} that are taken")]
    Board(usize),
}

impl GateRequest {
    /// The message as a line.
    ///
    /// # Errors
    /// The message can't be written as JSON.
    pub fn line(&self) -> Result<String, InvalidMessage> {
        line(self)
    }

    /// Reads a line.
    ///
    /// # Errors
    /// [`InvalidMessage`], if the line is no message of this version.
    pub fn parse(line: &[u8]) -> Result<Self, InvalidMessage> {
        let request: Self = parse(line)?;
        match request.board.len() {
            long if long > MAX_BOARD_BYTES => Err(InvalidMessage::Board(long)),
            _ => Ok(request),
        }
    }
}

impl GateAnswer {
    /// The message as a line. A long reason is shortened.
    ///
    /// # Errors
    /// The message can't be written as JSON.
    pub fn line(&self) -> Result<String, InvalidMessage> {
        let short = |reason: &String| reason.chars().take(MAX_REASON_CHARS).collect();
        let answer = match self {
            Self::Allowed => Self::Allowed,
            Self::Wait(reason) => Self::Wait(short(reason)),
            Self::Refused(reason) => Self::Refused(short(reason)),
        };
        line(&Answered { answer })
    }

    /// Reads a line.
    ///
    /// # Errors
    /// [`InvalidMessage`], if the line is no message of this version.
    pub fn parse(line: &[u8]) -> Result<Self, InvalidMessage> {
        parse::<Answered>(line).map(|answered| answered.answer)
    }
}

fn line(message: &impl Serialize) -> Result<String, InvalidMessage> {
    let mut line = serde_json::to_string(&Versioned { version: VERSION, message })?;
    line.push('\n');
    Ok(line)
}

fn parse<M: DeserializeOwned>(line: &[u8]) -> Result<M, InvalidMessage> {
    /// The version alone: another version may have another content.
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = serde_json::from_slice(line)?;
    if version != VERSION {
        return Err(InvalidMessage::Version(version));
    }
    Ok(serde_json::from_slice::<Versioned<M>>(line)?.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> GateRequest {
        GateRequest {
            token: Digest::from_bytes([1; 32]),
            board: "dm0".to_owned(),
            bitstream: Digest::from_bytes([2; 32]),
            origin: Origin::Client,
            residency: Residency::Absent,
            others: Others::Busy,
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let line = request().line().unwrap();
        assert!(line.ends_with("}\n") && line.len() < MAX_MESSAGE_BYTES, "{line}");
        assert_eq!(GateRequest::parse(line.as_bytes()).unwrap(), request());
        for answer in [GateAnswer::Allowed, GateAnswer::Wait("a\nb".into()), GateAnswer::Refused("c".into())]
        {
            let line = answer.line().unwrap();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(GateAnswer::parse(line.as_bytes()).unwrap(), answer);
        }
    }

    #[test]
    fn the_longest_messages_fit_a_line() {
        let long = GateRequest { board: "\u{1}".repeat(MAX_BOARD_BYTES), ..request() };
        let line = long.line().unwrap();
        assert!(line.len() <= MAX_MESSAGE_BYTES && GateRequest::parse(line.as_bytes()).is_ok());
        let longest = GateAnswer::Refused("\u{1}".repeat(MAX_MESSAGE_BYTES)).line().unwrap();
        assert!(longest.len() <= MAX_MESSAGE_BYTES);
        let longer = GateRequest { board: "x".repeat(MAX_BOARD_BYTES + 1), ..request() };
        let error = GateRequest::parse(longer.line().unwrap().as_bytes()).unwrap_err();
        assert!(matches!(error, InvalidMessage::Board(129)), "{error}");
    }

    #[test]
    fn what_is_no_message_of_this_version_is_refused() {
        let other = request().line().unwrap().replace("\"version\":1", "\"version\":2");
        let error = GateRequest::parse(other.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("version 2") && error.contains("matching versions"), "{error}");
        assert!(matches!(GateRequest::parse(br#"{"version":7,"new":1}"#), Err(InvalidMessage::Version(7))));
        for text in ["", "\n", "{}", "[1]", "{\"version\":1}", "{\"version\":1,\"token\":\"x\"}", "\u{7f}"] {
            assert!(GateRequest::parse(text.as_bytes()).is_err(), "{text}");
            assert!(GateAnswer::parse(text.as_bytes()).is_err(), "{text}");
        }
        let cut = request().line().unwrap();
        assert!((0..cut.len() - 1).all(|end| GateRequest::parse(&cut.as_bytes()[..end]).is_err()));
    }
}
