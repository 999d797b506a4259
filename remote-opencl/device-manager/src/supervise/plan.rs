//! The boards of a node: which devices they are, and their names, which stay the same over restarts.

use crate::boards::FoundDevice;
use fpga_session::inventory::{BoardDevices, PciAddress};
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// Longest name of a kind: with the longest PCI address, a board's name has at most 48 bytes, as the node plugin takes
/// it.
const MAX_KIND_BYTES: usize = 24;

/// The kind of a node's boards, the first part of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kind(String);

/// The text is not a [`Kind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no kind of boards; write 1 to {MAX_KIND_BYTES} letters, digits, `-`, `_` or `.`, for example `pac-a10`"
)]
pub(super) struct InvalidKind(String);

/// A board that gets a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Board {
    /// Name of the board on its node.
    pub(super) name: String,
    /// The board's device.
    pub(super) device: BoardDevices,
}

/// The boards of these devices: `KIND-ADDRESS` where the runtime tells the PCI address of every device, else
/// `KIND-INDEX`. With several boards for each device, which only tests want, names have the index of the board.
pub(super) fn boards(kind: &Kind, devices: &[FoundDevice], boards_per_device: NonZeroU32) -> Vec<Board> {
    let addresses: Option<Vec<PciAddress>> =
        devices.iter().map(|device| device.pci.as_deref()?.parse().ok()).collect();
    match addresses {
        Some(addresses) if boards_per_device.get() == 1 => addresses
            .into_iter()
            .map(|address| Board {
                name: format!("{kind}-{}", address.to_string().replace(':', "-")),
                device: BoardDevices::At(address),
            })
            .collect(),
        _ => devices
            .iter()
            .flat_map(|device| (0..boards_per_device.get()).map(|_| device.index))
            .enumerate()
            .map(|(index, device)| Board {
                name: format!("{kind}-{index}"),
                device: BoardDevices::Index(device),
            })
            .collect(),
    }
}

impl FromStr for Kind {
    type Err = InvalidKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_kind = (1..=MAX_KIND_BYTES).contains(&text.len())
            && !text.starts_with('.')
            && text.bytes().all(is_plain);
        if is_kind { Ok(Self(text.to_owned())) } else { Err(InvalidKind(text.to_owned())) }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_device(index: usize, pci: Option<&str>) -> FoundDevice {
        FoundDevice { index, pci: pci.map(str::to_owned), name: "a board".to_owned() }
    }

    fn names(devices: &[FoundDevice], boards_per_device: u32) -> Vec<(String, String)> {
        let kind = "pac".parse().unwrap();
        let boards = boards(&kind, devices, NonZeroU32::new(boards_per_device).unwrap());
        boards.into_iter().map(|board| (board.name, board.device.to_string())).collect()
    }

    fn pair(name: &str, device: &str) -> (String, String) {
        (name.to_owned(), device.to_owned())
    }

    #[test]
    fn a_board_keeps_its_name_when_another_one_vanishes_where_the_runtime_tells_addresses() {
        let (first, second) = (mk_device(0, Some("0000:3b:00.0")), mk_device(1, Some("0000:af:00.0")));
        let of_second = pair("pac-0000-af-00.0", "0000:af:00.0");
        assert_eq!(names(&[first, second], 1)[1], of_second);
        assert_eq!(names(&[mk_device(0, Some("0000:af:00.0"))], 1), [of_second]);
    }

    #[test]
    fn a_board_is_named_by_its_index_where_an_address_is_unknown() {
        let devices = [mk_device(0, Some("0000:3b:00.0")), mk_device(1, None)];
        assert_eq!(names(&devices, 1), [pair("pac-0", "0"), pair("pac-1", "1")]);
        assert_eq!(names(&[], 1), []);
    }

    #[test]
    fn a_device_can_be_several_boards() {
        assert_eq!(names(&[mk_device(0, None)], 2), [pair("pac-0", "0"), pair("pac-1", "0")]);
        let known = mk_device(0, Some("0000:3b:00.0"));
        assert_eq!(names(&[known], 2), [pair("pac-0", "0"), pair("pac-1", "0")]);
    }

    #[test]
    fn a_kind_is_a_plain_name() {
        assert!("pac-a10_x.2".parse::<Kind>().is_ok());
        for text in ["", ".pac", "a b", "a/b", &"x".repeat(25)] {
            assert!(text.parse::<Kind>().is_err(), "{text}");
        }
    }
}
