//! `fpga-scheduler-extender renew-certificate`: replaces the certificate of the port for streams before it ends.
//!
//! The key of the authority is thrown away once it has signed the only certificate of that authority, so that nobody can
//! steal it, and each certificate has an authority of its own. Collectors take certificates of all authorities in the
//! `ConfigMap`. So the new authority is added first, and the certificate is replaced when all nodes have seen that:
//! ```text
//!  ConfigMap  old ──► new, old ──────────────────► (old authorities leave when they have ended)
//!  Secret     old ───────── --spread ──► new
//! ```

use anyhow::{Context as _, Result, ensure};
use fpga_net::kube_config;
use fpga_net::tls::pem_expires;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::{Api, Client};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The `Secret` with the certificate and its key.
const SECRET: &str = "fpga-stream-tls";
/// The `ConfigMap` with the authorities that collectors trust.
const AUTHORITIES: &str = "fpga-stream-ca";
const CERTIFICATE_KEY: &str = "tls.crt";
const PRIVATE_KEY_KEY: &str = "tls.key";
const AUTHORITIES_KEY: &str = "ca.crt";
/// The `ConfigMap` with the same authorities in the namespaces of `--copies`.
const COPY: &str = "fpga-pool";
/// Authorities in the `ConfigMap` at most.
const MAX_AUTHORITIES: usize = 4;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Time before the end at which a certificate is renewed at the latest: two daily runs may fail.
const LEAST_BEFORE_END: Duration = Duration::from_secs(2 * 24 * 3600);
/// Age that new certificates have from the beginning, for clocks that are late.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(3600);
const END_OF_PEM: &str = "-----END CERTIFICATE-----";

/// What the certificate is for, and when it is renewed.
#[derive(Debug, clap::Args)]
pub struct RenewArgs {
    /// Namespace of the Secret and the ConfigMap.
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: String,
    /// DNS names and IP addresses of the extender, as collectors call it; comma-separated.
    #[arg(long, env = "FPGA_CERTIFICATE_NAMES", value_name = "NAME", value_delimiter = ',', required = true)]
    names: Vec<String>,
    /// How many days the new certificate is valid. The old one is replaced when a third of so many days is left, at least two.
    #[arg(long, env = "FPGA_CERTIFICATE_DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Time from the new authority to the new certificate: the kubelets of all nodes must have given the authority to their
    /// collectors by then.
    #[arg(long, env = "FPGA_CERTIFICATE_SPREAD", default_value = "5m", value_parser = fpga_net::duration::parse)]
    spread: Duration,
    /// Namespaces whose ConfigMap fpga-pool has the authorities, too, for jobs of the pool; comma-separated.
    #[arg(long, env = "FPGA_CERTIFICATE_COPIES", value_name = "NAMESPACE", value_delimiter = ',')]
    copies: Vec<String>,
    /// Path of the kubeconfig; by default KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, env = "FPGA_KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
}

impl RenewArgs {
    /// Renews the certificate if that is due.
    ///
    /// # Errors
    /// The API server does not answer or refuses a change, the objects are missing, or no certificate can be made.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.renew())
    }

    async fn renew(&self) -> Result<()> {
        let config = kube_config::load(self.kubeconfig.as_deref(), None).await?;
        let client = Client::try_from(config).context("can't make a client of the kubeconfig")?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &self.namespace);
        let mut secret = secrets.get(SECRET).await.with_context(|| missing("Secret", SECRET))?;
        let certificate = secret.data.iter().find_map(|data| data.get(CERTIFICATE_KEY));
        let end = certificate.and_then(|pem| pem_expires(&pem.0));
        let validity = self.days * DAY;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        if !is_due(end, now, validity) {
            println!("the certificate is not renewed yet: it has more than a third of its time left");
            return Ok(());
        }

        let new = Renewed::make(&self.names, now, validity)?;
        let mut map = maps.get(AUTHORITIES).await.with_context(|| missing("ConfigMap", AUTHORITIES))?;
        let data = map.data.get_or_insert_default();
        let old = data.get(AUTHORITIES_KEY).map_or("", String::as_str);
        let all = with_authority(&new.authority, old, now);
        data.insert(AUTHORITIES_KEY.to_owned(), all.clone());
        maps.replace(AUTHORITIES, &PostParams::default(), &map)
            .await
            .with_context(|| format!("the ConfigMap {AUTHORITIES} is not changed"))?;
        for namespace in &self.copies {
            // Jobs of one namespace must not keep the certificate from being renewed for all.
            if let Err(error) = copy(&Api::namespaced(client.clone(), namespace), &all).await {
                eprintln!("the ConfigMap {namespace}/{COPY} is not changed: {error}");
            }
        }
        println!("collectors get a new authority; its certificate follows in {:?}", self.spread);
        tokio::time::sleep(self.spread).await;

        let data = secret.data.get_or_insert_default();
        data.insert(CERTIFICATE_KEY.to_owned(), ByteString(new.certificate.into_bytes()));
        data.insert(PRIVATE_KEY_KEY.to_owned(), ByteString(new.key.into_bytes()));
        // Refused if somebody else has changed the Secret meanwhile.
        secrets
            .replace(SECRET, &PostParams::default(), &secret)
            .await
            .with_context(|| format!("the Secret {SECRET} is not changed"))?;
        println!("the certificate is renewed, for {} days", self.days);
        Ok(())
    }
}

