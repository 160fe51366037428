//! Tests that the API over TCP requires TLS and a token.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

mod memory;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use control::Listeners;
use http_body_util::BodyExt;
use hyper::StatusCode;
use memory::{Daemon, Place, send};
use model::{Scope, Tcp, Token};
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
    Tcp {
        listen: "127.0.0.1:0".parse().unwrap(),
        cert,
        key,
        token_file: Some(token_file),
        tokens: BTreeMap::new(),
    }
}

fn write_token(path: &std::path::Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn serving(name: &str) -> (Daemon, SocketAddr, TlsConnector) {
    let daemon = Daemon::new(name);
    let tcp = credentials(&daemon.place);
    served(daemon, tcp)
}

fn served(daemon: Daemon, tcp: Tcp) -> (Daemon, SocketAddr, TlsConnector) {
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
    // Prefixes are refused as well, because the complete token is compared.
    let prefixes = [&TOKEN[..1], &TOKEN[..16], &TOKEN[..TOKEN.len() - 1]];
    let others = ["", "x", &TOKEN[1..], longer.as_str(), wrong.as_str()];
    for token in std::iter::once(None).chain(prefixes.into_iter().chain(others).map(Some)) {
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

/// Each API route accepts only clients with the scope that the route declares or a higher scope. A route without a
/// declared scope requires `root`.
#[tokio::test]
async fn each_route_asks_for_its_scope() {
    let daemon = Daemon::new("scopes");
    let mut tcp = credentials(&daemon.place);
    let token = |scope: Scope| format!("{scope:->40}");
    for scope in Scope::ALL {
        let file = daemon.place.path().join(scope.word());
        write_token(&file, &token(scope), 0o600);
        tcp.tokens.insert(scope.to_string(), Token { file, scope });
    }
    let (_daemon, address, tls) = served(daemon, tcp);
    let document: serde_json::Value = serde_json::from_str(&control::openapi()).unwrap();
    let mut routes = vec![("get".to_owned(), "/openapi.json".to_owned(), Scope::Read)];
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let declared = operation["security"][1]["token"][0].as_str();
            let scope = declared.and_then(|word| Scope::ALL.into_iter().find(|scope| scope.word() == word));
            let scope = scope.unwrap_or_else(|| panic!("{method} {path} declares no scope: {operation}"));
            let path = path.replace("/{vlan}/{mac}", "/1/02:00:00:00:00:01").replace(['{', '}'], "");
            routes.push((method.clone(), path, scope));
        }
    }
    let changing = |method: &str| method != "get";
    for (method, path, needed) in &routes {
        // Of the routes with methods other than GET, only those that change nothing permit the scope `read`.
        let asks = ["/v1/explain", "/v1/config/check"].contains(&path.as_str());
        assert!(!changing(method) || asks || *needed > Scope::Read, "{method} {path} needs {needed} only");
        for scope in Scope::ALL {
            let stream = TcpStream::connect(address).await.unwrap();
            let stream = tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
            let method = method.to_uppercase();
            let answer = send(stream, &method, path, "", Some(&token(scope))).await.unwrap();
            let status = answer.status();
            // If the scope is too low for the route, the error names the object `api`. If it is too low only for the
            // body (an empty file changes `[daemon]`), the error names the object in the body.
            let error: Option<control::ErrorBody> = match status {
                StatusCode::FORBIDDEN => {
                    let body = answer.into_body().collect().await.unwrap().to_bytes();
                    Some(serde_json::from_slice(&body).unwrap())
                }
                _ => None,
            };
            let refusal = error.filter(|error| error.object == "api");
            assert_eq!(refusal.is_some(), scope < *needed, "{method} {path} with {scope}: {status}");
            if let Some(error) = refusal {
                assert!(error.cause.contains(&format!("`{needed}`")), "{error:?}");
                assert!(error.fix.contains("daemon."), "{error:?}");
            }
        }
    }
    assert!(routes.len() > 60, "{}", routes.len());
}

/// Idle connections of one host do not prevent other hosts from connecting. They prevent the host itself from
/// connecting only for a short time.
#[tokio::test]
async fn idle_connections_keep_nobody_out() {
    let (_daemon, address, tls) = serving("idle");
    let from = |host: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{host}:0").parse().unwrap()).unwrap();
        socket.connect(address)
    };
    let mut idle = Vec::new();
    for host in ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"] {
        for _ in 0..20 {
            idle.push(from(host).await.unwrap());
        }
    }
    for host in ["127.0.0.9", "127.0.0.1"] {
        let begin = std::time::Instant::now();
        let ask = async {
            loop {
                let stream = from(host).await.unwrap();
                let name = ServerName::try_from("localhost").unwrap();
                // A connection may be refused until another one has passed its grace time.
                let Ok(stream) = tls.connect(name, stream).await else { continue };
                break send(stream, "GET", "/healthz", "", Some(TOKEN)).await.unwrap().status();
            }
        };
        let status = tokio::time::timeout(Duration::from_secs(60), ask).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{host} after {:?}", begin.elapsed());
    }
    drop(idle);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_handshake_is_cut_off() {
    let (_daemon, address, _) = serving("handshake");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut nothing = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut nothing)).await.unwrap().unwrap();
    assert!(nothing.is_empty());
}

/// Checks that the kernel probes idle TCP clients, so that a live view ends if the client's machine vanishes.
#[tokio::test]
async fn a_client_that_vanishes_is_noticed() {
    testbed::require!("ss");
    let (_daemon, address, tls) = serving("vanishes");
    let stream = TcpStream::connect(address).await.unwrap();
    let _stream = tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    let filter = format!("sport = :{}", address.port());
    let listed =
        std::process::Command::new("ss").args(["-tnoH", "state", "established", &filter]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let timers: Vec<_> = listed.lines().filter(|line| line.contains("timer:(keepalive,")).collect();
    assert_eq!(timers.len(), 1, "{listed}");
}

#[tokio::test]
async fn unsafe_credentials_are_refused() {
    let place = Place::new("unsafe");
    let tcp = credentials(&place);
    let refused = |tcp: &Tcp| {
        let settings = model::Daemon { tcp: Some(tcp.clone()), ..place.settings().daemon };
        Listeners::bind(&settings).unwrap_err().to_string()
    };
    write_token(tcp.token_file.as_ref().unwrap(), "short", 0o600);
    assert!(refused(&tcp).contains("fewer than 16"));
    write_token(tcp.token_file.as_ref().unwrap(), TOKEN, 0o644);
    assert!(refused(&tcp).contains("chmod 600"));
    write_token(tcp.token_file.as_ref().unwrap(), TOKEN, 0o600);
    let twice = tcp.token_file.clone().map(|file| Token { file, scope: Scope::Read }).unwrap();
    let twice = Tcp { tokens: BTreeMap::from([("again".to_owned(), twice)]), ..tcp.clone() };
    assert!(refused(&twice).contains("daemon.tcp.token.again.file: another name has the token"));
    let missing = Tcp { token_file: Some(place.path().join("nothing")), ..tcp.clone() };
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
