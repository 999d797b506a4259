//! Wiring of a broker.

use crate::catalog::Catalog;
use crate::connections::Connections;
use crate::leadership::{self, LEASE};
use crate::metrics::Metrics;
use crate::options::ServeArgs;
use crate::owner::{Desk, Owner};
use crate::probes::Probes;
use crate::server;
use crate::service::Service;
use crate::state::{Input, Settings, State};
use crate::terms::Terms;
use crate::watch;
use anyhow::{Context as _, Result, anyhow};
use fpga_net::election::{Election, Timing};
use fpga_net::signals::Signals;
use fpga_net::tls::ServerTls;
use fpga_net::{kube_config, ready_file};
use fpga_pool_api::limits::MAX_SLOTS;
use fpga_pool_leases::broker::Limits;
use fpga_pool_leases::ids::{LeaseId, Term};
use fpga_registry_api::LibraryRules;
use kube::Client;
use prometheus_client::registry::Registry;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch as watched};
use tracing::{error, info};

/// Runs a broker until a signal comes.
///
/// # Errors
/// Invalid arguments, or the system's error.
pub async fn serve(args: ServeArgs) -> Result<()> {
    args.validate()?;
    let mut signals = Signals::install().context("can't take signals")?;
    let client = match args.is_in_cluster() {
        true => Some(Client::try_from(kube_config::load(args.kubeconfig.as_deref(), None).await?)?),
        false => None,
    };
    let authenticator = args.authenticator(client.clone())?;
    let mut registry = Registry::with_prefix("fpga_pool");
    let metrics = Metrics::register(&mut registry);
    let (state, tls) = (state(&args, metrics.clone())?, args.tls());
    let (listener, address) = listen(args.listen, "--listen")?;
    let (probes_listener, probes_address) = listen(args.metrics_listen, "--metrics-listen")?;
    let (swaps, to_swap) = mpsc::channel(1);
    let terms = if client.is_some() { Terms::Lease(swaps) } else { Terms::Memory };
    let (owner, desk) = Owner::new(state, metrics.clone(), terms);
    let service = Service::new(desk.clone(), authenticator, metrics);
    let probes = Probes::new(registry);
    let (stop, stopped) = watched::channel(false);
    info!(listen = address, metrics = probes_address, version = env!("CARGO_PKG_VERSION"), "Starting");
    let mut owner = tokio::spawn(owner.run(stopped.clone()));
    let ready = || probes.set_ready(true);
    let mut election = None;
    let work = match client {
        Some(client) => {
            let me = args.identity.clone().unwrap_or_else(|| format!("{}-{address}", std::process::id()));
            let timing = Timing::of(args.lease_duration);
            let (mut race, leadership) = Election::new(client.clone(), &args.namespace, LEASE, me, timing);
            let follow = leadership::follow(leadership, race.fencing(), to_swap, desk.clone());
            election = Some(tokio::spawn(race.run(stopped.clone())));
            tokio::spawn(follow);
            tokio::spawn(watch_library(client, args.library_rules(), desk.clone(), Arc::clone(&probes)))
        }
        None => {
            lead_alone(&args, &desk).await?;
            ready();
            tokio::spawn(std::future::pending())
        }
    };
    if let Some(path) = &args.ready_file {
        let lines = [address, format!("metrics:{probes_address}")];
        ready_file::write(path, &lines).with_context(|| format!("can't write {}", path.display()))?;
    }
    let port =
        tokio::spawn(server::serve(listener, tls.clone(), Connections::default(), service, stopped.clone()));
    let ended = tokio::select! {
        _ = work => Err(anyhow!("a watch on the API server ended")),
        _ = &mut owner => Err(anyhow!("the broker's task failed; the log says why")),
        () = Arc::clone(&probes).serve(probes_listener, stopped) => Err(anyhow!("the port for probes ended")),
        () = keep_certificate(tls) => Ok(()),
        _ = signals.next() => Ok(()),
    };
    info!("Stopping");
    probes.set_ready(false);
    stop.send_replace(true);
    if !owner.is_finished() {
        owner.await.context("the broker's task failed")?;
    }
    port.await.context("the port failed")?;
    // The Lease is given back after the last message, so that another replica becomes active at once.
    if let Some(election) = election {
        election.await.context("the election failed")?;
    }
    ended
}

fn state(args: &ServeArgs, metrics: Metrics) -> Result<State> {
    let policy = args.policy.settings()?;
    // The policy says why a job is one too many; the protocol's bound is beyond it.
    let jobs = args.policy.max_waiting().saturating_mul(2);
    let limits = Limits { jobs, managers: args.max_managers, slots_per_manager: MAX_SLOTS };
    let random = SystemRandom::new();
    let new_lease_id = move || {
        let mut bytes = [0; 16];
        if random.fill(&mut bytes).is_err() {
            // Ids of leases are secrets: a broker that can't make any had better end.
            error!("The system gives no random bytes");
            std::process::abort();
        }
        LeaseId(u128::from_be_bytes(bytes))
    };
    Ok(State::new(Settings { limits, policy, tickets: args.ticket_key()? }, metrics, new_lease_id))
}

fn listen(address: SocketAddr, flag: &str) -> Result<(TcpListener, String)> {
    let listener = fpga_net::listen::bind(address)
        .with_context(|| format!("can't listen on {address}; choose another address with {flag}"))?;
    let address = listener.local_addr()?.to_string();
    Ok((listener, address))
}

/// Becomes active without asking anybody.
async fn lead_alone(args: &ServeArgs, desk: &Desk) -> Result<()> {
    let path = args.library.as_deref().context("--library is missing")?;
    let catalog = Catalog::read(path).context("--library")?;
    for input in [Input::Catalog(catalog), Input::MayLead { term: Term::default() }] {
        desk.tell(input).await.map_err(|status| anyhow!(status.message().to_owned()))?;
    }
    Ok(())
}

async fn watch_library(client: Client, rules: LibraryRules, desk: Desk, probes: Arc<Probes>) {
    watch::run(client, rules, desk, || probes.set_ready(true)).await;
}

/// Reloads the certificate when its files change. Never returns.
async fn keep_certificate(tls: Option<Arc<ServerTls>>) {
    let Some(tls) = tls else { return std::future::pending().await };
    // Changes are logged where they are seen.
    tls.keep(|_| {}).await;
}
