//! Programs of a session: from source or through the digest gate, built on a thread of their own, and what is told
//! of their kernels (B-8).

mod building;
mod kernels;
mod making;
mod options;

pub use options::Options;

use crate::config::Sources;
use crate::inventory::Device;
use crate::objects::{Context, lock};
use crate::quotas::Charge;
use crate::store::Digested;
use crate::task::Need;
use crate::vendor::{self, ClError, ClResult};
use fpga_core::bitstream::Digest;
use opencl_sys::{CL_INVALID_BINARY, CL_INVALID_DEVICE};
use std::sync::{Arc, Mutex, OnceLock};

/// A program.
#[derive(Debug)]
pub struct Program {
    /// Its context.
    pub context: Arc<Context>,
    /// What it is for, in order.
    pub devices: Vec<Device>,
    origin: Origin,
    vendor: OnceLock<vendor::Program>,
    /// What its kernels need on each device.
    needs: Mutex<Vec<(u64, Need)>>,
    /// Binaries that are here while others are yet to come, whatever the store does; and those of which the board is loaded.
    kept: Mutex<Vec<Digested>>,
    /// On its tenant's account.
    _charge: Option<Charge>,
}

#[derive(Debug)]
enum Origin {
    /// The digest of the text.
    Source(Sources, Digest),
    /// In the order of the devices.
    Binaries(Vec<Digest>),
    /// What the programs that were linked come from; the digest of an intermediate language, or of built-in kernels' names.
    Linked(Sources, Digest),
}

impl Program {
    /// With the charge for it, which it keeps.
    #[must_use]
    pub fn charged(self, charge: Charge) -> Self {
        Self { _charge: Some(charge), ..self }
    }

    /// The digests of its binaries; none of a program from source.
    #[must_use]
    pub fn digests(&self) -> &[Digest] {
        match &self.origin {
            Origin::Source(..) | Origin::Linked(..) => &[],
            Origin::Binaries(digests) => digests,
        }
    }

    /// What it is made of: the digest of its source, or of its binaries.
    #[must_use]
    pub fn identity(&self) -> &[Digest] {
        match &self.origin {
            Origin::Source(_, source) | Origin::Linked(_, source) => std::slice::from_ref(source),
            Origin::Binaries(digests) => digests,
        }
    }

    /// A binary of the program that was here before.
    #[must_use]
    pub fn kept(&self, digest: &Digest) -> Option<Digested> {
        lock(&self.kept).iter().find(|kept| kept.digest() == *digest).cloned()
    }

    /// These are to stay until the others have come.
    pub fn keep(&self, binaries: Vec<Digested>) {
        *lock(&self.kept) = binaries;
    }

    /// So is this one.
    pub fn keep_also(&self, binary: Digested) {
        let mut kept = lock(&self.kept);
        if kept.iter().all(|other| other.digest() != binary.digest()) {
            kept.push(binary);
        }
    }

    /// What the vendor takes it for on each device; nothing where it has no program.
    #[must_use]
    pub fn binary_types(&self) -> Vec<u32> {
        let Some(vendor) = self.vendor.get() else { return Vec::new() };
        self.devices.iter().map(|device| vendor.binary_type(device.vendor).unwrap_or(0)).collect()
    }

    /// Whether a call to the vendor needs its image on the board first.
    #[must_use]
    pub fn is_off_board(&self) -> bool {
        self.vendor.get().is_some_and(|vendor| !vendor.is_made())
    }

    /// Loads the board with its image once more.
    ///
    /// # Errors
    /// The vendor's; -42 where the bytes are not there.
    pub fn load_again(&self) -> ClResult<()> {
        let kept = self.digests().iter().map(|digest| self.kept(digest).ok_or(ClError(CL_INVALID_BINARY)));
        let kept = kept.collect::<ClResult<Vec<_>>>()?;
        let devices = self.devices.iter().map(|device| device.vendor);
        let binaries: Vec<_> =
            devices.zip(&kept).map(|(device, binary)| (device, binary.bytes().as_ref())).collect();
        vendor::Program::load_binaries(&self.context.vendor, &binaries)
    }

    /// Whether the vendor has it, or had it.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.vendor.get().is_some()
    }

    /// The vendor's program.
    ///
    /// # Errors
    /// -42 while its binaries are missing.
    pub fn vendor(&self) -> ClResult<&vendor::Program> {
        self.vendor.get().ok_or(ClError(CL_INVALID_BINARY))
    }

    /// What its kernels need of the slots when they run on that device.
    #[must_use]
    pub fn need(&self, device: u64) -> Need {
        let needs = lock(&self.needs);
        needs.iter().find(|(id, _)| *id == device).map_or(Need::AnySlot, |(_, need)| *need)
    }

    /// The devices of these ids; all where there are none.
    ///
    /// # Errors
    /// -33 where one is not of the program.
    pub fn chosen(&self, ids: &[u64]) -> ClResult<Vec<Device>> {
        choose(&self.devices, ids)
    }
}

/// The devices of these ids; all where there are none.
fn choose(all: &[Device], ids: &[u64]) -> ClResult<Vec<Device>> {
    if ids.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |id: &u64| all.iter().find(|device| device.id == *id).copied();
    ids.iter().map(|id| find(id).ok_or(ClError(CL_INVALID_DEVICE))).collect()
}

fn vendors(devices: &[Device]) -> Vec<vendor::DeviceId> {
    devices.iter().map(|device| device.vendor).collect()
}

/// A digest of 32 bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> Option<Digest> {
    <[u8; 32]>::try_from(bytes).ok().map(Digest::from_bytes)
}
