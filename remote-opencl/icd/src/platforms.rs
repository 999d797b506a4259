//! Platforms and devices: handles that outlive sessions.
//!
//! ICD loaders ask for platforms once and keep the handles, over forks and over restarts of the device manager. So
//! these handles are bound to the client's objects late: a forked child binds them to its own session, and a
//! context that is created after the manager came back binds them to the new session. Contexts and all objects in
//! them belong to the session in which they were made, and so do sub-devices. Platforms and root devices are never
//! freed, as the standard requires.

use crate::cl;
use crate::handle::{Handle, Object, cl_object};
use crate::masks;
use fpga_client as client;
use fpga_client::ClError;
use fpga_foreign_process::PerProcess;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

pub struct Platform {
    identity: Identity,
    bound: PerProcess<Bound>,
    devices: OnceLock<Vec<Handle<Device>>>,
}

pub struct Device {
    pub platform: Handle<Platform>,
    kind: Kind,
}

/// The kind of a device.
enum Kind {
    /// The device with this index among the platform's devices.
    Root(usize),
    /// A sub-device of another device. It is reference-counted and belongs to one session, as objects do.
    Part { client: Arc<client::Device>, parent: Handle<Device> },
}

cl_object!(Platform, CL_INVALID_PLATFORM, inherited: true);
cl_object!(Device, CL_INVALID_DEVICE, inherited: true);

/// The properties by which a platform is recognised in another session.
#[derive(PartialEq, Eq)]
struct Identity {
    manager: String,
    /// Index of the platform among the manager's platforms.
    index: usize,
    devices: usize,
}

/// The client's platform in this process.
#[derive(Default)]
struct Bound(Mutex<Option<Arc<client::Platform>>>);

/// All platform handles given out so far.
struct Known(Mutex<Vec<Handle<Platform>>>);

static KNOWN: PerProcess<Known> = PerProcess::new(Known::inherit);

impl Known {
    /// The handles of a new process: those of its parent, since loaders and programs keep them.
    fn inherit(parent: Option<&Self>) -> Self {
        // If the lock is held, another thread was changing the list during the fork, and nothing is inherited.
        let inherited = parent.and_then(|parent| parent.0.try_lock().ok().map(|known| known.clone()));
        Self(Mutex::new(inherited.unwrap_or_default()))
    }
}

impl Platform {
    /// The platforms of all managers that answer now.
    pub fn all() -> Vec<Handle<Self>> {
        let current = client::Client::global().platforms();
        let mut known = lock(&KNOWN.get().0);
        let mut handle_of = |platform: &Arc<client::Platform>| {
            let identity = Identity::of(platform);
            let old = known.iter().find(|old| old.identity == identity);
            if let Some(old) = old {
                let old = Arc::clone(old);
                *lock(&old.bound.get().0) = Some(Arc::clone(platform));
                return old;
            }
            let new = Self::handle(identity, platform);
            known.push(Arc::clone(&new));
            new
        };
        current.iter().map(&mut handle_of).collect()
    }

    /// The client's platform, which is bound to a session on first use.
    ///
    /// # Errors
    /// `CL_INVALID_PLATFORM` in a forked child that can't reach the manager.
    pub fn client(&self) -> Result<Arc<client::Platform>, ClError> {
        let bound = lock(&self.bound.get().0).clone();
        match bound {
            Some(platform) => Ok(platform),
            None => self.bind(),
        }
    }

    /// Binds the platform to the manager's current session if the previous one has ended.
    pub fn refresh(&self) {
        let ended = lock(&self.bound.get().0).as_ref().is_none_or(|platform| !platform.is_available());
        if ended {
            // If the manager doesn't answer, later calls return errors.
            let _ = self.bind();
        }
    }

