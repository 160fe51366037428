//! Client of the daemon's API for the command line. The client speaks HTTP over the unix socket, with one
//! connection for each request.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control::ErrorBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::failure::{Failure, Kind};

/// Maximum length in bytes of an HTTP response that is read as a whole. Streams have no limit.
const ANSWER_LIMIT: usize = 256 << 20;

/// Default time limit of a request. The time starts with the request, and starts again with each
/// response of the daemon to `/healthz`.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time to wait for the response to a request before the client requests `/healthz` to check whether the daemon
/// responds.
const CHECK: Duration = Duration::from_secs(3);

/// Client of the daemon that listens on one unix socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    /// Time limit of a request. The time starts with the request, and starts again with each
    /// response of the daemon to `/healthz`.
    patience: Duration,
}

/// An HTTP response of the daemon that was read completely.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// Body of the HTTP response.
    pub body: Bytes,
}

impl Client {
    /// Returns a client that connects to the daemon at this unix socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Client { socket: socket.into(), patience: PATIENCE }
    }

    /// Sets the time limit of requests. The time starts with the request, and starts again with
    /// each response of the daemon to `/healthz`.
    pub fn patient(self, patience: Duration) -> Self {
        Client { patience, ..self }
    }

    /// Returns the path of the daemon's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Requests the API resource at `path` from the daemon, and parses its JSON.
    ///
    /// # Errors
    /// Returns an error if the daemon does not answer or refuses the request, or the response is
    /// not the expected JSON.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.read(&self.answer(path).await?)
    }

    /// Requests the API resource at `path` from the daemon.
    ///
    /// # Errors
    /// Returns an error if the daemon does not answer or refuses the request.
    pub async fn answer(&self, path: &str) -> Result<Answer, Failure> {
        self.request(Method::GET, path, "", Bytes::new()).await?.success()
    }

    /// Sends a request with a JSON body for the API resource at `path`, and parses the JSON response.
    ///
    /// # Errors
    /// Returns an error if the daemon does not answer or refuses the request, or the response is
    /// not the expected JSON.
    pub async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| self.broken(&error))?;
        let answer = self.request(method, path, "application/json", body.into()).await?.success()?;
        self.read(&answer)
    }

    /// Parses the JSON body of an HTTP response of the API.
    ///
    /// # Errors
    /// Returns an error if the body is not the expected JSON.
    pub fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Failure> {
        serde_json::from_slice(&answer.body).map_err(|error| self.not_understood(&error))
    }

    /// Returns the failure for an answer that is not the expected JSON.
    pub fn not_understood(&self, error: &serde_json::Error) -> Failure {
        let object = format!("daemon at {}", self.socket.display());
        let fix = "use a trivium of the daemon's version";
        Failure::new(object, format!("its answer is not understood ({error})"), fix)
    }

    /// Sends a request with a body of content type `kind` for the API resource at `path`. Reads the whole response,
    /// also if its HTTP status reports an error.
    ///
    /// # Errors
    /// Returns an error if the daemon does not answer.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Bytes,
    ) -> Result<Answer, Failure> {
        let response = self.exchange(method, path, kind, body).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LIMIT)
            .collect()
            .await
            .map_err(|error| self.broken(error.as_ref()))?
            .to_bytes();
        Ok(Answer { status, body })
    }

    /// Opens the stream that the API resource at `path` sends (live counters, a capture, a trace).
    ///
    /// # Errors
    /// Returns an error if the daemon does not answer or refuses the request.
    pub async fn stream(&self, path: &str) -> Result<Stream, Failure> {
        let response = self.exchange(Method::GET, path, "", Bytes::new()).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(Stream { body: response.into_body(), rest: Vec::new() });
        }
        let body = response.into_body().collect().await.map_err(|error| self.broken(&error))?.to_bytes();
        Err(Answer { status, body }.failure())
    }

    /// Sends a request and waits for the head of the response. Meanwhile the client repeatedly requests `/healthz`.
    /// There is no time limit while the daemon responds to these requests.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let mut answer = std::pin::pin!(self.exchange_once(method, path, kind, body));
        let mut alive = Instant::now();
        loop {
            let pause = self.patience.min(CHECK);
            if let Ok(answer) = tokio::time::timeout(pause, answer.as_mut()).await {
                return answer;
            }
            let left = self.patience.saturating_sub(alive.elapsed());
            if left.is_zero() {
                return Err(self.silent());
            }
            let asked = self.exchange_once(Method::GET, "/healthz", "", Bytes::new());
            tokio::select! {
                biased;
                answer = answer.as_mut() => return answer,
                sign = tokio::time::timeout(left, asked) => match sign {
                    Ok(Ok(_)) => alive = Instant::now(),
                    // The health check failed at once. The answer to the request itself explains more.
                    Ok(Err(_)) => tokio::time::sleep(CHECK.min(left)).await,
                    Err(_) => return Err(self.silent()),
                },
            }
        }
    }

    async fn exchange_once(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let stream = self.connect().await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "trivium");
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        let request = request.body(Full::new(body)).map_err(|error| self.broken(&error))?;
        sender.send_request(request).await.map_err(|error| self.broken(&error))
    }

    /// Connects to the daemon. While the listen queue of the socket is full (`EAGAIN`), the client tries again
    /// without a time limit. A caller sets a time limit by dropping the future.
    async fn connect(&self) -> Result<UnixStream, Failure> {
        loop {
            match UnixStream::connect(&self.socket).await {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                other => return other.map_err(|error| self.unreachable(&error)),
            }
        }
    }

    /// Returns the failure for a daemon that accepts connections but does not answer in time.
    fn silent(&self) -> Failure {
        let object = format!("daemon at {}", self.socket.display());
        let cause = format!("it gives no answer, and no sign of life for {} s", self.patience.as_secs());
        let fix = "look at its log and whether it is stopped (`ps -o stat,cmd -C trivium`), or wait longer with --timeout";
        Failure::new(object, cause, fix).of_kind(Kind::Unreachable)
    }

    fn unreachable(&self, error: &std::io::Error) -> Failure {
        let fix = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                "start it with `trivium run -c FILE` or `systemctl start trivium`, or name its socket with --socket"
            }
            std::io::ErrorKind::PermissionDenied => {
                "use sudo, or join the socket's group (daemon.group in the file)"
            }
            _ => "look at the daemon's log",
        };
        let object = format!("daemon at {}", self.socket.display());
        Failure::new(object, error, fix).of_kind(Kind::Unreachable)
    }

    fn broken(&self, error: &(dyn std::error::Error + 'static)) -> Failure {
        let object = format!("daemon at {}", self.socket.display());
        Failure::new(
            object,
            format!("it stopped answering ({error})"),
            "look at its log; it may just have restarted",
        )
        .of_kind(Kind::Unreachable)
    }
}

