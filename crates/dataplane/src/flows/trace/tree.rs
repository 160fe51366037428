//! Trace report in Open vSwitch's format. Each line is placed under the line that caused it, and is indented further
//! than that line. As in Open vSwitch, a table lookup that is the last step of the preceding table is not indented
//! further.

use switch::flow::{NormalNote, TraceLine};

/// Kind of a line in the trace report, which determines the indentation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Table,
    Bucket,
    Action,
    Detail,
    Warning,
    Error,
}

struct Node {
    kind: Kind,
    text: String,
    below: Vec<usize>,
}

/// A trace report to which lines are added.
pub struct Tree {
    /// Lines of the report, as nodes of a tree. The first node represents the bridge.
    nodes: Vec<Node>,
    /// Path from the root to the current node. Each element is the index of a node and the depth of its
    /// children.
    path: Vec<(usize, u32)>,
}

/// Converts a step of the trace into the wording of Open vSwitch. Also returns the kind of the line.
fn spoken(words: &str) -> (Kind, &str) {
    match words {
        "there is no such port" => (Kind::Warning, "Nonexistent output port"),
        "not back by the port of arrival, unless `in_port` is asked for" => {
            (Kind::Warning, "skipping output to input port")
        }
        "the port takes no packets" => (Kind::Detail, "OFPPC_NO_FWD set, skipping output"),
        "its TTL is spent" => (Kind::Warning, "IPv4 decrement TTL exception"),
        "the stack is empty" => (Kind::Error, "stack underflow"),
        "there is no such group" => (Kind::Warning, "output to nonexistent group"),
        "no bucket is alive" => (Kind::Detail, "no live bucket"),
        words if words.starts_with("too many look-ups") => (Kind::Error, words),
        words if words.starts_with("too ") => (Kind::Error, words),
        words => (Kind::Detail, words),
    }
}

impl Tree {
    /// Returns the text of a trace report. `normal` contains the events of each `NORMAL` action of the flow entries.
    /// `words` converts an event into text.
    pub fn written(
        bridge: &str,
        lines: &[TraceLine],
        normal: &[Vec<NormalNote>],
        words: &impl Fn(NormalNote) -> (bool, String),
    ) -> String {
        let title = format!("bridge(\"{bridge}\")");
        let root = Node { kind: Kind::Table, text: title.clone(), below: Vec::new() };
        let mut tree = Tree { nodes: vec![root], path: Vec::new() };
        let mut normal = normal.iter();
        for line in lines {
            tree.add(line);
            if let TraceLine::Did { action, .. } = line
                && action == "NORMAL"
            {
                for note in normal.next().into_iter().flatten() {
                    let (warns, text) = words(*note);
                    tree.put(if warns { Kind::Warning } else { Kind::Detail }, text);
                }
            }
        }
        let mut text = format!("\n{title}\n{}\n", "-".repeat(title.len()));
        tree.print(0, 0, &mut text);
        text
    }

    /// Goes back on the current path, so that the node whose children have the depth `depth` becomes the current node.
    fn leave(&mut self, depth: u32) {
        while self.path.last().is_some_and(|(_, own)| *own > depth) {
            self.path.pop();
        }
    }

    fn put(&mut self, kind: Kind, text: String) -> usize {
        let at = self.nodes.len();
        self.nodes.push(Node { kind, text, below: Vec::new() });
        let above = self.path.last().map_or(0, |(above, _)| *above);
        if let Some(above) = self.nodes.get_mut(above) {
            above.below.push(at);
        }
        at
    }

    fn enter(&mut self, kind: Kind, text: String, depth: u32) {
        let at = self.put(kind, text);
        self.path.push((at, depth));
    }

