//! Batches: the commands of each message, and their order.

use super::{Setup, source, target};
use fpga_client::{ArgValue, Buffer, ClError, HostSource, Initial, Kernel, Operation, Program, Queue};
use fpga_protocol::v1::command;
use fpga_test_kit::until;
use std::sync::Arc;

fn kernel(setup: &Setup) -> Arc<Kernel> {
    let program = Program::with_source(&setup.context, b"kernel void k() {}".to_vec()).unwrap();
    program.build(&[], "").unwrap();
    Kernel::new(&program, "k").unwrap()
}

#[test]
fn write_kernel_read_is_one_message() {
    let setup = Setup::new();
    let buffer = setup.buffer(16);
    let kernel = kernel(&setup);
    kernel.set_arg(0, ArgValue::Buffer(Arc::clone(&buffer))).unwrap();
    kernel.set_arg(1, ArgValue::Scalar(&4i32.to_le_bytes())).unwrap();
    let mut result = [0; 16];
    for round in 0..3u8 {
        let data = HostSource::owned(vec![round; 16]);
        setup.queue.enqueue(Operation::Write { buffer: &buffer, offset: 0, data }, &[]).unwrap();
        let range = Operation::NdRange { kernel: &kernel, offset: &[], global: &[16], local: &[] };
        setup.queue.enqueue(range, &[]).unwrap();
        let read = Operation::Read { buffer: &buffer, offset: 0, target: target(&mut result) };
        setup.queue.enqueue(read, &[]).unwrap().wait_for_status().unwrap();
        assert_eq!(result, [round; 16]);
    }
    assert_eq!(*setup.manager.script().flushes.lock().unwrap(), [3, 3, 3]);
}

