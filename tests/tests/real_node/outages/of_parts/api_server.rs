//! The API server is silent, while a job runs and a pod has a container that has not started yet.

use super::{Bed, FUNCTION, NEW, NODE, SHOP, function};
use crate::pool;
use crate::routed::processes;
use crate::site::ready;
use fpga_tests::testbed::restricted::{self, RestrictedPod};
use fpga_tests::testbed::wait;
use kube::api::PostParams;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The program of the image that uses no board.
const IDLE: &str = "idle";

impl Bed {
    /// What goes on while the API server is silent, and what waits until it answers again.
    pub async fn outage_of_api_server(&self) {
        let address = self.started(FUNCTION).await;
        self.router_answers().await;
        self.create_waiting_for(IDLE).await;
        pool::start_halting_job(&self.pods, NODE).await;
        let job = wait::until("the new pod to wait and the job to run", async || {
            self.cluster.check_running()?;
            Ok(pool::halted_job().filter(|_| !processes(IDLE).is_empty()))
        })
        .await
        .unwrap();

        self.cluster.plane().stop_answering();
        self.session_goes_on(&address).await;
        self.container_restarts(&address).await;
        self.router_answers().await;
        kill(Pid::from_raw(job), Signal::SIGCONT).unwrap();
        wait::until("the job to end", async || Ok(processes("fpga-acc").is_empty().then_some(())))
            .await
            .unwrap();
        self.new_container_waits().await;
        self.session_goes_on(&address).await;

        self.cluster.plane().answer_again();
        let node = &self.cluster.nodes()[0];
        node.wait_ready().await.unwrap();
        let new = ready(&self.pods, NEW, node).await;
        self.case.invoke(&self.http, &new.status.unwrap().pod_ip.unwrap()).await.unwrap();
        self.router_answers().await;
        pool::job_ends_right(&self.cluster, &self.pods).await;
        self.session_goes_on(&address).await;
    }

    /// Creates a pod of the function, whose container starts when this program of the pod has ended.
    async fn create_waiting_for(&self, program: &str) {
        let idle = RestrictedPod::new(program, restricted::idle_image().unwrap().name()).pod().unwrap();
        let mut pod = function(NEW).pod().unwrap();
        let mut first = idle.spec.unwrap().containers;
        first[0].name = program.to_owned();
        pod.spec.as_mut().unwrap().init_containers = Some(first);
        self.pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    /// The new pod's container could start now, and waits for the API server.
    async fn new_container_waits(&self) {
        let before = self.refused_starts().unwrap();
        wait::until("the new pod's first program to end", async || {
            for process in processes(IDLE) {
                // It may have ended since.
                let _ = kill(Pid::from_raw(process), Signal::SIGTERM);
            }
            Ok(processes(IDLE).is_empty().then_some(()))
        })
        .await
        .unwrap();
        wait::until("the kubelet to hear why the container can't start", async || {
            self.cluster.check_running()?;
            Ok((self.refused_starts()? > before).then_some(()))
        })
        .await
        .unwrap();
        assert_eq!(processes(FUNCTION).len(), 1, "the new pod's container waits");
    }

    /// How often the kubelet has said that the new pod's container can't start without the API server.
    fn refused_starts(&self) -> std::io::Result<usize> {
        let log = self.cluster.nodes()[0].logs().join(format!("{NODE}-kubelet.log"));
        let texts =
            [format!("pod=\"{SHOP}/{NEW}\""), "the API server does not tell about the pod".to_owned()];
        let log = std::fs::read_to_string(log)?;
        Ok(log.lines().filter(|line| texts.iter().all(|text| line.contains(text))).count())
    }
}
