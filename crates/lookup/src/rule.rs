//! Rules that match masked keys: [`Rule`] for insertion into a classifier, and [`Entry`] as a view of an inserted rule.

/// A rule with a value, a mask, a priority and a payload. The rule matches the keys that equal the value in the bits of
/// the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<const W: usize, T> {
    /// Words that a key must equal in the bits of the mask. Bits outside the mask are ignored.
    pub value: [u64; W],
    /// Bits of the key that are compared with the value.
    pub mask: [u64; W],
    /// Priority of the rule. If several rules match a key, the rule with the highest priority is the result.
    pub priority: u16,
    /// Data that the caller attaches to the rule.
    pub payload: T,
}

/// A view of a rule in a classifier.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a, const W: usize, T> {
    /// Value of the rule. The bits outside the mask are zero.
    pub value: [u64; W],
    /// Bits of the key that are compared with the value.
    pub mask: &'a [u64; W],
    /// Priority of the rule. If several rules match a key, the rule with the highest priority is the result.
    pub priority: u16,
    /// Data that the caller attached to the rule.
    pub payload: &'a T,
}

/// Returns whether a key equals `value` in the bits of `mask`.
#[must_use]
pub fn matches<const W: usize>(key: &[u64; W], value: &[u64; W], mask: &[u64; W]) -> bool {
    (0..W).all(|word| (key[word] ^ value[word]) & mask[word] == 0)
}