    /// The root devices of the platform.
    pub fn devices(&self) -> &[Handle<Device>] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }

    fn bind(&self) -> Result<Arc<client::Platform>, ClError> {
        let current = client::Client::global().platforms();
        let same = current.into_iter().find(|platform| Identity::of(platform) == self.identity);
        let same = same.ok_or(ClError::INVALID_PLATFORM)?;
        *lock(&self.bound.get().0) = Some(Arc::clone(&same));
        Ok(same)
    }

    fn handle(identity: Identity, client: &Arc<client::Platform>) -> Handle<Self> {
        let platform = Object::new(Self {
            identity,
            bound: PerProcess::new(|_parents| Bound::default()),
            devices: OnceLock::new(),
        });
        *lock(&platform.bound.get().0) = Some(Arc::clone(client));
        let device = |index| Object::new(Device { platform: Arc::clone(&platform), kind: Kind::Root(index) });
        let devices = (0..client.devices().len()).map(device).collect();
        // Set only here. The reference cycle between a platform and its devices keeps both forever.
        let _ = platform.devices.set(devices);
        platform
    }
}

impl Device {
    /// The client's device in the session to which the platform is bound, or of which the sub-device is.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` if that session has no such device.
    pub fn client(&self) -> Result<Arc<client::Device>, ClError> {
        match &self.kind {
            Kind::Root(index) => {
                let platform = self.platform.client().map_err(|_| ClError::DEVICE_NOT_AVAILABLE)?;
                platform.devices().get(*index).cloned().ok_or(ClError::DEVICE_NOT_AVAILABLE)
            }
            Kind::Part { client, .. } => Ok(Arc::clone(client)),
        }
    }

    /// The handle of a sub-device of `parent`.
    pub fn part(client: Arc<client::Device>, parent: &Handle<Self>) -> Handle<Self> {
        let kind = Kind::Part { client, parent: Arc::clone(parent) };
        Object::new(Self { platform: Arc::clone(&parent.platform), kind })
    }

    /// The device of which this is a sub-device; `None` for a root device.
    pub fn parent(&self) -> Option<&Handle<Self>> {
        match &self.kind {
            Kind::Root(_) => None,
            Kind::Part { parent, .. } => Some(parent),
        }
    }

    /// The vendor's answer to a query with a number of 4 or 8 bytes; 0 if there is none.
    pub fn number(&self, param: u32) -> u64 {
        let Ok(client) = self.client() else { return 0 };
        match client.info(param) {
            Some(bytes) if bytes.len() == 8 => bytes.try_into().map_or(0, u64::from_ne_bytes),
            Some(bytes) => bytes.try_into().map_or(0, |bytes| u64::from(u32::from_ne_bytes(bytes))),
            None => 0,
        }
    }

    /// Whether the vendor's device has this extension.
    pub fn has_extension(&self, name: &str) -> bool {
        let said = self.text(cl::CL_DEVICE_EXTENSIONS).unwrap_or_default();
        said.split_whitespace().any(|known| known == name)
    }

    /// Whether this library claims OpenCL 3.0 for the device.
    pub fn claims_3(&self) -> bool {
        self.client().is_ok_and(|client| client.info(cl::CL_DEVICE_VERSION).is_some_and(masks::claims_3))
    }

    /// Whether the device supports programs in an intermediate language.
    pub fn takes_il(&self) -> bool {
        self.claims_3() && self.text(cl::CL_DEVICE_IL_VERSION).is_some_and(|versions| !versions.is_empty())
    }

    /// Whether the device has a built-in kernel called `name`.
    pub fn has_built_in_kernel(&self, name: &str) -> bool {
        let names = self.text(cl::CL_DEVICE_BUILT_IN_KERNELS).unwrap_or_default();
        !name.is_empty() && names.split(';').any(|known| known == name)
    }

    /// The vendor's answer to a query with a string, without its NUL.
    fn text(&self, param: u32) -> Option<String> {
        let client = self.client().ok()?;
        let bytes = client.info(param)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl Identity {
    fn of(platform: &client::Platform) -> Self {
        let (manager, index) = platform.origin();
        Self { manager: manager.to_owned(), index, devices: platform.devices().len() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
