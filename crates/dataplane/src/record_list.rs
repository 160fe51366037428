//! Serialization of records of the hand-over state as lists of values, without the names of the
//! fields. The state contains many such records, and field names would take up most of its text.

/// Implements `Serialize` for a record as the list of its values, in the order of its fields. The
/// derived `Deserialize` of the record reads such a list, because serde decodes a structure from a
/// list as well. A new field must be the last field and must have a default, so that lists of
/// earlier releases can be read. Earlier releases refuse a list with an additional value.
macro_rules! serialize_as_list {
    ($record:ident { $($field:ident),+ }) => {
        impl serde::Serialize for $record {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let $record { $($field),+ } = self;
                ($($field,)+).serialize(to)
            }
        }
    };
}

pub(crate) use serialize_as_list;
