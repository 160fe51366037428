//! Error responses of the API. Each error names the object, the cause and the remedy, as JSON.

use std::path::PathBuf;

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::{Problem, ProblemReport, Refusal, Severity};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{FailureKind, PlaneError, StorageError};

/// Reason why a configuration change was not made. After an error, the configuration is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The configuration is invalid. The list of problems includes warnings.
    #[error("{} problems, the first: {}", .0.len(), first(.0))]
    Problems(Vec<Problem>),
    /// Objects of the change belong to another owner (the configuration file, OVSDB or the kernel), or do not exist.
    #[error("{} refusals, the first: {}", .0.len(), first(.0))]
    Refused(Vec<Refusal>),
    /// An earlier change has not been confirmed yet. Until it is confirmed or rolled back, no other change is possible.
    #[error(
        "config: an earlier change waits {left_s} more seconds for its confirmation; confirm it or roll it back"
    )]
    Pending {
        /// Seconds until the earlier change is rolled back.
        left_s: u64,
    },
    /// No change waits to be confirmed or rolled back.
    #[error(
        "config: no change waits for a confirmation; it has been rolled back already, or was applied without"
    )]
    NotPending,
    /// The change needs the scope `root`, which the client does not have.
    #[error("{object}: this needs the scope `root`: {what}; {NEEDS_ROOT}")]
    NeedsRoot {
        /// Path of the configuration field that needs the scope.
        object: String,
        /// Description of the part of the change that needs the scope.
        what: String,
    },
    /// The change refers to a file outside of the directories that contain the files for API clients (`daemon.files`).
    #[error("{object}: {} lies in none of the directories for files; {}", path.display(), outside_fix(directories))]
    Outside {
        /// Path of the configuration field that names the file.
        object: String,
        /// Path of the file that the change names.
        path: PathBuf,
        /// Directories with the files to which API clients may refer (`daemon.files`).
        directories: Vec<PathBuf>,
    },
    /// The new configuration file would remove most of the running objects that the previous configuration file
    /// created.
    #[error(
        "config: it removes {removed} of the {of} filters, ports, bridges and routers of the file before; {FORCE}"
    )]
    RemovesMost {
        /// Number of objects that would be removed.
        removed: usize,
        /// Number of running objects that the previous configuration file created.
        of: usize,
    },
    /// The data plane could not apply the change.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// Objects that persist across restarts could not be stored.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The task that made the configuration change ended before the change was complete.
    #[error("config: the change was interrupted; look at the log of the daemon")]
    Interrupted,
}

/// Remedy that is reported for a configuration change that needs the scope `root`.
const NEEDS_ROOT: &str = "make the change as root at the unix socket (`sudo trivium apply FILE`), or with a token of the scope root";
/// Remedy that is reported for a configuration file that removes most objects of the previous file.
const FORCE: &str = "check that it is the right file, and apply it with `--force` (`force=true` in the API)";

fn outside_fix(directories: &[PathBuf]) -> String {
    let all: Vec<_> = directories.iter().map(|directory| directory.display().to_string()).collect();
    format!(
        "move it into one of {}, add its directory to daemon.files and restart, or name it in the daemon's own file",
        if all.is_empty() { "(none)".to_owned() } else { all.join(", ") }
    )
}

fn first<T: std::fmt::Display>(all: &[T]) -> String {
    all.first().map(ToString::to_string).unwrap_or_default()
}

/// Body of an error response.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Path of the affected object, such as `port.web1`. If several objects are affected, the path is that of the first
    /// one.
    pub object: String,
    /// Cause of the error.
    pub cause: String,
    /// Remedy for the error.
    pub fix: String,
    /// All problems of a configuration that was refused. Empty for other errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ProblemReport>,
}

