//! `kubectl fpga explain`: why a pod was placed on its node.
//!
//! Only the replica that kube-scheduler asked remembers the decision, and nothing records which one that was. So all
//! replicas are asked, and the latest decision is shown. A decision about an earlier pod of the same name is none.

mod text;

use crate::connection::{Cluster, ConnectArgs};
use crate::nodes::warn;
use crate::output::{Colours, Format, print, print_json};
use crate::part::Part;
use crate::problem::{Grant, Problem};
use crate::replicas::{self, Answered, Replica};
use anyhow::{Result, bail};
use fpga_core::names::{BOARDS_ANNOTATION, BOARDS_REASON_ANNOTATION};
use fpga_extender_api::Explanation;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga explain default/sobel-7
  kubectl fpga explain sobel-7 -n default -o wide   # with the numbers behind each term
  kubectl fpga explain sobel-7 -o json              # what every replica says";

const GET_POD: Grant = Grant { namespace: None, verbs: "get", resources: "pods" };

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// The pod: NAMESPACE/NAME, or NAME with -n.
    #[arg(value_name = "POD", value_parser = pod)]
    pod: PodArg,
    /// Format of the output.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodArg {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

/// The placement of a pod, and the decision behind it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explained {
    namespace: String,
    pod: String,
    /// The pod's node and boards according to the API server.
    #[serde(flatten)]
    placed: Placed,
    /// The latest decision, and the replica that made it.
    #[serde(flatten)]
    told: Told,
    /// Replicas that remember an earlier decision, with its time in milliseconds since the epoch.
    others: BTreeMap<String, u64>,
}

/// Where a pod is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Placed {
    /// UID of the pod; `None` if the pod is gone or can't be read.
    uid: Option<String>,
    /// Why the pod waits, in kube-scheduler's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<String>,
    /// The node; `None` if the pod is not bound or can't be read.
    node: Option<String>,
    /// The boards of its containers, comma-separated, as the node plugin wrote them; `None` if it wrote none.
    boards: Option<String>,
    /// For each container a line with the reason for its boards, as the node plugin wrote them.
    #[serde(skip_serializing_if = "Option::is_none")]
    boards_reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Told {
    replica: String,
    explanation: Explanation,
}

impl ExplainArgs {
    /// Prints the explanation.
    ///
    /// # Errors
    /// No replica answers, or none remembers the pod.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        // With `--extender` no cluster is needed; without a cluster, the answer lacks the pod's node.
        let cluster = connect.cluster().await;
        let configured = cluster.as_ref().ok().map(|cluster| cluster.namespace.clone());
        let namespace = self.pod.namespace.clone().or(connect.namespace.clone()).or(configured);
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        let replicas = replicas::replicas(Part::Extender, connect).await?;
        let (explained, silent) = explain(&replicas, cluster.as_ref(), &namespace, &self.pod.name).await?;
        let explained = match explained {
            Ok(explained) => explained,
            Err(forgotten) => {
                warn(&silent);
                bail!(forgotten);
            }
        };
        match self.output {
            Format::Json => print_json(&explained)?,
            format => print(&explained.text(format == Format::Wide, Colours::of_stdout()))?,
        }
        warn(&silent);
        Ok(ExitCode::SUCCESS)
    }
}

/// Why there is no explanation, as a text for people.
pub(crate) type Forgotten = String;

/// The explanation of a pod's placement, and the problems of replicas that did not answer. Without a cluster the answer
/// lacks the pod's node.
///
/// # Errors
/// No replica answers.
pub(crate) async fn explain(
    replicas: &[Replica],
    cluster: Result<&Cluster, &Problem>,
    namespace: &str,
    name: &str,
) -> Result<(Result<Explained, Forgotten>, Vec<Problem>), Problem> {
    let path = format!("/explain/{namespace}/{name}");
    let answers = replicas::ask_all::<Explanation>(replicas, &path).await;
    let placed = match cluster {
        Ok(cluster) => placement_of(cluster, namespace, name).await,
        Err(problem) => Err(problem.clone()),
    };
    let uid = placed.as_ref().ok().and_then(|placed| placed.as_ref()?.uid.as_deref());
    let (told, others, silent) = latest(answers, uid)?;
    let Some(told) = told else {
        return Ok((Err(forgotten(&format!("{namespace}/{name}"), placed.as_ref().ok())), silent));
    };
    let placed = placed.ok().flatten().unwrap_or_default();
    let (namespace, pod) = (namespace.to_owned(), name.to_owned());
    Ok((Ok(Explained { namespace, pod, placed, told, others }), silent))
}

