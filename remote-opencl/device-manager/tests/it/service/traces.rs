//! Commands that are part of a trace. What the spans are is tested in `fpga-tests`, with a real client.

use crate::harness::{Client, Manager};
use crate::service::INCREASE;
use fpga_protocol::v1;

fn trace(trace_id: &[u8], span_id: &[u8]) -> Option<v1::Trace> {
    Some(v1::Trace {
        trace_id: trace_id.to_vec().into(),
        span_id: span_id.to_vec().into(),
        state: "x".repeat(2_000),
    })
}

#[tokio::test]
async fn a_manager_says_whether_it_records_traces_and_runs_commands_with_any() {
    // Nothing listens there: the manager makes spans, and can't send them.
    for (args, records) in [(&[][..], false), (&["--otlp-endpoint", "http://127.0.0.1:1"][..], true)] {
        let mut manager = Manager::start(args);
        let mut client = Client::connect(&manager).await;
        assert_eq!(client.welcome.traces, records);
        let ready = client.ready(INCREASE, "increase", 4096).await;
        for trace in [
            None,
            trace(&[1; 16], &[1; 8]),
            trace(&[0; 16], &[1; 8]),
            trace(&[1; 3], &[]),
            trace(&[], &[1; 9]),
        ] {
            let write = client.write(ready.queue, ready.buffer, vec![0; 4096]).await;
            assert_eq!(client.run(v1::Command { trace, ..write }).await, 0);
        }
        drop(client);
        manager.has_no_session().await;
        assert!(manager.terminate().success());
    }
}

#[tokio::test]
async fn the_end_of_an_unwatched_command_of_a_trace_is_told_by_itself() {
    let manager = Manager::start(&["--otlp-endpoint", "http://127.0.0.1:1"]);
    let mut client = Client::connect(&manager).await;
    let ready = client.ready(INCREASE, "increase", 4096).await;
    let write = client.write(ready.queue, ready.buffer, vec![0; 4096]).await;
    let traced = v1::Command { unwatched: true, trace: trace(&[1; 16], &[1; 8]), ..write };
    let read = client.read(ready.queue, ready.buffer, 4096);
    let (event, last) = (traced.event, read.event);
    client.flush(vec![traced, read]).await;
    assert_eq!(client.completion(event).await.0.status, 0);
    assert!(client.completion(last).await.0.earlier.is_empty());
}
