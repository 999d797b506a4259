//! The name of the board's platform.

use fpga_session::model::BoardModel;
use fpga_vendor as vendor;

const CL_PLATFORM_NAME: u32 = 0x0902;

/// Name of the device's platform, as everybody sees it: a modelled board says so.
pub(super) fn platform_of(platform: Option<vendor::PlatformId>, model: Option<&BoardModel>) -> String {
    let name = platform.map(platform_name).unwrap_or_default();
    if model.is_some() { format!("{name} (modelled board)") } else { name }
}

fn platform_name(platform: vendor::PlatformId) -> String {
    let bytes = vendor::platform_info(platform, CL_PLATFORM_NAME).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}
