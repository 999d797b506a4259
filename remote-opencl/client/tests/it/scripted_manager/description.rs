//! The scripted manager's descriptions of its device and kernels.

use fpga_protocol::v1;

pub(super) fn welcome() -> v1::Welcome {
    let info = |param, value: &[u8]| v1::Info { param, value: value.to_vec().into() };
    let device = v1::Device {
        id: 1,
        info: vec![
            info(fpga_client::cl::DEVICE_MEM_BASE_ADDR_ALIGN, &1024u32.to_le_bytes()),
            info(fpga_client::cl::DEVICE_MAX_MEM_ALLOC_SIZE, &(1u64 << 30).to_le_bytes()),
        ],
    };
    v1::Welcome {
        session: "scripted".into(),
        platforms: vec![v1::Platform { info: vec![info(0x0902, b"Scripted\0")], devices: vec![device] }],
        manager_ns: 500,
        // There is no side socket, as in a pod where only the manager's own socket is mounted. So nothing is shared.
        side_key: vec![1; 32].into(),
        buffers_in_segments: true,
        unwatched_commands: true,
        ..v1::Welcome::default()
    }
}

pub(super) fn kernel_info() -> v1::KernelInfo {
    let arg = |address_qualifier, type_name: &str| v1::KernelArgInfo {
        address_qualifier,
        access_qualifier: fpga_client::cl::KERNEL_ARG_ACCESS_NONE,
        type_name: type_name.into(),
        type_qualifier: 0,
        name: "x".into(),
    };
    v1::KernelInfo {
        name: "k".into(),
        num_args: 2,
        attributes: String::new(),
        args: vec![
            arg(fpga_client::cl::KERNEL_ARG_ADDRESS_GLOBAL, "float*"),
            arg(fpga_client::cl::KERNEL_ARG_ADDRESS_PRIVATE, "int"),
        ],
        local_args: Vec::new(),
        work_groups: vec![v1::KernelWorkGroupInfo {
            device: 1,
            work_group_size: 64,
            compile_work_group_size: vec![0, 0, 0],
            ..v1::KernelWorkGroupInfo::default()
        }],
    }
}
