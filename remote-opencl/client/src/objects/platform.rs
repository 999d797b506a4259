//! Platforms and devices, with the answers of the manager's vendor runtime, fetched once when the session starts.

use crate::cl;
use crate::error::{ClError, Result};
use crate::session::Session;
use crate::session::check_status;
use bytes::Bytes;
use fpga_protocol::host_pipes;
use fpga_protocol::v1::{self, call::Method, reply};
use std::sync::{Arc, Weak};

/// Bit that is set in the ids of sub-devices.
const SUB_DEVICE: u64 = 1 << 63;

/// One vendor platform of one device manager.
#[derive(Debug)]
pub struct Platform {
    session: Arc<Session>,
    manager: String,
    index: usize,
    info: Info,
    devices: Vec<Arc<Device>>,
}

/// One device of a platform, or a part of one.
#[derive(Debug)]
pub struct Device {
    id: u64,
    session: Arc<Session>,
    info: Info,
    platform: Weak<Platform>,
    kind: Kind,
}

/// The kind of a device.
#[derive(Debug)]
enum Kind {
    /// A device of the manager; it exists as long as the session.
    Root,
    /// A part of this device; dropping it releases it.
    Part(Arc<Device>),
}

/// Answers of the vendor's runtime, by parameter.
#[derive(Debug)]
struct Info(Vec<(u32, Bytes)>);

impl Platform {
    pub(crate) fn new(
        session: &Arc<Session>,
        manager: String,
        index: usize,
        platform: v1::Platform,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| {
            let device = |device: v1::Device| Device {
                id: device.id,
                session: Arc::clone(session),
                info: Info::new(device.info, session),
                platform: Weak::clone(this),
                kind: Kind::Root,
            };
            Self {
                session: Arc::clone(session),
                manager,
                index,
                info: Info::new(platform.info, session),
                devices: platform.devices.into_iter().map(device).map(Arc::new).collect(),
            }
        })
    }

    /// The vendor's answer to a `cl_platform_info` parameter, verbatim. Only host pipes that the manager does not forward are
    /// left out.
    pub fn info(&self, param: u32) -> Option<&[u8]> {
        self.info.get(param)
    }

    /// The manager's address, and the platform's index among the manager's platforms. The two identify the platform
    /// across sessions.
    pub fn origin(&self) -> (&str, usize) {
        (&self.manager, self.index)
    }

    /// The devices of the platform, in the vendor's order.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Whether the manager is connected.
    pub fn is_available(&self) -> bool {
        self.session.is_usable()
    }
}

impl Device {
    /// The vendor's answer to a `cl_device_info` parameter, verbatim; `None` for parameters whose value is a handle. Only host
    /// pipes that the manager does not forward are left out.
    pub fn info(&self, param: u32) -> Option<&[u8]> {
        self.info.get(param)
    }

    /// The platform of the device; `None` if it was dropped.
    pub fn platform(&self) -> Option<Arc<Platform>> {
        self.platform.upgrade()
    }

    /// Whether the manager is connected (`CL_DEVICE_AVAILABLE`).
    pub fn is_available(&self) -> bool {
        self.session.is_usable()
    }

    /// `clCreateSubDevices` without a list of devices: the number of parts that the partition gives.
    ///
    /// # Errors
    /// The errors of the manager's runtime, `CL_DEVICE_NOT_AVAILABLE` if the manager is gone.
    pub fn count_parts(&self, properties: &[i64]) -> Result<u32> {
        self.partition(properties, Vec::new()).map(|parts| parts.count)
    }

    /// `clCreateSubDevices`: the parts, at most `room`. `properties` come without the terminating 0.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if there are more than `room` parts or none, and the errors of [`Self::count_parts`].
    pub fn parts(self: &Arc<Self>, properties: &[i64], room: u32) -> Result<Vec<Arc<Self>>> {
        let count = self.count_parts(properties)?;
        if count > room || count == 0 {
            return Err(ClError::INVALID_VALUE);
        }
        let ids = (0..count).map(|_| self.session.new_id() | SUB_DEVICE).collect();
        let made = self.partition(properties, ids)?;
        let part = |device: v1::Device| Self {
            id: device.id,
            session: Arc::clone(&self.session),
            info: Info::new(device.info, &self.session),
            platform: Weak::clone(&self.platform),
            kind: Kind::Part(Arc::clone(self)),
        };
        Ok(made.devices.into_iter().map(part).map(Arc::new).collect())
    }

