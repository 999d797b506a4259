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
/// How often nodes of which only the annotation is known are looked at anew.
const AGEING: Duration = Duration::from_secs(5);

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
        shared.change(|model, now_ms| model.age(now_ms));
    }
}
