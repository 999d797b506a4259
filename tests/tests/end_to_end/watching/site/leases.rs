//! The times at which Leases were renewed, in the metrics of kube-state-metrics, which is no part of the site.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use fpga_tests::testbed::control_plane::ControlPlane;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use std::fmt::Write as _;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Tells of the Leases of all namespaces until it is dropped.
pub struct Leases {
    address: SocketAddr,
    serving: AbortHandle,
}

impl Leases {
    pub async fn tell(plane: &ControlPlane) -> Self {
        let listener = TcpListener::bind((plane.network().control_plane(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/metrics", get(metrics)).with_state(plane.client().clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, serving: serving.abort_handle() }
    }

    pub fn metrics_url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn metrics(State(client): State<Client>) -> Result<String, StatusCode> {
    let leases: Api<Lease> = Api::all(client);
    let leases = leases.list(&ListParams::default()).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let mut text = "# TYPE kube_lease_renew_time gauge\n".to_owned();
    for lease in leases {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
        if let Some(renewed) = renewed {
            let seconds = renewed.0.as_second();
            writeln!(text, "kube_lease_renew_time{{namespace=\"{namespace}\",lease=\"{name}\"}} {seconds}")
                .unwrap();
        }
    }
    Ok(text)
}
