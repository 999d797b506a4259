//! Entry points of fuzz targets, over a real runtime: a session, and the manager's side of a tenant process.
//!
//! Both run the code of the service; only the peer is artificial.

pub use crate::isolation::fuzzing::{TenantPackets, link_frames};
use bytes::Bytes;
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SessionId;
use fpga_protocol::v1;
use fpga_session::config::Config;
use fpga_session::dispatcher::Dispatcher;
use fpga_session::governor::{Governor, Limits};
use fpga_session::incoming::Incoming;
use fpga_session::locality::Credentials;
use fpga_session::locality::Locality;
use fpga_session::outgoing::Outgoing;
use fpga_session::quota::Quota;
use fpga_session::reporting::Reports;
use fpga_session::router::Input;
use fpga_session::segments::FdChannel;
use fpga_session::session::{Session, Shared, Who};
use fpga_session::settings::{Current, Settings};
use fpga_session::shutdown::Shutdown;
use fpga_session::store::BitstreamStore;
use futures::StreamExt as _;
use parking_lot::{Mutex, MutexGuard};
use prost::Message as _;
use std::num::NonZeroU32;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tonic::Status;

/// Most bytes of buffers of a session, all of which may be in segments. The limit bounds the time that a
/// device needs.
const MEMORY_BYTES: u64 = 16 << 20;
/// A session that takes longer counts as hung.
const DEADLINE: Duration = Duration::from_secs(60);

/// The parts of a manager without flags. The lock gives them to one caller at a time, since the counts of
/// leftovers are global. The environment names the runtime.
static SHARED: LazyLock<Result<Mutex<Arc<Shared>>, String>> = LazyLock::new(|| {
    let quota = Quota { memory: MEMORY_BYTES, upload: MEMORY_BYTES, ..Quota::default() };
    let settings = Settings::new(Current { default_quota: quota, ..Current::default() });
    let slots = NonZeroU32::MIN.saturating_add(1);
    let limits = Limits { lasting: 4 * MEMORY_BYTES, passing: MEMORY_BYTES };
    let dispatcher = Dispatcher::new(slots, settings.current().rules.clone(), Reports::off());
    let store = Arc::new(BitstreamStore::in_memory(MEMORY_BYTES));
    let config =
        Config { abandoned_grace: DEADLINE, ..Config::without_listeners(dispatcher, settings, store) };
    let shared = Shared::new(config, Governor::new(limits, limits), Shutdown::new());
    shared.map(|shared| Mutex::new(Arc::new(shared))).map_err(|error| error.to_string())
});

/// The parts, locked for the caller.
///
/// # Errors
/// There is no OpenCL runtime.
pub fn shared() -> Result<MutexGuard<'static, Arc<Shared>>, String> {
    SHARED.as_ref().map(Mutex::lock).map_err(Clone::clone)
}

/// A client that sends these messages and disconnects.
struct Messages {
    left: std::vec::IntoIter<v1::ClientMessage>,
    /// The side socket, which the client opens first.
    side: Option<(SessionId, UnixStream)>,
    shared: Arc<Shared>,
}

impl Incoming for Messages {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if let Some((session, side)) = self.side.take() {
            self.shared.router.send(session, Input::FdChannel(FdChannel::of(side.into())));
            // The session takes input from elsewhere before messages of the client.
            tokio::task::yield_now().await;
        }
        Ok(self.left.next().map(|message| message.encode_to_vec().into()))
    }
}

/// The leftovers of a session; all fields should be 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Left {
    /// Number of running tasks.
    pub running: usize,
    /// Number of waiting tasks.
    pub waiting: usize,
    /// Bytes that the governor counts: messages, data in transit, shared memory, and the session itself.
    pub bytes: u64,
}

/// Serves a session whose client sends these messages and disconnects.
///
/// # Errors
/// There is no OpenCL runtime, a call of the system fails, or the session hangs.
pub fn session(messages: Vec<v1::ClientMessage>) -> Result<Left, String> {
    let shared = shared()?;
    let failed = |error: std::io::Error| error.to_string();
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let locality = Locality::SharesMemory(Credentials::of(&ours).map_err(failed)?);
    let tenant = Tenant::new("fuzz");
    let account = shared.quotas.enter(&tenant).ok_or("sessions before this one live on")?;
    let id = shared.config.dispatcher.new_session();
    let budget = account.bytes().session().ok_or("sessions before this one hold all memory")?;
    let (outgoing, mut told) = Outgoing::new(budget.clone(), shared.config.metrics.clone());
    let client = Messages { left: messages.into_iter(), side: Some((id, ours)), shared: shared.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let who = Who { id, tenant, token: None, account, locality };
    let served = async {
        let (session, input) = Session::new(shared.clone(), who, budget, outgoing);
        tokio::join!(session.run(input, client), async { while told.next().await.is_some() {} })
    };
    runtime
        .block_on(async { tokio::time::timeout(DEADLINE, served).await })
        .map_err(|_| "the session hangs".to_owned())?;
    drop(theirs);
    let dispatcher = &shared.config.dispatcher;
    let held = shared.governor.held();
    let bytes = held.lasting + held.passing;
    Ok(Left { running: dispatcher.running(), waiting: dispatcher.waiting(), bytes })
}
