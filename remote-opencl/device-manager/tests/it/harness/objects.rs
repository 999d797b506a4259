//! Objects and commands of a client, with the parameters that most tests need.

use super::Client;
use bytes::Bytes;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::kernel_arg::Value;

/// The objects that most tests begin with.
pub struct Ready {
    /// An in-order queue.
    pub queue: u64,
    pub kernel: u64,
    pub buffer: u64,
}

impl Client {
    pub async fn context(&mut self) -> u64 {
        let (context, devices) = (self.id(), vec![self.device()]);
        let reply = self.call(Method::CreateContext(v1::CreateContext { context, devices })).await;
        assert_eq!(reply.status, 0);
        context
    }

    pub async fn queue(&mut self, context: u64, properties: u64) -> u64 {
        let (queue, device) = (self.id(), self.device());
        self.cast(Method::CreateQueue(v1::CreateQueue { queue, context, device, properties })).await;
        queue
    }

    pub async fn buffer(&mut self, context: u64, size: u64) -> u64 {
        let buffer = self.id();
        self.cast(Method::CreateBuffer(v1::CreateBuffer {
            buffer,
            context,
            flags: 1,
            size,
            initial: None,
            storage: None,
        }))
        .await;
        buffer
    }

    pub async fn source(&mut self, context: u64, source: &str) -> u64 {
        let program = self.id();
        let source = Some(self.data(source.as_bytes().to_vec()).await);
        self.cast(Method::CreateProgramWithSource(v1::CreateProgramWithSource {
            program,
            context,
            source,
            prints: false,
        }))
        .await;
        program
    }

    pub async fn build(&mut self, program: u64) -> (i32, v1::BuildResult) {
        let options = String::new();
        let reply = self
            .call(Method::BuildProgram(v1::BuildProgram {
                program,
                devices: Vec::new(),
                options,
                includes: None,
            }))
            .await;
        match reply.result {
            Some(v1::reply::Result::Build(build)) => (reply.status, build),
            other => panic!("{other:?} is no result of a build"),
        }
    }

    pub async fn binary(&mut self, program: u64) -> Vec<u8> {
        let reply = self.call(Method::GetProgramBinaries(v1::GetProgramBinaries { program })).await;
        match reply.result {
            Some(v1::reply::Result::ProgramBinaries(mut all)) => {
                let data = all.binaries.remove(0);
                self.take(data)
            }
            other => panic!("{other:?} has no binaries"),
        }
    }

    /// A built program from a binary, and the number of binaries that the manager asked for.
    pub async fn program_from(&mut self, context: u64, binary: &[u8]) -> (u64, usize) {
        let (program, missing) = self.unbuilt_program_from(context, binary).await;
        assert_eq!(self.build(program).await.0, 0);
        (program, missing)
    }

    /// Number of binaries that the manager would ask for; the program is released.
    pub async fn missing_of(&mut self, context: u64, binary: &[u8]) -> usize {
        let (program, missing) = self.announced(context, binary).await;
        self.cast(Method::Release(v1::Release { objects: vec![program], events: vec![] })).await;
        missing
    }

    async fn announced(&mut self, context: u64, binary: &[u8]) -> (u64, usize) {
        let program = self.id();
        let digest = Bytes::copy_from_slice(digest_of(binary).as_bytes());
        let binaries = vec![v1::BinaryRef { device: self.device(), digest, length: binary.len() as u64 }];
        let create = v1::CreateProgramWithBinary { program, context, binaries, prints: false };
        let reply = self.call(Method::CreateProgramWithBinary(create)).await;
        (program, binaries_result(&reply).missing.len())
    }

    pub async fn unbuilt_program_from(&mut self, context: u64, binary: &[u8]) -> (u64, usize) {
        let (program, missing) = self.announced(context, binary).await;
        if missing > 0 {
            let digest = Bytes::copy_from_slice(digest_of(binary).as_bytes());
            let data = Some(self.data(binary.to_vec()).await);
            let reply = self.call(Method::ProvideBinary(v1::ProvideBinary { program, digest, data })).await;
            assert_eq!((reply.status, binaries_result(&reply).binary_status.as_slice()), (0, [0].as_slice()));
        }
        (program, missing)
    }

    pub async fn kernel(&mut self, program: u64, name: &str) -> u64 {
        let kernel = self.id();
        let reply = self
            .call(Method::CreateKernel(v1::CreateKernel { kernel, program, name: name.to_owned() }))
            .await;
        assert_eq!(reply.status, 0);
        kernel
    }

    /// A kernel of a source, a queue, and a buffer of `bytes` bytes.
    pub async fn ready(&mut self, source: &str, kernel: &str, bytes: u64) -> Ready {
        let (context, kernel) = self.context_with(source, kernel).await;
        let (queue, buffer) = (self.queue(context, 0).await, self.buffer(context, bytes).await);
        Ready { queue, kernel, buffer }
    }

    /// A context, and a kernel of a source in it.
    pub async fn context_with(&mut self, source: &str, kernel: &str) -> (u64, u64) {
        let context = self.context().await;
        let program = self.source(context, source).await;
        assert_eq!(self.build(program).await.0, 0);
        (context, self.kernel(program, kernel).await)
    }

    pub async fn user_event(&mut self, context: u64) -> u64 {
        let event = self.id();
        self.cast(Method::CreateUserEvent(v1::CreateUserEvent { event, context })).await;
        event
    }

    pub async fn set(&mut self, event: u64, status: i32) -> i32 {
        self.call(Method::SetUserEvent(v1::SetUserEvent { event, status })).await.status
    }

    pub fn command(&mut self, queue: u64, operation: Operation) -> v1::Command {
        v1::Command {
            event: self.id(),
            queue,
            wait: Vec::new(),
            operation: Some(operation),
            ..v1::Command::default()
        }
    }

    pub async fn write(&mut self, queue: u64, buffer: u64, bytes: Vec<u8>) -> v1::Command {
        let event = self.id();
        let data = Some(self.transfer(event, bytes).await);
        let write = v1::WriteBuffer { buffer, offset: 0, data };
        v1::Command {
            event,
            queue,
            wait: Vec::new(),
            operation: Some(Operation::WriteBuffer(write)),
            ..v1::Command::default()
        }
    }

    pub fn read(&mut self, queue: u64, buffer: u64, size: u64) -> v1::Command {
        self.command(
            queue,
            Operation::ReadBuffer(v1::ReadBuffer {
                buffer,
                offset: 0,
                size,
                into: None,
                memory_at_start: false,
            }),
        )
    }

    pub fn launch(&mut self, queue: u64, kernel: u64, args: Vec<Value>, global: u64) -> v1::Command {
        let args =
            (0..).zip(args).map(|(index, value)| v1::KernelArg { index, value: Some(value) }).collect();
        let range = v1::NdRange { kernel, args, offset: vec![], global: vec![global], local: vec![] };
        self.command(queue, Operation::NdRange(range))
    }
}

pub fn after(mut command: v1::Command, wait: &[u64]) -> v1::Command {
    command.wait = wait.to_vec();
    command
}

pub fn digest_of(bytes: &[u8]) -> fpga_core::bitstream::Digest {
    fpga_session::store::digest_of(bytes)
}

pub fn binaries_result(reply: &v1::Reply) -> &v1::BinariesResult {
    match &reply.result {
        Some(v1::reply::Result::Binaries(result)) => result,
        other => panic!("{other:?} is no result of binaries"),
    }
}
