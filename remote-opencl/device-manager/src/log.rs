//! The flags of the log, which all services share.

pub use fpga_net::log::LogArgs;

/// The manager's default filter.
pub const DEFAULT_FILTER: &str =
    "fpga_device_manager=info,fpga_session=info,fpga_vendor=info,fpga_hook=info,warn";
