//! What comes in, checked: events and device statuses from peers that may be broken or hostile. All of a request is
//! valid, or nothing of it is taken.

use fpga_core::device::DeviceStatus;
use fpga_core::event::{Event, Phase};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Longest device id, in bytes.
const MAX_ID_BYTES: usize = 63;
/// Longest other text, in bytes.
const MAX_TEXT_BYTES: usize = 256;
/// Most slots of a device.
const MAX_SLOTS: u32 = 4096;
/// Most bitstreams that a device's slots hold.
pub const MAX_LOADED: usize = 48;

/// Why a request is refused as malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Neither an event nor an array.
    #[error("the body is neither an event nor an array of events: {0}")]
    Json(String),
    /// One of the events.
    #[error("event {index}: {reason}; nothing of the request was taken")]
    Event {
        /// Its place in the array, from 0.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The device.
    #[error("the device status is not valid: {0}")]
    Device(String),
}

/// The fields whose presence `Event` can't tell from their absence.
#[derive(Deserialize)]
struct IdentityFields<'a> {
    #[serde(borrow)]
    reporter: Option<&'a RawValue>,
    #[serde(borrow)]
    seq: Option<&'a RawValue>,
}

/// The events in `body`: one event or an array of them.
///
/// # Errors
/// [`Malformed`] names the first event that is not one, and why.
pub fn events(body: &[u8]) -> Result<Vec<Event>, Malformed> {
    let json = |error: serde_json::Error| Malformed::Json(error.to_string());
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let raw: Vec<&RawValue> = if first == Some(&b'[') {
        serde_json::from_slice(body).map_err(json)?
    } else {
        vec![serde_json::from_slice(body).map_err(json)?]
    };
    let checked = raw
        .iter()
        .enumerate()
        .map(|(index, raw)| event(raw.get()).map_err(|reason| Malformed::Event { index, reason }));
    checked.collect()
}

fn event(text: &str) -> Result<Event, String> {
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

/// The device status in `body`, for the device that the path names.
///
/// # Errors
/// [`Malformed`] says what is wrong.
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

/// Whether `id` can name a device.
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
    fn a_device_must_be_the_one_that_the_path_names() {
        let body = br#"{"id":"dm0","vendor":"intel","slots":4,"health":"healthy"}"#;
        assert_eq!(device("dm0", body).unwrap().slots, 4);
        assert!(device("dm1", body).is_err());
        assert!(device("dm0", br#"{"id":"dm0","vendor":"intel","slots":0,"health":"healthy"}"#).is_err());
        assert!(device("dm0", b"{}").is_err());
    }
}
