//! The key pair that signs service-account tokens (ECDSA P-256), generated for each run, in the PEM format that
//! Kubernetes reads.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use std::path::{Path, PathBuf};

/// DER prefix of the 65 bytes of an uncompressed P-256 point: SubjectPublicKeyInfo { id-ecPublicKey, prime256v1 }.
const PUBLIC_KEY_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Paths of the two files of a key pair.
#[derive(Debug)]
pub struct SigningKey {
    /// Path of the private key, which signs.
    pub private: PathBuf,
    /// Path of the public key, which verifies.
    pub public: PathBuf,
}

impl SigningKey {
    /// Generates a key pair in `dir`.
    ///
    /// # Errors
    /// There are no random bytes, or the files can't be written.
    pub fn write(dir: &Path) -> Result<Self> {
        let random = ring::rand::SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).ok();
        let document = document.context("can't make a key")?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random);
        let point = pair.ok().context("can't read the key just made")?.public_key().as_ref().to_vec();
        let public = [PUBLIC_KEY_PREFIX.as_slice(), &point].concat();
        let files =
            Self { private: dir.join("service-account.key"), public: dir.join("service-account.pub") };
        std::fs::write(&files.private, pem("PRIVATE KEY", document.as_ref())).context("can't write a key")?;
        std::fs::write(&files.public, pem("PUBLIC KEY", &public)).context("can't write a key")?;
        Ok(files)
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
}
