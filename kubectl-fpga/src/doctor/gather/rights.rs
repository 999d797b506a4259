//! Whether the service accounts have the rights that they need. The API server reviews the rights; no object is
//! created.

use super::ask::{looked, refused};
use crate::connection::{Cluster, ConnectArgs};
use crate::doctor::facts::{Looked, Right};
use crate::problem::Problem;
use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;

/// The rights that are needed.
const NEEDED: [Needed; 15] = [
    ("fpga-scheduler-extender", "list", "", "nodes", "It never gets ready: it knows no nodes."),
    ("fpga-scheduler-extender", "watch", "", "nodes", "It never gets ready: it knows no nodes."),
    ("fpga-scheduler-extender", "get", "", "nodes", "It may fail to follow the nodes."),
    (
        "fpga-scheduler-extender",
        "patch",
        "",
        "nodes",
        "Pods that wait for a Bitstream are tried again minutes after it has come.",
    ),
    ("fpga-scheduler-extender", "list", "", "pods", NO_PODS),
    ("fpga-scheduler-extender", "watch", "", "pods", NO_PODS),
    ("fpga-scheduler-extender", "get", "", "pods", "It may fail to follow the pods."),
    ("fpga-scheduler-extender", "list", "fpga-scheduling.io", "bitstreams", NO_LIBRARY),
    ("fpga-scheduler-extender", "watch", "fpga-scheduling.io", "bitstreams", NO_LIBRARY),
    (
        "fpga-scheduler-extender",
        "create",
        "authentication.k8s.io",
        "tokenreviews",
        "It can't tell whose token a collector or a reader shows: states come by annotation, and kubectl fpga gets no answers.",
    ),
    (
        "fpga-scheduler-extender",
        "create",
        "authorization.k8s.io",
        "subjectaccessreviews",
        "It can't tell what a reader may read: kubectl fpga gets no answers.",
    ),
    (
        "fpga-collector",
        "get",
        "",
        "nodes",
        "It can't tell which publication was its last: states may be taken for old ones.",
    ),
    ("fpga-collector", "list", "", "nodes", NO_CORDONS),
    ("fpga-collector", "watch", "", "nodes", NO_CORDONS),
    ("fpga-collector", "patch", "", "nodes", "No node state is ever published."),
];

const NO_LIBRARY: &str = "It knows no Bitstreams: pods go where their bitstreams may not be valid.";
const NO_CORDONS: &str = "Boards that are cordoned stay in rotation.";
const NO_PODS: &str = "It never gets ready while anti-herd is on: it can't see where pods are.";

/// Account, verb, API group, resource, and what fails without the right.
type Needed = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Asks the API server for each right of `NEEDED` whether it is granted.
pub(super) async fn look(connect: &ConnectArgs, cluster: &Cluster) -> Looked<Vec<Right>> {
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let asked = NEEDED.map(async |(account, verb, group, resource, needed_for)| {
        let who = format!("system:serviceaccount:{}:{account}", connect.extender_namespace);
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(who.clone()),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let review = reviews.create(&PostParams::default(), &review).await;
        let review = review.map_err(|error| {
            refused(cluster, &error, None, "create", "subjectaccessreviews.authorization.k8s.io")
        })?;
        let allowed = review.status.is_some_and(|status| status.allowed);
        Ok::<Right, Problem>(Right { who, verb, resource, allowed, needed_for })
    });
    looked(join_all(asked).await.into_iter().collect())
}
