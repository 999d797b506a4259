//! Authorities that sign the certificates of one run.

use anyhow::{Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use std::time::Duration;

/// Age that new certificates have from the beginning, for clocks that are late.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(3600);

/// An authority, whose key is nowhere but here.
pub(super) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    now: Duration,
    validity: Duration,
}

/// A certificate, in PEM form.
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    /// An authority that is valid from `now`, in seconds since the epoch.
    pub(super) fn new(now: Duration, validity: Duration) -> Result<Self> {
        let mut authority = params(&[], "kube-fpga streams", now, validity)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = authority.self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(authority, key), now, validity })
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these DNS names and IP addresses, with a key of its own.
    pub(super) fn issue(&self, names: &[String]) -> Result<Issued> {
        ensure!(!names.is_empty(), "a certificate needs a name; write --certificate SECRET=DNS-NAME");
        let mut certificate = params(names, &names[0], self.now, self.validity)?;
        certificate.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        certificate.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = certificate.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem() })
    }
}

fn params(
    names: &[String],
    common_name: &str,
    now: Duration,
    validity: Duration,
) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    // The standard has at most 64 characters there, and clients look at the other names.
    let common_name: String = common_name.chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(CLOCK_TOLERANCE);
    params.not_after = date_time_ymd(1970, 1, 1) + now + validity;
    Ok(params)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::certificates) const NOW: Duration = Duration::from_secs(1_790_000_000);

    /// A certificate that is valid from [`NOW`] for this long.
    pub(in crate::certificates) fn issued(validity: Duration) -> Issued {
        Authority::new(NOW, validity).unwrap().issue(&["extender.svc".to_owned()]).unwrap()
    }

    #[test]
    fn certificates_of_one_authority_have_keys_of_their_own() {
        let authority = Authority::new(NOW, 5 * CLOCK_TOLERANCE).unwrap();
        let [one, other] = ["a.svc", "b.svc"].map(|name| authority.issue(&[name.to_owned()]).unwrap());
        assert_ne!(one.key, other.key);
        let long = format!("{}.svc", "a".repeat(60));
        authority.issue(&[long]).unwrap();
        assert!(authority.issue(&[]).is_err());
    }
}
