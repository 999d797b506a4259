//! What fills the model: watches of the API server, and questions to the extender and the endpoint picker, all with the
//! user's own rights. A source that fails says so in the model, and is tried again.

mod extender;
mod objects;
mod picker;

use super::shared::Shared;
use crate::connection::{Cluster, ConnectArgs};
use objects::{Nodes, Pods};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Silence of a watch after which its connection counts as lost; the API server ends it before that.
pub const WATCH_SILENCE: Duration = Duration::from_secs(30);
/// Pause before a source is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How often nodes are looked at anew, whose states age.
const AGEING: Duration = Duration::from_secs(5);
/// Nodes that are looked at while pages wait for the model.
const AGEING_NODES: usize = 256;

/// Starts all watches. They end when the set is dropped.
pub fn start(connect: &ConnectArgs, cluster: Option<&Cluster>, shared: &Arc<Shared>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if let Some(cluster) = cluster {
        tasks.spawn(objects::follow(Nodes, cluster.clone(), Arc::clone(shared)));
        let namespace = connect.namespace.clone();
        tasks.spawn(objects::follow(Pods { namespace }, cluster.clone(), Arc::clone(shared)));
    }
    tasks.spawn(extender::poll(connect.clone(), Arc::clone(shared)));
    tasks.spawn(picker::poll(connect.clone(), Arc::clone(shared)));
    tasks.spawn(age(Arc::clone(shared)));
    tasks
}

async fn age(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(AGEING).await;
        for names in shared.change(|model, _| model.node_names()).chunks(AGEING_NODES) {
            shared.change(|model, now_ms| model.age(names, now_ms));
            tokio::task::yield_now().await;
        }
    }
}
