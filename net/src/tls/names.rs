//! The names in a certificate.

use super::der::{SEQUENCE, after_issuer, element};
use rustls::pki_types::CertificateDer;

const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// The object identifier of a common name, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The DNS names in `certificate`. Wildcards are returned as they are written, so they equal no host's name.
#[must_use]
pub fn dns_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    webpki::EndEntityCert::try_from(certificate)
        .map(|certificate| certificate.valid_dns_names().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// The last common name of the subject of `certificate`, as Go reads it; `None` if it has none.
///
/// ```text
/// subject { SET { SEQUENCE { type, value }, … }, … }
/// ```
#[must_use]
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_validity, _, rest) = element(after_issuer(certificate)?)?;
    let (SEQUENCE, mut subject, _) = element(rest)? else { return None };
    let mut found = None;
    while !subject.is_empty() {
        let (SET, mut attributes, rest) = element(subject)? else { return None };
        subject = rest;
        while !attributes.is_empty() {
            let (SEQUENCE, attribute, rest) = element(attributes)? else { return None };
            attributes = rest;
            let (kind, identifier, value) = element(attribute)?;
            if kind == OBJECT_IDENTIFIER && identifier == COMMON_NAME {
                let (_, text, _) = element(value)?;
                found = Some(String::from_utf8(text.to_vec()).ok()?);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn certificate(subject: &[(DnType, &str)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["svc".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_common_name_is_found_among_the_other_names() {
        let others = [(DnType::OrganizationName, "kubernetes"), (DnType::CommonName, "front-proxy-client")];
        assert_eq!(common_name(&certificate(&others)).as_deref(), Some("front-proxy-client"));
        assert_eq!(common_name(&certificate(&others[..1])), None);
        assert_eq!(common_name(&certificate(&[])), None);
    }

    #[test]
    fn what_is_no_certificate_has_no_common_name_and_does_no_harm() {
        let whole = certificate(&[(DnType::CommonName, "a")]).to_vec();
        for end in 0..whole.len() {
            assert_eq!(common_name(&CertificateDer::from(&whole[..end])), None, "cut at {end}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0xff;
            // The answer may be any name or none, but there must be no panic.
            let _ = common_name(&CertificateDer::from(damaged.as_slice()));
        }
    }
}