    fn partition(&self, properties: &[i64], ids: Vec<u64>) -> Result<v1::SubDevices> {
        let create = v1::CreateSubDevices { device: self.id, properties: properties.to_vec(), ids };
        let reply = self.session.call(Method::CreateSubDevices(create))?;
        check_status(reply.status)?;
        match reply.result {
            Some(reply::Result::SubDevices(parts)) => Ok(parts),
            _ => Err(ClError::OUT_OF_RESOURCES),
        }
    }

    /// The device of which this device is a part.
    pub fn parent(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            Kind::Root => None,
            Kind::Part(parent) => Some(parent),
        }
    }

    /// Whether both devices belong to the same platform of the same session.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.platform, &other.platform)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Whether both are the same device of the same session.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.session, &other.session)
    }

    /// `CL_DEVICE_MEM_BASE_ADDR_ALIGN` in bytes.
    pub(crate) fn base_alignment(&self) -> usize {
        let bits = self.info(cl::DEVICE_MEM_BASE_ADDR_ALIGN).and_then(number).unwrap_or(8);
        usize::try_from(bits / 8).unwrap_or(1).max(1)
    }

    /// An answer of 4 or 8 bytes as a number; 0 without one.
    pub(crate) fn number(&self, param: u32) -> u64 {
        self.info(param).and_then(number).unwrap_or(0)
    }

    /// `CL_DEVICE_MAX_MEM_ALLOC_SIZE` in bytes; `u64::MAX` if the runtime doesn't report it.
    pub(crate) fn max_allocation(&self) -> u64 {
        self.info(cl::DEVICE_MAX_MEM_ALLOC_SIZE).and_then(number).unwrap_or(u64::MAX)
    }

    /// Whether a range may be empty. OpenCL 2.1 allows that, and 3.0 is the only such version that this client
    /// claims.
    pub fn may_have_empty_ranges(&self) -> bool {
        self.info(cl::DEVICE_VERSION).is_some_and(|version| version.starts_with(b"OpenCL 3."))
    }

    /// Whether the device has OpenCL 1.x.
    pub(crate) fn is_of_version_1(&self) -> bool {
        self.info(cl::DEVICE_VERSION).is_some_and(|version| version.starts_with(b"OpenCL 1."))
    }

    /// Whether the device reports that it doesn't support work-groups of different sizes.
    pub(crate) fn refuses_partial_groups(&self) -> bool {
        self.info(cl::DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT).and_then(number) == Some(0)
    }

    /// `CL_DEVICE_MAX_WORK_ITEM_SIZES`; empty if the runtime doesn't report it.
    pub(crate) fn max_work_item_sizes(&self) -> Vec<u64> {
        let sizes = self.info(cl::DEVICE_MAX_WORK_ITEM_SIZES).unwrap_or_default();
        sizes.chunks_exact(8).filter_map(number).collect()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Kind::Part(_) = self.kind {
            self.session.release(self.id);
        }
    }
}

/// An integer of 4 or 8 bytes. Managers run on little-endian machines only.
fn number(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => Some(u64::from(u32::from_le_bytes(bytes.try_into().ok()?))),
        8 => Some(u64::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

impl Info {
    fn new(info: Vec<v1::Info>, session: &Session) -> Self {
        let has_host_pipes = session.has_host_pipes();
        let known = |v1::Info { param, value }| {
            (param, if has_host_pipes { value } else { without_host_pipes(value) })
        };
        Self(info.into_iter().map(known).collect())
    }

    fn get(&self, param: u32) -> Option<&[u8]> {
        self.0.iter().find(|(it, _)| *it == param).map(|(_, value)| value.as_ref())
    }
}

/// An answer with spaces in the place of the extension of host pipes: a list of extensions then has an empty name.
fn without_host_pipes(value: Bytes) -> Bytes {
    let name = host_pipes::EXTENSION.as_bytes();
    let Some(at) = value.windows(name.len()).position(|part| part == name) else { return value };
    let mut value = Vec::from(value);
    value.iter_mut().skip(at).take(name.len()).for_each(|byte| *byte = b' ');
    value.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_pipes_leave_lists_of_extensions_and_nothing_else() {
        let kept =
            without_host_pipes(Bytes::from_static(b"cl_khr_fp64 cl_intel_fpga_host_pipe cl_khr_icd\0"));
        let names: Vec<_> = str::from_utf8(&kept).unwrap().split_whitespace().collect();
        assert_eq!(names, ["cl_khr_fp64", "cl_khr_icd\0"]);
        let other = Bytes::from_static(b"cl_khr_fp64  cl_khr_icd \0");
        assert_eq!(without_host_pipes(other.clone()), other);
    }
}
