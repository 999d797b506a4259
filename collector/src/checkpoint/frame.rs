//! The format of journal records: length, checksum, time, kind, body. A truncated or damaged record is detected.
//!
//! ```text
//! | length u32 | crc32 u32 | at u64 | kind u8 | body: JSON |     little-endian; length and crc cover what follows
//! ```

use crate::intake;
use crate::state::Record;
use fpga_core::units::WallTime;

/// Bytes of length and checksum.
const HEADER_BYTES: usize = 8;
/// Bytes of time and kind.
const PREFIX_BYTES: usize = 9;
/// Maximum length of a record in bytes; a greater value in a length field means damage.
const MAX_RECORD_BYTES: usize = 64 * 1024 * 1024;

/// A record to be encoded. Events keep the body in which they were received.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// The checked body of a request with events.
    EventsBody(&'a [u8]),
    Record(&'a Record),
}

/// Reason why a record can't be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The record can't be written as JSON.
    #[error("a record can't be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("a record of {0} bytes is too long")]
    TooLong(usize),
}

/// Appends `source`, made at `at`, to `journal`.
///
/// # Errors
/// [`EncodeError`]; `journal` is unchanged then.
pub fn encode(source: Source<'_>, at: WallTime, journal: &mut Vec<u8>) -> Result<(), EncodeError> {
    let made;
    let (kind, body) = match source {
        Source::EventsBody(body) => (b'E', body),
        Source::Record(record) => {
            let (kind, json) = match record {
                Record::Events(events) => (b'E', serde_json::to_vec(events)?),
                Record::Device(status) => (b'D', serde_json::to_vec(status)?),
                Record::Gone(id) => (b'G', serde_json::to_vec(id)?),
                Record::Clock(step) => (b'C', serde_json::to_vec(step)?),
                Record::Seed(state) => (b'S', serde_json::to_vec(state)?),
                Record::Boot(boot) => (b'B', serde_json::to_vec(boot)?),
                Record::Plugin(presence) => (b'P', serde_json::to_vec(presence)?),
            };
            made = json;
            (kind, made.as_slice())
        }
    };
    let length = PREFIX_BYTES + body.len();
    let field = u32::try_from(length).ok().filter(|_| length <= MAX_RECORD_BYTES);
    let Some(field) = field else { return Err(EncodeError::TooLong(length)) };
    let start = journal.len();
    journal.extend_from_slice(&field.to_le_bytes());
    journal.extend_from_slice(&[0; 4]);
    journal.extend_from_slice(&at.0.to_le_bytes());
    journal.push(kind);
    journal.extend_from_slice(body);
    let crc = crc32(&journal[start + HEADER_BYTES..]);
    journal[start + 4..start + HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// The first record in `journal`, its time, and its length in bytes with header; `None` if there is no whole and
/// undamaged record.
pub fn decode(journal: &[u8]) -> Option<(Record, WallTime, usize)> {
    let length = u32::from_le_bytes(*journal.first_chunk()?) as usize;
    let crc = u32::from_le_bytes(*journal.get(4..)?.first_chunk()?);
    if !(PREFIX_BYTES..=MAX_RECORD_BYTES).contains(&length) {
        return None;
    }
    let payload = journal.get(HEADER_BYTES..HEADER_BYTES + length)?;
    if crc32(payload) != crc {
        return None;
    }
    let at = WallTime(u64::from_le_bytes(*payload.first_chunk()?));
    let (kind, body) = (payload[8], &payload[PREFIX_BYTES..]);
    let record = match kind {
        b'E' => Record::Events(intake::events(body).ok()?),
        b'D' => Record::Device(serde_json::from_slice(body).ok()?),
        b'G' => Record::Gone(serde_json::from_slice(body).ok()?),
        b'C' => Record::Clock(serde_json::from_slice(body).ok()?),
        b'S' => Record::Seed(serde_json::from_slice(body).ok()?),
        b'B' => Record::Boot(serde_json::from_slice(body).ok()?),
        b'P' => Record::Plugin(serde_json::from_slice(body).ok()?),
        _ => return None,
    };
    Some((record, at, HEADER_BYTES + length))
}

/// CRC-32 as in zip and Ethernet.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(!0, |crc: u32, byte| CRC_TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8))
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0_u32; 256];
    let mut index = 0;
    while index < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Presence;
    use crate::timeline::ClockStep;
    use fpga_core::units::Millis;

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn records_survive_a_round_trip_and_damage_shows_itself() {
        let body =
            br#"{"timestamp_ms":5,"duration_ms":3,"reconfiguration_ms":0,"bitstream_identifier":"mm","reporter":1,"seq":1}"#;
        let device = br#"{"id":"dm0","vendor":"intel","slots":4,"health":"healthy"}"#;
        let records = [
            Record::Events(intake::events(body).unwrap()),
            Record::Device(Box::new(intake::device("dm0", device).unwrap())),
            Record::Gone("dm0".to_owned()),
            Record::Clock(ClockStep::Back(Millis(7))),
            Record::Boot(8),
            Record::Plugin(Presence::Known),
        ];
        for record in records {
            let mut journal = Vec::new();
            encode(Source::Record(&record), WallTime(9), &mut journal).unwrap();
            assert_eq!(decode(&journal), Some((record, WallTime(9), journal.len())));
            for index in 0..journal.len() {
                assert_eq!(decode(&journal[..index]), None);
                let mut damaged = journal.clone();
                damaged[index] ^= 0x10;
                assert_eq!(decode(&damaged), None, "byte {index}");
            }
        }
    }
}
