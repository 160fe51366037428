//! Prometheus's text exposition format 0.0.4, in which metrics are sent.

use std::fmt::Write;

/// A text in Prometheus's exposition format, to which metrics are added.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
    name: &'static str,
}

impl Exposition {
    /// Begins a metric family. All samples of the family must be added before the next family begins.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample of the current metric family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(self.text, "{}{{{}}} {value}", self.name, labels.join(","));
    }

    /// Returns the complete text in the exposition format.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Returns a label value with backslashes, quotes and line ends escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Exposition::default();
        text.family("x_total", "counter", "Help.");
        text.sample(&[("a", "b\"c\\d\ne"), ("f", "g")], 7);
        assert_eq!(
            text.text,
            "# HELP x_total Help.\n# TYPE x_total counter\nx_total{a=\"b\\\"c\\\\d\\ne\",f=\"g\"} 7\n"
        );
    }
}
