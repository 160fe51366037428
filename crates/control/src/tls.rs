//! Protection of the API on its TCP socket with TLS (rustls with ring) and bearer tokens. Each token has one access
//! scope.
//!
//! The time to compare a token does not depend on the position of the first difference. The certificate, the
//! key and the tokens are read once at the start of the daemon.

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

/// Minimum length of an API token in characters.
const TOKEN_LENGTH: usize = 16;

/// Reason why the API cannot be protected on its TCP socket. The daemon then does not offer the API over TCP.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The file of a token cannot be read.
    #[error("{field}: {} cannot be read: {source}; write a token there, such as `openssl rand -hex 32` gives", path.display())]
    TokenFile {
        /// Configuration field that names the file, such as `daemon.tcp.token_file`.
        field: String,
        /// Path of the token file that cannot be read.
        path: PathBuf,
        /// Error that the operating system returned.
        source: io::Error,
    },
    /// The file of a token is readable by every local user.
    #[error("{field}: everybody on this machine can read {}; run `chmod 600 {}`", path.display(), path.display())]
    TokenOpen {
        /// Configuration field that names the file, such as `daemon.tcp.token_file`.
        field: String,
        /// Path of the token file that every local user can read.
        path: PathBuf,
    },
    /// The token is too short, or contains characters that are not printable.
    #[error("{field}: the first line of {} has fewer than {TOKEN_LENGTH} characters or others than printable ones; write a longer token there, such as `openssl rand -hex 32` gives", path.display())]
    TokenWeak {
        /// Configuration field that names the file, such as `daemon.tcp.token_file`.
        field: String,
        /// Path of the file with the weak token.
        path: PathBuf,
    },
    /// Two tokens with different names are identical.
    #[error("{field}: another name has the token of {} already; write another token there", path.display())]
    TokenTwice {
        /// Configuration field that names the file of the second token.
        field: String,
        /// Path of the file of the second token.
        path: PathBuf,
    },
    /// The certificate or the key cannot be read.
    #[error("daemon.tcp.{field}: {} cannot be read: {source}; put the {field} there as PEM", path.display())]
    Pem {
        /// Name of the configuration field, `cert` or `key`.
        field: &'static str,
        /// Path of the certificate file or key file.
        path: PathBuf,
        /// Error that the PEM parser returned for the certificate or the key.
        source: pem::Error,
    },
    /// The certificate file contains no certificate.
    #[error("daemon.tcp.cert: {} holds no certificate; put the certificate chain there as PEM", path.display())]
    NoCertificate {
        /// Path of the certificate file.
        path: PathBuf,
    },
    /// The certificate and the key cannot be used together.
    #[error(
        "daemon.tcp: certificate and key cannot be used: {0}; make sure that the key belongs to the certificate"
    )]
    Tls(#[from] rustls::Error),
}

/// TLS settings and tokens of the API's TCP socket.
#[derive(Clone)]
pub struct Guard {
    pub(crate) acceptor: TlsAcceptor,
    tokens: Arc<[Known]>,
}

/// A configured API token with its name and its access scope.
pub(crate) struct Known {
    token: Vec<u8>,
    /// Name of the token in the configuration, which the log contains.
    pub name: String,
    /// Access scope of clients that present the token.
    pub scope: Scope,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard") // Tokens are never printed.
    }
}

impl Guard {
    /// Reads the files of the certificate, the key and the tokens.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the files is missing, unreadable or unsafe.
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

    /// Returns the configured token that an `Authorization` header (`authorization` is its value) contains. Returns
    /// `None` if there is no such token. The value is always compared with all tokens, so that the duration does not
    /// reveal which token matches.
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

/// Returns whether two byte strings are equal. The duration depends only on their lengths.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    if given.len() != wanted.len() {
        return false;
    }
    let differences = given.iter().zip(wanted).fold(0, |all, (a, b)| all | std::hint::black_box(a ^ b));
    std::hint::black_box(differences) == 0
}
