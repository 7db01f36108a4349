//! What the source says of weakenings that survive.
//!
//! In the comment above the statement with the access, from `// Survives WEAKENING: ` to the end of the comment or to the
//! next such line. The weakening is written as in the table, with `->` for the arrow.

use std::cell::RefCell;
use std::collections::BTreeSet;

const MARKER: &str = "// Survives ";

#[derive(Clone, Debug)]
pub struct Reason {
    pub weakening: String,
    pub text: String,
    pub line: usize,
}

/// The reasons of one file.
pub struct Reasons<'a> {
    lines: Vec<&'a str>,
    claimed: RefCell<BTreeSet<usize>>,
}

impl<'a> Reasons<'a> {
    pub fn new(text: &'a str) -> Self {
        Reasons { lines: text.lines().map(str::trim).collect(), claimed: RefCell::default() }
    }

    /// The reasons in the comment that ends above the line with this number.
    pub fn above(&self, line: usize) -> Vec<Reason> {
        let is_comment = |line: &str| line.starts_with("//") || line.starts_with("#[");
        let last = line - 1;
        let first = (0..last).rev().find(|&i| !is_comment(self.lines[i])).map_or(0, |i| i + 1);
        let mut reasons: Vec<Reason> = Vec::new();
        for i in first..last {
            if let Some((weakening, text)) =
                self.lines[i].strip_prefix(MARKER).and_then(|rest| rest.split_once(": "))
            {
                let weakening = weakening.replace("->", "→");
                reasons.push(Reason { weakening, text: text.to_owned(), line: i + 1 });
            } else if let (Some(reason), Some(more)) = (reasons.last_mut(), self.lines[i].strip_prefix("// "))
            {
                reason.text.push(' ');
                reason.text.push_str(more);
            }
        }
        self.claimed.borrow_mut().extend(reasons.iter().map(|reason| reason.line));
        reasons
    }

    /// Lines with reasons that stand above no site.
    pub fn unclaimed(&self) -> impl Iterator<Item = usize> {
        let numbered = self.lines.iter().zip(1..);
        let marked = numbered.filter(|(line, _)| line.starts_with(MARKER)).map(|(_, number)| number);
        marked.filter(|number| !self.claimed.borrow().contains(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_ends_with_its_comment_or_at_the_next() {
        let text = "a();\n// Why.\n// Survives A -> B: one\n// two.\n// Survives removal: three.\nb();\n// Survives A -> B: stray\n\nc();";
        let reasons = Reasons::new(text);
        let found: Vec<_> = reasons.above(6).into_iter().map(|r| (r.weakening, r.text)).collect();
        assert_eq!(
            found,
            [("A → B".to_owned(), "one two.".to_owned()), ("removal".to_owned(), "three.".to_owned())]
        );
        assert!(reasons.above(9).is_empty());
        assert_eq!(reasons.unclaimed().collect::<Vec<_>>(), [7]);
    }
}
