//! Calls about sub-devices, built-in kernels, and features of OpenCL 2.0 and later: pipes, queues on the
//! device, sub-groups.

use super::{Answered, CallError, Calls, QUEUE_PROPERTIES, of_context};
use crate::objects::Object;
use crate::pipes::{DeviceQueue, ON_DEVICE, Pipe};
use crate::programs::Program;
use crate::quotas::Resource;
use crate::sub_devices::{Partition, SubDevice};
use fpga_protocol::host_pipes::{HostEnd, MAX_PIPE_BYTES};
use fpga_protocol::v1;
use fpga_protocol::v1::reply::Result as Answer;
use fpga_vendor::{ClError, ClResult, HostPipe};
use std::sync::Arc;

impl Calls<'_> {
    pub(super) fn create_program_with_built_in(
        &mut self,
        create: &v1::CreateProgramWithBuiltInKernels,
    ) -> Result<Answered, CallError> {
        let made = self.objects.context(create.context).and_then(|context| {
            let charge = self.account.charge(Resource::Programs, 1)?;
            let (devices, names) = (&create.devices, &create.names);
            let program = Program::with_built_in_kernels(context, devices, names, self.config.sources)?;
            Ok(Arc::new(program.charged(charge)))
        });
        match made {
            Ok(program) => {
                let ready = program.ready();
                self.objects.add(create.program, Object::Program(program))?;
                Ok((Ok(()), Some(Answer::Build(ready))))
            }
            Err(error) => self.keep(create.program, Err(error)),
        }
    }

    pub(super) fn create_sub_devices(
        &mut self,
        create: &v1::CreateSubDevices,
    ) -> Result<Answered, CallError> {
        let partition = self.device(create.device).and_then(|(device, parent)| {
            Partition::new(&device, parent.as_ref(), &create.properties, &create.ids)
        });
        let Partition { count, parts } = match partition {
            Ok(partition) => partition,
            Err(error) => return Ok((Err(error), None)),
        };
        let devices = parts.iter().map(SubDevice::describe).collect();
        for part in parts {
            self.objects.add(part.device.id, Object::SubDevice(Arc::new(part)))?;
        }
        Ok((Ok(()), Some(Answer::SubDevices(v1::SubDevices { count, devices }))))
    }

    pub(super) fn pipe(&self, create: &v1::CreatePipe) -> ClResult<Object> {
        let context = self.objects.context(create.context)?;
        let bytes = u64::from(create.packet_size) * u64::from(create.max_packets);
        let charges =
            [self.account.charge(Resource::Buffers, 1)?, self.account.charge(Resource::Memory, bytes)?];
        let host_end = match v1::HostEnd::try_from(create.host_end) {
            Ok(v1::HostEnd::None) => None,
            Ok(v1::HostEnd::Reads) => Some(HostEnd::Reads),
            Ok(v1::HostEnd::Writes) => Some(HostEnd::Writes),
            Err(_) => return Err(ClError::INVALID_VALUE),
        };
        let pipe = Pipe::new(context, create.packet_size, create.max_packets, host_end, charges)?;
        Ok(Object::Pipe(Arc::new(pipe)))
    }

    /// Calls `use_end` with the host's end of the pipe.
    pub(super) fn host_end<T>(
        &self,
        pipe: u64,
        answer: impl FnOnce(T) -> Option<Answer>,
        use_end: impl FnOnce(&HostPipe) -> ClResult<T>,
    ) -> Answered {
        match self.objects.pipe(pipe).and_then(|pipe| use_end(pipe.host()?)) {
            Ok(value) => (Ok(()), answer(value)),
            Err(error) => (Err(error), None),
        }
    }

    pub(super) fn read_pipe(&self, read: &v1::ReadPipe) -> Answered {
        let packets = |packets: Vec<u8>| Some(Answer::Packets(packets.into()));
        self.host_end(read.pipe, packets, |end| end.read(read.packets as usize))
    }

    pub(super) fn map_pipe(&self, map: &v1::MapPipe) -> Answered {
        let size = usize::try_from(map.size).map_or(MAX_PIPE_BYTES, |size| size.min(MAX_PIPE_BYTES));
        let mapped = |(map, size): (u64, usize)| {
            let size = size as u64;
            Some(Answer::Mapped(v1::MappedPipe { size, map }))
        };
        self.host_end(map.pipe, mapped, |end| end.map(size))
    }

    pub(super) fn device_queue(&self, create: &v1::CreateDeviceQueue) -> ClResult<Object> {
        let context = self.objects.context(create.context)?;
        let device = of_context(&context, create.device)?;
        let v1::CreateDeviceQueue { properties, size, .. } = *create;
        if properties & !(QUEUE_PROPERTIES | ON_DEVICE) != 0 || properties & ON_DEVICE == 0 {
            return Err(ClError::INVALID_QUEUE_PROPERTIES);
        }
        let bytes = if size == 0 { device.vendor.preferred_queue_size() } else { u64::from(size) };
        let charge = self.account.charge(Resource::Memory, bytes)?;
        let queue = DeviceQueue::new(context, device, properties, size, charge)?;
        Ok(Object::DeviceQueue(Arc::new(queue)))
    }

    pub(super) fn set_default_queue(&self, set: &v1::SetDefaultDeviceQueue) -> ClResult<()> {
        let context = self.objects.context(set.context)?;
        let queue = self.objects.device_queue(set.queue)?;
        if !Arc::ptr_eq(&queue.context, &context) || queue.device.id != set.device {
            return Err(ClError::INVALID_COMMAND_QUEUE);
        }
        queue.vendor.become_default(&context.vendor, queue.device.vendor)
    }

    pub(super) fn sub_group_info(&self, get: &v1::GetKernelSubGroupInfo) -> Answered {
        let input: Vec<_> =
            get.input.iter().map(|size| usize::try_from(*size).unwrap_or(usize::MAX)).collect();
        let ask = || {
            let kernel = self.objects.kernel(get.kernel)?;
            let kernel = kernel.lock();
            let device = of_context(&kernel.program.context, get.device)?;
            kernel.vendor().sub_group_info(device.vendor, get.param, &input, get.room as usize)
        };
        match ask() {
            Ok(value) => (Ok(()), Some(Answer::Info(v1::Info { param: get.param, value: value.into() }))),
            Err(error) => (Err(error), None),
        }
    }
}
