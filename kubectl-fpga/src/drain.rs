//! `kubectl fpga drain`: a board goes out of rotation, and the pods that have it are evicted.
//!
//! A pod's sessions end with the pod: at the latest when its grace period is over. Disruption budgets are respected, as by
//! `kubectl drain`: the API server refuses an eviction that a budget forbids, and the command tries again until its
//! timeout.

mod holding;

use crate::connection::{Cluster, ConnectArgs};
use crate::cordon::{BoardPath, Change, PublicationArgs, node_state};
use crate::objects;
use crate::problem::{Grant, Problem};
use anyhow::{Result, bail};
use fpga_core::board_request::BoardRequest;
use fpga_core::cordon::CordonReason;
use fpga_core::units::WallTime;
use fpga_net::duration;
use fpga_registry_api::{FpgaPod, evict};
use holding::Holding;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Api;
use kube::api::ListParams;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga drain n1/dm0 --dry-run
  kubectl fpga drain n1/dm0 --reason 'new firmware' --drain-timeout 15m
  kubectl fpga drain n1/dm0 --grace-period 30s --force
  kubectl fpga uncordon n1/dm0         # afterwards";

/// Pause between two looks at the pods, and between two tries to evict one.
const INTERVAL: Duration = Duration::from_secs(2);

/// Arguments of `drain`.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// Board to take out of rotation and to free of pods.
    #[arg(value_name = "NODE/BOARD")]
    board: BoardPath,
    /// Why, for everybody who looks. A board that is cordoned already keeps its reason.
    #[arg(long, env = "FPGA_CORDON_REASON", value_name = "TEXT", default_value = "drained")]
    reason: CordonReason,
    /// Longest time until all pods have gone. The board stays cordoned after it.
    #[arg(long, env = "FPGA_DRAIN_TIMEOUT", value_name = "TIME", default_value = "10m",
        value_parser = duration::parse)]
    drain_timeout: Duration,
    /// Time that each pod gets to end, instead of its own: whole seconds, at least 1 s.
    #[arg(long, env = "FPGA_GRACE_PERIOD", value_name = "TIME", value_parser = duration::parse)]
    grace_period: Option<Duration>,
    /// Evict also pods without a controller, which nothing makes again.
    #[arg(long)]
    force: bool,
    /// Only show which pods have the board. Nothing changes.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    publication: PublicationArgs,
}

/// Why a pod has the board, or may have it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Left {
    /// The pod is ending.
    Ending,
    /// The API server refuses to evict the pod, for this reason.
    Refused(String),
    /// No controller would make the pod again.
    Bare,
    /// The pod does not say yet which boards it has.
    Starting,
}

/// The pods that have the board, as far as they were told to the user.
struct Drain<'a> {
    args: &'a DrainArgs,
    cluster: &'a Cluster,
    /// The pods at the last look, by UID.
    left: BTreeMap<String, (String, Left)>,
    /// Why the last look failed.
    problem: Option<Problem>,
}

