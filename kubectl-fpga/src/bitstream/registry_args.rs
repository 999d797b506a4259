//! How a registry is reached.

use crate::connection::ConnectArgs;
use anyhow::Result;
use clap::Args;
use fpga_artifacts::{Credentials, Hosts, PlainHttp, Reference, Registry, RegistryOptions};
use std::path::PathBuf;
use std::time::Duration;

/// The variable with the password, which has no flag since command lines can be seen by others.
const PASSWORD: &str = "FPGA_REGISTRY_PASSWORD";

/// Address details and credentials of a registry.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Registry")]
pub struct RegistryArgs {
    /// Asks the registry without TLS, for one on this machine.
    #[arg(long, env = "FPGA_REGISTRY_PLAIN_HTTP")]
    plain_http: bool,
    /// Certificate authorities of the registry instead of the system's, PEM.
    #[arg(long, env = "FPGA_REGISTRY_CA", value_name = "PATH")]
    registry_ca: Option<PathBuf>,
    /// User at the registry, with the password in the variable FPGA_REGISTRY_PASSWORD; by default what `docker login`
    /// or `podman login` wrote.
    #[arg(long, env = "FPGA_REGISTRY_USER", value_name = "NAME")]
    registry_user: Option<String>,
}

impl RegistryArgs {
    /// The registry of an artifact, asked in this way.
    ///
    /// # Errors
    /// Credentials or authorities can't be read.
    pub fn registry(&self, reference: &Reference, connect: &ConnectArgs) -> Result<Registry> {
        let credentials = match (&self.registry_user, std::env::var(PASSWORD)) {
            (Some(user), Ok(password)) => vec![Credentials::password(user, &password)],
            (Some(_), Err(_)) => anyhow::bail!("--registry-user goes with a password: set {PASSWORD}"),
            (None, _) => logged_in(reference)?,
        };
        Ok(Registry::new(
            &reference.registry,
            RegistryOptions {
                plain_http: if self.plain_http { PlainHttp::Yes } else { PlainHttp::No },
                ca: self.registry_ca.clone(),
                credentials,
                hosts: Hosts::Any,
                timeout: Duration::from_secs(connect.timeout),
            },
        )?)
    }
}

/// The credentials that podman and docker keep for an artifact.
fn logged_in(reference: &Reference) -> Result<Vec<Credentials>> {
    let image = format!("{}/{}", reference.registry, reference.repository);
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let docker = variable("DOCKER_CONFIG").or_else(|| Some(variable("HOME")?.join(".docker")));
    let podman = variable("REGISTRY_AUTH_FILE")
        .or_else(|| Some(variable("XDG_RUNTIME_DIR")?.join("containers/auth.json")));
    let files = [podman, docker.map(|folder| folder.join("config.json"))];
    let found = files.iter().flatten().map(|file| Ok(Credentials::of_login(file, &image)?));
    Ok(found.collect::<Result<Vec<_>>>()?.concat())
}
