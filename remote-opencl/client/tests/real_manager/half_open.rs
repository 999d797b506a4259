//! A proxy stops forwarding and closes nothing, so that no kernel reports the loss.

use super::reconnect::Proxy;
use super::{Manager, until};
use fpga_client::{ClError, Client, Context, Event, Operation, Queue, Result};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of the keepalive. Managers on busy machines answer within it.
const KEEPALIVE: Duration = Duration::from_secs(3);

fn queue(client: &Client) -> Arc<Queue> {
    let device = Arc::clone(&client.platforms()[0].devices()[0]);
    let context = Context::new(&[Arc::clone(&device)]).unwrap();
    Queue::new(&context, &device, 0).unwrap()
}

fn marker(queue: &Arc<Queue>) -> Result<Arc<Event>> {
    let marker = queue.enqueue(Operation::Marker, &[])?;
    marker.wait_for_status().map(|_| marker)
}

#[test]
fn a_program_that_waits_for_a_silent_manager_gets_the_standards_error() {
    let manager = Manager::start();
    let proxy = Proxy::to(&manager, &[]);
    let queue = queue(&proxy.client().with_keepalive(KEEPALIVE));
    marker(&queue).unwrap();
    proxy.fall_silent();
    let error = marker(&queue).unwrap_err();
    let known = [ClError::OUT_OF_RESOURCES, ClError::DEVICE_NOT_AVAILABLE];
    assert!(known.contains(&error), "{error:?} is no code that programs know");
}

#[test]
fn a_program_that_resumes_finds_another_way_past_what_is_silent() {
    let manager = Manager::start();
    let proxy = Proxy::to(&manager, &[]);
    let queue = queue(&proxy.client().with_keepalive(KEEPALIVE).resuming());
    marker(&queue).unwrap();
    proxy.fall_silent();
    marker(&queue).unwrap();
    assert_eq!(proxy.connections(), 2);
}

#[test]
fn an_idle_program_notices_and_one_whose_manager_answers_stays() {
    let manager = Manager::start();
    let (proxy, other) = (Proxy::to(&manager, &[]), Proxy::to(&manager, &[]));
    let client = proxy.client().with_keepalive(KEEPALIVE).resuming();
    let stays = other.client().with_keepalive(KEEPALIVE).resuming();
    let (queue, queue_that_stays) = (queue(&client), queue(&stays));
    proxy.fall_silent();
    until("the idle session to come back", || proxy.connections() > 1);
    marker(&queue).unwrap();
    marker(&queue_that_stays).unwrap();
    assert_eq!(other.connections(), 1, "who is asked and answers is not lost");
}

#[test]
fn an_idle_program_answers_its_manager_and_keeps_its_session() {
    let manager =
        Manager::start_with(&["--listen", "tcp://127.0.0.1:0", "--insecure-tcp", "--keepalive", "6s"]);
    let client = Client::with_managers(&manager.tcp_address()).unwrap();
    let queue = queue(&client);
    marker(&queue).unwrap();
    // Longer than a program may be silent. A program may take up to a second to answer.
    std::thread::sleep(Duration::from_secs(8));
    marker(&queue).unwrap();
}

#[test]
fn a_manager_that_takes_connections_and_says_nothing_holds_up_nobody_who_has_others() {
    let (manager, stopped) = (Manager::start(), Manager::start());
    let pid = nix::unistd::Pid::from_raw(i32::try_from(stopped.pid()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let list = format!("{},{}", stopped.address(), manager.address());
    let client = Client::with_managers(&list).unwrap();
    let begin = std::time::Instant::now();
    assert_eq!(client.platforms().len(), 1);
    // A lone manager would have ten seconds.
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
    marker(&queue(&client)).unwrap();
    // The next look-up of platforms doesn't wait either.
    std::thread::sleep(Duration::from_millis(5_100));
    let begin = std::time::Instant::now();
    assert_eq!(client.platforms().len(), 1);
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    until("it is found when it goes on", || client.platforms().len() == 2);
}
