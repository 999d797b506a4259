//! `kubectl fpga web`: a live page of nodes, boards, functions and decisions, for the user who starts it.
//!
//! `watch` hears of the cluster, `model` makes the tables of it, without I/O, and `server` gives them to pages.

mod ask;
mod browser;
mod guard;
mod model;
mod otlp;
mod page;
mod server;
mod shared;
mod stream;
mod watch;

use crate::connection::ConnectArgs;
use crate::output::print;
use crate::pool::broker::BrokerArgs;
use anyhow::{Context as _, Result};
use ask::Ask;
use browser::Door;
use guard::Guard;
use server::Site;
use shared::Shared;
use std::io::IsTerminal as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga web                 # prints the page's address, and opens it where there is a desktop
  kubectl fpga web --no-open --port 9480
  ssh -L 9480:127.0.0.1:9480 HOST kubectl fpga web --port 9480   # on another machine
Only this machine reaches the page, and only who has the address reads it. It shows what you may read, and changes nothing.";

/// Arguments of `web`.
#[derive(Debug, clap::Args)]
pub struct WebArgs {
    /// Port on the loopback interface; 0 takes a free one.
    #[arg(long, env = "FPGA_WEB_PORT", default_value_t = 0)]
    port: u16,
    /// Don't open the page in a browser.
    #[arg(long, env = "FPGA_WEB_NO_OPEN")]
    no_open: bool,
    /// Take traces at this address of the loopback interface, by OTLP over HTTP, and show the slowest requests of each
    /// function: the value of --otlp-endpoint of the endpoint picker and device managers is then `http://ADDRESS`
    /// [default: no traces].
    #[arg(long, env = "FPGA_WEB_OTLP_LISTEN", value_name = "ADDRESS", value_parser = otlp::loopback)]
    otlp_listen: Option<SocketAddr>,
    #[command(flatten)]
    broker: BrokerArgs,
}

impl WebArgs {
    /// Serves the page until Ctrl-C.
    ///
    /// # Errors
    /// No cluster, no extender and no broker is configured, or the port is taken.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        let watched = match connect.watched_cluster(watch::WATCH_SILENCE).await {
            Ok(cluster) => Some(cluster),
            // With the address of an extender or a broker no cluster is needed; the page says what is missing.
            Err(_) if !connect.extender.is_empty() || self.broker.is_given() => None,
            Err(problem) => return Err(problem.into()),
        };
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), "--port").await?;
        let otlp_listener = match self.otlp_listen {
            Some(address) => Some(listen(address, "--otlp-listen").await?),
            None => None,
        };
        let guard = Guard::new(listener.local_addr()?).ok().context("the system gives no random bytes")?;
        let url = guard.url();
        print(&format!("{url}\n"))?;
        let opens = !self.no_open && std::io::stdout().is_terminal();
        let _door = if opens { Door::open(&url) } else { None };
        let shared = Arc::new(Shared::default());
        let _watches = watch::start(connect, watched.as_ref(), &shared);
        let traces = {
            let shared = Arc::clone(&shared);
            async move {
                match otlp_listener {
                    Some(listener) => otlp::serve(listener, shared).await,
                    None => std::future::pending().await,
                }
            }
        };
        let site =
            Site::new(guard, shared, Ask::new(connect.clone(), connect.cluster().await, self.broker.clone()));
        tokio::select! {
            () = site.serve(listener) => {}
            () = traces => {}
            stopped = tokio::signal::ctrl_c() => stopped.context("can't take signals")?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Listens at the address that a flag says.
async fn listen(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("can't listen at {address}; write another {flag}"))
}