/// Writes the authorities into a namespace's copy of them.
async fn copy(maps: &Api<ConfigMap>, authorities: &str) -> kube::Result<()> {
    let mut map = maps.get(COPY).await?;
    map.data.get_or_insert_default().insert(AUTHORITIES_KEY.to_owned(), authorities.to_owned());
    maps.replace(COPY, &PostParams::default(), &map).await.map(drop)
}

fn missing(kind: &str, name: &str) -> String {
    format!("can't get the {kind} {name}, which the chart makes with certificates.mode=generate")
}

/// Whether a certificate that ends at `end`, in seconds since the epoch, is to be replaced by one of this validity.
fn is_due(end: Option<i64>, now: Duration, validity: Duration) -> bool {
    let end = end.and_then(|end| u64::try_from(end).ok()).map(Duration::from_secs);
    let before_end = (validity / 3).max(LEAST_BEFORE_END);
    end.is_none_or(|end| end.saturating_sub(now) < before_end)
}

/// The new authority before those of `old` that have not ended, in PEM form.
fn with_authority(new: &str, old: &str, now: Duration) -> String {
    let is_valid = |pem: &&str| {
        pem_expires(pem.as_bytes()).is_some_and(|end| u64::try_from(end).is_ok_and(|end| end > now.as_secs()))
    };
    let old = old.split_inclusive(END_OF_PEM).map(str::trim).filter(is_valid);
    let all = std::iter::once(new.trim()).chain(old).take(MAX_AUTHORITIES);
    all.map(|pem| format!("{pem}\n")).collect()
}

/// A new certificate, in PEM form.
struct Renewed {
    authority: String,
    certificate: String,
    key: String,
}

impl Renewed {
    /// A certificate for these names, by an authority whose key is thrown away.
    fn make(names: &[String], now: Duration, validity: Duration) -> Result<Self> {
        ensure!(!names.is_empty(), "a certificate needs a name; write --names DNS-NAME");
        let params = |names: &[String], common_name: &str| -> Result<CertificateParams> {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name.push(DnType::CommonName, common_name);
            params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(CLOCK_TOLERANCE);
            params.not_after = date_time_ymd(1970, 1, 1) + now + validity;
            Ok(params)
        };
        let mut authority = params(&[], "kube-fpga streams")?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_key = KeyPair::generate()?;
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let mut certificate = params(names, &names[0])?;
        certificate.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        certificate.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = certificate.signed_by(&key, &issuer)?.pem();
        Ok(Self { authority: authority_pem, certificate, key: key.serialize_pem() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_790_000_000);

    fn made(now: Duration, validity: Duration) -> Renewed {
        Renewed::make(&["extender.svc".to_owned()], now, validity).unwrap()
    }

    #[test]
    fn a_certificate_is_due_when_a_third_of_its_time_is_left_but_at_least_two_days_before_its_end() {
        let year = 365 * DAY;
        let due = |left: Duration, validity| {
            let end = pem_expires(made(NOW, left).certificate.as_bytes());
            is_due(end, NOW, validity)
        };
        assert!(!due(year, year) && !due(122 * DAY, year));
        assert!(due(121 * DAY, year));
        assert!(due(DAY, DAY) && !due(3 * DAY, DAY));
        assert!(is_due(Some(1), NOW, year), "it has ended");
        assert!(is_due(None, NOW, year), "nobody can use what can't be read");
    }

    #[test]
    fn authorities_leave_when_they_have_ended_and_the_newest_stay() {
        let authority = |validity| made(NOW, validity).authority;
        let (new, valid, ended) = (authority(9 * DAY), authority(2 * DAY), authority(DAY));
        let all = with_authority(&new, &format!("{valid}{ended}"), NOW + DAY);
        assert_eq!(all.replace('\r', ""), format!("{new}{valid}").replace('\r', ""));
        assert_eq!(with_authority(&new, "nonsense", NOW).matches(END_OF_PEM).count(), 1);
        let many = (0..9).fold(String::new(), |all, _| with_authority(&authority(DAY), &all, NOW));
        assert_eq!(many.matches(END_OF_PEM).count(), MAX_AUTHORITIES);
    }
}
