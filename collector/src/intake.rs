//! Checks events and device statuses from peers that may be broken or hostile. A request is taken only if all of it
//! is valid.

use fpga_core::device::DeviceStatus;
use fpga_core::event::{Event, Phase};
use fpga_core::node_state::PluginReport;
use serde::Deserialize;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Maximum length of a device id, in bytes.
const MAX_ID_BYTES: usize = 63;
/// Maximum length of other texts, in bytes.
const MAX_TEXT_BYTES: usize = 256;
/// Maximum length of one event's text, in bytes: several times that of an event with all fields at their longest.
/// Parsing takes up to fifty times the text's memory, on two threads at most, so events of any length could exhaust
/// it.
const MAX_EVENT_BYTES: usize = 8 * 1024;
/// Maximum length of a device status, in bytes: more than one with [`MAX_LOADED`] bitstreams of the longest names
/// has.
pub const MAX_DEVICE_BYTES: usize = 32 * 1024;
/// Maximum length of a node plugin's report, in bytes: more than one with all boards and owners has.
pub const MAX_PLUGIN_BYTES: usize = 32 * 1024;
/// Maximum memory of events per byte of their text, including the copy while the list of them grows.
const EVENTS_BYTES_PER_BYTE: usize = 12;
/// Maximum memory of a device status per byte of its text. The shortest entries are shorter than those of events.
const DEVICE_BYTES_PER_BYTE: usize = 48;
/// Maximum number of slots of a device.
const MAX_SLOTS: u32 = 4096;
/// Maximum number of bitstreams in a device's slots.
pub const MAX_LOADED: usize = 48;

/// Reason why a request is refused as malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The body is neither an event nor an array.
    #[error("the body is neither an event nor an array of events: {0}")]
    Json(String),
    /// One of the events is not valid.
    #[error("event {index}: {reason}; nothing of the request was taken")]
    Event {
        /// Index of the event in the array, from 0.
        index: usize,
        /// The reason why the event is not valid.
        reason: String,
    },
    /// The device status is not valid.
    #[error("the device status is not valid: {0}")]
    Device(String),
    /// The node plugin's report is not valid.
    #[error("the node plugin's report is not valid: {0}")]
    Plugin(String),
}

/// Maximum bytes of memory for the events in a body of `body` bytes, while they are parsed and after.
pub const fn events_working_bytes(body: usize) -> usize {
    body.saturating_mul(EVENTS_BYTES_PER_BYTE)
}

/// Length in bytes of the longest body of events that fits into a budget of `budget` bytes.
pub const fn longest_body(budget: usize) -> usize {
    budget / (1 + EVENTS_BYTES_PER_BYTE)
}

/// Maximum bytes of memory for the device status in a body of `body` bytes.
pub const fn device_working_bytes(body: usize) -> usize {
    body.saturating_mul(DEVICE_BYTES_PER_BYTE)
}

/// Fields that `Event` treats as absent where they are not valid.
#[derive(Deserialize)]
struct IdentityFields<'a> {
    #[serde(borrow)]
    reporter: Option<&'a RawValue>,
    #[serde(borrow)]
    seq: Option<&'a RawValue>,
}

/// The node plugin's report in `body`.
///
/// # Errors
/// [`Malformed::Plugin`] with the reason why it is not valid.
pub fn plugin(body: &[u8]) -> Result<PluginReport, Malformed> {
    let report: PluginReport =
        serde_json::from_slice(body).map_err(|error| Malformed::Plugin(error.to_string()))?;
    report.validate().map_err(|error| Malformed::Plugin(error.to_string()))?;
    Ok(report)
}

/// The events in `body`: one event or an array of them.
///
/// # Errors
/// [`Malformed`] names the first event that is not valid, and the reason.
pub fn events(body: &[u8]) -> Result<Vec<Event>, Malformed> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'[') {
        let raw: &RawValue =
            serde_json::from_slice(body).map_err(|error| Malformed::Json(error.to_string()))?;
        return event(raw.get())
            .map(|event| vec![event])
            .map_err(|reason| Malformed::Event { index: 0, reason });
    }
    let mut taken = Taken::default();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = DeserializeSeed::deserialize(&mut taken, &mut reader).and_then(|()| reader.end());
    match (taken.refused, read) {
        (Some(malformed), _) => Err(malformed),
        (None, Err(error)) => Err(Malformed::Json(error.to_string())),
        (None, Ok(())) => Ok(taken.events),
    }
}

