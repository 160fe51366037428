//! TLS between a bridge and its controllers or clients (OpenFlow 1.5.1 section 6.3.7), like in Open vSwitch. Each side
//! presents a certificate, and the other side verifies this certificate against a CA certificate. The subject of a
//! certificate is ignored, because controllers are identified by numeric addresses. Therefore, a CA should issue
//! certificates only for this purpose.
//!
//! If a TLS file is replaced, the new file is used from the next connection on. A listener reads its files again when
//! they have changed (`Listening`). For an outgoing connection, the files are read each time.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::time::Instant;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Paths of the PEM files that TLS connections with controllers and clients need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// Path of the bridge's private key.
    pub key: PathBuf,
    /// Path of the bridge's certificate. The file also contains the intermediate certificates up to the CA
    /// certificate.
    pub certificate: PathBuf,
    /// Path of the CA certificates against which certificates of peers are verified.
    pub ca: PathBuf,
}

/// Reason why TLS cannot be used between the bridge and a peer.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The TLS files are not configured.
    #[error(
        "there is no key for TLS; name `key`, `certificate` and `ca` in the bridge's `openflow.tls`, or run `ovs-vsctl set-ssl`"
    )]
    Missing,
    /// A TLS file cannot be read.
    #[error("{}: it cannot be read: {source}; put the {what} there as PEM", path.display())]
    File {
        /// Path of the file that cannot be read.
        path: PathBuf,
        /// Expected content of the file, such as a private key, as text for the error message.
        what: &'static str,
        /// Error that reading the file has returned.
        source: pem::Error,
    },
    /// A TLS file contains no certificate.
    #[error("{}: there is no certificate in it; put the {what} there as PEM", path.display())]
    Empty {
        /// Path of the file without a certificate.
        path: PathBuf,
        /// Expected content of the file as text for the error message.
        what: &'static str,
    },
    /// The certificate does not belong to the key, or the type of one of them is not supported.
    #[error(
        "key and certificates cannot be used: {0}; make sure that the key belongs to the certificate, which is of X.509's version 3"
    )]
    Unfit(#[from] rustls::Error),
    /// The CA certificate cannot be used.
    #[error("{}: it cannot be used: {source}; put the CA's certificate there", path.display())]
    Authority {
        /// Path of the CA certificate's file.
        path: PathBuf,
        /// Error that was returned when the verifier was created from the CA certificate.
        source: VerifierBuilderError,
    },
}

/// Minimum pause between the starts of two handshakes of a listener. A handshake computes a signature before
/// the peer is authenticated, and up to 64 connections may wait for their handshake.
const PAUSE: Duration = Duration::from_millis(20);

/// Properties of a TLS file that reveal a change of the file: device number, inode, length, and
/// time of the last change. `None` if the file cannot be examined.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// TLS state of a listener. The lock is held while a connection checks whether the TLS files have changed.
/// Therefore waiting connections occupy at most one blocking thread.
#[derive(Debug, Default)]
pub(crate) struct Listening(Arc<tokio::sync::Mutex<Made>>);

/// TLS acceptor of a listener, with the stamps of the files from which it was created.
#[derive(Default)]
struct Made {
    stamps: [Stamp; 3],
    acceptor: Option<TlsAcceptor>,
    /// Earliest time at which the next handshake may start.
    next: Option<Instant>,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made").field("stamps", &self.stamps).finish_non_exhaustive()
    }
}

impl Listening {
    /// Waits until the listener may start the next handshake, and returns the TLS acceptor for this
    /// handshake.
    pub async fn acceptor(&self, tls: &Tls) -> Result<TlsAcceptor, AcceptorError> {
        let mut made = Arc::clone(&self.0).lock_owned().await;
        let tls = tls.clone();
        // The task completes even if the connection ends, before the next connection continues.
        let look = tokio::spawn(async move {
            if let Some(next) = made.next {
                tokio::time::sleep_until(next).await;
            }
            made.next = Some(Instant::now() + PAUSE);
            let look = move || {
                let stamps = tls.stamps();
                let is_new = made.acceptor.is_none() || made.stamps != stamps;
                if is_new {
                    made.acceptor = None;
                    made.acceptor = Some(tls.acceptor()?);
                    made.stamps = stamps;
                }
                made.acceptor.clone().ok_or(TlsError::Missing)
            };
            tokio::task::spawn_blocking(look).await
        });
        Ok(look.await.map_err(io::Error::from)?.map_err(io::Error::from)??)
    }
}

/// Reason why a listener cannot start a handshake.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptorError {
    /// The TLS files cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No thread is available to read the TLS files.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Returns whether an error of a stream is a TLS error. A TLS error means that the peer was reachable, and that one
/// side has refused the TLS connection.
pub(crate) fn is_from_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

impl Tls {
    /// Returns the stamp of each of the three TLS files.
    fn stamps(&self) -> [Stamp; 3] {
        [&self.key, &self.certificate, &self.ca].map(|path| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
        })
    }

    /// Returns a TLS connector for outgoing connections.
    pub(crate) fn connector(&self) -> Result<TlsConnector, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let chain = Chain { roots: self.roots()?, provider: Arc::clone(&provider) };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(chain))
            .with_client_auth_cert(self.own()?, self.secret()?)?;
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// Returns a TLS acceptor for incoming connections.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(self.roots()?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|source| TlsError::Authority { path: self.ca.clone(), source })?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.own()?, self.secret()?)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca, "CA's certificate")? {
            roots.add(certificate)?;
        }
        Ok(roots)
    }

    fn own(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        certificates(&self.certificate, "certificate")
    }

    fn secret(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let failed = |source| TlsError::File { path: self.key.clone(), what: "private key", source };
        PrivateKeyDer::from_pem_file(&self.key).map_err(failed)
    }
}

fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File { path: path.to_owned(), what, source };
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    let all = all.map_err(failed)?;
    if all.is_empty() { Err(TlsError::Empty { path: path.to_owned(), what }) } else { Ok(all) }
}

/// Verifier for certificates of controllers. The verifier requires that the CA has issued the certificate, and ignores
/// the certificate's subject.
#[derive(Debug)]
struct Chain {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Chain {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
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
