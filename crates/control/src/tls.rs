//! What guards the API over TCP: TLS (rustls with ring) and bearer tokens, each with a scope.
//!
//! Tokens are compared in a time that does not depend on where they differ. Certificate, key and tokens are read once,
//! when the daemon starts.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{Scope, Tcp};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig};

/// Fewest characters of a token.
const TOKEN_LENGTH: usize = 16;

/// Why the API over TCP cannot be guarded, so that it is not offered.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The token's file cannot be read.
    #[error("{field}: {} cannot be read: {source}; write a token there, such as `openssl rand -hex 32` gives", path.display())]
    TokenFile {
        /// The key that names the file, such as `daemon.tcp.token_file`.
        field: String,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Everybody can read the token.
    #[error("{field}: everybody on this machine can read {}; run `chmod 600 {}`", path.display(), path.display())]
    TokenOpen {
        /// The key that names the file, such as `daemon.tcp.token_file`.
        field: String,
        /// The file.
        path: PathBuf,
    },
    /// The token can be guessed.
    #[error("{field}: the first line of {} has fewer than {TOKEN_LENGTH} characters or others than printable ones; write a longer token there, such as `openssl rand -hex 32` gives", path.display())]
    TokenWeak {
        /// The key that names the file, such as `daemon.tcp.token_file`.
        field: String,
        /// The file.
        path: PathBuf,
    },
    /// Two names stand for one token.
    #[error("{field}: another name has the token of {} already; write another token there", path.display())]
    TokenTwice {
        /// The key that names the file.
        field: String,
        /// The file.
        path: PathBuf,
    },
    /// Certificate or key cannot be read.
    #[error("daemon.tcp.{field}: {} cannot be read: {source}; put the {field} there as PEM", path.display())]
    Pem {
        /// `cert` or `key`.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// The file has no certificate.
    #[error("daemon.tcp.cert: {} holds no certificate; put the certificate chain there as PEM", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not fit.
    #[error(
        "daemon.tcp: certificate and key cannot be used: {0}; make sure that the key belongs to the certificate"
    )]
    Tls(#[from] rustls::Error),
}

/// What guards a TCP socket.
#[derive(Clone)]
pub struct Guard {
    pub(crate) acceptor: TlsAcceptor,
    tokens: Arc<[Known]>,
}

/// A token with what it opens.
pub(crate) struct Known {
    token: Vec<u8>,
    /// Its name in the configuration, for the log.
    pub name: String,
    /// What its holders may do.
    pub scope: Scope,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard") // never the token
    }
}

impl Guard {
    /// Reads certificate, key and tokens.
    ///
    /// # Errors
    ///
    /// If one of them is missing, unreadable or unsafe.
    pub fn read(tcp: &Tcp) -> Result<Guard, GuardError> {
        let pem = |field, path: &Path| {
            let path = path.to_owned();
            move |source| GuardError::Pem { field, path, source }
        };
        let chain = CertificateDer::pem_file_iter(&tcp.cert).map_err(pem("cert", &tcp.cert))?;
        let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(pem("cert", &tcp.cert))?;
        if chain.is_empty() {
            return Err(GuardError::NoCertificate { path: tcp.cert.clone() });
        }
        let key = PrivateKeyDer::from_pem_file(&tcp.key).map_err(pem("key", &tcp.key))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut tokens: Vec<Known> = Vec::new();
        let plain = tcp
            .token_file
            .iter()
            .map(|file| ("token", "daemon.tcp.token_file".to_owned(), file, Scope::Configure));
        let named = tcp.tokens.iter().map(|(name, token)| {
            (name.as_str(), format!("daemon.tcp.token.{name}.file"), &token.file, token.scope)
        });
        for (name, field, path, scope) in plain.chain(named) {
            let token = read_token(&field, path)?;
            if tokens.iter().any(|other| other.token == token) {
                return Err(GuardError::TokenTwice { field, path: path.clone() });
            }
            tokens.push(Known { token, name: name.to_owned(), scope });
        }
        Ok(Guard { acceptor: TlsAcceptor::from(Arc::new(config)), tokens: tokens.into() })
    }

    /// Returns the token that the value of an `Authorization` header is. Each known one is compared, whichever it is.
    pub(crate) fn admits(&self, authorization: Option<&[u8]>) -> Option<&Known> {
        let (scheme, token) = authorization.and_then(|value| value.split_at_checked(7))?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return None;
        }
        self.tokens
            .iter()
            .fold(None, |found, known| if same(token, &known.token) { Some(known) } else { found })
    }
}

fn read_token(field: &str, path: &Path) -> Result<Vec<u8>, GuardError> {
    let failed = |source| GuardError::TokenFile { field: field.to_owned(), path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.permissions().mode() & 0o004 != 0 {
        return Err(GuardError::TokenOpen { field: field.to_owned(), path: path.to_owned() });
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < TOKEN_LENGTH || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(GuardError::TokenWeak { field: field.to_owned(), path: path.to_owned() });
    }
    Ok(token.as_bytes().to_vec())
}

/// Whether two texts are the same, in a time that tells at most their lengths.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    if given.len() != wanted.len() {
        return false;
    }
    let differences = given.iter().zip(wanted).fold(0, |all, (a, b)| all | std::hint::black_box(a ^ b));
    std::hint::black_box(differences) == 0
}