#[test]
fn only_changed_arguments_travel() {
    let setup = Setup::new();
    let buffer = setup.buffer(16);
    let kernel = kernel(&setup);
    let launch = || {
        let range = Operation::NdRange { kernel: &kernel, offset: &[], global: &[16], local: &[] };
        setup.queue.enqueue(range, &[])
    };
    assert_eq!(launch().unwrap_err(), ClError::INVALID_KERNEL_ARGS);
    kernel.set_arg(0, ArgValue::Buffer(Arc::clone(&buffer))).unwrap();
    kernel.set_arg(1, ArgValue::Scalar(&1i32.to_le_bytes())).unwrap();
    launch().unwrap();
    kernel.set_arg(1, ArgValue::Scalar(&2i32.to_le_bytes())).unwrap();
    launch().unwrap();
    kernel.set_arg(1, ArgValue::Scalar(&2i32.to_le_bytes())).unwrap();
    launch().unwrap();
    setup.queue.finish().unwrap();
    let commands = setup.manager.script().commands.lock().unwrap().clone();
    let changed: Vec<Vec<u32>> = commands
        .into_iter()
        .map(|command| match command.operation {
            Some(command::Operation::NdRange(range)) => range.args.iter().map(|arg| arg.index).collect(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(changed, [vec![0, 1], vec![1], vec![]]);
}

#[test]
fn many_commands_start_before_the_first_flush_and_end_in_order() {
    let setup = Setup::new();
    let buffer = setup.buffer(4);
    let mut last = None;
    for n in 0..2000u32 {
        let data = HostSource::owned(n.to_le_bytes().to_vec());
        last = Some(setup.queue.enqueue(Operation::Write { buffer: &buffer, offset: 0, data }, &[]).unwrap());
    }
    setup.queue.finish().unwrap();
    assert_eq!(last.unwrap().status(), 0);
    let flushes = setup.manager.script().flushes.lock().unwrap().clone();
    assert_eq!(flushes.iter().sum::<usize>(), 2000);
    assert!(flushes.len() > 1, "{flushes:?}");
    let mut result = [0; 4];
    let read = Operation::Read { buffer: &buffer, offset: 0, target: target(&mut result) };
    setup.queue.enqueue(read, &[]).unwrap().wait().unwrap();
    assert_eq!(u32::from_le_bytes(result), 1999);
}

#[test]
fn commands_of_two_queues_travel_in_the_order_of_the_calls() {
    let setup = Setup::new();
    let other = Queue::new(&setup.context, &setup.device, 0).unwrap();
    let a = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    let b = other.enqueue(Operation::Marker, &[Arc::clone(&a)]).unwrap();
    let c = setup.queue.enqueue(Operation::Marker, &[Arc::clone(&b)]).unwrap();
    c.wait().unwrap();
    assert_eq!(b.status(), 0);
    assert_eq!(*setup.manager.script().flushes.lock().unwrap(), [3]);
}

#[test]
fn a_flush_gets_out_although_nobody_waits() {
    let setup = Setup::new();
    setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    setup.queue.flush().unwrap();
    until("the flush arrives", || !setup.manager.script().flushes.lock().unwrap().is_empty());
}

#[test]
fn an_object_is_released_after_the_command_that_uses_it() {
    let setup = Setup::new();
    let buffer = setup.buffer(64);
    let bytes = [3; 64];
    setup.queue.enqueue(Operation::Write { buffer: &buffer, offset: 0, data: source(&bytes) }, &[]).unwrap();
    let gone = Arc::new(std::sync::atomic::AtomicBool::new(false));
    buffer.on_destroyed({
        let gone = Arc::clone(&gone);
        move || gone.store(true, std::sync::atomic::Ordering::SeqCst)
    });
    drop(buffer);
    assert!(!gone.load(std::sync::atomic::Ordering::SeqCst));
    assert!(setup.manager.script().released.lock().unwrap().is_empty());
    setup.queue.finish().unwrap();
    until("the buffer is destroyed", || gone.load(std::sync::atomic::Ordering::SeqCst));
    until("the manager hears of it", || !setup.manager.script().released.lock().unwrap().is_empty());
}

#[test]
fn what_the_standard_refuses_at_once_is_refused_at_once() {
    let setup = Setup::new();
    let buffer = setup.buffer(64);
    let enqueue = |operation| setup.queue.enqueue(operation, &[]).unwrap_err();
    let past_the_end = Operation::Fill { buffer: &buffer, pattern: &[0], offset: 60, size: 5 };
    assert_eq!(enqueue(past_the_end), ClError::INVALID_VALUE);
    let uneven = Operation::Fill { buffer: &buffer, pattern: &[0; 4], offset: 2, size: 4 };
    assert_eq!(enqueue(uneven), ClError::INVALID_VALUE);
    let overlapping =
        Operation::Copy { source: &buffer, target: &buffer, source_offset: 0, target_offset: 3, size: 4 };
    assert_eq!(enqueue(overlapping), ClError::MEM_COPY_OVERLAP);
    let kernel = kernel(&setup);
    let range = |global, local| Operation::NdRange { kernel: &kernel, offset: &[], global, local };
    assert_eq!(enqueue(range(&[], &[])), ClError::INVALID_WORK_DIMENSION);
    assert_eq!(enqueue(range(&[0], &[])), ClError::INVALID_GLOBAL_WORK_SIZE);
    assert_eq!(enqueue(range(&[128], &[128])), ClError::INVALID_WORK_GROUP_SIZE);
    assert_eq!(enqueue(range(&[10], &[4])), ClError::INVALID_WORK_GROUP_SIZE);
    assert_eq!(kernel.set_arg(2, ArgValue::NullOfSize(8)).unwrap_err(), ClError::INVALID_ARG_INDEX);
    assert_eq!(kernel.set_arg(1, ArgValue::Scalar(&[0; 8])).unwrap_err(), ClError::INVALID_ARG_SIZE);
}

#[test]
fn work_groups_differ_in_size_only_where_the_build_options_let_them() {
    let setup = Setup::new();
    let buffer = setup.buffer(16);
    let launch = |options: &str, global| {
        let program = Program::with_source(&setup.context, b"kernel void k() {}".to_vec()).unwrap();
        program.build(&[], options).unwrap();
        let kernel = Kernel::new(&program, "k").unwrap();
        kernel.set_arg(0, ArgValue::Buffer(Arc::clone(&buffer))).unwrap();
        kernel.set_arg(1, ArgValue::Scalar(&[0; 4])).unwrap();
        let range = Operation::NdRange { kernel: &kernel, offset: &[], global: &[global], local: &[4] };
        setup.queue.enqueue(range, &[]).map(|_| ())
    };
    assert_eq!(launch("-cl-std=CL3.0", 10), Ok(()));
    for options in ["", "-cl-std=CL1.2", "-cl-std=CL3.0 -cl-uniform-work-group-size"] {
        assert_eq!(launch(options, 10), Err(ClError::INVALID_WORK_GROUP_SIZE), "{options:?}");
        assert_eq!(launch(options, 12), Ok(()), "{options:?}");
    }
}

#[test]
fn objects_of_another_context_are_refused() {
    let (setup, other) = (Setup::new(), Setup::new());
    let foreign = other.queue.enqueue(Operation::Marker, &[]).unwrap();
    let marker = setup.queue.enqueue(Operation::Marker, &[foreign]);
    assert_eq!(marker.unwrap_err(), ClError::INVALID_CONTEXT);
    let buffer = other.buffer(4);
    let fill = Operation::Fill { buffer: &buffer, pattern: &[0], offset: 0, size: 4 };
    assert_eq!(setup.queue.enqueue(fill, &[]).unwrap_err(), ClError::INVALID_CONTEXT);
}

#[test]
fn a_build_tells_of_kernels_or_of_what_is_wrong() {
    let setup = Setup::new();
    let program = Program::with_source(&setup.context, b"x".to_vec()).unwrap();
    assert_eq!(Kernel::new(&program, "k").unwrap_err(), ClError::INVALID_PROGRAM_EXECUTABLE);
    assert_eq!(program.build(&[], "-fail").unwrap_err(), ClError::BUILD_PROGRAM_FAILURE);
    let info = program.build_info(&setup.device).unwrap();
    assert_eq!((info.status, info.log.as_str(), info.options.as_str()), (-2, "a log", "-fail"));
    program.build(&[], "").unwrap();
    assert_eq!(Kernel::new(&program, "nosuch").unwrap_err(), ClError::INVALID_KERNEL_NAME);
    let kernel = Kernel::new(&program, "k").unwrap();
    assert_eq!(program.build(&[], "").unwrap_err(), ClError::INVALID_OPERATION);
    drop(kernel);
    program.build(&[], "").unwrap();
    assert_eq!(program.binaries().unwrap(), [vec![7u8; 100_000]]);
}

#[test]
fn sub_buffers_are_regions_of_their_parent() {
    let setup = Setup::new();
    let bytes: Vec<u8> = (0..=255).collect();
    let flags = fpga_client::cl::MEM_COPY_HOST_PTR;
    let parent = Buffer::new(&setup.context, flags, 256, Initial::Copy(&bytes)).unwrap();
    assert_eq!(Buffer::sub(&parent, 0, 1, 8).unwrap_err(), ClError::MISALIGNED_SUB_BUFFER_OFFSET);
    assert_eq!(Buffer::sub(&parent, 0, 128, 129).unwrap_err(), ClError::INVALID_VALUE);
    let sub = Buffer::sub(&parent, 0, 128, 64).unwrap();
    assert_eq!(Buffer::sub(&sub, 0, 0, 8).unwrap_err(), ClError::INVALID_MEM_OBJECT);
    let mut result = [0; 8];
    let read = Operation::Read { buffer: &sub, offset: 8, target: target(&mut result) };
    setup.queue.enqueue(read, &[]).unwrap().wait().unwrap();
    assert_eq!(result, [136, 137, 138, 139, 140, 141, 142, 143]);
}
