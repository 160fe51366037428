//! Names in a configuration: ports, bridges, routers, kernel devices, network namespaces.
//!
//! Every name is checked when it is created, so that other code can use it as a path component, a label or a
//! netlink attribute. Device names follow the kernel's `dev_valid_name` (net/core/dev.c): 1..=15 bytes, no
//! `/`, `:` or white space.

use std::borrow::Borrow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Reason why a text is not a valid name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("it is empty")]
    Empty,
    /// The name exceeds the maximum length for names of its type.
    #[error("it has {length} bytes, and at most {limit} are possible")]
    TooLong {
        /// Length of the invalid name in bytes.
        length: usize,
        /// Maximum length of names of this type, in bytes.
        limit: usize,
    },
    /// The name contains a character that is not permitted.
    #[error("it contains {0:?}")]
    Character(char),
    /// The name is `.` or `..`, which denote directories.
    #[error("`.` and `..` are directories")]
    Dots,
    /// The path is relative where an absolute path is required.
    #[error("a path must start with `/`")]
    RelativePath,
}

/// Maximum length of the name of a port, bridge, router, filter or steering policy, in bytes.
const OBJECT_LIMIT: usize = 32;
/// Maximum length of the name of a filter rule, in bytes. The hook stores 64 bytes including a terminating zero.
const RULE_LIMIT: usize = 63;
/// Maximum length of a device name in bytes: IFNAMSIZ without the terminating zero.
const DEVICE_LIMIT: usize = 15;
/// Maximum length of a namespace name in bytes: NAME_MAX, because the name is a file name in /run/netns.
const NAMESPACE_LIMIT: usize = 255;

fn check(text: &str, limit: usize, allowed: impl Fn(char) -> bool) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text == "." || text == ".." {
        return Err(NameError::Dots);
    }
    if let Some(character) = text.chars().find(|&c| !allowed(c)) {
        return Err(NameError::Character(character));
    }
    if text.len() > limit {
        return Err(NameError::TooLong { length: text.len(), limit });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $limit:expr, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(String);

        impl $name {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                check(text, $limit, $allowed)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // This impl is valid for lookups, because equality, order and hash are those of the text.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

name! {
    /// The name of a port: letters, digits, `_`, `-` and `.`, at most 32 bytes.
    PortName, OBJECT_LIMIT, object_character
}
name! {
    /// The name of a bridge: letters, digits, `_`, `-` and `.`, at most 32 bytes.
    BridgeName, OBJECT_LIMIT, object_character
}
name! {
    /// The name of a virtual router: letters, digits, `_`, `-` and `.`, at most 32 bytes.
    RouterName, OBJECT_LIMIT, object_character
}
name! {
    /// The name of a filter: letters, digits, `_`, `-` and `.`, at most 32 bytes.
    FilterName, OBJECT_LIMIT, object_character
}
name! {
    /// The name of a steering policy: letters, digits, `_`, `-` and `.`, at most 32 bytes.
    SteeringName, OBJECT_LIMIT, object_character
}
name! {
    /// The name of a filter rule: letters, digits, `_`, `-` and `.`, at most 63 bytes.
    RuleName, RULE_LIMIT, object_character
}
name! {
    /// The name of a kernel network device: at most 15 bytes, without `/`, `:` or white space.
    DeviceName, DEVICE_LIMIT, |c| c.is_ascii_graphic() && c != '/' && c != ':'
}

fn object_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// A network namespace: a name of `ip netns`, or the path of a namespace file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Namespace {
    /// Name of a file in `/run/netns`.
    Name(String),
    /// Path of another namespace file, such as `/proc/1234/ns/net`.
    Path(PathBuf),
}

impl Namespace {
    /// Returns the path of the namespace file.
    pub fn path(&self) -> PathBuf {
        match self {
            Namespace::Name(name) => Path::new("/run/netns").join(name),
            Namespace::Path(path) => path.clone(),
        }
    }
}

impl FromStr for Namespace {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.starts_with('/') {
            if let Some(character) = text.chars().find(|c| c.is_control()) {
                return Err(NameError::Character(character));
            }
            return Ok(Namespace::Path(PathBuf::from(text)));
        }
        check(text, NAMESPACE_LIMIT, |c| c.is_ascii_graphic() && c != '/')?;
        Ok(Namespace::Name(text.to_owned()))
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Namespace::Name(name) => name.fmt(f),
            Namespace::Path(path) => path.display().fmt(f),
        }
    }
}

impl Serialize for Namespace {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_obey_the_kernel() {
        assert!("eth0".parse::<DeviceName>().is_ok());
        assert!("abcdefghijklmno".parse::<DeviceName>().is_ok());
        assert_eq!(
            "abcdefghijklmnop".parse::<DeviceName>(),
            Err(NameError::TooLong { length: 16, limit: 15 })
        );
        assert_eq!("a/b".parse::<DeviceName>(), Err(NameError::Character('/')));
        assert_eq!("..".parse::<DeviceName>(), Err(NameError::Dots));
        assert_eq!("".parse::<DeviceName>(), Err(NameError::Empty));
    }

    #[test]
    fn namespaces_are_names_or_paths() {
        assert_eq!("red".parse::<Namespace>().unwrap().path(), Path::new("/run/netns/red"));
        assert_eq!("/proc/1/ns/net".parse::<Namespace>().unwrap().path(), Path::new("/proc/1/ns/net"));
        assert_eq!("a/b".parse::<Namespace>(), Err(NameError::Character('/')));
    }
}
