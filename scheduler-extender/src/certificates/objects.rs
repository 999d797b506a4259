//! The objects of the cluster in which certificates, authorities and keys lie. The chart makes them without data.

use super::issue::Issued;
use super::{end_of, has_ended};
use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::json;
use std::time::Duration;

/// The `ConfigMap` with the authorities that clients trust.
const AUTHORITIES: &str = "fpga-stream-ca";
/// The `ConfigMap` with the same authorities in other namespaces.
const COPY: &str = "fpga-pool";
const CERTIFICATE_KEY: &str = "tls.crt";
const PRIVATE_KEY_KEY: &str = "tls.key";
/// The names in the certificate, as they were asked for.
const NAMES_KEY: &str = "names";
const AUTHORITIES_KEY: &str = "ca.crt";
const TICKET_KEY: &str = "key";
const TICKET_KEY_BYTES: usize = 32;
/// Authorities in the `ConfigMap` at most: of several services, each with an old and a new one.
const MAX_AUTHORITIES: usize = 16;
const END_OF_PEM: &str = "-----END CERTIFICATE-----";

/// The objects of one namespace.
pub(super) struct Objects {
    client: Client,
    secrets: Api<Secret>,
    maps: Api<ConfigMap>,
}

impl Objects {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        let secrets = Api::namespaced(client.clone(), namespace);
        let maps = Api::namespaced(client.clone(), namespace);
        Self { client, secrets, maps }
    }

    pub(super) async fn certificate(&self, name: &str) -> Result<CertificateSecret> {
        let secret = self.secrets.get(name).await.with_context(|| missing("Secret", name))?;
        Ok(CertificateSecret(secret))
    }

    /// Replaces the certificate, unless another program has changed the Secret meanwhile.
    pub(super) async fn write_certificate(
        &self,
        secret: CertificateSecret,
        new: &Issued,
        names: &[String],
    ) -> Result<()> {
        let CertificateSecret(mut secret) = secret;
        let data = secret.data.get_or_insert_default();
        for (key, text) in
            [(CERTIFICATE_KEY, &new.certificate), (PRIVATE_KEY_KEY, &new.key), (NAMES_KEY, &names.join(","))]
        {
            data.insert(key.to_owned(), ByteString(text.clone().into_bytes()));
        }
        self.replace(&secret).await
    }

    /// The authorities that clients trust.
    pub(super) async fn bundle(&self) -> Result<Bundle> {
        let map = self.maps.get(AUTHORITIES).await.with_context(|| missing("ConfigMap", AUTHORITIES))?;
        let text = map.data.iter().find_map(|data| data.get(AUTHORITIES_KEY)).cloned();
        Ok(Bundle { map, text: text.unwrap_or_default() })
    }

    pub(super) async fn write_bundle(&self, bundle: &Bundle) -> Result<()> {
        let mut map = bundle.map.clone();
        map.data.get_or_insert_default().insert(AUTHORITIES_KEY.to_owned(), bundle.text.clone());
        let replaced = self.maps.replace(AUTHORITIES, &PostParams::default(), &map).await;
        replaced.map(drop).with_context(|| format!("the ConfigMap {AUTHORITIES} is not changed"))
    }

    /// The authorities in a Secret of another program.
    pub(super) async fn authorities_of(&self, name: &str) -> Result<String> {
        let secret = self.secrets.get(name).await.with_context(|| missing("Secret", name))?;
        let data = secret.data.unwrap_or_default().remove(AUTHORITIES_KEY);
        let text = data.with_context(|| format!("the Secret {name} has no {AUTHORITIES_KEY} yet"))?;
        String::from_utf8(text.0).with_context(|| format!("{AUTHORITIES_KEY} of the Secret {name} is no PEM"))
    }

    /// Writes the authorities into a namespace's copy of them.
    pub(super) async fn copy(&self, namespace: &str, authorities: &str) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let write = async {
            let mut map = maps.get(COPY).await?;
            let data = map.data.get_or_insert_default();
            if data.get(AUTHORITIES_KEY).is_some_and(|old| old == authorities) {
                return Ok(());
            }
            data.insert(AUTHORITIES_KEY.to_owned(), authorities.to_owned());
            maps.replace(COPY, &PostParams::default(), &map).await.map(drop)
        };
        write.await.with_context(|| format!("the ConfigMap {namespace}/{COPY} is not changed"))
    }

    /// Writes the authorities by which the API server knows the server of an API.
    pub(super) async fn write_ca_bundle(&self, name: &str, authorities: &str) -> Result<()> {
        let services: Api<APIService> = Api::all(self.client.clone());
        let bundle = ByteString(authorities.as_bytes().to_vec());
        let patch = Patch::Merge(json!({"spec": {"caBundle": bundle}}));
        let patched = services.patch(name, &PatchParams::default(), &patch).await;
        patched.map(drop).with_context(|| format!("the APIService {name} is not changed"))
    }

    /// Makes the key of tickets, if there is none.
    pub(super) async fn make_ticket_key(&self, name: &str) -> Result<()> {
        let mut secret = self.secrets.get(name).await.with_context(|| missing("Secret", name))?;
        let data = secret.data.get_or_insert_default();
        if data.get(TICKET_KEY).is_some_and(|key| !key.0.is_empty()) {
            return Ok(());
        }
        let mut random = [0; TICKET_KEY_BYTES];
        SystemRandom::new().fill(&mut random).ok().context("the system gives no random bytes")?;
        let key = random.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        data.insert(TICKET_KEY.to_owned(), ByteString(key.into_bytes()));
        self.replace(&secret).await?;
        println!("the Secret {name} has a new key");
        Ok(())
    }

    async fn replace(&self, secret: &Secret) -> Result<()> {
        let name = secret.name_any();
        let replaced = self.secrets.replace(&name, &PostParams::default(), secret).await;
        replaced.map(drop).with_context(|| format!("the Secret {name} is not changed"))
    }
}

