//! TLS to a server that is known by its public key, without an authority.

use super::client::ConnectError;
use super::provider::provider;
use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The SHA-256 of the public key (SubjectPublicKeyInfo) in a server's certificate.
///
/// A client that has learned the digest from somebody it trusts needs no authority: the server proves that it has the
/// private key, whatever names, dates and issuer its certificate has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PinnedKey(pub [u8; 32]);

impl PinnedKey {
    /// The digest of the key in `certificate`; `None` if this is no certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        let key = certificate.subject_public_key_info();
        digest(&SHA256, &key).as_ref().try_into().ok().map(Self)
    }

    /// Does a TLS handshake over `stream` with the server that has the key.
    ///
    /// # Errors
    /// [`ConnectError::Failed`] if the server has another key, or the handshake fails for another reason.
    pub async fn connect<S>(self, stream: S, protocol: &'static [u8]) -> Result<TlsStream<S>, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let verifier = Arc::new(Verifier { key: self, provider: provider() });
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        // The name is not proved, and an address as the name is not sent.
        config.enable_sni = false;
        let name = ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into());
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }
}

/// Accepts the certificate of one key.
#[derive(Debug)]
struct Verifier {
    key: PinnedKey,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if PinnedKey::of(end_entity) == Some(self.key) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General("the server has another key than the expected one".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