/// An error response of the API, with its HTTP status.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub body: Box<ErrorBody>,
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub fn new(
        status: StatusCode,
        object: impl Into<String>,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let body =
            ErrorBody { object: object.into(), cause: cause.into(), fix: fix.into(), problems: Vec::new() };
        ApiError { status, body: Box::new(body) }
    }

    fn with_problems(status: StatusCode, problems: Vec<ProblemReport>) -> Self {
        // The body names the first error. Warnings may precede the error in the list.
        let first = problems.iter().find(|problem| problem.severity == Severity::Error).or(problems.first());
        let first = first.cloned();
        let (object, cause, fix) =
            first.map(|first| (first.object, first.cause, first.fix)).unwrap_or_default();
        // A problem of the whole text has no object.
        let object = if object.is_empty() { "configuration".to_owned() } else { object };
        ApiError { status, body: Box::new(ErrorBody { object, cause, fix, problems }) }
    }
}

/// Reason why an API request was refused, as text for the audit log. The handler adds the value to the extensions of
/// the response.
#[derive(Clone, Debug)]
pub(crate) struct Refused(pub String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let refused = Refused(format!("{}: {}", self.body.object, self.body.cause));
        let mut response = (self.status, Json(*self.body)).into_response();
        response.extensions_mut().insert(refused);
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = header::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

impl From<Vec<Problem>> for ApiError {
    fn from(problems: Vec<Problem>) -> Self {
        ApiError::with_problems(
            StatusCode::UNPROCESSABLE_ENTITY,
            problems.iter().map(Problem::report).collect(),
        )
    }
}

impl From<PlaneError> for ApiError {
    fn from(error: PlaneError) -> Self {
        let status = match error.kind {
            FailureKind::NotFound => StatusCode::NOT_FOUND,
            FailureKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            FailureKind::Busy => StatusCode::CONFLICT,
            FailureKind::Failed | FailureKind::Unready => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, error.object, error.cause, error.fix)
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Problems(problems) => problems.into(),
            ChangeError::Refused(refusals) => refused(&refusals),
            ChangeError::Pending { left_s } => ApiError::new(
                StatusCode::CONFLICT,
                "config",
                format!("an earlier change waits {left_s} more seconds for its confirmation"),
                "confirm it (POST /v1/config/confirm) or roll it back (DELETE /v1/config/pending)",
            ),
            ChangeError::NotPending => ApiError::new(
                StatusCode::CONFLICT,
                "config",
                "no change waits for a confirmation",
                "look at GET /v1/config/pending for what became of the last one",
            ),
            ChangeError::NeedsRoot { object, what } => {
                let cause = format!("this needs the scope `root`: {what}");
                ApiError::new(StatusCode::FORBIDDEN, object, cause, NEEDS_ROOT)
            }
            ChangeError::Outside { object, path, directories } => ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                object,
                format!("{} lies in none of the directories for files", path.display()),
                outside_fix(&directories),
            ),
            ChangeError::RemovesMost { removed, of } => ApiError::new(
                StatusCode::CONFLICT,
                "config",
                format!(
                    "it removes {removed} of the {of} filters, ports, bridges and routers of the file before"
                ),
                FORCE,
            ),
            ChangeError::Plane(error) => error.into(),
            ChangeError::Storage(error) => {
                ApiError::new(StatusCode::INSUFFICIENT_STORAGE, error.object(), error.cause(), error.fix())
            }
            ChangeError::Interrupted => ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "config",
                "the change was interrupted",
                "look at the log of the daemon",
            ),
        }
    }
}

fn refused(refusals: &[Refusal]) -> ApiError {
    let report = |refusal: &Refusal| ProblemReport {
        severity: Severity::Error,
        file: String::new(),
        line: 0,
        column: 0,
        object: refusal.object().to_string(),
        cause: refusal.cause(),
        fix: refusal.fix(),
    };
    let missing = |refusal: &Refusal| !matches!(refusal, Refusal::Owned { .. } | Refusal::TooMany { .. });
    let status = if refusals.iter().all(missing) { StatusCode::NOT_FOUND } else { StatusCode::CONFLICT };
    ApiError::with_problems(status, refusals.iter().map(report).collect())
}