/// The events of an array. Reading stops at the first element that is not an event, so that a body without events
/// takes no memory.
#[derive(Default)]
struct Taken {
    events: Vec<Event>,
    refused: Option<Malformed>,
}

impl<'de> DeserializeSeed<'de> for &mut Taken {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Taken {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while let Some(raw) = array.next_element::<&RawValue>()? {
            match event(raw.get()) {
                Ok(event) => self.events.push(event),
                Err(reason) => {
                    self.refused = Some(Malformed::Event { index: self.events.len(), reason });
                    return Err(serde::de::Error::custom("not an event"));
                }
            }
        }
        Ok(())
    }
}

fn event(text: &str) -> Result<Event, String> {
    if text.len() > MAX_EVENT_BYTES {
        return Err(format!("it has more than {MAX_EVENT_BYTES} bytes"));
    }
    let event: Event = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if event.identity.is_none() {
        let fields: IdentityFields<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if fields.reporter.is_some() || fields.seq.is_some() {
            return Err("`reporter` and `seq` must both be whole numbers, or both be absent".to_owned());
        }
    }
    check(&event)?;
    Ok(event)
}

fn check(event: &Event) -> Result<(), String> {
    if event.identity.is_some_and(|identity| identity.seq == 0) {
        return Err("`seq` counts from 1".to_owned());
    }
    if let Some(device) = &event.device {
        check_id(device).map_err(|reason| format!("`device` {reason}"))?;
    }
    if event.tenant.as_ref().is_some_and(|tenant| tenant.len() > MAX_TEXT_BYTES) {
        return Err(format!("`tenant` has more than {MAX_TEXT_BYTES} bytes"));
    }
    if event.phase == Phase::Running {
        if event.identity.is_none() || event.task.is_none() {
            return Err("progress needs `reporter`, `seq` and `task`: nothing could replace it".to_owned());
        }
        if event.merged.is_some() {
            return Err("progress can't be merged".to_owned());
        }
    }
    let Some(merged) = event.merged else { return Ok(()) };
    let Some(identity) = event.identity else {
        return Err("a merged event needs `reporter` and `seq`".to_owned());
    };
    if merged.first_seq == 0 || merged.first_seq > identity.seq {
        return Err("`first_seq` must be from 1 to `seq`".to_owned());
    }
    if merged.count == 0 || u64::from(merged.count) - 1 > identity.seq - merged.first_seq {
        return Err("`count` must be from 1 to the length of the range".to_owned());
    }
    if merged.first_ms > event.timestamp_ms {
        return Err("`first_ms` must not be after `timestamp_ms`".to_owned());
    }
    Ok(())
}

/// The device status in `body`, for the device with the id `id` in the path.
///
/// # Errors
/// [`Malformed::Device`] with the reason.
pub fn device(id: &str, body: &[u8]) -> Result<DeviceStatus, Malformed> {
    let status: DeviceStatus =
        serde_json::from_slice(body).map_err(|error| Malformed::Device(error.to_string()))?;
    check_device(id, &status).map_err(Malformed::Device)?;
    Ok(status)
}

fn check_device(id: &str, status: &DeviceStatus) -> Result<(), String> {
    check_id(&status.id).map_err(|reason| format!("`id` {reason}"))?;
    if status.id != id {
        return Err(format!("`id` is {:?} and the path says {id:?}", status.id));
    }
    let texts = [
        ("vendor", &status.vendor),
        ("platform", &status.platform),
        ("board", &status.board),
        ("shell", &status.shell),
    ];
    if let Some((name, _)) = texts.iter().find(|(_, text)| text.len() > MAX_TEXT_BYTES) {
        return Err(format!("`{name}` has more than {MAX_TEXT_BYTES} bytes"));
    }
    if status.slots == 0 || status.slots > MAX_SLOTS {
        return Err(format!("`slots` must be from 1 to {MAX_SLOTS}"));
    }
    let most = MAX_LOADED.min(status.slots as usize);
    if status.loaded.len() > most {
        return Err(format!("`loaded` has more than {most} entries"));
    }
    Ok(())
}

