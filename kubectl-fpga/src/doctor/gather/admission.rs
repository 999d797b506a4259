//! Our admission policies, and whether bindings bring them into force.

use super::ask::refused;
use crate::connection::Cluster;
use crate::doctor::facts::{Looked, Policy};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// The label of all our objects.
const OURS: &str = "app.kubernetes.io/part-of=kube-fpga";

/// All our policies. An API server before 1.36 has no mutating ones.
pub(super) async fn look(cluster: &Cluster) -> Looked<Vec<Policy>> {
    let validating =
        of_kind::<ValidatingAdmissionPolicy, _>(cluster, |binding: ValidatingAdmissionPolicyBinding| {
            Some(binding.spec.policy_name)
        });
    let mutating =
        of_kind::<MutatingAdmissionPolicy, _>(cluster, |binding: MutatingAdmissionPolicyBinding| {
            binding.spec?.policy_name
        });
    let (validating, mutating) = futures::join!(validating, mutating);
    let mutating = match mutating {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        mutating => mutating,
    };
    match (validating, mutating) {
        (Ok(validating), Ok(mutating)) => Looked::Found([validating, mutating].concat()),
        (Err(error), _) | (_, Err(error)) => hidden(cluster, &error),
    }
}

/// Our policies of kind `P`, with bindings of kind `B`, each of which names a policy.
async fn of_kind<P, B>(cluster: &Cluster, named_by: fn(B) -> Option<String>) -> kube::Result<Vec<Policy>>
where
    P: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    B: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let (all, ours) = (ListParams::default(), ListParams::default().labels(OURS));
    let bindings = Api::<B>::all(cluster.client.clone()).list(&all).await?;
    let bound: Vec<String> = bindings.items.into_iter().filter_map(named_by).collect();
    let policies = Api::<P>::all(cluster.client.clone()).list(&ours).await?;
    let told = policies.items.iter().map(|policy| {
        let name = policy.name_any();
        Policy { is_bound: bound.contains(&name), name: format!("{} {name}", P::kind(&())) }
    });
    Ok(told.collect())
}

fn hidden(cluster: &Cluster, error: &kube::Error) -> Looked<Vec<Policy>> {
    let what = "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,\
                mutatingadmissionpolicybindings.admissionregistration.k8s.io";
    Looked::Hidden(refused(cluster, error, None, "list", what).to_string())
}
