//! TLS between a bridge and its controllers or clients (OpenFlow 1.5.1, 6.3.7), as Open vSwitch has it: each side shows a certificate, and the
//! other one wants it to come from the CA that it knows. What a certificate is made out to does not matter, since controllers are
//! addressed by numbers; so a CA is to be one for this purpose alone.
//!
//! Files that replace the keys serve the next connection. A bridge that listens reads its files when they have changed ([`Listening`]); a bridge
//! that connects reads them each time.

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

/// Files in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The private key.
    pub key: PathBuf,
    /// Its certificate, and those that lead from it to the CA's.
    pub certificate: PathBuf,
    /// Certificates of the CA that others' certificates come from.
    pub ca: PathBuf,
}

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Nothing is configured.
    #[error(
        "there is no key for TLS; name `key`, `certificate` and `ca` in the bridge's `openflow.tls`, or run `ovs-vsctl set-ssl`"
    )]
    Missing,
    /// A file cannot be read.
    #[error("{}: it cannot be read: {source}; put the {what} there as PEM", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// A file holds no certificate.
    #[error("{}: there is no certificate in it; put the {what} there as PEM", path.display())]
    Empty {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// Certificate and key do not fit, or are of a kind that is not known.
    #[error(
        "key and certificates cannot be used: {0}; make sure that the key belongs to the certificate, which is of X.509's version 3"
    )]
    Unfit(#[from] rustls::Error),
    /// The CA's certificate is no good.
    #[error("{}: it cannot be used: {source}; put the CA's certificate there", path.display())]
    Authority {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: VerifierBuilderError,
    },
}

/// Pause between two handshakes of a listener. A handshake costs a signature before the other side has shown who it is, and up to 64 connections
/// wait for theirs.
const PAUSE: Duration = Duration::from_millis(20);

/// What tells a file from another one, and from what was in it before: device, inode, length, and the time of its last change.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// TLS of a listener. One connection at a time looks after the files, so connections that come and go take one thread at most.
#[derive(Debug, Default)]
pub(crate) struct Listening(Arc<tokio::sync::Mutex<Made>>);

/// What was made of the files.
#[derive(Default)]
struct Made {
    stamps: [Stamp; 3],
    acceptor: Option<TlsAcceptor>,
    /// When the next handshake may begin.
    next: Option<Instant>,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made").field("stamps", &self.stamps).finish_non_exhaustive()
    }
}

impl Listening {
    /// Waits for the turn of a handshake, and gives what it is made with.
    pub async fn acceptor(&self, tls: &Tls) -> Result<TlsAcceptor, AcceptorError> {
        let mut made = Arc::clone(&self.0).lock_owned().await;
        let tls = tls.clone();
        // A connection that ends meanwhile gives its turn to the next one only when this is done.
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

/// Why a listener cannot make a handshake.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptorError {
    /// The files are no good.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No thread is left.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Whether an error of a stream is TLS's own: the other side is there, but will not have us, or we not it.
pub(crate) fn is_from_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

impl Tls {
    /// The files as they are.
    fn stamps(&self) -> [Stamp; 3] {
        [&self.key, &self.certificate, &self.ca].map(|path| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
        })
    }

    /// For connections that we make.
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

    /// For connections that others make.
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

/// Wants a controller's certificate to come from the CA, whatever it is made out to.
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