/// Checks that `id` can be the id of a device; `Err` describes the allowed form.
pub fn check_id(id: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(allowed) {
        return Err(format!("must be 1 to {MAX_ID_BYTES} letters, digits, `.`, `_` or `-`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str =
        r#""timestamp_ms":5,"duration_ms":3,"reconfiguration_ms":0,"bitstream_identifier":"mm""#;

    fn with(fields: &str) -> String {
        format!("{{{PLAIN}{fields}}}")
    }

    #[test]
    fn one_event_and_an_array_are_taken() {
        assert_eq!(events(with("").as_bytes()).unwrap().len(), 1);
        assert_eq!(events(format!(" [{},{}]", with(""), with("")).as_bytes()).unwrap().len(), 2);
        assert_eq!(events(b"[]").unwrap().len(), 0);
    }

    #[test]
    fn what_is_not_an_event_is_refused_with_its_place_and_the_reason() {
        let refused = [
            (r#","seq":1"#, "both"),
            (r#","reporter":1"#, "both"),
            (r#","reporter":"x","seq":1"#, "both"),
            (r#","reporter":1,"seq":-1"#, "both"),
            (r#","reporter":1,"seq":0"#, "from 1"),
            (r#","phase":"running","task":1"#, "progress"),
            (r#","phase":"running","reporter":1,"seq":1"#, "progress"),
            (r#","phase":"odd""#, "odd"),
            (r#","device":"a/b""#, "device"),
            (r#","merged":{"first_seq":1,"count":1,"first_ms":1}"#, "merged"),
            (r#","reporter":1,"seq":3,"merged":{"first_seq":4,"count":1,"first_ms":1}"#, "first_seq"),
            (r#","reporter":1,"seq":3,"merged":{"first_seq":2,"count":3,"first_ms":1}"#, "count"),
            (r#","reporter":1,"seq":3,"merged":{"first_seq":1,"count":3,"first_ms":9}"#, "first_ms"),
        ];
        for (fields, word) in refused {
            let error = events(format!("[{},{}]", with(""), with(fields)).as_bytes()).unwrap_err();
            assert!(
                matches!(&error, Malformed::Event { index: 1, reason } if reason.contains(word)),
                "{error}"
            );
        }
        for body in ["", "{", "[", "7", "null", "[1]", "[[]]", "{}", "\"x\""] {
            assert!(events(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn events_take_no_more_memory_than_their_bodies_are_charged_for() {
        // The shortest event with the most fields that take memory of their own.
        let shortest = with(r#","device":"a","tenant":"""#).len() + 1;
        // While the list grows, both the old list and one of twice its size exist; a short text takes 32 bytes of its
        // own.
        let most = 3 * size_of::<Event>() + 3 * 32;
        assert!(most <= shortest * EVENTS_BYTES_PER_BYTE, "{most} bytes for {shortest}");
        let shortest = r#"{"id":"m","digest":""},"#.len() + 71;
        let most = 3 * size_of::<fpga_core::device::LoadedBitstream>() + 32;
        assert!(most <= shortest * DEVICE_BYTES_PER_BYTE, "{most} bytes for {shortest}");
    }

    #[test]
    fn an_event_that_is_too_long_is_refused_unread_and_an_array_at_its_first_that_is_none() {
        let long = with(&format!(r#","odd":[{}0]"#, "0,".repeat(MAX_EVENT_BYTES)));
        let error = events(format!("[{},{long}]", with("")).as_bytes()).unwrap_err();
        assert!(
            matches!(&error, Malformed::Event { index: 1, reason } if reason.contains("8192")),
            "{error}"
        );
        let rest_is_no_json = format!("[{},7,{{", with(""));
        let error = events(rest_is_no_json.as_bytes()).unwrap_err();
        assert!(matches!(error, Malformed::Event { index: 1, .. }), "{error}");
        let error = events(format!("[{}] more", with("")).as_bytes()).unwrap_err();
        assert!(matches!(error, Malformed::Json(_)), "{error}");
    }

    #[test]
    fn a_device_must_be_the_one_that_the_path_names() {
        let body = br#"{"id":"dm0","vendor":"intel","slots":4,"health":"healthy"}"#;
        assert_eq!(device("dm0", body).unwrap().slots, 4);
        assert!(device("dm1", body).is_err());
        assert!(device("dm0", br#"{"id":"dm0","vendor":"intel","slots":0,"health":"healthy"}"#).is_err());
        assert!(device("dm0", b"{}").is_err());
    }
}
