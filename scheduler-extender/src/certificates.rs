//! `fpga-scheduler-extender certificates`: makes the certificates of the chart's services in the cluster, and replaces
//! them before they end.
//!
//! Each service has a certificate and a key of its own, in a Secret of its own. The key of an authority is thrown away
//! once it has signed the certificates of one run, so that nobody can steal it. Clients take certificates of all
//! authorities in the `ConfigMap`. So a new authority is added first, and a certificate that is in use is replaced when all
//! nodes have seen that:
//! ```text
//!  ConfigMap  old ──► new, old ──────────────────► (old authorities leave when they have ended)
//!  Secret     old ───────── --spread ──► new
//! ```

mod issue;
mod objects;

use anyhow::{Context as _, Result, ensure};
use fpga_net::kube_config;
use fpga_net::tls::pem_expires;
use issue::Authority;
use kube::Client;
use objects::Objects;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Time before the end at which a certificate is renewed at the latest: two daily runs may fail.
const LEAST_BEFORE_END: Duration = Duration::from_secs(2 * 24 * 3600);

/// Which certificates there are, and when they are renewed.
#[derive(Debug, clap::Args)]
pub struct CertificatesArgs {
    /// Namespace of the Secrets and of the ConfigMap fpga-stream-ca, which the chart makes without data.
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: String,
    /// A certificate: SECRET=NAME,NAME with the DNS names and IP addresses by which clients call the service. May be
    /// repeated.
    #[arg(long = "certificate", value_name = "SECRET=NAMES")]
    certificates: Vec<WantedCertificate>,
    /// How many days new certificates are valid. They are replaced when a third of so many days is left, at least two.
    #[arg(long, env = "FPGA_CERTIFICATE_DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Time from a new authority to the new certificates that replace others: the kubelets of all nodes must have given the
    /// authority to the clients by then.
    #[arg(long, env = "FPGA_CERTIFICATE_SPREAD", default_value = "5m", value_parser = fpga_net::duration::parse)]
    spread: Duration,
    /// A Secret with certificates that another program makes: the authorities are its ca.crt.
    #[arg(long, value_name = "SECRET", conflicts_with = "certificates")]
    authorities_of: Option<String>,
    /// Namespaces whose ConfigMap fpga-pool has the authorities, too, for jobs of the pool; comma-separated.
    #[arg(long, env = "FPGA_CERTIFICATE_COPIES", value_name = "NAMESPACE", value_delimiter = ',')]
    copies: Vec<String>,
    /// APIService whose caBundle has the authorities, too.
    #[arg(long, value_name = "NAME")]
    api_service: Option<String>,
    /// Secret that gets a random key for the tickets of the pool's broker, if it has none.
    #[arg(long, value_name = "SECRET")]
    ticket_key: Option<String>,
    /// Path of the kubeconfig; by default KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
}

/// A Secret and the names in its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WantedCertificate {
    secret: String,
    names: Vec<String>,
}

impl FromStr for WantedCertificate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = |names: &str| names.split(',').map(str::to_owned).collect::<Vec<_>>();
        match text.split_once('=') {
            Some((secret, all)) if !secret.is_empty() && !all.is_empty() => {
                Ok(Self { secret: secret.to_owned(), names: names(all) })
            }
            _ => Err("write SECRET=NAME,NAME, for example fpga-pool-tls=fpga-pool.kube-fpga.svc"),
        }
    }
}

