//! What all questions to the API server share.

use crate::connection::Cluster;
use crate::doctor::facts::Looked;
use crate::problem::{Grant, Problem};

/// Objects per page of a list.
pub const PAGE: u32 = 500;

/// The problem behind an error of the API server; `verbs` and `resources` name the right that the question needs.
pub fn refused(
    cluster: &Cluster,
    error: &kube::Error,
    namespace: Option<&'static str>,
    verbs: &'static str,
    resources: &'static str,
) -> Problem {
    let grant = Grant { namespace, verbs, resources };
    Problem::of_api(error, &cluster.server, "the API server refuses", &grant)
}

/// The fact, or the problem as the reason why it is unknown.
pub fn looked<T>(result: Result<T, Problem>) -> Looked<T> {
    result.map_or_else(|problem| Looked::Hidden(problem.to_string()), Looked::Found)
}
