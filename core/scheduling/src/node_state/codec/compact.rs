//! Version 2 of the text: each kind of board is named once, devices and bitstreams are arrays without field names, and
//! digests are in base64.
//!
//! ```json
//! {"v":2,"boot":7,"seq":12,"heartbeatMs":60000,"measuredAtMs":1760000000000,"windowMs":300000,"usageMs":5000,
//!  "reconfigurationMs":20,"kinds":[["intel","Intel(R) FPGA SDK for OpenCL(TM)","a10","1.2"]],
//!  "devices":[["dm0",0,4,[0,null],5000,20,0,true]],"bitstreams":[["sobel","AAECAwQFBgcICQoLDA0ODw",1500]],
//!  "window":{"bucketMs":10000,"usageMs":[5000],"reconfigurationMs":[20]},"leftOut":{"loaded":1}}
//! ```

use super::{EncodeError, Unreadable, json, malformed};
use crate::device::{Health, ReconfiguredPart};
use crate::node_state::{
    Buckets, CordonedBoard, DeviceState, DigestPrefix, IN_SLOT_LEFT_OUT, LeftOut, NodeState, PluginState,
    RecentBitstream,
};
use crate::units::{Millis, WallTime};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;

pub(super) const VERSION: u32 = 2;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    v: u32,
    boot: u64,
    seq: u64,
    #[serde(rename = "heartbeatMs")]
    heartbeat: Millis,
    #[serde(rename = "measuredAtMs")]
    measured_at: WallTime,
    #[serde(rename = "windowMs")]
    window: Millis,
    #[serde(rename = "usageMs")]
    usage: Millis,
    #[serde(rename = "reconfigurationMs")]
    reconfiguration: Millis,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<Kind>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    devices: Vec<Device>,
    /// Indexes of the devices that are reconfigured as a whole. Readers of earlier versions skip the field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reconfigured_whole: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bitstreams: Vec<Bitstream>,
    #[serde(rename = "window")]
    buckets: Buckets,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plugin: Option<PluginState>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    cordons: BTreeMap<String, CordonedBoard>,
    #[serde(default, skip_serializing_if = "LeftOut::is_nothing")]
    left_out: LeftOut,
}

/// Vendor, platform, board, shell.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kind(String, String, String, String);

/// Id, index of the kind, slots, indexes of the bitstreams in the slots (`null` for one that was left out), usage,
/// reconfiguration, waiting tasks, whether the board is healthy.
#[derive(Serialize, Deserialize)]
struct Device(String, u32, u32, Vec<Option<u32>>, Millis, Millis, u32, bool);

/// Name, start of the digest, time since the last use.
#[derive(Serialize, Deserialize)]
struct Bitstream(Option<String>, Option<Base64>, Millis);

struct Base64(DigestPrefix);

pub(super) fn write(state: &NodeState) -> Result<String, EncodeError> {
    let mut kinds: Vec<Kind> = Vec::new();
    let devices = state.devices.iter().map(|device| {
        let kind = Kind::of(device);
        let place = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        });
        let loaded = device.loaded.iter().map(|index| (*index != IN_SLOT_LEFT_OUT).then_some(*index));
        let (usage, reconfiguration) = (device.usage, device.reconfiguration);
        let is_healthy = device.health == Health::Healthy;
        let kind = u32::try_from(place).unwrap_or(u32::MAX);
        let (id, loaded) = (device.id.clone(), loaded.collect());
        Device(id, kind, device.slots, loaded, usage, reconfiguration, device.queued, is_healthy)
    });
    let devices = devices.collect();
    let bitstream = |bitstream: &RecentBitstream| {
        Bitstream(bitstream.name.clone(), bitstream.digest.map(Base64), bitstream.last_used_ago)
    };
    let whole = (0..).zip(&state.devices).filter(|(_, device)| !device.reconfigured_part.is_slot());
    let text = Text {
        v: VERSION,
        boot: state.boot,
        seq: state.seq,
        heartbeat: state.heartbeat,
        measured_at: state.measured_at,
        window: state.window,
        usage: state.usage,
        reconfiguration: state.reconfiguration,
        kinds,
        devices,
        reconfigured_whole: whole.map(|(number, _)| number).collect(),
        bitstreams: state.bitstreams.iter().map(bitstream).collect(),
        buckets: state.buckets.clone(),
        plugin: state.plugin.clone(),
        cordons: state.cordons.clone(),
        left_out: state.left_out,
    };
    serde_json::to_string(&text).map_err(json)
}

pub(super) fn read(text: &str) -> Result<NodeState, Unreadable> {
    let text: Text = serde_json::from_str(text).map_err(malformed)?;
    let device = |device: Device| {
        let Device(id, kind, slots, loaded, usage, reconfiguration, queued, is_healthy) = device;
        let kind = text.kinds.get(kind as usize).ok_or(Unreadable::UnknownKind)?;
        let Kind(vendor, platform, board, shell) = kind.clone();
        let loaded = loaded.into_iter().map(|index| index.unwrap_or(IN_SLOT_LEFT_OUT)).collect();
        let health = if is_healthy { Health::Healthy } else { Health::Unhealthy };
        Ok(DeviceState {
            id,
            vendor,
            platform,
            board,
            shell,
            slots,
            reconfigured_part: ReconfiguredPart::Slot,
            loaded,
            usage,
            reconfiguration,
            queued,
            health,
        })
    };
    // A short text must not take much memory: a kind may have long names, and each device gets a copy of them.
    if text.devices.len() > super::MAX_DEVICES {
        return Err(Unreadable::TooMany("devices"));
    }
    let bitstream = |Bitstream(name, digest, last_used_ago)| RecentBitstream {
        name,
        digest: digest.map(|Base64(digest)| digest),
        last_used_ago,
    };
    let mut devices: Vec<DeviceState> = text.devices.into_iter().map(device).collect::<Result<_, _>>()?;
    for number in text.reconfigured_whole {
        let device = devices.get_mut(number as usize).ok_or(Unreadable::OutOfRange("reconfiguredWhole"))?;
        device.reconfigured_part = ReconfiguredPart::Board;
    }
    Ok(NodeState {
        boot: text.boot,
        seq: text.seq,
        heartbeat: text.heartbeat,
        measured_at: text.measured_at,
        window: text.window,
        usage: text.usage,
        reconfiguration: text.reconfiguration,
        devices,
        bitstreams: text.bitstreams.into_iter().map(bitstream).collect(),
        buckets: text.buckets,
        plugin: text.plugin,
        cordons: text.cordons,
        left_out: text.left_out,
    })
}

impl Kind {
    fn of(device: &DeviceState) -> Self {
        let DeviceState { vendor, platform, board, shell, .. } = device.clone();
        Self(vendor, platform, board, shell)
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0.as_bytes()))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let no_digest = || de::Error::custom(format!("{text:?} is not the start of a digest in base64"));
        let bytes = URL_SAFE_NO_PAD.decode(&text).map_err(|_| no_digest())?;
        Ok(Self(DigestPrefix::from_bytes(bytes.try_into().map_err(|_| no_digest())?)))
    }
}
