//! Connections that break at any byte (T-4). If the session is resumed every command counts once, else the program
//! fails.

use super::{Manager, until};
use fpga_client::cl::MEM_COPY_HOST_PTR;
use fpga_client::{
    ArgValue, Buffer, ClError, Client, Context, HostSource, HostTarget, Initial, Kernel, Operation, Program,
    Queue,
};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const SOURCE: &str = "kernel void count(global uint *counter, global uchar *bytes, uint last) {
    counter[0] += 1;
    bytes[last] += 1;
}";

/// Launches of one program.
const LAUNCHES: u32 = 12;
/// Larger than the data that fits into a command, so that it travels in chunks in both directions.
const BYTES: usize = 300_000;

/// Direction whose bytes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToManager,
    ToClient,
}

/// Cuts a connection after this many bytes in this direction.
pub type Cut = (Way, usize);

/// A proxy between a client and a manager that cuts connections: the first one by the first cut, and so on.
/// Connections after the last cut are not cut.
pub struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Number of first connections that stay open but don't forward any more.
    silent: Arc<AtomicUsize>,
    cuts: Arc<Mutex<Vec<Cut>>>,
}

impl Proxy {
    pub fn to(manager: &Manager, cuts: &[Cut]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = PathBuf::from(manager.address().strip_prefix("unix:").unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let cuts = Arc::new(Mutex::new(cuts.iter().rev().copied().collect::<Vec<_>>()));
        let (counted, planned) = (Arc::clone(&connections), Arc::clone(&cuts));
        let silent = Arc::new(AtomicUsize::new(0));
        let silenced = Arc::clone(&silent);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let cut = planned.lock().unwrap().pop();
                // The manager may have ended.
                let Ok(manager) = UnixStream::connect(&socket) else { continue };
                client.set_nodelay(true).unwrap();
                carry(&client, &manager, cut, (number, Arc::clone(&silenced)));
            }
        });
        Self { address, connections, silent, cuts }
    }

    /// Stops forwarding on all existing connections, and closes none of them.
    pub fn fall_silent(&self) {
        self.silent.store(self.connections(), Ordering::SeqCst);
    }

    pub fn client(&self) -> Client {
        Client::with_managers(&format!("tcp://{}", self.address)).unwrap()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn carry(client: &TcpStream, manager: &UnixStream, cut: Option<Cut>, line: (usize, Arc<AtomicUsize>)) {
    let limit = |way| cut.filter(|(cut, _)| *cut == way).map_or(usize::MAX, |(_, bytes)| bytes);
    let pair = || (client.try_clone().unwrap(), manager.try_clone().unwrap());
    let (most, (client, manager), (number, silent)) = (limit(Way::ToManager), pair(), line.clone());
    thread::spawn(move || {
        copy(&client, &manager, most, || number < silent.load(Ordering::SeqCst));
        end(&client, &manager);
    });
    let (most, (client, manager), (number, silent)) = (limit(Way::ToClient), pair(), line);
    thread::spawn(move || {
        copy(&manager, &client, most, || number < silent.load(Ordering::SeqCst));
        end(&client, &manager);
    });
}

fn end(client: &TcpStream, manager: &UnixStream) {
    // One of the two may be closed already.
    let _ = client.shutdown(Shutdown::Both);
    let _ = manager.shutdown(Shutdown::Both);
}

/// Copies until the end, an error, or `most` bytes.
fn copy(mut from: impl Read, mut to: impl Write, mut most: usize, is_silent: impl Fn() -> bool) {
    let mut bytes = vec![0; 64 << 10];
    while most > 0 {
        let room = bytes.len().min(most);
        match from.read(&mut bytes[..room]) {
            Ok(1..) if is_silent() => {}
            Ok(count @ 1..) if to.write_all(&bytes[..count]).is_ok() => most -= count,
            _ => return,
        }
    }
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
    let manager = Manager::start();
    let (mut begun, mut resumed) = (0, 0);
    // Positions are close together among the small messages, and further apart in the transfers.
    let places = (600..7_000).step_by(211).chain((7_000..2 * BYTES).step_by(29_989));
    for (run, place) in places.enumerate() {
        for way in [Way::ToManager, Way::ToClient] {
            // The second connection is cut too, and in every third run also the third.
            let other = if run % 2 == 0 { Way::ToManager } else { Way::ToClient };
            let cuts = [(way, place), (other, 300 + 97 * run), (way, 1_000)];
            let proxy = Proxy::to(&manager, &cuts[..2 + usize::from(run % 3 == 0)]);
            let client = proxy.client().resuming();
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
    let manager = Manager::start();
    let proxy = Proxy::to(&manager, &[(Way::ToManager, 100_000)]);
    let found = count(&proxy.client()).unwrap();
    assert!(
        [ClError::OUT_OF_RESOURCES, ClError::DEVICE_NOT_AVAILABLE].contains(&found.unwrap_err()),
        "a code that programs know"
    );
}

#[test]
fn another_manager_at_the_same_place_refuses_and_the_program_fails_as_without() {
    let manager = Manager::start();
    let other = Manager::start();
    let proxy = Proxy::to(&manager, &[]);
    let client = proxy.client().resuming();
    let device = Arc::clone(&client.platforms()[0].devices()[0]);
    let context = Context::new(&[Arc::clone(&device)]).unwrap();
    let queue = Queue::new(&context, &device, 0).unwrap();
    queue.enqueue(Operation::Marker, &[]).unwrap().wait_for_status().unwrap();
    // As after a restart: another process answers at the same path.
    let socket = |manager: &Manager| PathBuf::from(manager.address().strip_prefix("unix:").unwrap());
    let (here, there) = (socket(&manager), socket(&other));
    drop(manager);
    std::fs::remove_file(&here).unwrap_or_default();
    std::fs::create_dir_all(here.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(there, &here).unwrap();
    until("the loss to be told", || {
        queue.enqueue(Operation::Marker, &[]).and_then(|marker| marker.wait_for_status()).is_err()
    });
    assert!(proxy.connections() > 1, "it was asked");
    std::fs::remove_dir_all(here.parent().unwrap()).unwrap();
}

#[test]
fn a_session_ends_when_nobody_comes_back_in_time() {
    let manager = Manager::start_with(&["--reconnect-grace", "300ms"]);
    let proxy = Proxy::to(&manager, &[(Way::ToManager, 100_000), (Way::ToManager, 0), (Way::ToManager, 0)]);
    // All further attempts end at once.
    *proxy.cuts.lock().unwrap() =
        std::iter::repeat_n((Way::ToManager, 0), 10_000).chain([(Way::ToManager, 100_000)]).collect();
    let found = count(&proxy.client().resuming()).unwrap();
    assert!(
        [ClError::OUT_OF_RESOURCES, ClError::DEVICE_NOT_AVAILABLE].contains(&found.unwrap_err()),
        "a code that programs know"
    );
    // The manager has room for other sessions again.
    assert_eq!(count(&Proxy::to(&manager, &[]).client()).unwrap().unwrap(), expected());
}
