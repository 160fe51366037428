//! Records of the hand-over state that are lists of values in the text, without the names of their fields.
//! There are many of these records, so names would take most of the text.

/// Implements `Serialize` for a record as the list of its values, in the order of its fields. The derived `Deserialize`
/// of the record reads such a list, because serde decodes a structure from a list as well. A new field is the last one
/// and has a default, so that lists of earlier releases are read. Earlier releases refuse a list with a new value.
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
