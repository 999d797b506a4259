//! Objects of the API server, with the user's own rights.

use crate::connection::Cluster;
use crate::problem::{Grant, Problem};
use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Objects in one answer of the API server.
const PAGE: u32 = 500;

/// The objects of a kind in one namespace, or in all of them.
#[must_use]
pub fn namespaced<K>(cluster: &Cluster, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(cluster.client.clone(), namespace),
        None => Api::all(cluster.client.clone()),
    }
}

/// All objects of `api`, which are called `resources` in commands.
///
/// # Errors
/// The API server does not answer, or the user may not list them.
pub async fn list<K>(cluster: &Cluster, api: &Api<K>, resources: &'static str) -> Result<Vec<K>, Problem>
where
    K: Clone + DeserializeOwned + Debug,
{
    list_by(cluster, api, resources, ListParams::default()).await
}

/// As [`list`], those that `params` select.
///
/// # Errors
/// As for [`list`].
pub async fn list_by<K>(
    cluster: &Cluster,
    api: &Api<K>,
    resources: &'static str,
    params: ListParams,
) -> Result<Vec<K>, Problem>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut params = params.limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await.map_err(|error| {
            let grant = Grant { namespace: None, verbs: "get,list", resources };
            Problem::of_api(&error, &cluster.server, &format!("listing {resources}"), &grant)
        })?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}
