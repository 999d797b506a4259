//! The device managers of the process, and the platforms that they serve.

use crate::base::clock;
use crate::base::sync::lock;
use crate::objects::platform::Platform;
use crate::session::driver::Driver;
use crate::session::{Holder, Session};
use crate::wire::access::Access;
use crate::wire::address::{AddressError, ManagerAddress, parse_list};
use crate::wire::claim;
use crate::wire::connection_race::ConnectionRace;
use crate::wire::handshake::ConnectError;
use crate::wire::keepalive::Keepalive;
use crate::wire::reconnect::Reconnect;
use crate::wire::transport::{Opening, connect, resolve};
use fpga_foreign_process::{PerProcess, generation, run_with_signals_blocked};
use futures::future::join_all;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Environment variable with the addresses of the managers.
pub const MANAGERS_VARIABLE: &str = "FPGA_DEVICE_MANAGERS";

/// Time for which a manager that didn't answer isn't contacted again.
const FAILURE_REMEMBERED: Duration = Duration::from_secs(5);

/// A list of device managers, connected to on first use.
#[derive(Debug)]
pub struct Client {
    generation: u64,
    managers: Vec<Manager>,
    reconnect: Reconnect,
    keepalive: Keepalive,
}

#[derive(Debug)]
struct Manager {
    address: ManagerAddress,
    state: Mutex<ManagerState>,
}

#[derive(Debug)]
enum ManagerState {
    Unknown,
    Dead { since: Instant },
    Connected { session: Arc<Session>, platforms: Vec<Arc<Platform>> },
}

impl ManagerState {
    fn is_connected(&self) -> bool {
        matches!(self, Self::Connected { session, .. } if session.is_usable())
    }
}

impl Client {
    /// The client of this process, for the managers of the container's claim (`FPGA_CLAIM_DIR`), or those in
    /// `FPGA_DEVICE_MANAGERS`. A forked child gets its own.
    pub fn global() -> &'static Self {
        static CLIENT: PerProcess<Client> = PerProcess::new(|_parents| Client::from_environment());
        CLIENT.get()
    }

    fn from_environment() -> Self {
        let list =
            claim::managers().unwrap_or_else(|| Ok(std::env::var(MANAGERS_VARIABLE).unwrap_or_default()));
        let list = list.unwrap_or_else(|error| {
            tracing::error!(%error, "Can't read the container's claim");
            String::new()
        });
        Self::with_managers(&list).unwrap_or_else(|error| {
            tracing::error!(%error, "Can't use the list of device managers");
            let (generation, reconnect) = (generation(), Reconnect::Fail);
            Self { generation, managers: Vec::new(), reconnect, keepalive: Keepalive::within(Duration::ZERO) }
        })
    }

    /// A client of the managers in `list`, which has the format of `FPGA_DEVICE_MANAGERS`
    /// (`unix:/path,tcp://host:port`).
    ///
    /// # Errors
    /// [`AddressError`] for the first entry that is not an address.
    pub fn with_managers(list: &str) -> Result<Self, AddressError> {
        let managers = parse_list(list)?.into_iter();
        let managers = managers.map(|address| Manager { address, state: Mutex::new(ManagerState::Unknown) });
        let (generation, reconnect) = (generation(), Reconnect::from_environment());
        let keepalive = Keepalive::from_environment();
        Ok(Self { generation, managers: managers.collect(), reconnect, keepalive })
    }

    /// Makes sessions continue over a new connection when the connection is lost, as `FPGA_RECONNECT=resume` does.
    #[must_use]
    pub fn resuming(self) -> Self {
        Self { reconnect: Reconnect::Resume, ..self }
    }

    /// Makes a session over TCP count as lost when nothing came from its manager for `timeout`, as
    /// `FPGA_KEEPALIVE_MS` does. Zero means never.
    #[must_use]
    pub fn with_keepalive(self, timeout: Duration) -> Self {
        Self { keepalive: Keepalive::within(timeout), ..self }
    }

    /// Current time in ns, on the clock of [`crate::Profiling`]; for `clGetHostTimer`.
    pub fn now_ns() -> u64 {
        clock::now_ns()
    }

    /// Number of times that the library's background thread has begun to move bytes, for tests and diagnosis. A
    /// program that waits for its commands moves the bytes itself.
    pub fn background_turns() -> u64 {
        Driver::of_process().map_or(0, Driver::background_turns)
    }

    /// The platforms of all managers that answer, in the order of the list. A dead manager costs at most 250 ms; a
    /// manager that accepts connections and doesn't answer costs 1 s after others have answered. Either yields no
    /// platform and is contacted again after 5 s. A manager that came back has new platforms.
    pub fn platforms(&self) -> Vec<Arc<Platform>> {
        if self.generation != generation() {
            return Vec::new();
        }
        let mut states: Vec<_> = self.managers.iter().map(|manager| lock(&manager.state)).collect();
        self.connect_where_needed(&mut states);
        let platforms = states.iter().flat_map(|state| match &**state {
            ManagerState::Connected { platforms, .. } => platforms.clone(),
            ManagerState::Unknown | ManagerState::Dead { .. } => Vec::new(),
        });
        platforms.collect()
    }

    /// Connects to all managers that need it, at the same time, so that several dead managers cost no more than one.
    fn connect_where_needed(&self, states: &mut [MutexGuard<'_, ManagerState>]) {
        let others_answer = states.iter().any(|state| state.is_connected());
        let needed = self.managers.iter().zip(states).filter(|(_, state)| match &***state {
            ManagerState::Unknown => true,
            ManagerState::Dead { since } => since.elapsed() >= FAILURE_REMEMBERED,
            ManagerState::Connected { .. } => !state.is_connected(),
        });
        let (managers, states): (Vec<_>, Vec<_>) = needed.unzip();
        if managers.is_empty() {
            return;
        }
        let Ok(driver) = Driver::of_process() else { return };
        let (reconnect, keepalive) = (self.reconnect, self.keepalive);
        let opening = Opening { access: Access::Environment, reconnect, keepalive };
        let race = &ConnectionRace::new(others_answer);
        let connect_to = |manager: &Manager| {
            let address = manager.address.clone();
            let resolved = resolve(&address);
            async move {
                let mut connection = connect(address, resolved?, opening, race).await?;
                let platforms = std::mem::take(&mut connection.platforms);
                Ok((Session::start(driver, connection, Holder::Program), platforms))
            }
        };
        // A thread of its own: the program's may have a small stack, or a tokio runtime that must not be left.
        let connected = run_with_signals_blocked("fpga-connect", || {
            driver.try_drive(join_all(managers.iter().copied().map(connect_to)))
        });
        // Without a thread the state of the managers stays unknown.
        let Ok(Some(connected)) = connected else { return };
        for ((manager, state), result) in managers.into_iter().zip(states).zip(connected) {
            **state = match result {
                Ok((session, platforms)) if session.release_in_background().is_ok() => {
                    let platform =
                        |(index, it)| Platform::new(&session, manager.address.to_string(), index, it);
                    let platforms = platforms.into_iter().enumerate().map(platform).collect();
                    ManagerState::Connected { session, platforms }
                }
                Ok(_) => ManagerState::Dead { since: Instant::now() },
                Err(error) => {
                    let error: ConnectError = error;
                    tracing::warn!(manager = %manager.address, %error, "A device manager doesn't answer");
                    ManagerState::Dead { since: Instant::now() }
                }
            };
        }
    }
}