/// The Secret of a certificate.
pub(super) struct CertificateSecret(Secret);

impl CertificateSecret {
    fn value(&self, key: &str) -> Option<&[u8]> {
        self.0.data.as_ref()?.get(key).map(|value| value.0.as_slice())
    }

    /// When the certificate ends, in seconds since the epoch; `None` without one that can be read.
    pub(super) fn expires(&self) -> Option<i64> {
        end_of(self.value(CERTIFICATE_KEY)?)
    }

    /// Whether the certificate was made for these names.
    pub(super) fn is_for(&self, names: &[String]) -> bool {
        self.value(NAMES_KEY) == Some(names.join(",").as_bytes())
    }
}

/// The authorities that clients trust, in PEM form.
pub(super) struct Bundle {
    map: ConfigMap,
    text: String,
}

impl Bundle {
    pub(super) fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Puts a new authority before those that have not ended.
    pub(super) fn add(&mut self, new: &str, now: Duration) {
        let is_valid = |pem: &&str| end_of(pem.as_bytes()).is_some_and(|end| !has_ended(end, now));
        let old = self.text.split_inclusive(END_OF_PEM).map(str::trim).filter(is_valid);
        let all = std::iter::once(new.trim()).chain(old).take(MAX_AUTHORITIES);
        self.text = all.map(|pem| format!("{pem}\n")).collect();
    }
}

fn missing(kind: &str, name: &str) -> String {
    format!("can't get the {kind} {name}, which the chart makes")
}

#[cfg(test)]
mod tests {
    use super::super::DAY;
    use super::super::issue::Authority;
    use super::super::issue::tests::NOW;
    use super::*;

    fn with(new: &str, old: &str, now: Duration) -> String {
        let mut bundle = Bundle { map: ConfigMap::default(), text: old.to_owned() };
        bundle.add(new, now);
        bundle.text
    }

    #[test]
    fn authorities_leave_when_they_have_ended_and_the_newest_stay() {
        let authority = |validity| Authority::new(NOW, validity).unwrap().pem().to_owned();
        let (new, valid, ended) = (authority(9 * DAY), authority(2 * DAY), authority(DAY));
        let all = with(&new, &format!("{valid}{ended}"), NOW + DAY);
        assert_eq!(all.replace('\r', ""), format!("{new}{valid}").replace('\r', ""));
        assert_eq!(with(&new, "nonsense", NOW).matches(END_OF_PEM).count(), 1);
        let many = (0..20).fold(String::new(), |all, _| with(&authority(DAY), &all, NOW));
        assert_eq!(many.matches(END_OF_PEM).count(), MAX_AUTHORITIES);
    }
}