/// Why nobody remembers a decision about the pod, of which the API server tells this, if it answers.
fn forgotten(pod: &str, placed: Option<&Option<Placed>>) -> Forgotten {
    let (where_it_is, not_asked) = match placed {
        Some(Some(Placed { node: Some(node), .. })) => (format!("The pod runs on {node}. "), ""),
        Some(Some(Placed { node: None, waits, .. })) => (
            match waits {
                Some(words) => format!("The pod waits; kube-scheduler says: {words} "),
                None => "The pod waits; `kubectl describe pod` has kube-scheduler's words. ".to_owned(),
            },
            "or kube-scheduler itself rejected all nodes, for example because all instances of their boards are taken \
             (`Insufficient fpga-scheduling.io/...`), and then asks nobody, ",
        ),
        Some(None) => ("There is no such pod. ".to_owned(), ""),
        None => (String::new(), ""),
    };
    format!(
        "no replica remembers a decision for pod {pod}. {where_it_is}Either it asks for nothing of an FPGA (label, \
         annotation or resource of fpga-scheduling.io), {not_asked}or kube-scheduler doesn't ask the extender (`kubectl \
         fpga doctor` finds out), or the decision is forgotten: each replica remembers the last 1,024 pods since it started"
    )
}

/// Where the pod is; `None` if there is no such pod.
async fn placement_of(cluster: &Cluster, namespace: &str, name: &str) -> Result<Option<Placed>, Problem> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let pod = pods.get_opt(name).await;
    let pod = pod.map_err(|error| Problem::of_api(&error, &cluster.server, "can't get the pod", &GET_POD))?;
    Ok(pod.map(|pod| {
        let mut annotations = pod.metadata.annotations.unwrap_or_default();
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let waits = conditions.into_iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
        Placed {
            uid: pod.metadata.uid,
            waits: waits.and_then(|condition| condition.message),
            node: pod.spec.and_then(|spec| spec.node_name),
            boards: annotations.remove(BOARDS_ANNOTATION),
            boards_reason: annotations.remove(BOARDS_REASON_ANNOTATION),
        }
    }))
}

type Latest = (Option<Told>, BTreeMap<String, u64>, Vec<Problem>);

/// The latest decision about the pod with this UID, or about any pod of its name where it is not known; the times of the
/// other replicas' decisions, and the problems of replicas that did not answer.
fn latest(answers: Vec<Answered<Explanation>>, uid: Option<&str>) -> Result<Latest, Problem> {
    let (mut told, mut silent, mut answered) = (Vec::new(), Vec::new(), false);
    for Answered { replica, answer } in answers {
        match answer {
            Ok(explanation) => {
                answered = true;
                let about_it = |explanation: &Explanation| uid.is_none_or(|uid| uid == explanation.uid);
                let explanation = explanation.filter(about_it);
                told.extend(explanation.map(|explanation| Told { replica, explanation }));
            }
            Err(problem) => silent.push(problem),
        }
    }
    if let (false, Some(problem)) = (answered, silent.first()) {
        return Err(problem.clone());
    }
    told.sort_by_key(|told| told.explanation.at());
    let last = told.pop();
    let others = told.into_iter().map(|told| (told.replica, told.explanation.at())).collect();
    Ok((last, others, silent))
}

pub(crate) fn pod(text: &str) -> Result<PodArg, String> {
    let (namespace, name) = match text.split_once('/') {
        Some(("pod" | "pods", name)) => (None, name),
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    let plain = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
    };
    if plain(name) && namespace.is_none_or(plain) {
        Ok(PodArg { namespace: namespace.map(str::to_owned), name: name.to_owned() })
    } else {
        Err("write NAMESPACE/NAME, or NAME with -n NAMESPACE".to_owned())
    }
}

#[cfg(test)]
mod tests;
