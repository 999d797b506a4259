//! Connections that break at any byte (T-4). If the session is resumed every command counts once, else the program
//! fails.

use super::start;
use fpga_client::cl::MEM_COPY_HOST_PTR;
use fpga_client::{
    ArgValue, Buffer, ClError, Client, Context, HostSource, HostTarget, Initial, Kernel, Operation, Program,
    Queue,
};
use fpga_test_kit::{Proxy, Way, until};
use std::sync::Arc;

const SOURCE: &str = "kernel void count(global uint *counter, global uchar *bytes, uint last) {
    counter[0] += 1;
    bytes[last] += 1;
}";

/// Launches of one program.
const LAUNCHES: u32 = 12;
/// Larger than the data that fits into a command, so that it travels in chunks in both directions.
const BYTES: usize = 300_000;

/// A client of the manager behind a proxy.
pub fn client(proxy: &Proxy) -> Client {
    Client::with_managers(&format!("tcp://{}", proxy.address())).unwrap()
}

/// The result of a program.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    counter: u32,
    bytes: Vec<u8>,
}

fn expected() -> Found {
    let mut bytes = pattern();
    for launch in 0..LAUNCHES {
        bytes[launch as usize * 1000] += 1;
    }
    Found { counter: LAUNCHES, bytes }
}

fn pattern() -> Vec<u8> {
    (0..BYTES).map(|n| u8::try_from(n % 251).unwrap()).collect()
}

/// Counts with a kernel, with blocking and other commands, small and large ones in between. `None` if no manager
/// answers.
fn count(client: &Client) -> Option<Result<Found, ClError>> {
    let platforms = client.platforms();
    let device = Arc::clone(&platforms.first()?.devices()[0]);
    let run = || {
        let context = Context::new(&[Arc::clone(&device)])?;
        let queue = Queue::new(&context, &device, 0)?;
        let program = Program::with_source(&context, SOURCE.as_bytes().to_vec())?;
        program.build(&[], "")?;
        let kernel = Kernel::new(&program, "count")?;
        let counter = Buffer::new(&context, MEM_COPY_HOST_PTR, 4, Initial::Copy(&[0; 4]))?;
        let bytes = Buffer::new(&context, 0, BYTES, Initial::Nothing)?;
        let read = |buffer: &Arc<Buffer>, size: usize| {
            let mut found = vec![0; size];
            // SAFETY: the bytes live until the read has ended, for which this waits.
            let target = unsafe { HostTarget::borrowed(found.as_mut_ptr(), size) };
            queue.enqueue(Operation::Read { buffer, offset: 0, target }, &[])?.wait_for_status()?;
            Ok::<_, ClError>(found)
        };
        let data = HostSource::owned(pattern());
        queue.enqueue(Operation::Write { buffer: &bytes, offset: 0, data }, &[])?;
        kernel.set_arg(0, ArgValue::Buffer(Arc::clone(&counter)))?;
        kernel.set_arg(1, ArgValue::Buffer(Arc::clone(&bytes)))?;
        for launch in 0..LAUNCHES {
            kernel.set_arg(2, ArgValue::Scalar(&(launch * 1000).to_le_bytes()))?;
            let range = Operation::NdRange { kernel: &kernel, offset: &[], global: &[1], local: &[] };
            queue.enqueue(range, &[])?;
            match launch % 4 {
                0 => assert_eq!(read(&counter, 4)?, (launch + 1).to_le_bytes()),
                1 => queue.flush()?,
                2 => queue.finish()?,
                _ => {}
            }
        }
        let counter = u32::from_le_bytes(read(&counter, 4)?.try_into().unwrap());
        Ok(Found { counter, bytes: read(&bytes, BYTES)? })
    };
    Some(run())
}

#[test]
fn a_kernel_runs_once_wherever_connections_are_cut() {
    let manager = start(&[]);
    let (mut begun, mut resumed) = (0, 0);
    // Positions are close together among the small messages, and further apart in the transfers.
    let places = (600..7_000).step_by(211).chain((7_000..2 * BYTES).step_by(29_989));
    for (run, place) in places.enumerate() {
        for way in [Way::ToServer, Way::ToClient] {
            // The second connection is cut too, and in every third run also the third.
            let other = if run % 2 == 0 { Way::ToServer } else { Way::ToClient };
            let cuts = [(way, place), (other, 300 + 97 * run), (way, 1_000)];
            let proxy = Proxy::to(manager.address(), &cuts[..2 + usize::from(run % 3 == 0)]);
            let client = client(&proxy).resuming();
            // If the connection is cut before the Welcome there is no session.
            let Some(found) = count(&client) else { continue };
            assert_eq!(found.unwrap(), expected(), "cut after {place} bytes {way:?}, then {cuts:?}");
            begun += 1;
            resumed += usize::from(proxy.connections() > 1);
        }
    }
    assert!(begun > 40 && resumed > 40, "{begun} programs of which {resumed} came back");
}

#[test]
fn without_a_way_back_the_program_gets_the_standards_error() {
    let manager = start(&[]);
    let proxy = Proxy::to(manager.address(), &[(Way::ToServer, 100_000)]);
    let found = count(&client(&proxy)).unwrap();
    assert!(
        [ClError::OUT_OF_RESOURCES, ClError::DEVICE_NOT_AVAILABLE].contains(&found.unwrap_err()),
        "a code that programs know"
    );
}

#[test]
fn another_manager_at_the_same_place_refuses_and_the_program_fails_as_without() {
    let (mut manager, other) = (start(&[]), start(&[]));
    let proxy = Proxy::to(manager.address(), &[]);
    let client = client(&proxy).resuming();
    let device = Arc::clone(&client.platforms()[0].devices()[0]);
    let context = Context::new(&[Arc::clone(&device)]).unwrap();
    let queue = Queue::new(&context, &device, 0).unwrap();
    queue.enqueue(Operation::Marker, &[]).unwrap().wait_for_status().unwrap();
    // As after a restart: another process answers at the same path.
    manager.kill();
    std::fs::remove_file(manager.socket()).unwrap();
    std::os::unix::fs::symlink(other.socket(), manager.socket()).unwrap();
    until("the loss to be told", || {
        queue.enqueue(Operation::Marker, &[]).and_then(|marker| marker.wait_for_status()).is_err()
    });
    assert!(proxy.connections() > 1, "it was asked");
}

#[test]
fn a_session_ends_when_nobody_comes_back_in_time() {
    let manager = start(&["--reconnect-grace", "300ms"]);
    // All further attempts end at once.
    let cuts =
        std::iter::once(100_000).chain(std::iter::repeat_n(0, 10_000)).map(|bytes| (Way::ToServer, bytes));
    let proxy = Proxy::to(manager.address(), &cuts.collect::<Vec<_>>());
    let found = count(&client(&proxy).resuming()).unwrap();
    assert!(
        [ClError::OUT_OF_RESOURCES, ClError::DEVICE_NOT_AVAILABLE].contains(&found.unwrap_err()),
        "a code that programs know"
    );
    // The manager has room for other sessions again.
    assert_eq!(count(&client(&Proxy::to(manager.address(), &[]))).unwrap().unwrap(), expected());
}
