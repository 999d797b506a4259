//! Faults of the extender and of kube-scheduler.

use super::{LONG, Watched};
use crate::watching::site::NODES;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::process::Process;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::time::Duration;

/// Times for which the extender runs, and for which it has no processor.
const RUNS: Duration = Duration::from_millis(40);
const RUNS_NOT: Duration = Duration::from_millis(700);
/// Number of clients that ask the extender meanwhile.
const CLIENTS: usize = 4;
/// Bytes of a pod that the extender reads.
const POD_BYTES: usize = 64 * 1024;

impl Watched {
    pub(super) async fn files_of_the_extender_are_wrong(&self) {
        let files = &self.site.files;
        std::fs::write(files.settings(), "weights: none\n").unwrap();
        self.fires("FpgaExtenderSettingsRefused").await;
        std::fs::write(files.settings(), "{}\n").unwrap();
        self.calms_down().await;

        std::fs::write(files.certificate(), "no certificate").unwrap();
        self.fires("FpgaCertificateUnused").await;
        files.issue_certificate();
        self.calms_down().await;

        let end = (Timestamp::now() + SignedDuration::from_hours(72)).to_zoned(TimeZone::UTC).date();
        let day = (end.year().into(), end.month().try_into().unwrap(), end.day().try_into().unwrap());
        files.issue_certificate_until(day);
        self.fires("FpgaCertificateEnds").await;
        files.issue_certificate();
        self.calms_down().await;
    }

    pub(super) async fn the_extender_gets_little_time(&self) {
        let extender = self.site.cluster.extender().unwrap();
        let url = self.site.cluster.extender_url("/filter");
        let clients = (0..CLIENTS).map(|_| ask_for_ever(&url));
        tokio::select! {
            () = self.fires("FpgaExtenderSlow") => {}
            () = throttle(extender) => {}
            _ = futures::future::join_all(clients) => {}
        }
        extender.signal(Signal::SIGCONT);
        self.calms_down().await;
    }

    pub(super) async fn nobody_schedules(&mut self) {
        self.site.cluster.stop_scheduler().await;
        self.fires("FpgaSchedulerHasNoLeader").await;
        self.site.cluster.start_leading_scheduler().await.unwrap();
        self.calms_down().await;
    }
}

/// Gives a process little time, as the kernel does where its group is at the limit.
async fn throttle(process: &Process) {
    loop {
        process.signal(Signal::SIGSTOP);
        tokio::time::sleep(RUNS_NOT).await;
        process.signal(Signal::SIGCONT);
        tokio::time::sleep(RUNS).await;
    }
}

/// Asks the extender for the nodes of a pod, again and again.
async fn ask_for_ever(url: &str) {
    let http = HttpClient::keeping_connections(LONG);
    let question = question().to_string();
    loop {
        let answer = http.post(url, question.clone()).await.unwrap();
        assert!(answer.status.is_success(), "{answer:?}");
    }
}

/// What kube-scheduler asks for a pod with a long annotation.
fn question() -> Value {
    let container = json!({
        "name": "main", "image": "local", "resources": {"limits": {"fpga-scheduling.io/accelerated": "1"}},
    });
    let metadata = json!({
        "name": "asked", "namespace": "default", "uid": "asked", "annotations": {"long": "x".repeat(POD_BYTES)},
    });
    let pod = json!({"metadata": metadata, "spec": {"containers": [container]}});
    json!({"Pod": pod, "Nodes": null, "NodeNames": NODES})
}
