//! The API server, the only client that may ask for external metrics. The API server checks the rights of its own
//! callers. It shows a client certificate, and publishes the certificate's authority and names in a ConfigMap.

use fpga_net::tls::KnownClients;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, Client};
use std::pin::pin;
use tokio::sync::watch;
use tracing::{info, warn};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const AUTHORITY: &str = "requestheader-client-ca-file";
const NAMES: &str = "requestheader-allowed-names";

/// Why the ConfigMap does not say who the API server is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Unknown {
    /// The API server shows extensions no certificate.
    #[error("it has no {AUTHORITY}: start kube-apiserver with --{AUTHORITY} and --proxy-client-cert-file")]
    Authority,
    /// The names are no list.
    #[error("{NAMES} is no JSON list of names")]
    Names,
}

/// Watches how the API server is known, and tells `clients`. Never returns.
pub async fn watch_front_proxy(client: Client, clients: watch::Sender<Option<KnownClients>>) {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let only = Config::default().fields(&format!("metadata.name={NAME}"));
    let mut events = pin!(watcher(maps, only).default_backoff().applied_objects());
    while let Some(event) = events.next().await {
        match event.map(|map| known_clients(&map)) {
            Ok(Ok(known)) => {
                info!(names = ?known.common_names, "External metrics are for the API server");
                clients.send_replace(Some(known));
            }
            Ok(Err(unknown)) => warn!(
                %unknown, "The ConfigMap {NAMESPACE}/{NAME} does not say who the API server is, and no other one is answered"
            ),
            Err(error) => warn!(%error, "The ConfigMap {NAMESPACE}/{NAME} can't be watched, trying again"),
        }
    }
    std::future::pending::<()>().await;
}

/// The API server as a client.
fn known_clients(map: &ConfigMap) -> Result<KnownClients, Unknown> {
    let value = |key: &str| map.data.as_ref().and_then(|data| data.get(key));
    let authorities =
        value(AUTHORITY).filter(|authorities| !authorities.is_empty()).ok_or(Unknown::Authority)?;
    let names = value(NAMES).map_or("[]", String::as_str);
    let common_names = serde_json::from_str(names).map_err(|_| Unknown::Names)?;
    Ok(KnownClients { authorities: authorities.clone(), common_names })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(data: &[(&str, &str)]) -> ConfigMap {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    #[test]
    fn the_api_server_is_known_by_its_authority_and_its_names() {
        let known = known_clients(&map(&[(AUTHORITY, "pem"), (NAMES, r#"["front-proxy-client"]"#)])).unwrap();
        let expected = KnownClients {
            authorities: "pem".to_owned(),
            common_names: vec!["front-proxy-client".to_owned()],
        };
        assert_eq!(known, expected);
        for any in [map(&[(AUTHORITY, "pem")]), map(&[(AUTHORITY, "pem"), (NAMES, "[]")])] {
            assert_eq!(known_clients(&any).unwrap().common_names, Vec::<String>::new());
        }
    }

    #[test]
    fn an_api_server_that_is_not_known_lets_nobody_in() {
        for (map, expected) in [
            (ConfigMap::default(), Unknown::Authority),
            (map(&[(AUTHORITY, "")]), Unknown::Authority),
            (map(&[(AUTHORITY, "pem"), (NAMES, "front-proxy-client")]), Unknown::Names),
        ] {
            assert_eq!(known_clients(&map), Err(expected));
        }
    }
}
