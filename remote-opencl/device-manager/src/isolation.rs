//! `--isolate process`: each tenant's vendor context lives in a process of its own, a *tenant process*. A
//! vendor library that crashes, or a kernel that reads and writes arbitrary memory, then harms the sessions
//! of that tenant only.
//!
//! The manager keeps connections, TLS, tokens, quotas of sessions, and the one dispatch of the slots, and
//! calls the vendor for no tenant. It relays a session's messages ([`relay`]); tasks ask for slots and get
//! them over the process's control socket ([`packets`]). The manager does not trust a tenant process: the
//! process can name only its own sessions and tasks, for its own tenant, within bounds.
//!
//! The mode has a cost: each message on the stream takes two more hops.

pub mod child;
pub mod folder;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guard;
mod memory;
pub mod outbound;
pub mod packets;
pub mod pool;
pub mod process;
pub mod relay;
pub mod seccomp;
pub mod shared_board;
pub mod tenant_process;
