//! What a view asks for while it is open: why a pod went where it did, the last picks of a function, the pool.

use crate::connection::{Cluster, ConnectArgs};
use crate::explain::{self, explain};
use crate::part::Part;
use crate::pool;
use crate::pool::broker::BrokerArgs;
use crate::problem::Problem;
use crate::replicas;
use crate::route;
use axum::extract::Query;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use fpga_core::matching::Rejection;
use fpga_picker_api::PicksView;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Answers the questions of views with the user's own rights.
#[derive(Clone)]
pub struct Ask {
    connect: ConnectArgs,
    /// The cluster, or why there is none.
    cluster: Result<Cluster, Problem>,
    broker: BrokerArgs,
}

/// A question.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", tag = "view")]
enum Question {
    /// Why a pod went where it did.
    Explain {
        /// `NAMESPACE/NAME`.
        pod: String,
    },
    /// The last picks of a function, by picker.
    Picks {
        /// `NAMESPACE/NAME`.
        function: String,
    },
    /// The slots, jobs and goals of the pool.
    Pool {},
    /// The texts of the reasons why nodes are rejected.
    Reasons {},
}

/// Why there is no answer.
enum Unanswered {
    /// The question can't be understood.
    Unclear(String),
    /// Nobody knows the object.
    Unknown(String),
    /// Nobody answers, or the user may not ask.
    Failed(Problem),
}

impl Ask {
    /// Answers by the cluster and the parts that the flags name.
    #[must_use]
    pub fn new(connect: ConnectArgs, cluster: Result<Cluster, Problem>, broker: BrokerArgs) -> Self {
        Self { connect, cluster, broker }
    }

    /// The answer to the question in the query of `uri`.
    pub async fn answer(&self, uri: &Uri) -> Response {
        let question = match Query::<Question>::try_from_uri(uri) {
            Ok(Query(question)) => question,
            Err(error) => return Unanswered::Unclear(error.to_string()).into_response(),
        };
        let answered = match question {
            Question::Explain { pod } => self.explain(&pod).await,
            Question::Picks { function } => self.picks(&function).await,
            Question::Pool {} => self.pool().await,
            Question::Reasons {} => Ok(json(&reasons())),
        };
        answered.unwrap_or_else(Unanswered::into_response)
    }

    async fn explain(&self, pod: &str) -> Result<Response, Unanswered> {
        let pod = explain::pod(pod).map_err(Unanswered::Unclear)?;
        let namespace = pod.namespace.unwrap_or_else(|| "default".to_owned());
        let replicas = replicas::replicas(Part::Extender, &self.connect).await?;
        match explain(&replicas, self.cluster.as_ref(), &namespace, &pod.name).await?.0 {
            Ok(explained) => Ok(json(&explained)),
            Err(forgotten) => Err(Unanswered::Unknown(forgotten)),
        }
    }

    /// What the active broker knows. A user who may not ask it sees why.
    async fn pool(&self) -> Result<Response, Unanswered> {
        let found = self.broker.look(&self.connect).await;
        let found = found.map_err(|error| Unanswered::Unknown(format!("{error:#}")))?;
        Ok(json(&pool::json::pool(&found)))
    }

    async fn picks(&self, function: &str) -> Result<Response, Unanswered> {
        let function = route::function(function).map_err(Unanswered::Unclear)?;
        let namespace = function.namespace.unwrap_or_else(|| "default".to_owned());
        let pickers = replicas::replicas(Part::Picker, &self.connect).await?;
        let path = format!("/picks/{namespace}/{}", function.name);
        let (known, _) = route::answers(replicas::ask_all::<PicksView>(&pickers, &path).await)?;
        match known.is_empty() {
            true => Err(Unanswered::Unknown(format!(
                "no picker knows the function {namespace}/{}",
                function.name
            ))),
            false => Ok(json(&known)),
        }
    }
}

/// The text of each reason, by its name in explanations.
fn reasons() -> BTreeMap<String, &'static str> {
    let name = |reason: Rejection| serde_json::to_value(reason).ok()?.as_str().map(str::to_owned);
    Rejection::ALL.into_iter().filter_map(|reason| Some((name(reason)?, reason.text()))).collect()
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

impl From<Problem> for Unanswered {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

impl Unanswered {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Unclear(text) => (StatusCode::BAD_REQUEST, text),
            Self::Unknown(text) => (StatusCode::NOT_FOUND, text),
            Self::Failed(problem) => (StatusCode::BAD_GATEWAY, problem.to_string()),
        };
        (status, text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_text() {
        let reasons = reasons();
        assert_eq!(reasons.len(), Rejection::ALL.len());
        assert_eq!(reasons["vendor"], "FPGA vendor does not match");
    }

    #[test]
    fn questions_are_understood() {
        let question = |query: &str| {
            let uri: Uri = format!("/ask?{query}").parse().unwrap();
            Query::<Question>::try_from_uri(&uri).ok().map(|Query(question)| question)
        };
        let explain = question("view=explain&pod=shop%2Fsobel-1");
        assert!(matches!(explain, Some(Question::Explain { pod }) if pod == "shop/sobel-1"));
        assert!(matches!(question("view=reasons"), Some(Question::Reasons {})));
        assert!(question("view=secrets").is_none() && question("").is_none());
    }
}
