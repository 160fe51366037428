//! Owners of configuration objects. An object is changed or removed only by its owner.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Owner of an object: the source that created it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// The configuration file.
    #[default]
    File,
    /// A client of the API.
    Api,
    /// The OVSDB database from which the daemon takes configuration.
    Ovsdb,
    /// The kernel, whose objects the daemon reads through netlink.
    Netlink,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Owner::File => "file",
            Owner::Api => "api",
            Owner::Ovsdb => "ovsdb",
            Owner::Netlink => "netlink",
        })
    }
}