impl DrainArgs {
    /// Drains the board.
    ///
    /// # Errors
    /// The board can't be cordoned, pods can't be listed, or pods are left after the timeout.
    pub async fn run(self, connect: &ConnectArgs) -> Result<ExitCode> {
        let cluster = self.publication.cluster(connect).await?;
        if !self.dry_run {
            let cordon = Change::CordonUnlessCordoned(self.reason.clone());
            self.publication.apply(&cluster, &self.board, cordon).await?;
        }
        let mut drain = Drain { args: &self, cluster: &cluster, left: BTreeMap::new(), problem: None };
        if self.dry_run {
            return drain.show().await;
        }
        let deadline = Instant::now() + self.drain_timeout;
        let mut before = Progress::Waits;
        loop {
            let progress = drain.look().await?;
            let ends = match progress {
                Progress::Waits => Instant::now() + INTERVAL > deadline,
                // A pod that was bound, or got the board, just before the cordon may show up later.
                Progress::Empty => before == Progress::Empty,
                Progress::Ends => true,
            };
            if ends {
                return drain.end();
            }
            before = progress;
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// Whether another look may find fewer pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waits,
    Empty,
    Ends,
}

impl Drain<'_> {
    /// The pods that have the board, and those that may have it.
    async fn pods(&self) -> Result<Vec<(FpgaPod, Holding)>, Problem> {
        let BoardPath { node, board } = &self.args.board;
        let pods: Api<Pod> = Api::all(self.cluster.client.clone());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = objects::list_by(self.cluster, &pods, "pods", of_node).await?;
        let state = node_state(self.cluster, node).await?;
        let holding = |pod: &Pod| {
            let found = FpgaPod::of(pod).filter(|found| !found.boards.is_empty() || asks_for_boards(pod))?;
            let holding = Holding::of(&found, created(pod), board, state.as_ref());
            (holding != Holding::No).then_some((found, holding))
        };
        Ok(pods.iter().filter_map(holding).collect())
    }

    /// Tells which pods would be evicted.
    async fn show(&self) -> Result<ExitCode> {
        for (pod, holding) in self.pods().await? {
            let name = format!("{}/{}", pod.namespace, pod.name);
            if holding == Holding::Maybe {
                println!("{name} {}", Left::Starting);
                continue;
            }
            let bare = if pod.controller.is_none() { " (without a controller: needs --force)" } else { "" };
            println!("{name} would be evicted{bare}");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Evicts the pods that have the board, and tells what has changed since the last look. A look that fails is repeated
    /// later.
    ///
    /// # Errors
    /// The user may not list pods.
    async fn look(&mut self) -> Result<Progress, Problem> {
        let pods = match self.pods().await {
            Ok(pods) => pods,
            Err(problem @ (Problem::Forbidden { .. } | Problem::Unauthorized(_))) => return Err(problem),
            Err(problem) => {
                if self.problem.is_none() {
                    eprintln!("{problem}.\nTrying again");
                }
                self.problem = Some(problem);
                return Ok(Progress::Waits);
            }
        };
        self.problem = None;
        self.forget_except(&pods);
        for (pod, holding) in pods {
            let name = format!("{}/{}", pod.namespace, pod.name);
            let left = match (&pod, holding) {
                (FpgaPod { is_ending: true, .. }, _) => Some(Left::Ending),
                (_, Holding::Maybe | Holding::No) => Some(Left::Starting),
                (FpgaPod { controller: None, .. }, _) if !self.args.force => Some(Left::Bare),
                (pod, Holding::Yes) => self.evict(pod).await,
            };
            let Some(left) = left else { continue };
            let told = self.left.insert(pod.uid, (name.clone(), left.clone()));
            if told.is_none_or(|(_, before)| before != left) {
                println!("{name} {left}");
            }
        }
        Ok(if self.left.is_empty() {
            Progress::Empty
        } else if self.left.values().all(|(_, left)| *left == Left::Bare) {
            Progress::Ends
        } else {
            Progress::Waits
        })
    }

    /// Forgets the pods that are not among these: they have gone, or they have started with other boards.
    fn forget_except(&mut self, pods: &[(FpgaPod, Holding)]) {
        self.left.retain(|uid, (name, left)| {
            let is_left = pods.iter().any(|(pod, _)| pod.uid == *uid);
            match (is_left, left) {
                (true, _) => {}
                (false, Left::Starting) => println!("{name} does not have the board"),
                (false, _) => println!("{name} gone"),
            }
            is_left
        });
    }

    /// Asks the API server to evict the pod; `None` if the pod has gone. An error concerns this pod alone.
    async fn evict(&self, pod: &FpgaPod) -> Option<Left> {
        let api: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &pod.namespace);
        match evict(&api, &pod.name, &pod.uid, self.args.grace_period).await {
            Ok(()) => Some(Left::Ending),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            // Another pod has the name now, or a budget forbids it.
            Err(kube::Error::Api(status)) if matches!(status.code, 409 | 429) => {
                Some(Left::Refused(status.message.clone()))
            }
            Err(error) => {
                let grant = Grant { namespace: None, verbs: "create", resources: "pods/eviction" };
                let problem = Problem::of_api(&error, &self.cluster.server, "the eviction fails", &grant);
                Some(Left::Refused(problem.to_string()))
            }
        }
    }

    /// Tells what is left.
    fn end(self) -> Result<ExitCode> {
        let board = &self.args.board;
        if let Some(problem) = self.problem {
            return Err(
                anyhow::Error::new(problem).context(format!("{board} stays cordoned, and may have pods"))
            );
        }
        if self.left.is_empty() {
            println!("{board} drained");
            return Ok(ExitCode::SUCCESS);
        }
        let left: Vec<String> = self.left.values().map(|(name, left)| format!("  {name} {left}")).collect();
        bail!("{board} stays cordoned and still has:\n{}", left.join("\n"))
    }
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ending => f.write_str("is ending"),
            Self::Refused(why) => write!(f, "can't be evicted yet: {}", crate::output::printable(why)),
            Self::Bare => {
                f.write_str("has no controller that would make it again; --force evicts it all the same")
            }
            Self::Starting => {
                f.write_str("is starting, and may have the board: its node plugin has not said so yet")
            }
        }
    }
}

/// When the pod was made.
fn created(pod: &Pod) -> Option<WallTime> {
    let created = pod.metadata.creation_timestamp.as_ref()?;
    u64::try_from(created.0.as_millisecond()).ok().map(WallTime)
}

/// Whether a container of the pod asks the node plugin for boards.
fn asks_for_boards(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let asks = |container: &Container| {
        let resources = container.resources.iter();
        let all = resources.flat_map(|all| all.limits.iter().chain(&all.requests).flatten());
        let request = BoardRequest::among(all.map(|(name, quantity)| (name.as_str(), quantity.0.as_str())));
        request.is_some_and(|request| !request.is_zero())
    };
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(asks)
}
