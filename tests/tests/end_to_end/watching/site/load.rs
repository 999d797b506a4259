//! What the site has to do: requests of a function and jobs of the pool that never end to come, and what is refused.

use super::nodes::token_of;
use super::{NODES, TENANT};
use crate::watching::LONG;
use anyhow::ensure;
use fpga_core::names::BOARDS_ANNOTATION;
use fpga_tests::functions::Function;
use fpga_tests::testbed::cluster::{Cluster, Runtime};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::pool::{PoolBed, TENANTS};
use fpga_tests::testbed::router::Router;
use fpga_tests::testbed::workload::Workload;
use fpga_tests::testbed::{artifacts, wait};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// Bytes of a job of the pool.
const JOB_BYTES: usize = 200_000;
/// Pause between two requests of the function, and between two jobs.
const PAUSE: Duration = Duration::from_millis(100);

/// Deploys a function with a replica, and waits until it is ready.
pub async fn deploy_function(cluster: &Cluster, function: Function) {
    let (runtime, name) = (Runtime::from_env().unwrap(), function.name());
    let program = artifacts::functions().unwrap().join(name);
    let bitstream = artifacts::bitstreams(runtime).unwrap().join(format!("{name}.bitstream"));
    let workload = Workload::function(name, &program, &bitstream)
        .requires("fpga-vendor", runtime.vendor())
        .env("FPGA_TOKEN", token_of(function));
    let mut deployment = workload.deployment(1);
    // The node plugin writes it where there is a kubelet.
    deployment["spec"]["template"]["metadata"]["annotations"][BOARDS_ANNOTATION] = json!("dm0");
    create(cluster, name, 1, deployment).await;
}

/// Creates a Deployment of two pods on the first node, whose annotations name no board, and waits until they are ready.
pub async fn deploy_pair(cluster: &Cluster, name: &str) {
    let pair = Workload::accelerated(name, ["sleep", "3600"])
        .requires("fpga-vendor", Runtime::from_env().unwrap().vendor());
    create(cluster, name, 2, pair.deployment(2)).await;
}

async fn create(cluster: &Cluster, name: &str, replicas: i32, deployment: Value) {
    let deployments: Api<Deployment> = Api::namespaced(cluster.plane().client().clone(), TENANT);
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    wait_for_replicas(cluster, name, replicas).await;
}

/// Waits until so many replicas of a Deployment are ready.
pub async fn wait_for_replicas(cluster: &Cluster, name: &str, replicas: i32) {
    let deployments: Api<Deployment> = Api::namespaced(cluster.plane().client().clone(), TENANT);
    let ready = wait::until_within(&format!("{replicas} ready replicas of {name}"), LONG, async || {
        cluster.check_running()?;
        let status = deployments.get(name).await?.status.unwrap_or_default();
        Ok((status.ready_replicas.unwrap_or(0) == replicas).then_some(()))
    })
    .await;
    if let Err(error) = ready {
        panic!("{error:#}\n{}", kubectl(cluster.plane(), &["describe", "pods"]).await.unwrap_or_default());
    }
}

/// Calls a function again and again, for ever.
pub fn call_function(router: &Router, function: Function) -> impl Future<Output = ()> + Send + use<> {
    let (http, url) = (HttpClient::new(LONG), router.url(TENANT, function.name()));
    async move {
        let case = Case::new(function, 32, 1).unwrap();
        loop {
            // Where a fault is made, requests fail.
            let _ = case.invoke_at(&http, &url).await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Runs one job of the pool after the other.
pub fn run_jobs(pool: &PoolBed) -> impl Future<Output = ()> + Send + use<> {
    let command = pool.job(TENANTS[0], "office", &["sha-256"]).unwrap();
    let program = command.as_std().get_program().to_owned();
    let variables = command.as_std().get_envs();
    let variables: Vec<_> =
        variables.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    async move {
        loop {
            let mut job = tokio::process::Command::new(&program);
            job.args(["run", "sha-256"]).envs(variables.iter().cloned()).kill_on_drop(true);
            job.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut job = job.spawn().unwrap();
            let mut input = job.stdin.take().unwrap();
            // Where a fault is made, jobs fail.
            let _ = input.write_all(&[7; JOB_BYTES]).await;
            drop(input);
            let _ = job.wait().await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Sends what extender and picker refuse, and creates a pod that fits nowhere, and one that had better be elsewhere: else
/// extender, picker and registry have nothing to tell of such things.
pub async fn do_what_is_refused(cluster: &Cluster, router: &Router) {
    let http = cluster.http();
    let refused = http.post(&cluster.extender_url("/filter"), "no JSON").await.unwrap();
    assert!(refused.status.is_client_error(), "{refused:?}");
    // Envoy refuses requests itself until it has reached the picker.
    wait::until_within("the picker to refuse a function that there is not", LONG, async || {
        let answer = http.get(&router.url(TENANT, "nobody")).await?;
        ensure!(answer.status == 404, "{answer:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    let nowhere = Workload::accelerated("nowhere", ["sleep", "1"]).requires("fpga-vendor", "nobody");
    cluster.create(&nowhere).await.unwrap();
    // A pod without a Deployment is never moved.
    let stays = Workload::accelerated("stays", ["sleep", "3600"]).on(NODES[0]);
    cluster.create(&stays).await.unwrap();
    let gone = format!("{BOARDS_ANNOTATION}=gone");
    kubectl(cluster.plane(), &["annotate", "pod", "stays", &gone]).await.unwrap();
}
