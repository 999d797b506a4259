//! The reasons why a node is rejected.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The reason why a node is rejected. kube-scheduler groups equal texts in its events, so a text has no number and no
/// name in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rejection {
    /// The extender has never seen the node.
    UnknownNode,
    /// The node has neither a state nor one of our labels.
    Unlabelled,
    /// The node has a collector but no board.
    NoDevice,
    /// No board is of the requested vendor.
    Vendor,
    /// No board has the requested name.
    Board,
    /// No board has the requested shell.
    Shell,
    /// No board belongs to the requested OpenCL platform.
    Platform,
    /// No board has as many slots as requested.
    Slots,
    /// The pod's bitstreams are not valid on any board of the node.
    InvalidBitstream,
    /// No board holds the bitstreams that must be loaded already.
    NotLoaded,
    /// The boards that meet the requirement do not answer.
    Unhealthy,
    /// Boards that meet the requirement are out of rotation.
    Cordoned,
    /// Each part of the requirement is met by some board, but no board meets all of them.
    NoSingleDevice,
    /// Fewer boards meet the requirement than the pod asks for.
    TooFewBoards,
    /// The boards that meet the requirement are used more than the pod allows.
    Utilization,
    /// The boards that meet the requirement have as many containers as they may have.
    NoInstance,
    /// The boards that meet the requirement would be reconfigured as a whole and take another bitstream from others, and
    /// another board has the wanted one.
    LoadedElsewhere,
    /// The boards that meet the requirement would be reconfigured as a whole and take another bitstream from others, for
    /// whose load the other boards with that bitstream have no time.
    NotRedistributable,
    /// The node plugin, without which no container starts, does not report.
    PluginLate,
    /// The node plugin could not serve pods of the same controller, for a reason that does not pass.
    KeptOff,
    /// A pod of the same controller was moved off the node a moment ago.
    MovedOff,
    /// The node's state is not fresh and the stale policy excludes such nodes.
    NotFresh,
    /// The pod's requirement could not be parsed, so no node is known to meet it.
    Misunderstood,
}

impl Rejection {
    /// All reasons.
    pub const ALL: [Self; 23] = [
        Self::UnknownNode,
        Self::Unlabelled,
        Self::NoDevice,
        Self::Vendor,
        Self::Board,
        Self::Shell,
        Self::Platform,
        Self::Slots,
        Self::InvalidBitstream,
        Self::NotLoaded,
        Self::Unhealthy,
        Self::Cordoned,
        Self::NoSingleDevice,
        Self::TooFewBoards,
        Self::Utilization,
        Self::NoInstance,
        Self::LoadedElsewhere,
        Self::NotRedistributable,
        Self::PluginLate,
        Self::KeptOff,
        Self::MovedOff,
        Self::NotFresh,
        Self::Misunderstood,
    ];

    /// The text for people, as it appears in kube-scheduler's events.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::UnknownNode => "node is not known to the FPGA scheduler extender",
            Self::Unlabelled => "node has no FPGA label and no FPGA state",
            Self::NoDevice => "node has no FPGA device",
            Self::Vendor => "FPGA vendor does not match",
            Self::Board => "FPGA board does not match",
            Self::Shell => "FPGA shell version does not match",
            Self::Platform => "FPGA platform does not match",
            Self::InvalidBitstream => "bitstream is not valid on the FPGA device",
            Self::NotLoaded => "FPGA device has not loaded the bitstream that must be there",
            Self::Slots => "FPGA device has too few slots",
            Self::Unhealthy => "FPGA device is unhealthy",
            Self::Cordoned => "FPGA device is cordoned",
            Self::NoSingleDevice => "no single FPGA device meets all requirements",
            Self::TooFewBoards => "too few FPGA devices meet the requirements",
            Self::Utilization => "FPGA device is used more than the pod's max-utilization",
            Self::NoInstance => "FPGA device has as many containers as it may have",
            Self::LoadedElsewhere => {
                "FPGA device is used with another bitstream, and another device has the wanted one"
            }
            Self::NotRedistributable => {
                "FPGA device is used with another bitstream, and the load fits on no other device that has it"
            }
            Self::PluginLate => "FPGA node plugin does not answer",
            Self::KeptOff => "FPGA node plugin could not serve this workload a moment ago",
            Self::MovedOff => "FPGA registry moved this workload off the node a moment ago",
            Self::NotFresh => "FPGA state of the node is not fresh",
            Self::Misunderstood => {
                "what the pod asks of an FPGA can't be understood (see kubectl fpga explain)"
            }
        }
    }

    /// Whether only a change of the node's boards or of the pod could end the reason: no load that goes and no board
    /// that answers again.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        match self {
            Self::NoDevice
            | Self::Vendor
            | Self::Board
            | Self::Shell
            | Self::Platform
            | Self::Slots
            | Self::InvalidBitstream
            | Self::NoSingleDevice
            | Self::TooFewBoards
            | Self::Misunderstood => true,
            Self::UnknownNode
            | Self::Unlabelled
            | Self::NotLoaded
            | Self::Unhealthy
            | Self::Cordoned
            | Self::Utilization
            | Self::NoInstance
            | Self::LoadedElsewhere
            | Self::NotRedistributable
            | Self::PluginLate
            | Self::KeptOff
            | Self::MovedOff
            | Self::NotFresh => false,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
