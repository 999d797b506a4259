//! The configuration from the environment: the collector's address and the device.

use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_core::device::{DeviceStatus, Health, ReconfiguredPart};
use fpga_hook::Endpoint;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum number of slots that a collector accepts.
const MAX_SLOTS: u32 = 4096;

#[derive(Debug, Clone)]
pub struct Config {
    /// `FPGA_COLLECTOR`.
    pub endpoint: Endpoint,
    /// `FPGA_COLLECTOR_TOKEN_FILE`: file with the token that a collector on the network requires.
    pub token_file: Option<PathBuf>,
    /// `FPGA_DEVICE_ID`, by default `fpga0`; `FPGA_DEVICE_BOARD`, `FPGA_DEVICE_SHELL`, `FPGA_DEVICE_SLOTS`.
    pub device: DeviceStatus,
    /// Whether the device is reported to the collector; it is if `FPGA_DEVICE_VENDOR` is set.
    pub announce: Announce,
    /// `FPGA_BITSTREAM_NAMES`: `NAME=sha256:HEX`, separated by commas.
    pub names: BTreeMap<Digest, String>,
    /// `FPGA_SOURCE_AS_BITSTREAM=1`: building a source counts as a reconfiguration.
    pub sources: Sources,
    /// `FPGA_ADD_PROFILING=0`: queues stay as the application creates them, and host time is measured.
    pub profiling: Profiling,
}

/// Whether the device is reported to the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announce {
    /// The device is reported while the application runs.
    Device,
    /// The device is not reported: the node's labels describe it.
    Nothing,
}

/// What building a program from source counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    /// A reconfiguration, as for an emulated board.
    AsBitstreams,
    /// Compilation, which is not reported.
    AsSources,
}

/// Whether queues get device timestamps that the application did not ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profiling {
    /// Queues get the profiling property, hidden from the application.
    Add,
    Leave,
}

impl Config {
    /// Reads the variables through `variable`; `None` without `FPGA_COLLECTOR`.
    ///
    /// # Errors
    /// The variable that is not valid, and what to write.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let Some(endpoint) = set("FPGA_COLLECTOR") else { return Ok(None) };
        let endpoint = endpoint.parse().map_err(|error| format!("FPGA_COLLECTOR: {error}"))?;
        let token_file = set("FPGA_COLLECTOR_TOKEN_FILE").map(PathBuf::from);
        let slots = set("FPGA_DEVICE_SLOTS").map_or(Ok(1), |text| match text.parse() {
            Ok(slots @ 1..=MAX_SLOTS) => Ok(slots),
            _ => Err(format!("FPGA_DEVICE_SLOTS is {text:?}; write 1 to {MAX_SLOTS}")),
        })?;
        let vendor = set("FPGA_DEVICE_VENDOR");
        let announce = if vendor.is_some() { Announce::Device } else { Announce::Nothing };
        let device = DeviceStatus {
            id: device_id(set("FPGA_DEVICE_ID"))?,
            vendor: vendor.unwrap_or_default(),
            platform: String::new(),
            board: set("FPGA_DEVICE_BOARD").unwrap_or_default(),
            shell: set("FPGA_DEVICE_SHELL").unwrap_or_default(),
            slots,
            reconfigured_part: ReconfiguredPart::Slot,
            loaded: Vec::new(),
            queued: 0,
            health: Health::Healthy,
        };
        let names = set("FPGA_BITSTREAM_NAMES").map_or_else(|| Ok(BTreeMap::new()), |text| names(&text))?;
        let sources = match set("FPGA_SOURCE_AS_BITSTREAM").as_deref() {
            Some("1") => Sources::AsBitstreams,
            _ => Sources::AsSources,
        };
        let profiling = match set("FPGA_ADD_PROFILING").as_deref() {
            Some("0") => Profiling::Leave,
            _ => Profiling::Add,
        };
        Ok(Some(Self { endpoint, token_file, device, announce, names, sources, profiling }))
    }
}

fn device_id(text: Option<String>) -> Result<String, String> {
    let id = text.unwrap_or_else(|| "fpga0".to_owned());
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if id.len() > 63 || !id.bytes().all(allowed) {
        return Err(format!(
            "FPGA_DEVICE_ID is {id:?}; write at most 63 letters, digits, `.`, `_` or `-`, for example `fpga0`"
        ));
    }
    Ok(id)
}

fn names(text: &str) -> Result<BTreeMap<Digest, String>, String> {
    let entry = |entry: &str| -> Result<(Digest, String), String> {
        let wrong = |why: String| {
            format!("FPGA_BITSTREAM_NAMES has {entry:?}: {why}; write NAME=sha256:HEX, separated by commas")
        };
        let (name, digest) = entry.split_once('=').ok_or_else(|| wrong("there is no `=`".to_owned()))?;
        let digest = digest.trim().parse::<Digest>().map_err(|error| wrong(error.to_string()))?;
        match name.trim().parse::<BitstreamId>() {
            Ok(BitstreamId::Name(name)) => Ok((digest, name)),
            Ok(BitstreamId::Digest(_)) => Err(wrong("the name is a digest".to_owned())),
            Err(error) => Err(wrong(error.to_string())),
        }
    };
    text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Config>, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Config::read(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn without_a_collector_there_is_nothing_to_do() {
        assert!(read(&[("FPGA_DEVICE_SLOTS", "nonsense")]).unwrap().is_none());
        assert!(read(&[("FPGA_COLLECTOR", "")]).unwrap().is_none());
    }

    #[test]
    fn everything_has_a_default() {
        let config = read(&[("FPGA_COLLECTOR", "unix:/run/c.sock")]).unwrap().unwrap();
        assert_eq!((config.device.id.as_str(), config.device.slots), ("fpga0", 1));
        assert_eq!((config.announce, config.sources), (Announce::Nothing, Sources::AsSources));
        assert_eq!((config.profiling, config.token_file), (Profiling::Add, None));
    }

    #[test]
    fn names_of_bitstreams_are_read() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let text = format!("sobel={digest}, mm = sha256:{}", "0b".repeat(32));
        let config =
            read(&[("FPGA_COLLECTOR", "unix:/c"), ("FPGA_BITSTREAM_NAMES", &text)]).unwrap().unwrap();
        assert_eq!(config.names.len(), 2);
        assert_eq!(config.names[&digest.parse().unwrap()], "sobel");
    }

    #[test]
    fn what_can_not_be_is_refused_with_what_to_write() {
        for (name, value) in [
            ("FPGA_COLLECTOR", "127.0.0.1"),
            ("FPGA_DEVICE_SLOTS", "0"),
            ("FPGA_DEVICE_ID", "a/b"),
            ("FPGA_BITSTREAM_NAMES", "sobel"),
            ("FPGA_BITSTREAM_NAMES", "sobel=12"),
        ] {
            let error = read(
                &[("FPGA_COLLECTOR", "unix:/c"), (name, value)][usize::from(name == "FPGA_COLLECTOR")..],
            );
            assert!(error.unwrap_err().contains("write"), "{name}");
        }
    }
}
