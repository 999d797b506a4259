//! Our programs as pods of the images that users get, installed by the chart.

use super::routed::is_on_a_node;
use super::site::{delete, ready, sobel_image};
use super::{pool, registry};
use fpga_tests::functions::Function;
use fpga_tests::testbed::any_cluster::AnyCluster;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::helm::NAMESPACE;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::RunMount;
use fpga_tests::testbed::restricted::{self, RestrictedPod};
use fpga_tests::testbed::wait;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use std::collections::BTreeSet;
use std::path::Path;

/// The namespace of the pods that use boards.
const SHOP: &str = "shop";

/// A program of an image that runs on a node.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Running {
    program: String,
    user: u32,
    capabilities: String,
    root_is_read_only: bool,
}

/// The programs of images that run now.
fn running() -> BTreeSet<Running> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|process| running_program(&process.path())).collect()
}

fn running_program(process: &Path) -> Option<Running> {
    let command = std::fs::read_to_string(process.join("cmdline")).ok()?;
    let program = command.split('\0').next()?.rsplit('/').next()?.to_owned();
    // Functions have other paths.
    let is_of_an_image = command.starts_with("/usr/local/bin/") || command.starts_with("kube-scheduler\0");
    if !is_of_an_image || !is_on_a_node(process) {
        return None;
    }
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mounts = std::fs::read_to_string(process.join("mountinfo")).ok()?;
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/"))?;
    Some(Running {
        program,
        user: field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?,
        capabilities: field("CapEff:")?.trim_start_matches('0').to_owned(),
        root_is_read_only: root.split(' ').nth(5)?.split(',').any(|option| option == "ro"),
    })
}

/// Runs the `CronJob` for certificates now, whose certificate is new, so that there is nothing to do.
async fn renewal_runs(cluster: &RealCluster) {
    const NAME: &str = "renewal-now";
    let client = cluster.plane().client();
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), NAMESPACE);
    let template = cron_jobs.get("fpga-certificates").await.unwrap().spec.job_template;
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    let mut job = Job { spec: template.spec, ..Job::default() };
    job.metadata.name = Some(NAME.to_owned());
    jobs.create(&PostParams::default(), &job).await.unwrap();
    wait::until("the renewal to succeed", async || {
        let status = jobs.get(NAME).await?.status.unwrap_or_default();
        anyhow::ensure!(status.failed.is_none(), "{status:?}");
        Ok(status.succeeded)
    })
    .await
    .unwrap();
    jobs.delete(NAME, &DeleteParams::background()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn the_chart_with_our_images_gives_pods_boards_by_one_line_on_two_real_nodes_and_ends_when_it_is_uninstalled()
 {
    let sobel = sobel_image();
    let nodes = [("n1", RunMount::Executable), ("n2", RunMount::NoExec)];
    let spec = RealClusterSpec {
        nodes: nodes.map(|(name, run_mount)| (name.to_owned(), run_mount)).to_vec(),
        images: vec![sobel.clone(), pool::job_image()],
        values: registry::VALUES.into_iter().chain(pool::VALUES).map(str::to_owned).collect(),
    };
    // The chart gives the namespace what its pods need for the pool.
    let namespace =
        async |plane: &ControlPlane| restricted::namespace(plane.client(), SHOP).await.map(|_| Vec::new());
    let cluster = RealCluster::start_with(spec, namespace).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.plane().client().clone(), SHOP);
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    for node in cluster.nodes() {
        let name = format!("sobel-on-{}", node.name());
        let pod = RestrictedPod::function(&name, Function::Sobel, sobel.name()).on(node.name());
        super::create(&pods, &pod).await;
        let pod = ready(&pods, &name, node).await;
        assert_eq!(pod.spec.unwrap().scheduler_name.as_deref(), Some("kube-fpga"));
        case.invoke(cluster.http(), &pod.status.unwrap().pod_ip.unwrap()).await.unwrap();
    }

    // The kubelet's sockets are root's. Nobody has a right beyond their user's, or a root file system to write to.
    let expected = [
        ("fpga-collector", 10461),
        ("fpga-device-manager", 10460),
        ("fpga-node-plugin", 0),
        ("fpga-pool", 65532),
        ("fpga-registry", 65532),
        ("fpga-scheduler-extender", 65532),
        ("kube-scheduler", 65532),
    ];
    let expected = expected.map(|(program, user)| Running {
        program: program.to_owned(),
        user,
        capabilities: String::new(),
        root_is_read_only: true,
    });
    assert_eq!(running(), BTreeSet::from(expected));

    let any = AnyCluster::new(cluster.plane().client().clone(), sobel.name());
    tokio::try_join!(
        any.a_pod_gets_a_board_by_one_line_and_computes(),
        any.a_pod_that_would_pass_us_by_is_refused_with_the_line_to_write(),
        any.a_pod_that_suits_no_board_waits_with_the_reason(),
    )
    .unwrap();

    registry::of_two_replicas_one_works_and_the_other_when_it_is_deleted(&cluster).await;
    registry::the_network_policy_is_for_its_pods(&cluster).await;
    registry::its_token_is_refused_whatever_a_registry_that_suggests_need_not_do(
        &cluster,
        SHOP,
        "sobel-on-n1",
        "n1",
    )
    .await;
    registry::a_lost_board_is_told_on_the_deployment_and_no_pod_goes(&cluster).await;

    renewal_runs(&cluster).await;
    cluster.uninstall().await.expect_err("pods hold boards");
    for node in cluster.nodes() {
        delete(&pods, &format!("sobel-on-{}", node.name())).await;
    }
    pool::a_pod_on_a_node_without_a_board_has_its_job_done_elsewhere(&cluster, &pods, SHOP).await;
    delete(&pods, "job").await;
    cluster.uninstall().await.unwrap();
    wait::until("our programs to end", async || Ok(running().is_empty().then_some(()))).await.unwrap();
    cluster.stop().await;
}
