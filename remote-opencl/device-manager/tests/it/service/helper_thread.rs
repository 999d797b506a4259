//! The helper thread in which the vendor's runtime may work.

use crate::harness::{Client, Manager};
use crate::service::{BUSY, scalar};
use fpga_test_kit::until_async;

/// `CL_DEVICE_TYPE`, and `CL_DEVICE_TYPE_CPU` in it.
const DEVICE_TYPE: u32 = 0x1000;
const CPU: u8 = 1 << 1;

fn has_helper_thread(manager: &Manager) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", manager.id())).unwrap();
    // A thread that has just ended has no name.
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).ok());
    names.into_iter().any(|name| name.trim_end() == "helper")
}

#[tokio::test]
async fn runtimes_of_processors_and_no_others_have_a_thread_to_work_in_and_nobody_waits_for_it() {
    let mut manager = Manager::start(&["--slots", "2"]);
    let mut first = Client::connect(&manager).await;
    let info = &first.welcome.platforms[0].devices[0].info;
    let of_processors = info.iter().any(|info| info.param == DEVICE_TYPE && info.value[0] & CPU != 0);
    assert!(!has_helper_thread(&manager), "before there is anything to do");

    // The manager has no measurement of this kernel yet.
    let mut second = Client::connect(&manager).await;
    let long = first.ready(BUSY, "busy", 8).await;
    let short = second.ready(BUSY, "busy", 8).await;
    let busy = |client: &mut Client, ready: &crate::service::Ready, rounds: u64| {
        let args = vec![super::Value::Buffer(ready.buffer), scalar(&rounds.to_le_bytes())];
        client.launch(ready.queue, ready.kernel, args, 1)
    };
    let launch = busy(&mut first, &long, 1 << 29);
    let first_event = launch.event;
    first.flush(vec![launch]).await;
    until_async("the helper thread", async || has_helper_thread(&manager) || !of_processors).await;
    for _ in 0..100 {
        let launch = busy(&mut second, &short, 1);
        let event = launch.event;
        second.flush(vec![launch]).await;
        assert_eq!(second.status(event).await, 0);
    }
    assert_eq!(first.status(first_event).await, 0);
    assert_eq!(has_helper_thread(&manager), of_processors);

    // No thread is in the runtime when its memory is freed.
    drop((first, second));
    manager.has_no_session().await;
    assert_eq!(manager.terminate().code(), Some(0));
}