impl CertificatesArgs {
    /// Makes what is missing, and renews what is due.
    ///
    /// # Errors
    /// The API server does not answer or refuses a change, the objects are missing, or no certificate can be made.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.work())
    }

    async fn work(&self) -> Result<()> {
        ensure!(
            !self.certificates.is_empty() || self.authorities_of.is_some() || self.ticket_key.is_some(),
            "nothing to do: write --certificate SECRET=NAME, --authorities-of SECRET or --ticket-key SECRET"
        );
        let config = kube_config::load(self.kubeconfig.as_deref(), None).await?;
        let client = Client::try_from(config).context("can't make a client of the kubeconfig")?;
        let objects = Objects::new(client, &self.namespace);
        if let Some(secret) = &self.ticket_key {
            objects.make_ticket_key(secret).await?;
        }
        if let Some(secret) = &self.authorities_of {
            let authorities = objects.authorities_of(secret).await?;
            return self.spread_authorities(&objects, &authorities).await;
        }
        self.make_certificates(&objects).await
    }

    async fn make_certificates(&self, objects: &Objects) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        let validity = self.days * DAY;
        let mut bundle = objects.bundle().await?;
        let mut due = Vec::new();
        for wanted in &self.certificates {
            let secret = objects.certificate(&wanted.secret).await?;
            if bundle.is_empty() || !secret.is_for(&wanted.names) || is_due(secret.expires(), now, validity) {
                due.push((wanted, secret));
            }
        }
        if due.is_empty() {
            println!("no certificate is due: each has more than a third of its time left");
            return self.spread_authorities(objects, bundle.text()).await;
        }
        let authority = Authority::new(now, validity)?;
        let in_use = due.iter().any(|(_, secret)| secret.expires().is_some_and(|end| !has_ended(end, now)));
        bundle.add(authority.pem(), now);
        objects.write_bundle(&bundle).await?;
        self.spread_authorities(objects, bundle.text()).await?;
        if in_use {
            println!("clients get a new authority; its certificates follow in {:?}", self.spread);
            tokio::time::sleep(self.spread).await;
        }
        for (wanted, secret) in due {
            objects.write_certificate(secret, &authority.issue(&wanted.names)?, &wanted.names).await?;
            println!("the certificate in the Secret {} is new, for {} days", wanted.secret, self.days);
        }
        Ok(())
    }

    /// Brings the authorities to clients that do not read the `ConfigMap` of the namespace.
    async fn spread_authorities(&self, objects: &Objects, authorities: &str) -> Result<()> {
        for namespace in &self.copies {
            // Jobs of one namespace must not keep the certificates from being renewed for all.
            if let Err(error) = objects.copy(namespace, authorities).await {
                eprintln!("{error:#}");
            }
        }
        match &self.api_service {
            Some(name) => objects.write_ca_bundle(name, authorities).await,
            None => Ok(()),
        }
    }
}

/// Whether a certificate that ends at `end`, in seconds since the epoch, is to be replaced by one of this validity.
fn is_due(end: Option<i64>, now: Duration, validity: Duration) -> bool {
    let end = end.and_then(|end| u64::try_from(end).ok()).map(Duration::from_secs);
    let before_end = (validity / 3).max(LEAST_BEFORE_END);
    end.is_none_or(|end| end.saturating_sub(now) < before_end)
}

fn has_ended(end: i64, now: Duration) -> bool {
    u64::try_from(end).is_ok_and(|end| end <= now.as_secs()) || end < 0
}

/// When the first certificate of a PEM text ends.
fn end_of(pem: &[u8]) -> Option<i64> {
    pem_expires(pem)
}

#[cfg(test)]
mod tests {
    use super::issue::tests::{NOW, issued};
    use super::*;

    #[test]
    fn a_certificate_is_due_when_a_third_of_its_time_is_left_but_at_least_two_days_before_its_end() {
        let year = 365 * DAY;
        let due =
            |left: Duration, validity| is_due(end_of(issued(left).certificate.as_bytes()), NOW, validity);
        assert!(!due(year, year) && !due(122 * DAY, year));
        assert!(due(121 * DAY, year));
        assert!(due(DAY, DAY) && !due(3 * DAY, DAY));
        assert!(is_due(Some(1), NOW, year), "it has ended");
        assert!(is_due(None, NOW, year), "nobody can use what can't be read");
    }

    #[test]
    fn a_certificate_is_written_as_secret_and_names() {
        let wanted: WantedCertificate = "a-tls=a.svc,10.0.0.1".parse().unwrap();
        assert_eq!(wanted.names, ["a.svc", "10.0.0.1"]);
        for wrong in ["a-tls", "=a.svc", "a-tls="] {
            assert!(wrong.parse::<WantedCertificate>().unwrap_err().contains("SECRET=NAME"), "{wrong}");
        }
    }
}
