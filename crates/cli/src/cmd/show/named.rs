//! Objects that a command line names.

use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::failure::Failure;

/// Returns an error if the API resource at `path` lists no object with this name.
pub async fn exists<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    name: &str,
    name_of: impl Fn(&T) -> &str,
) -> Result<(), Failure> {
    let all: Vec<T> = client.get(path).await?;
    if all.iter().any(|one| name_of(one) == name) { Ok(()) } else { Err(absent(name)) }
}

/// Returns the failure for an object that does not exist.
pub fn absent(name: &str) -> Failure {
    Failure::new(name, "there is no such object", "leave the name out to see all")
}
