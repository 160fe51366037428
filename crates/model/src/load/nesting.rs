//! Limit of the nesting of a TOML text. A parsed text becomes a tree that is visited and freed by recursion, and deep
//! recursion overflows the stack of the thread.

use toml_parser::Source;
use toml_parser::lexer::TokenKind;

/// Maximum number of tables and arrays that enclose a value within a statement. Each part of a dotted key counts as a
/// table. The parser itself limits the nesting of brackets and the number of parts of a key, but not their product.
const NESTING: usize = 128;

/// Returns the byte offset at which a statement (a line with a key, or a table header) exceeds [`NESTING`]. Brackets
/// that do not match count as open, so that no text is nested more deeply than this function assumes.
pub(super) fn too_deep(text: &str) -> Option<usize> {
    // Open brackets, each with the number of dots in the key before it.
    let mut open: Vec<(TokenKind, usize)> = Vec::new();
    let (mut depth, mut dots) = (0, 0);
    for token in Source::new(text).lex() {
        match token.kind() {
            TokenKind::Dot => dots += 1,
            kind @ (TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket) => {
                open.push((kind, dots));
                depth += 1 + dots;
                dots = 0;
            }
            kind @ (TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket) => {
                let is_square = kind == TokenKind::RightSquareBracket;
                let begun = open.pop_if(|(begun, _)| (*begun == TokenKind::LeftSquareBracket) == is_square);
                if let Some((_, before)) = begun {
                    depth -= 1 + before;
                    dots = before;
                }
            }
            TokenKind::Comma => dots = 0,
            TokenKind::Newline if open.is_empty() => dots = 0,
            _ => {}
        }
        if depth + dots > NESTING {
            return Some(token.span().start());
        }
    }
    None
}
