//! The endpoint picker's answers for people and their tools: what the picker writes and kubectl-fpga reads.
//!
//! Enums are texts and unknown fields are ignored, so that a picker of another version can be asked too.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Audience of the tokens that readers show a picker.
pub const READ_AUDIENCE: &str = "fpga-endpoint-picker-read";

/// `/functions`: a function with its replicas, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionView {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the function.
    pub name: String,
    /// The bitstream that its requests use, if anybody says.
    pub bitstream: Option<String>,
    /// Requests in flight.
    pub in_flight: usize,
    /// Requests per second, averaged over the last minutes.
    pub per_second: f64,
    /// Requests in flight, averaged over the last minutes.
    pub mean_in_flight: f64,
    /// Requests in flight, averaged over the last seconds.
    #[serde(default)]
    pub recent_in_flight: f64,
    /// Requests per second, averaged over the last seconds.
    #[serde(default)]
    pub recent_per_second: f64,
    /// Weight of the time for which the picker has looked in the averages over the last seconds, from 0 to 1: averages of
    /// several pickers are added by it.
    #[serde(default)]
    pub recent_seen: f64,
    /// Requests since the picker knows the function.
    #[serde(default)]
    pub requests: u64,
    /// How many replicas the function should have of the budget.
    pub recommended_replicas: u32,
    /// The replicas, by address.
    pub replicas: Vec<ReplicaView>,
}

/// A replica of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaView {
    /// Address and port.
    pub address: SocketAddr,
    /// Name of the node, if it is known.
    pub node: Option<String>,
    /// Id of the board on the node, if it is known; of several boards their ids, comma-separated.
    pub board: Option<String>,
    /// Whether something fresh is known of a board. The figures of slots and waiting requests are those of such boards.
    pub fresh: bool,
    /// The boards that are out of rotation, by id, each with the reason, which may be empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cordons: BTreeMap<String, String>,
    /// Requests in flight at the replica.
    pub in_flight: usize,
    /// Slots of the boards; 0 if they are not known.
    pub slots: usize,
    /// Idle slots of the boards that hold the function's bitstream.
    pub idle_with_bitstream: usize,
    /// Idle slots of the boards.
    pub idle: usize,
    /// Requests that wait for a slot of the boards.
    pub waiting: usize,
}

/// `/picks/NAMESPACE/NAME`: a function with the last picks of its requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PicksView {
    /// The function.
    pub function: FunctionView,
    /// The last picks, the latest first.
    pub picks: Vec<PickView>,
}

/// The pick for a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PickView {
    /// Milliseconds since the pick.
    pub ago_ms: u64,
    /// Replicas among which was chosen.
    pub candidates: usize,
    /// The endpoints in the order in which the gateway tries them, or why there is none.
    #[serde(flatten)]
    pub outcome: OutcomeView,
}

/// What came of a pick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum OutcomeView {
    /// The request has endpoints.
    Picked {
        /// What the choice is based on: `resident`, `load`, `queue`, `in_flight` or `cordoned`.
        basis: String,
        /// The endpoints in the order in which the gateway tries them.
        endpoints: Vec<SocketAddr>,
        /// Node of the first endpoint.
        node: Option<String>,
        /// Board of the first endpoint that the request counts on.
        board: Option<String>,
        /// Requests in flight at the first endpoint, without this one.
        in_flight: usize,
        /// Requests that waited for a slot of that board, without this one.
        waiting: usize,
    },
    /// The request was refused.
    Refused {
        /// Why: `no_endpoint` or `too_many_waiting`.
        refused: String,
    },
}
