//! Whether the URL in kube-scheduler's configuration answers. The plugin calls it through the API server's proxy or
//! directly, as near to kube-scheduler's own way as it can.

use crate::connection::{Cluster, ConnectArgs};
use crate::doctor::facts::{Looked, Reach};
use crate::doctor::scheduler_config::Extender;
use crate::part::Part;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use kube::{Client, ResourceExt as _};
use std::time::Duration;

/// Timeout of a request.
const TIME: Duration = Duration::from_secs(3);
/// Part of the image's name by which the extender's container is recognised.
const IMAGE: &str = "fpga-scheduler-extender";

/// The result of a call to `extender` by the kube-scheduler of the pod `scheduler`.
pub(super) async fn look(
    connect: &ConnectArgs,
    cluster: &Cluster,
    extender: &Extender,
    scheduler: Option<&Pod>,
) -> Looked<Reach> {
    let url = extender.url_prefix.trim_end_matches('/');
    let (Some(host), Ok(uri)) = (extender.host(), url.parse::<http::Uri>()) else {
        return Looked::Hidden(format!("urlPrefix {url:?} is no URL"));
    };
    if let Some((service, namespace)) = service_of(&host) {
        let scheme = if uri.scheme_str() == Some("https") { "https:" } else { "" };
        let port = uri.port_u16().map_or_else(String::new, |port| format!(":{port}"));
        let path = format!("/api/v1/namespaces/{namespace}/services/{scheme}{service}{port}/proxy/healthz");
        return match ask(&cluster.client, &path).await {
            Ok(200) => Looked::Found(Reach::Answers),
            Ok(404) => Looked::Found(Reach::Silent(format!("there is no Service {namespace}/{service}"))),
            // The extender requires kube-scheduler's client certificate, which neither the API server nor the plugin
            // has.
            Ok(_) | Err(_) if extender.has_certificate() => Looked::Hidden(format!(
                "{url} wants the certificate of kube-scheduler; on its machine: curl --cert CERT --key KEY {url}/healthz"
            )),
            Ok(code) => Looked::Found(Reach::Silent(format!(
                "by the API server the Service {namespace}/{service} answers {code}: no pod with that port is ready"
            ))),
            Err(error) => Looked::Hidden(format!("the API server could not ask {url}: {error}")),
        };
    }
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_loopback && let Some(ready) = scheduler.and_then(extender_beside) {
        return Looked::Found(if ready {
            Reach::Answers
        } else {
            Reach::Silent("the extender beside kube-scheduler in its pod is not ready".to_owned())
        });
    }
    let direct = match connect.replica(Part::Extender, &uri) {
        Ok(client) => ask(&client, "/healthz").await,
        Err(problem) => Err(problem.to_string()),
    };
    match (direct, scheduler) {
        (Ok(200), _) => Looked::Found(Reach::Answers),
        (_, Some(pod)) if is_loopback => Looked::Found(Reach::Silent(format!(
            "{url} is the machine of {} itself, where no extender of the manifests runs: they are pods with addresses of their own",
            pod.name_any()
        ))),
        (Ok(code), _) => Looked::Found(Reach::Silent(format!("{url}/healthz answers {code}"))),
        (Err(error), _) => Looked::Hidden(format!(
            "{url} does not answer here, which may not be where kube-scheduler is: {error}"
        )),
    }
}

/// The status code of the answer to a GET of `path`.
async fn ask(client: &Client, path: &str) -> Result<u16, String> {
    let request = http::Request::get(path).body(Body::empty()).map_err(|error| error.to_string())?;
    match tokio::time::timeout(TIME, client.send(request)).await {
        Ok(Ok(response)) => Ok(response.status().as_u16()),
        Ok(Err(error)) => Err(crate::problem::chain(&error)),
        Err(_) => Err(format!("no answer within {} s", TIME.as_secs())),
    }
}

/// Service and namespace, if `host` is the name of a cluster service.
fn service_of(host: &str) -> Option<(&str, &str)> {
    let mut parts = host.split('.');
    let (service, namespace) = (parts.next()?, parts.next()?);
    (parts.next()? == "svc").then_some((service, namespace))
}

/// Whether the extender in kube-scheduler's own pod is ready; `None` if that pod has no extender.
fn extender_beside(scheduler: &Pod) -> Option<bool> {
    let status = scheduler.status.as_ref()?;
    let all = [&status.container_statuses, &status.init_container_statuses];
    let mut all = all.into_iter().flatten().flatten();
    all.find(|container| container.image.contains(IMAGE) || container.name == "extender").map(|one| one.ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_are_known_by_their_names() {
        assert_eq!(service_of("a.b.svc"), Some(("a", "b")));
        assert_eq!(service_of("a.b.svc.cluster.local"), Some(("a", "b")));
        for host in ["a", "a.b", "a.b.example", "10.0.0.1"] {
            assert_eq!(service_of(host), None, "{host}");
        }
    }

    #[test]
    fn an_extender_in_the_schedulers_own_pod_is_seen() {
        let pod = |name: &str, ready: bool| -> Pod {
            let container =
                json!({"name": name, "image": "i", "imageID": "", "ready": ready, "restartCount": 0});
            serde_json::from_value(json!({"status": {"initContainerStatuses": [container]}})).unwrap()
        };
        assert_eq!(extender_beside(&pod("extender", true)), Some(true));
        assert_eq!(extender_beside(&pod("extender", false)), Some(false));
        assert_eq!(extender_beside(&pod("other", true)), None);
    }
}
