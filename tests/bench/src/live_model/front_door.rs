//! What stands before the functions: an Envoy, with or without an endpoint picker.

use super::Routing;
use super::functions::{Functions, Replica};
use crate::modelled::{bitstream, name, node_name};
use anyhow::Result;
use fpga_tests::testbed::cluster::Cluster;
use fpga_tests::testbed::envoy::{EnvoySpec, Upstream};
use fpga_tests::testbed::function_service::{self, FunctionEndpoint};
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::picker::Picker;
use fpga_tests::testbed::process::Process;
use fpga_tests::testbed::wait;
use std::net::SocketAddr;
use std::time::Duration;

/// Port of Envoy.
const PORT: u16 = 8081;
/// Longest time until the picker knows all replicas and their boards.
const KNOWN: Duration = Duration::from_secs(90);

/// Envoy, and the picker that it asks.
#[derive(Debug)]
pub(super) struct FrontDoor {
    address: SocketAddr,
    envoy: Process,
    picker: Option<Picker>,
}

impl FrontDoor {
    /// Starts Envoy, and for [`Routing::Picker`] a picker that knows all replicas and their boards.
    pub async fn open(cluster: &Cluster, functions: &Functions, routing: Routing) -> Result<Self> {
        let (plane, http) = (cluster.plane(), cluster.http());
        let ip = plane.network().control_plane();
        let picker = match routing {
            Routing::InTurn => None,
            Routing::Picker => {
                for (number, replicas) in functions.replicas.iter().enumerate() {
                    let endpoint = |replica: &Replica| FunctionEndpoint {
                        address: replica.address,
                        node: node_name(replica.node),
                    };
                    let endpoints: Vec<_> = replicas.iter().map(endpoint).collect();
                    function_service::create(plane.client(), &name(number), &bitstream(number), &endpoints)
                        .await?;
                }
                let kubeconfig = plane.kubeconfig(&Identity::Admin)?;
                let picker = Picker::start(ip, kubeconfig, plane.run_dir(), http, &[]).await?;
                let replicas: usize = functions.replicas.iter().map(Vec::len).sum();
                wait::until_within("the picker to know all replicas and their boards", KNOWN, async || {
                    let known = picker.metrics(http).await?.metric("fpga_picker_replicas");
                    let unknown = picker.labelled(http, "fpga_picker_boards", "unknown").await?;
                    Ok((known > replicas as f64 - 0.5 && unknown < 0.5).then_some(()))
                })
                .await?;
                Some(picker)
            }
        };
        let upstreams = functions.replicas.iter().enumerate().map(|(number, replicas)| Upstream {
            name: name(number),
            replicas: replicas.iter().map(|replica| replica.address).collect(),
        });
        let spec = EnvoySpec {
            listen: (ip, PORT).into(),
            functions: upstreams.collect(),
            picker: picker.as_ref().map(Picker::address),
        };
        let envoy = spec.start(plane.run_dir()).await?;
        Ok(Self { address: spec.listen, envoy, picker })
    }

    /// The URL of a function.
    pub fn url(&self, function: usize) -> String {
        format!("http://{}/function/{}", self.address, name(function))
    }

    /// Fails if Envoy or the picker has ended.
    pub fn check_running(&self) -> Result<()> {
        self.envoy.check_running()?;
        self.picker.iter().try_for_each(|picker| picker.process().check_running())
    }
}
