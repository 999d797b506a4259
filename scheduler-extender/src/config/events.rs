//! Reports news about the configuration as events (events.k8s.io) on the extender's own pod, where `kubectl events`
//! and `kubectl describe pod` show them.
//!
//! Each content of the file causes at most one event. Events are [`SPACING`] apart and have the latest news. One that
//! the API server refuses is tried again. Decisions never wait for events.

use clap::Args;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tracing::warn;

/// Least time between two events, and between an event and its retry.
pub const SPACING: Duration = Duration::from_secs(10);

/// Longest note that the API server accepts, in bytes.
const MAX_NOTE_BYTES: usize = 1024;

/// The reporting controller of the events.
const CONTROLLER: &str = "fpga-scheduling.io/scheduler-extender";

/// News about the configuration file, for the administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A new content is in force.
    Taken(String),
    /// A new content is invalid.
    Refused(String),
}

/// The extender's own pod, to which the events refer.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Events")]
pub struct PodArgs {
    /// Name of the extender's own pod, for events about the configuration; without it there are none.
    #[arg(long, env = "FPGA_POD_NAME", value_name = "NAME", requires = "pod_namespace")]
    pub pod_name: Option<String>,
    /// Namespace of the extender's own pod.
    #[arg(long, env = "FPGA_POD_NAMESPACE", value_name = "NAMESPACE")]
    pub pod_namespace: Option<String>,
    /// UID of the extender's own pod.
    #[arg(long, env = "FPGA_POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,
}

/// Publishes the news until all senders are dropped. Without a pod's name it publishes nothing.
pub async fn run(
    client: Client,
    pod: PodArgs,
    mut news: Receiver<Option<News>>,
    errors: &Counter,
    spacing: Duration,
) {
    let (Some(name), Some(namespace)) = (pod.pod_name, pod.pod_namespace) else {
        return std::future::pending::<()>().await;
    };
    let regarding = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(name),
        namespace: Some(namespace.clone()),
        uid: pod.pod_uid,
        ..ObjectReference::default()
    };
    let events: Api<Event> = Api::namespaced(client, &namespace);
    while news.changed().await.is_ok() {
        loop {
            let Some(latest) = news.borrow_and_update().clone() else { break };
            let event = event(&latest, &regarding, Timestamp::now());
            let published = events.create(&PostParams::default(), &event).await;
            if let Err(error) = &published {
                errors.inc();
                warn!(%error, "Event on the configuration not written, trying again");
            }
            tokio::time::sleep(spacing).await;
            if published.is_ok() {
                break;
            }
        }
    }
    std::future::pending::<()>().await;
}

fn event(news: &News, regarding: &ObjectReference, at: Timestamp) -> Event {
    let (kind, reason, note) = match news {
        News::Taken(note) => ("Normal", "ConfigurationTaken", note),
        News::Refused(note) => ("Warning", "ConfigurationRefused", note),
    };
    let name = regarding.name.clone().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            // The API server refuses a `generateName` that ends in a dot, so a hyphen precedes the suffix.
            generate_name: Some(format!("{name}-")),
            namespace: regarding.namespace.clone(),
            ..ObjectMeta::default()
        },
        action: Some("ReadConfiguration".into()),
        event_time: Some(MicroTime(at)),
        note: Some(start_of(note, MAX_NOTE_BYTES).to_owned()),
        reason: Some(reason.into()),
        regarding: Some(regarding.clone()),
        reporting_controller: Some(CONTROLLER.into()),
        reporting_instance: Some(name),
        type_: Some(kind.into()),
        ..Event::default()
    }
}

/// The first `most` bytes of a text, or fewer so as not to split a character.
fn start_of(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::Value;
    use tokio::sync::{mpsc, watch};
    use tokio::time::Instant;

    const APART: Duration = Duration::from_millis(30);

    fn pod() -> PodArgs {
        PodArgs {
            pod_name: Some("extender-1".into()),
            pod_namespace: Some("kube-fpga".into()),
            pod_uid: Some("u".into()),
        }
    }

    /// An API server that answers with each status of `answers` in turn, then with 201, and sends the requests to the
    /// receiver.
    fn server(mut answers: Vec<u16>) -> (Client, mpsc::UnboundedReceiver<(String, Value)>) {
        let (asked, asks) = mpsc::unbounded_channel();
        answers.reverse();
        let answers = std::sync::Arc::new(std::sync::Mutex::new(answers));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (asked, answers) = (asked.clone(), std::sync::Arc::clone(&answers));
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await?.to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let status = answers.lock().unwrap().pop().unwrap_or(201);
                let answer = if status == 201 { body.to_string() } else { "{}".to_owned() };
                asked.send((path, body)).unwrap();
                let response = Response::builder().status(status).body(Body::from(answer.into_bytes()));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response.unwrap())
            }
        });
        (Client::new(service, "default"), asks)
    }

    #[tokio::test(start_paused = true)]
    async fn news_become_events_on_the_pod_and_not_more_than_one_at_a_time() {
        let (client, mut asks) = server(Vec::new());
        let (tell, news) = watch::channel(None);
        let errors = Counter::default();
        let steps = async {
            tell.send_replace(Some(News::Refused("line 3".into())));
            let (path, event) = asks.recv().await.unwrap();
            let first = Instant::now();
            assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/kube-fpga/events");
            assert_eq!(
                (&event["type"], &event["reason"]),
                (&"Warning".into(), &"ConfigurationRefused".into())
            );
            assert_eq!(
                (&event["note"], &event["regarding"]["name"]),
                (&"line 3".into(), &"extender-1".into())
            );
            for note in ["a", "b", "c"] {
                tell.send_replace(Some(News::Refused(note.into())));
            }
            tell.send_replace(Some(News::Taken("good".into())));
            let (_, event) = asks.recv().await.unwrap();
            assert_eq!((&event["type"], &event["note"]), (&"Normal".into(), &"good".into()));
            assert!(first.elapsed() >= APART);
            assert!(asks.try_recv().is_err());
        };
        tokio::select! {
            () = run(client, pod(), news, &errors, APART) => unreachable!(),
            steps = tokio::time::timeout(Duration::from_secs(20), steps) => steps.unwrap(),
        }
        assert_eq!(errors.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_does_not_take_is_tried_again_with_the_latest() {
        let (client, mut asks) = server(vec![500, 403]);
        let (tell, news) = watch::channel(None);
        let errors = Counter::default();
        let steps = async {
            tell.send_replace(Some(News::Refused("first".into())));
            assert_eq!(asks.recv().await.unwrap().1["note"], "first");
            tell.send_replace(Some(News::Refused("second".into())));
            assert_eq!(asks.recv().await.unwrap().1["note"], "second");
            assert_eq!(asks.recv().await.unwrap().1["note"], "second");
        };
        tokio::select! {
            () = run(client, pod(), news, &errors, APART) => unreachable!(),
            steps = tokio::time::timeout(Duration::from_secs(20), steps) => steps.unwrap(),
        }
        assert_eq!(errors.get(), 2);
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let event =
            event(&News::Taken("ü".repeat(1_000)), &ObjectReference::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(event.note.unwrap().len(), MAX_NOTE_BYTES);
    }
}