    fn add(&mut self, line: &TraceLine) {
        match line {
            TraceLine::Rule { depth, table, priority, cookie, matching, actions } => {
                self.leave(*depth);
                let space = if matching.is_empty() { "" } else { ", " };
                let cookie = if *cookie == 0 { String::new() } else { format!(", cookie {cookie:#x}") };
                self.enter(
                    Kind::Table,
                    format!("{table:2}. {matching}{space}priority {priority}{cookie}"),
                    *depth,
                );
                if actions == "drop" {
                    self.put(Kind::Action, "drop".to_owned());
                }
            }
            TraceLine::Miss { depth, table } => {
                self.leave(*depth);
                self.enter(Kind::Table, format!("{table:2}. No match."), *depth);
                self.put(Kind::Action, "drop".to_owned());
            }
            TraceLine::Did { depth, action } => {
                self.leave(*depth);
                self.put(Kind::Action, action.clone());
            }
            TraceLine::Note { depth, words } => {
                self.leave(*depth);
                let (kind, words) = spoken(words);
                self.put(kind, words.to_owned());
            }
            TraceLine::Detail { depth, words } => {
                self.leave(*depth);
                self.put(Kind::Detail, words.clone());
            }
            TraceLine::Bucket { depth, place } => {
                self.leave(depth.saturating_sub(1));
                self.enter(Kind::Bucket, format!("bucket {place}"), *depth);
            }
            TraceLine::ActionSet { depth } => {
                self.path.truncate(1);
                self.enter(Kind::Table, "--. Executing action set:".to_owned(), *depth);
            }
            TraceLine::More(more) => {
                self.put(Kind::Detail, format!("(and {more} more)"));
            }
        }
    }

    /// Prints the children of a node, like the function `oftrace_node_print_details` of Open vSwitch.
    fn print(&self, above: usize, level: usize, text: &mut String) {
        let Some(above) = self.nodes.get(above) else { return };
        for (place, at) in above.below.iter().enumerate() {
            let Some(node) = self.nodes.get(*at) else { continue };
            let is_last = place + 1 == above.below.len();
            let more = usize::from(!is_last || node.kind != Kind::Table);
            text.push_str(&" ".repeat(4 * (level + more)));
            match node.kind {
                Kind::Detail => text.push_str(&format!(" -> {}\n", node.text)),
                Kind::Warning => text.push_str(&format!(" >> {}\n", node.text)),
                Kind::Error => text.push_str(&format!(" >>>> {} <<<<\n", node.text)),
                Kind::Table | Kind::Bucket | Kind::Action => text.push_str(&format!("{}\n", node.text)),
            }
            self.print(*at, level + 2 * more, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(depth: u32, table: u8) -> TraceLine {
        let (matching, actions) = ("ip".to_owned(), "...".to_owned());
        TraceLine::Rule { depth, table, priority: 7, cookie: 0, matching, actions }
    }

    fn did(depth: u32, action: &str) -> TraceLine {
        TraceLine::Did { depth, action: action.to_owned() }
    }

    /// Trace reports have the same indentation as trace reports of Open vSwitch 3.1 for equal flow entries.
    #[test]
    fn only_what_others_follow_is_set_in_further() {
        let lines = [
            rule(0, 0),
            did(0, "resubmit(,2)"),
            TraceLine::Miss { depth: 1, table: 2 },
            did(0, "group:1"),
            TraceLine::Bucket { depth: 1, place: 0 },
            did(1, "output:1"),
            did(0, "output:99"),
            TraceLine::Note { depth: 0, words: "there is no such port" },
            did(0, "goto_table:9"),
            rule(0, 9),
            did(0, "NORMAL"),
            TraceLine::ActionSet { depth: 0 },
            did(0, "output:3"),
        ];
        let words = |_| (false, "no learned MAC for destination, flooding".to_owned());
        let text = Tree::written("br0", &lines, &[vec![NormalNote::Flood]], &words);
        let expected = "
bridge(\"br0\")
-------------
 0. ip, priority 7
    resubmit(,2)
     2. No match.
            drop
    group:1
    bucket 0
            output:1
    output:99
     >> Nonexistent output port
    goto_table:9
     9. ip, priority 7
            NORMAL
             -> no learned MAC for destination, flooding
--. Executing action set:
    output:3
";
        assert_eq!(text, expected);
        let last = [rule(0, 0), did(0, "resubmit(,1)"), rule(1, 1), did(1, "dec_ttl")];
        let text = Tree::written("br0", &last, &[], &words);
        assert!(
            text.ends_with(" 0. ip, priority 7\n    resubmit(,1)\n 1. ip, priority 7\n    dec_ttl\n"),
            "{text}"
        );
    }
}
