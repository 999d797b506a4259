//! A proxy stops forwarding and closes nothing, so that no kernel reports the loss.

use super::reconnect::client;
use super::start;
use fpga_client::{ClError, Client, Context, Event, Operation, Queue, Result};
use fpga_test_kit::{Proxy, until};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::time::Duration;

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
    let manager = start(&[]);
    let proxy = Proxy::to(manager.address(), &[]);
    let queue = queue(&client(&proxy).with_keepalive(KEEPALIVE));
    proxy.fall_silent();
    let error = marker(&queue).unwrap_err();
    let known = [ClError::OUT_OF_RESOURCES, ClError::DEVICE_NOT_AVAILABLE];
    assert!(known.contains(&error), "{error:?} is no code that programs know");
}

#[test]
fn a_program_that_resumes_finds_another_way_past_what_is_silent() {
    let manager = start(&[]);
    for is_idle in [false, true] {
        let proxy = Proxy::to(manager.address(), &[]);
        let queue = queue(&client(&proxy).with_keepalive(KEEPALIVE).resuming());
        marker(&queue).unwrap();
        let before = proxy.connections();
        proxy.fall_silent();
        if is_idle {
            until("another connection of the idle program", || proxy.connections() > before);
        }
        marker(&queue).unwrap();
        assert!(proxy.connections() > before);
    }
}

#[test]
fn a_manager_that_takes_connections_and_says_nothing_holds_up_nobody_who_has_others() {
    let (manager, stopped) = (start(&[]), start(&[]));
    stopped.signal(Signal::SIGSTOP);
    let list = format!("{},{}", stopped.address(), manager.address());
    let client = Client::with_managers(&list).unwrap();
    assert_eq!(client.platforms().len(), 1);
    marker(&queue(&client)).unwrap();
    stopped.signal(Signal::SIGCONT);
    until("the platform of the manager that goes on", || client.platforms().len() == 2);
}
