//! Suggestions for misspelled words. The suggestion is the nearest known word.

/// Returns the known word with the smallest edit distance to `word`. Returns `None` if this distance is too
/// large for a suggestion.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Known names are short. The limit avoids a quadratic comparison of a long hostile word.
    if word.len() > 64 {
        return None;
    }
    let length = word.chars().count();
    let limit = (length / 3).clamp(1, 3);
    known
        .into_iter()
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= limit)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= limit && distance < candidate.chars().count())
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the optimal string alignment distance of two words: the minimum number of insertions, deletions,
/// replacements and transpositions of adjacent characters.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["queues", "mode", "ring_size", "zero_copy"];
        assert_eq!(nearest("queue", known), Some("queues"));
        assert_eq!(nearest("zerocopy", known), Some("zero_copy"));
        assert_eq!(nearest("ringsize", known), Some("ring_size"));
        assert_eq!(nearest("mdoe", known), Some("mode"));
        assert_eq!(nearest("banana", known), None);
        assert_eq!(nearest("", known), None);
    }
}
