//! State and resources for the handlers of API requests.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::admission::AdmissionGate;
use crate::caller::Caller;
use crate::octets::ReplyMemory;
use crate::quota::{Holder, Quota, Quotas};
use crate::store::blocking;
use crate::{ChangeError, Store};

/// State that the handlers of all API requests share.
#[derive(Clone)]
pub(super) struct Shared {
    pub store: Arc<Store>,
    pub door: AdmissionGate,
    pub quotas: Quotas,
}

/// Values that the handler of one API request uses: the state that all handlers share, and the resources of the
/// request.
#[derive(Clone)]
pub(crate) struct Context {
    pub store: Arc<Store>,
    pub door: AdmissionGate,
    pub quotas: Quotas,
    /// Client whose quotas limit the resources of the request.
    pub holder: Holder,
    /// Memory that is reserved for the response to the request.
    pub answer: Option<Arc<ReplyMemory>>,
}

impl FromRequestParts<Shared> for Context {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Infallible> {
        let holder = parts.extensions.get::<Caller>().map_or(Holder::Unknown, Holder::from);
        let answer = parts.extensions.get::<Arc<ReplyMemory>>().cloned();
        let Shared { store, door, quotas } = shared.clone();
        Ok(Context { store, door, quotas, holder, answer })
    }
}

impl Context {
    /// Runs blocking work on a thread of the blocking pool. The work needs a permit from the client's quota, which is
    /// held until the work is done, even if the client disconnects.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ChangeError> {
        let permit = (self.quotas.work.enter(&self.holder).await, self.answer.clone());
        blocking(move || {
            let done = work();
            drop(permit);
            done
        })
        .await
    }

    /// Runs work in a separate task, and waits for its result. The work first needs a permit from the client's share of
    /// `quota`. The task continues if the client disconnects.
    pub async fn task<T: Send + 'static>(
        &self,
        quota: &Quota,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ChangeError> {
        let permit = quota.enter(&self.holder).await;
        let task = tokio::spawn(async move {
            let done = work.await;
            drop(permit);
            done
        });
        task.await.map_err(|_| ChangeError::Interrupted)
    }
}
