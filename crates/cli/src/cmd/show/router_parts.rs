//! Lists of entries of several routers, for example the interfaces of all routers.

use model::RouterState;
use serde::Serialize;

use crate::client::{Client, quoted};
use crate::failure::Failure;

/// One entry (for example an interface) of a router's state, with the name of the router.
#[derive(Serialize)]
pub struct Part<'a, T> {
    /// Name of the router.
    pub router: &'a str,
    /// Entry of the router's state, for example an interface.
    #[serde(flatten)]
    pub value: &'a T,
}

/// Returns the entries (for example the interfaces) of all routers in one list.
pub fn parts<'a, T: 'a>(
    routers: &'a [RouterState],
    of: impl Fn(&'a RouterState) -> &'a Vec<T>,
) -> impl Iterator<Item = Part<'a, T>> {
    let of_one = move |router: &'a RouterState| {
        of(router).iter().map(move |value| Part { router: router.name.as_str(), value })
    };
    routers.iter().flat_map(of_one)
}

/// Requests the state of all routers from the daemon, or only of the named router.
pub async fn some_routers(client: &Client, router: Option<&str>) -> Result<Vec<RouterState>, Failure> {
    match router {
        None => client.get("/v1/routers").await,
        Some(name) => Ok(vec![client.get(&format!("/v1/routers/{}", quoted(name))).await?]),
    }
}
