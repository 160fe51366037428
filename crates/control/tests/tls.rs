//! The API over TCP: only with TLS, only with the token.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

mod memory;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use control::Listeners;
use hyper::StatusCode;
use memory::{Daemon, Place, send};
use model::Tcp;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn credentials(place: &Place) -> Tcp {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (place.path().join("cert.pem"), place.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let token_file = place.path().join("token");
    write_token(&token_file, &format!("{TOKEN}\n"), 0o600);
    Tcp { listen: "127.0.0.1:0".parse().unwrap(), cert, key, token_file }
}

fn write_token(path: &std::path::Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn serving(name: &str) -> (Daemon, SocketAddr, TlsConnector) {
    let daemon = Daemon::new(name);
    let tcp = credentials(&daemon.place);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&tcp.cert).unwrap()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let settings = model::Daemon { tcp: Some(tcp), ..daemon.place.settings().daemon };
    let listeners = Listeners::bind(&settings).unwrap();
    let address = listeners.tcp.as_ref().unwrap().0.local_addr().unwrap();
    tokio::spawn(control::serve(listeners, daemon.store.clone(), std::future::pending()));
    (daemon, address, TlsConnector::from(Arc::new(client)))
}

async fn ask(address: SocketAddr, tls: &TlsConnector, path: &str, token: Option<&str>) -> StatusCode {
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    send(stream, "GET", path, "", token).await.unwrap().status()
}

#[tokio::test]
async fn only_the_token_opens() {
    let (_daemon, address, tls) = serving("token");
    assert_eq!(ask(address, &tls, "/v1/ports", Some(TOKEN)).await, StatusCode::OK);
    let longer = format!("{TOKEN}0");
    let wrong = TOKEN.replace('f', "e");
    for token in [None, Some(""), Some("x"), Some(&TOKEN[1..]), Some(longer.as_str()), Some(wrong.as_str())] {
        for path in ["/v1/ports", "/metrics", "/healthz", "/openapi.json", "/nothing"] {
            assert_eq!(ask(address, &tls, path, token).await, StatusCode::UNAUTHORIZED, "{path} {token:?}");
        }
    }
}

#[tokio::test]
async fn plain_text_gets_no_answer() {
    let (_daemon, address, _) = serving("plain");
    let stream = TcpStream::connect(address).await.unwrap();
    assert!(send(stream, "GET", "/healthz", "", Some(TOKEN)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_handshake_is_cut_off() {
    let (_daemon, address, _) = serving("handshake");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut nothing = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut nothing)).await.unwrap().unwrap();
    assert!(nothing.is_empty());
}

#[tokio::test]
async fn unsafe_credentials_are_refused() {
    let place = Place::new("unsafe");
    let tcp = credentials(&place);
    let refused = |tcp: &Tcp| {
        let settings = model::Daemon { tcp: Some(tcp.clone()), ..place.settings().daemon };
        Listeners::bind(&settings).unwrap_err().to_string()
    };
    write_token(&tcp.token_file, "short", 0o600);
    assert!(refused(&tcp).contains("fewer than 16"));
    write_token(&tcp.token_file, TOKEN, 0o644);
    assert!(refused(&tcp).contains("chmod 600"));
    write_token(&tcp.token_file, TOKEN, 0o600);
    let missing = Tcp { token_file: place.path().join("nothing"), ..tcp.clone() };
    assert!(refused(&missing).contains("daemon.tcp.token_file"));
    let swapped = Tcp { cert: tcp.key.clone(), ..tcp.clone() };
    assert!(refused(&swapped).contains("daemon.tcp.cert"), "{}", refused(&swapped));
    let other = Place::new("other");
    let mixed = Tcp { key: credentials(&other).key, ..tcp.clone() };
    assert!(refused(&mixed).contains("belongs to the certificate"), "{}", refused(&mixed));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = Tcp { listen: taken.local_addr().unwrap(), ..tcp };
    assert!(refused(&busy).contains("ss -ltnp"), "{}", refused(&busy));
    assert!(!place.settings().daemon.api.exists(), "a socket was left behind");
}