impl Answer {
    /// Returns the response if its HTTP status reports success.
    ///
    /// # Errors
    /// Returns the failure that the daemon's error response describes.
    pub fn success(self) -> Result<Answer, Failure> {
        if self.status.is_success() { Ok(self) } else { Err(self.failure()) }
    }

    /// Converts an error response of the daemon into a failure of the command. If the response
    /// lists problems of a configuration, the function prints the problems on standard error, one
    /// problem a line.
    pub fn failure(&self) -> Failure {
        match serde_json::from_slice::<ErrorBody>(&self.body) {
            Ok(body) if !body.problems.is_empty() => {
                for problem in &body.problems {
                    eprintln!("{problem}");
                }
                Failure::told(Kind::Refused)
            }
            Ok(body) => Failure::new(body.object, body.cause, body.fix),
            Err(_) => {
                let text = String::from_utf8_lossy(&self.body).trim().to_owned();
                Failure::new("daemon", format!("{} {text}", self.status), "look at its log")
            }
        }
    }
}

/// An HTTP response body that is read in parts as it arrives.
#[derive(Debug)]
pub struct Stream {
    body: Incoming,
    rest: Vec<u8>,
}

impl Stream {
    /// Returns the next bytes of the body, or `None` at the end of the body. When the daemon stops,
    /// the daemon ends its streams.
    pub async fn chunk(&mut self) -> Option<Bytes> {
        loop {
            let frame = self.body.frame().await?.ok()?;
            if let Ok(bytes) = frame.into_data() {
                return Some(bytes);
            }
        }
    }

    /// Returns the next line of the body without its line end, or `None` at the end of the body.
    pub async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            let chunk = self.chunk().await?;
            self.rest.extend_from_slice(&chunk);
        }
    }
}

/// Percent-encodes a text for use in a URL.
pub fn quoted(text: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'/' | b':');
    text.bytes().fold(String::new(), |mut all, byte| {
        match plain(byte) {
            true => all.push(char::from(byte)),
            false => all.push_str(&format!("%{byte:02X}")),
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn names_survive_a_query() {
        assert_eq!(quoted("/etc/a b&c=ü.toml"), "/etc/a%20b%26c%3D%C3%BC.toml");
    }
}
