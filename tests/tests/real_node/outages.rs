//! Outages of parts that a real node needs to place pods, and not to run them. What goes on meanwhile is in the table of
//! book/operate/outages.md.

mod of_parts;

use super::routed::processes;
use super::site::{Site, delete};
use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::{Case, Invocation};
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PROGRAM: &str = "sobel";

/// Kills the program of a container, and waits until the kubelet has started it again and it answers.
async fn restart(program: &str, answers: impl AsyncFn() -> anyhow::Result<Invocation>) {
    let before = processes(program);
    assert!(!before.is_empty(), "the container's program runs");
    for process in &before {
        kill(Pid::from_raw(*process), Signal::SIGKILL).unwrap();
    }
    wait::until("the container to restart and to answer", async || {
        let now = processes(program);
        anyhow::ensure!(now.is_disjoint(&before) && !now.is_empty(), "{before:?} became {now:?}");
        answers().await.map(Some)
    })
    .await
    .unwrap();
}

/// A node with a board, and a pod of the Sobel function that has called it.
struct Bed {
    site: Site,
    pods: Api<Pod>,
    address: String,
    token: Vec<String>,
    case: Case,
    http: HttpClient,
}

impl Bed {
    async fn start() -> Self {
        let site = Site::with_boards(&["dm0"]).await;
        let pods = site.namespace("shop").await;
        let pod = site.start_sobel(&pods, "sobel").await;
        let address = pod.status.unwrap().pod_ip.unwrap();
        let (case, http) = (Case::new(Function::Sobel, 64, 1).unwrap(), HttpClient::new(patience()));
        let token = site.boards.tokens("dm0", "shop");
        let bed = Self { site, pods, address, token, case, http };
        bed.case.invoke(&bed.http, &bed.address).await.unwrap();
        bed
    }

    /// Calls of the function by its session go on.
    async fn session_goes_on(&self) {
        for _ in 0..5 {
            self.case.invoke(&self.http, &self.address).await.unwrap();
        }
    }

    /// The program is killed, the kubelet starts the container again, and the container has its board by the same token.
    async fn container_restarts(&self) {
        restart(PROGRAM, async || {
            self.site.node.check_running()?;
            self.case.invoke(&self.http, &self.address).await
        })
        .await;
        assert_eq!(self.site.boards.tokens("dm0", "shop"), self.token, "the container keeps its token");
    }

    /// A further pod gets a board.
    async fn new_pod_gets_a_board(&self) {
        let pod = self.site.start_sobel(&self.pods, "new").await;
        self.case.invoke(&self.http, &pod.status.unwrap().pod_ip.unwrap()).await.unwrap();
        delete(&self.pods, "new").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn while_the_api_server_is_silent_sessions_go_on_and_containers_that_restart_keep_their_boards() {
    let mut bed = Bed::start().await;
    bed.site.plane.stop_answering();
    bed.session_goes_on().await;
    bed.container_restarts().await;
    let Site { node, boards, .. } = &mut bed.site;
    let before = boards.registrations();
    boards.kill_plugin().await;
    boards.start_plugin(node).unwrap();
    boards.wait_registered(before).await.unwrap();
    bed.container_restarts().await;
    bed.session_goes_on().await;

    bed.site.plane.answer_again();
    bed.site.node.wait_ready().await.unwrap();
    bed.new_pod_gets_a_board().await;
    bed.session_goes_on().await;
    bed.site.close().await;
}
