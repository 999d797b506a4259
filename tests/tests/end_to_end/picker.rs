//! A real Envoy, a real endpoint picker and the real kubectl plugin: where requests went, why, how many are in flight,
//! and how many replicas a function should have.

use anyhow::Result;
use fpga_tests::testbed::programs;
use fpga_tests::testbed::routed_function::{NAME, NODE, RoutedFunction};
use fpga_tests::testbed::wait;
use std::time::Duration;
use tokio::process::Command;

const MINUTE: Duration = Duration::from_secs(60);

/// Success and output of `kubectl-fpga`, which asks the picker.
async fn plugin(bed: &RoutedFunction, args: &[&str]) -> Result<(bool, String)> {
    let output = Command::new(programs::built("kubectl-fpga")?)
        .args(args)
        .args(["--picker", &bed.picker.url("/")])
        // No cluster of whoever runs the tests.
        .env("KUBECONFIG", "/dev/null")
        .env_remove("FPGA_KUBECONFIG")
        .output()
        .await?;
    Ok((output.status.success(), String::from_utf8([output.stdout, output.stderr].concat())?))
}

/// Waits until the picker knows the end of all requests.
async fn no_request_is_in_flight(bed: &RoutedFunction) -> Result<()> {
    wait::until("all requests to have ended", async || {
        let metrics = bed.picker.metrics(&bed.http).await?;
        Ok((metrics.metric("fpga_picker_requests_in_flight") < 0.5).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_requests_went_and_why_is_shown_by_the_plugin() -> Result<()> {
    let mut bed = RoutedFunction::start(2).await?;
    let (well, text) = plugin(&bed, &["route", "default/nobody"]).await?;
    assert!(!well && text.contains("kubectl label service -n default nobody"), "{text}");
    let (well, text) = plugin(&bed, &["route", "default/echo"]).await?;
    assert!(well && text.contains("No request yet."), "{text}");

    // Nothing is known of boards, then the bitstream is on the second one.
    let answer = bed.http.post(&bed.url(), "body").await?;
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, b"body".as_slice()));
    // While a request is in flight, its bitstream is expected on its board.
    no_request_is_in_flight(&bed).await?;
    bed.publish(1, MINUTE).await?;
    for _ in 0..3 {
        let answer = bed.http.post(&bed.url(), "body").await?;
        assert_eq!(answer.headers[NODE], "n1");
        no_request_is_in_flight(&bed).await?;
    }
    let (well, text) = plugin(&bed, &["route", "default/echo"]).await?;
    let rows: Vec<&str> = text.lines().collect();
    assert!(well && rows[0] == format!("function   default/{NAME}"), "{text}");
    for part in ["bitstream  echo", "replicas   2; recommended by demand: 2", "in flight now"] {
        assert!(text.contains(part), "{text}\nhas no {part}");
    }
    let resident =
        rows.iter().filter(|row| row.contains("an idle slot has the bitstream") && row.contains("n1"));
    assert_eq!(resident.count(), 3, "{text}");
    assert_eq!(rows.iter().filter(|row| row.contains("nothing fresh is known")).count(), 1, "{text}");

    let (well, text) =
        plugin(&bed, &["route", "echo", "-n", "default", "--count", "1", "-o", "json"]).await?;
    let json: serde_json::Value = serde_json::from_str(&text)?;
    let of_picker = json.as_object().and_then(|pickers| pickers.values().next());
    let picks = of_picker.map(|view| view["picks"].clone()).unwrap_or_default();
    assert!(well && picks.as_array().is_some_and(|picks| picks.len() == 1), "{text}");
    assert_eq!((&picks[0]["basis"], &picks[0]["board"]), (&"resident".into(), &"dm0".into()), "{text}");

    // A request whose body does not end is in flight at the replica with the bitstream.
    let slow = tokio::net::TcpStream::connect(bed.envoy_address()).await?;
    let head = format!("POST /function/{NAME} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n");
    slow.writable().await?;
    assert_eq!(slow.try_write(head.as_bytes())?, head.len());
    let n1 = wait::until("the slow request to be in flight", async || {
        let (_, text) = plugin(&bed, &["top", "--by", "replica"]).await?;
        let n1 = text.lines().nth(1).filter(|row| row.contains(" n1 ")).map(str::to_owned);
        Ok(n1.filter(|row| row.split_whitespace().nth(4) == Some("1")))
    })
    .await?;
    assert!(n1.starts_with("default/echo"), "{n1}");
    drop(slow);
    no_request_is_in_flight(&bed).await?;

    let metrics = bed.picker.metrics(&bed.http).await?.text();
    for metric in ["recommended_replicas", "requests_per_second", "requests_in_flight"] {
        let line = format!("fpga_picker_function_{metric}{{namespace=\"default\",function=\"{NAME}\"}} ");
        assert!(metrics.contains(&line), "{metrics}\nhas no {line}");
    }
    bed.stop().await;
    Ok(())
}
