//! The devices of the runtime that are the manager's board.

use super::InventoryError;
use fpga_vendor::{self as vendor, DeviceId, PlatformId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// `CL_DEVICE_PCI_BUS_INFO_KHR` of cl_khr_pci_bus_info: domain, bus, device, and function, 4 bytes each.
const PCI_BUS_INFO: u32 = 0x410F;

/// The devices of the runtime that are the manager's board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BoardDevices {
    /// All devices.
    #[default]
    All,
    /// The device with this index in the runtime's order, from 0.
    Index(usize),
    /// The device at this address.
    At(PciAddress),
}

/// The address of a PCI device, written `0000:3b:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u32,
    device: u32,
    function: u32,
}

/// The text names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no device; write `all`, an index such as `0`, or a PCI address such as `0000:3b:00.0`")]
pub struct InvalidBoardDevices(String);

impl BoardDevices {
    /// The devices of these platforms that belong to the board.
    ///
    /// # Errors
    /// [`InventoryError::OtherDevices`] if none does.
    pub fn among(self, platforms: &[PlatformId]) -> Result<Vec<(PlatformId, DeviceId)>, InventoryError> {
        let all = platforms.iter().flat_map(|platform| {
            vendor::devices(*platform).unwrap_or_default().into_iter().map(|device| (*platform, device))
        });
        let all: Vec<_> = all.collect();
        if all.is_empty() {
            return Err(InventoryError::NoDevice);
        }
        let count = all.len();
        let chosen: Vec<_> = match self {
            Self::All => all,
            Self::Index(index) => all.into_iter().skip(index).take(1).collect(),
            Self::At(address) => all
                .into_iter()
                .filter(|(_, device)| PciAddress::of(*device) == Some(address))
                .take(1)
                .collect(),
        };
        if chosen.is_empty() { Err(InventoryError::OtherDevices { wanted: self, count }) } else { Ok(chosen) }
    }
}

impl PciAddress {
    /// The address of a device; `None` if the runtime does not tell it.
    #[must_use]
    pub fn of(device: DeviceId) -> Option<Self> {
        Self::of_answer(&vendor::device_info(device, PCI_BUS_INFO).ok()?)
    }

    fn of_answer(answer: &[u8]) -> Option<Self> {
        let (words, []) = answer.as_chunks::<4>() else { return None };
        let [domain, bus, device, function] = *words else { return None };
        let number = u32::from_ne_bytes;
        Some(Self {
            domain: number(domain),
            bus: number(bus),
            device: number(device),
            function: number(function),
        })
    }
}

impl FromStr for PciAddress {
    type Err = InvalidBoardDevices;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (rest, function) = text.rsplit_once('.')?;
            let mut parts = rest.splitn(3, ':').map(|part| u32::from_str_radix(part, 16).ok());
            Some(Self {
                domain: parts.next()??,
                bus: parts.next()??,
                device: parts.next()??,
                function: u32::from_str_radix(function, 16).ok()?,
            })
        };
        parse().ok_or_else(|| InvalidBoardDevices(text.to_owned()))
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for BoardDevices {
    type Err = InvalidBoardDevices;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Self::All);
        }
        match text.parse() {
            Ok(index) => Ok(Self::Index(index)),
            Err(_) => text.parse().map(Self::At),
        }
    }
}

impl fmt::Display for BoardDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Index(index) => write!(f, "{index}"),
            Self::At(address) => write!(f, "{address}"),
        }
    }
}

impl TryFrom<String> for BoardDevices {
    type Error = InvalidBoardDevices;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<BoardDevices> for String {
    fn from(devices: BoardDevices) -> Self {
        devices.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_by_their_index_or_by_their_pci_address() {
        for text in ["all", "0", "17", "0000:3b:00.0", "10000:af:1f.7"] {
            assert_eq!(text.parse::<BoardDevices>().unwrap().to_string(), text);
        }
        for text in ["", "-1", "3b:00.0", "0000:3b:00", "first"] {
            let error = text.parse::<BoardDevices>().unwrap_err().to_string();
            assert!(error.contains("`0000:3b:00.0`"), "{error}");
        }
    }

    #[test]
    fn an_answer_of_another_length_is_no_address() {
        let answer: Vec<u8> = [0_u32, 0x3b, 0, 1].into_iter().flat_map(u32::to_ne_bytes).collect();
        assert_eq!(PciAddress::of_answer(&answer).unwrap().to_string(), "0000:3b:00.1");
        assert_eq!((PciAddress::of_answer(&answer[..15]), PciAddress::of_answer(&[])), (None, None));
    }
}
