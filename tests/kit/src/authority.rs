//! A certificate authority for tests: certificates and keys in files, as a cluster's tools make them.

use fpga_net::tls::{ClientFiles, ServerFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::{Path, PathBuf};

/// An authority whose files are in one folder: `NAME-ca.pem`, and `X.pem` and `X.key` for each certificate.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pub ca: PathBuf,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new(dir: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        let ca = dir.join(format!("{name}-ca.pem"));
        std::fs::write(&ca, certificate.pem()).unwrap();
        Self { dir: dir.to_owned(), issuer: Issuer::new(params, key), ca }
    }

    /// Issues a certificate for these names and addresses in `FILE.pem`, which replaces an earlier one.
    pub fn issue(&self, file: &str, names: &[&str]) -> Identity {
        self.issue_until(file, names, (4096, 1, 1))
    }

    /// Like [`Self::issue`], with the day on which the certificate expires.
    pub fn issue_until(&self, file: &str, names: &[&str], (year, month, day): (i32, u8, u8)) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(year, month, day);
        self.sign(file, &params)
    }

    /// Issues a client's certificate with this common name and no other one in `FILE.pem`.
    pub fn issue_as(&self, file: &str, common_name: &str) -> Identity {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, common_name);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(file, &params)
    }

    fn sign(&self, file: &str, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let identity = Identity {
            certificate: self.dir.join(format!("{file}.pem")),
            key: self.dir.join(format!("{file}.key")),
        };
        std::fs::write(&identity.certificate, certificate.pem()).unwrap();
        std::fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }

    /// The files of a client that trusts this authority and shows `identity`.
    pub fn client(&self, identity: Option<&Identity>) -> ClientFiles {
        ClientFiles {
            ca: self.ca.clone(),
            identity: identity.map(|identity| (identity.certificate.clone(), identity.key.clone())),
        }
    }
}

impl Identity {
    /// The files of a server with this certificate.
    pub fn server(&self, client_ca: Option<&Path>) -> ServerFiles {
        ServerFiles {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            client_ca: client_ca.map(Path::to_owned),
        }
    }
}
