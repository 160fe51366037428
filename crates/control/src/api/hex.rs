//! Hexadecimal text form of frames in JSON.

/// Returns the bytes as hexadecimal digits, two for each byte.
pub fn write(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Parses a text of hexadecimal digits, two for each byte, and returns the bytes. White space and colons are
/// ignored. Returns `None` if the text contains other characters or an odd number of digits.
pub fn read(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != ':')
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let (pairs, rest) = digits.as_ref()?.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_round_trip(bytes: Vec<u8>) {
            prop_assert_eq!(read(&write(&bytes)), Some(bytes));
        }
    }

    #[test]
    fn half_bytes_and_words_are_refused() {
        assert_eq!(read("0a:0b 0C"), Some(vec![10, 11, 12]));
        assert_eq!(read("0a0"), None);
        assert_eq!(read("zz"), None);
    }
}
