//! The programs of a session, from source or from binaries, and the descriptions of their kernels (B-8).

mod building;
mod kernels;
mod making;
mod options;

pub use options::Options;

use crate::context::Context;
use crate::inventory::Device;
use crate::quotas::Charge;
use crate::store::Digested;
use crate::task::Need;
use fpga_core::bitstream::Digest;
use fpga_vendor::{self as vendor, ClError, ClResult};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// A program.
#[derive(Debug)]
pub struct Program {
    /// The program's context.
    pub context: Arc<Context>,
    /// The program's devices. Binaries have the same order.
    pub devices: Vec<Device>,
    origin: Origin,
    vendor: OnceLock<vendor::Program>,
    /// The bitstreams that the kernels need, by the id of the device.
    needs: Mutex<Vec<(u64, Need)>>,
    /// Binaries that the program needs even if the store drops them: until the others have arrived, and to load the
    /// board again.
    kept: Mutex<Vec<Digested>>,
    _charge: Option<Charge>,
}

/// How a program that was built from source is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    /// The kernels of the program take any one slot.
    AnySlot,
    /// It counts as a bitstream, whose digest is that of source, options and device
    /// (`--source-as-bitstream`).
    AsBitstream,
}

#[derive(Debug)]
enum Origin {
    /// Source; the digest is that of the text.
    Source(Sources, Digest),
    /// Binaries; the digests are in the order of the devices.
    Binaries(Vec<Digest>),
    /// A linked program, an intermediate language, or built-in kernels. The digest is that of the linked programs'
    /// digests, of the language's bytes, or of the kernels' names.
    Linked(Sources, Digest),
}

impl Program {
    /// Attaches the charge for the program, which lives as long as it.
    #[must_use]
    pub fn charged(self, charge: Charge) -> Self {
        Self { _charge: Some(charge), ..self }
    }

    /// The digests of the binaries; empty for a program that was not made from binaries.
    #[must_use]
    pub fn digests(&self) -> &[Digest] {
        match &self.origin {
            Origin::Source(..) | Origin::Linked(..) => &[],
            Origin::Binaries(digests) => digests,
        }
    }

    /// The digest of the source, or the digests of the binaries.
    #[must_use]
    pub fn identity(&self) -> &[Digest] {
        match &self.origin {
            Origin::Source(_, source) | Origin::Linked(_, source) => std::slice::from_ref(source),
            Origin::Binaries(digests) => digests,
        }
    }

    /// The kept binary with this digest.
    #[must_use]
    pub fn kept(&self, digest: &Digest) -> Option<Digested> {
        self.kept.lock().iter().find(|kept| kept.digest() == *digest).cloned()
    }

    /// Keeps these binaries, and no others, for the program.
    pub fn keep(&self, binaries: Vec<Digested>) {
        *self.kept.lock() = binaries;
    }

    /// Keeps this binary too.
    pub fn keep_also(&self, binary: Digested) {
        let mut kept = self.kept.lock();
        if kept.iter().all(|other| other.digest() != binary.digest()) {
            kept.push(binary);
        }
    }

    /// The vendor's type of the program for each device; empty while the vendor has no program.
    #[must_use]
    pub fn binary_types(&self) -> Vec<u32> {
        let Some(vendor) = self.vendor.get() else { return Vec::new() };
        self.devices.iter().map(|device| vendor.binary_type(device.vendor).unwrap_or(0)).collect()
    }

    /// Whether the program's image must be loaded before a call to the vendor.
    #[must_use]
    pub fn is_off_board(&self) -> bool {
        self.vendor.get().is_some_and(|vendor| !vendor.is_made())
    }

    /// Loads the board with the program's image again.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_BINARY` (-42) if a binary is missing.
    pub fn load_again(&self) -> ClResult<()> {
        let kept = self.digests().iter().map(|digest| self.kept(digest).ok_or(ClError::INVALID_BINARY));
        let kept = kept.collect::<ClResult<Vec<_>>>()?;
        let devices = self.devices.iter().map(|device| device.vendor);
        let binaries: Vec<_> =
            devices.zip(&kept).map(|(device, binary)| (device, binary.bytes().as_ref())).collect();
        vendor::Program::load_binaries(&self.context.vendor, &binaries)
    }

    /// Whether the vendor's program was made, even if the board has been reconfigured since.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.vendor.get().is_some()
    }

    /// The vendor's program.
    ///
    /// # Errors
    /// `CL_INVALID_BINARY` (-42) while binaries are missing.
    pub fn vendor(&self) -> ClResult<&vendor::Program> {
        self.vendor.get().ok_or(ClError::INVALID_BINARY)
    }

    /// The slots that the kernels need on a device.
    #[must_use]
    pub fn need(&self, device: u64) -> Need {
        let needs = self.needs.lock();
        needs.iter().find(|(id, _)| *id == device).map_or(Need::AnySlot, |(_, need)| *need)
    }

    /// The program's devices with these ids; all devices if `ids` is empty.
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE` (-33) if a device is not the program's.
    pub fn chosen(&self, ids: &[u64]) -> ClResult<Vec<Device>> {
        choose(&self.devices, ids)
    }
}

/// The devices with these ids; all devices if `ids` is empty.
fn choose(all: &[Device], ids: &[u64]) -> ClResult<Vec<Device>> {
    if ids.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |id: &u64| all.iter().find(|device| device.id == *id).cloned();
    ids.iter().map(|id| find(id).ok_or(ClError::INVALID_DEVICE)).collect()
}

fn vendors(devices: &[Device]) -> Vec<vendor::DeviceId> {
    devices.iter().map(|device| device.vendor).collect()
}

/// The digest of these bytes; `None` unless there are 32.
#[must_use]
pub fn digest(bytes: &[u8]) -> Option<Digest> {
    <[u8; 32]>::try_from(bytes).ok().map(Digest::from_bytes)
}
