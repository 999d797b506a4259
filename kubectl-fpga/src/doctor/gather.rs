//! Gathers the facts, read-only. A refused request makes its fact unknown; the others are gathered all the same.

mod admission;
mod ask;
mod collectors;
mod node_parts;
mod nodes;
mod pods;
mod reach;
mod replicas;
mod rights;
mod scheduler;

use super::facts::{Facts, Looked};
use crate::connection::{Cluster, ConnectArgs};
use crate::problem::Problem;
use ask::refused;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Gathers all facts.
///
/// # Errors
/// [`Problem`] if the API server can't be reached or rejects the credentials, or if the file at `scheduler_config`
/// can't be read.
pub(super) async fn facts(
    connect: &ConnectArgs,
    cluster: &Cluster,
    scheduler_config: Option<&Path>,
) -> Result<Facts, Problem> {
    let version = cluster.client.apiserver_version().await;
    let kubernetes_minor =
        match version.map_err(|error| refused(cluster, &error, None, "get", "--non-resource-url=/version")) {
            Ok(version) => minor(&version.minor),
            Err(problem @ (Problem::Unreachable { .. } | Problem::Unauthorized(_))) => return Err(problem),
            Err(problem) => Looked::Hidden(problem.to_string()),
        };
    let own_pod = scheduler::own_pod(connect, cluster).await;
    let own_config = match &own_pod {
        Some(pod) => Some(scheduler::find_config(cluster, Some(pod)).await),
        None => None,
    };
    let own_schedulers = scheduler::names(own_config.as_ref());
    let lease = match &own_pod {
        Some(_) => scheduler::lease(connect, cluster).await,
        None => Looked::Found(None),
    };
    // The manifests' own kube-scheduler takes precedence, unless `--scheduler-config` names another configuration.
    let scheduler = match own_pod {
        Some(pod) if scheduler_config.is_none() => Looked::Found(pod),
        _ => scheduler::pod(cluster).await,
    };
    let config = match (scheduler_config, own_config) {
        (Some(path), _) => scheduler::read_config(path)?,
        (None, Some(config)) => config,
        (None, None) => scheduler::find_config(cluster, scheduler.found()).await,
    };
    let ours = config.found().and_then(|(_, config)| config.ours());
    let reach = match ours {
        Some(extender) => reach::look(connect, cluster, extender, scheduler.found()).await,
        None => Looked::Hidden("no URL of an extender of ours is known".to_owned()),
    };
    let scheduler_pod = match scheduler {
        Looked::Found(pod) => Looked::Found(scheduler::summary(&pod)),
        Looked::Hidden(why) => Looked::Hidden(why),
    };
    let (replicas, nodes, pods, collectors, plugins, managers, policies, rights) = futures::join!(
        replicas::look(connect, cluster),
        nodes::look(cluster),
        pods::look(cluster),
        collectors::look(connect, cluster),
        node_parts::plugins(connect, cluster),
        node_parts::managers(connect, cluster),
        admission::look(cluster),
        rights::look(connect, cluster),
    );
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    Ok(Facts {
        now,
        kubernetes_minor,
        config,
        own_schedulers,
        scheduler_pod,
        reach,
        replicas,
        nodes,
        pods,
        collectors,
        plugins,
        managers,
        policies,
        lease,
        rights,
    })
}

/// Parses the minor version, which some clouds write with a suffix: `35+`.
fn minor(text: &str) -> Looked<u32> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    match digits.parse() {
        Ok(minor) => Looked::Found(minor),
        Err(_) => Looked::Hidden(format!("the API server's version {text:?} is no number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_clouds_are_read() {
        assert_eq!((minor("36"), minor("35+")), (Looked::Found(36), Looked::Found(35)));
        assert!(matches!(minor(""), Looked::Hidden(_)));
    }
}
