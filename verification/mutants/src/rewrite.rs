//! Writes a file anew with its mutants behind the switch: `crate::mutation::on(number)` is true for the chosen one.
//!
//! An operation evaluates its operands once and then chooses the operator, so that nesting does not double the code.

use std::ops::Range;

use crate::{
    listing::Mutant,
    sites::{Kind, Shape, Site, encloses},
};

/// The new text, and what in it is whose.
pub struct Rewritten {
    pub text: String,
    pub marks: Vec<Mark>,
}

/// A piece of the new text that is there for these mutants.
pub struct Mark {
    pub range: Range<usize>,
    pub mutants: Vec<usize>,
}

impl Rewritten {
    /// The mutants of the smallest mark around `range`.
    pub fn owners(&self, range: &Range<usize>) -> &[usize] {
        let marks = self.marks.iter().filter(|mark| encloses(&mark.range, range));
        marks.min_by_key(|mark| mark.range.len()).map_or(&[], |mark| &mark.mutants)
    }
}

/// Rewrites `text` with those mutants that are `wanted`. `sites` are outermost first; `keeps_const` tells of each
/// `const fn` whether it stays one.
pub fn rewrite(
    text: &str,
    sites: &[Site],
    mutants: &[Mutant],
    wanted: &dyn Fn(usize) -> bool,
    keeps_const: &dyn Fn(&str) -> bool,
) -> Rewritten {
    let out = Rewritten { text: String::new(), marks: Vec::new() };
    let mut writer = Writer { text, mutants, wanted, keeps_const, out };
    writer.copy(0..text.len(), sites);
    writer.out
}

struct Writer<'a> {
    text: &'a str,
    mutants: &'a [Mutant],
    wanted: &'a dyn Fn(usize) -> bool,
    keeps_const: &'a dyn Fn(&str) -> bool,
    out: Rewritten,
}

impl Writer<'_> {
    /// Copies a piece of the old text, with what `sites` inside it become.
    fn copy(&mut self, range: Range<usize>, sites: &[Site]) {
        let mut at = range.start;
        let mut next = 0;
        while next < sites.len() {
            let site = &sites[next];
            let inner = sites[next + 1..].partition_point(|other| other.range.start < site.range.end);
            // A body that fills its expression exactly comes after it: both begin at the same byte.
            let inner = next + 1..next + 1 + inner;
            if encloses(&range, &site.range) {
                self.put(&self.text[at..site.range.start]);
                self.site(site, &sites[inner.clone()]);
                at = site.range.end;
            }
            next = inner.end;
        }
        self.put(&self.text[at..range.end]);
    }

    fn put(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    fn on(&mut self, mutant: usize) {
        // 0 is nobody's number.
        self.put(&format!("crate::mutation::on({})", mutant + 1));
    }

    fn marked(&mut self, mutants: &[usize], write: impl FnOnce(&mut Self)) {
        let start = self.out.text.len();
        write(self);
        self.out.marks.push(Mark { range: start..self.out.text.len(), mutants: mutants.to_vec() });
    }

    /// `if on(MUTANT) { ... } else `
    fn instead(&mut self, mutant: usize, write: impl FnOnce(&mut Self)) {
        self.put("if ");
        self.on(mutant);
        self.put(" { ");
        self.marked(&[mutant], write);
        self.put(" } else ");
    }

    fn site(&mut self, site: &Site, inner: &[Site]) {
        let mutants: Vec<usize> =
            site.mutants.iter().copied().filter(|&mutant| (self.wanted)(mutant)).collect();
        if let Shape::Const { function } = &site.shape {
            if (self.keeps_const)(function) {
                self.put(&self.text[site.range.clone()]);
            }
            return;
        }
        if mutants.is_empty() {
            return self.copy(site.range.clone(), inner);
        }
        if let Shape::Body = site.shape {
            for &mutant in &mutants {
                self.put(" if ");
                self.on(mutant);
                self.put(" { ");
                self.marked(&[mutant], |this| {
                    this.put("return ");
                    this.put(&this.mutants[mutant].replacement);
                });
                self.put("; }");
            }
            return self.copy(site.range.clone(), inner);
        }
        self.marked(&mutants, |this| match &site.shape {
            Shape::Const { .. } | Shape::Body => unreachable!("written above"),
            Shape::Operation { kind, left, op, right } => {
                this.put("({ ");
                this.operation(*kind, left, op, right, &mutants, inner);
                this.put(" })");
            }
            Shape::Unary { operand, op } => {
                this.put("(match (");
                this.copy(operand.clone(), inner);
                this.put(") { __v => ");
                for &mutant in &mutants {
                    this.instead(mutant, |this| this.put("__v"));
                }
                this.put(&format!("{{ {op}__v }} }})"));
            }
            Shape::Arm { guard } => {
                let always = |m: &usize| this.mutants[*m].replacement == "true";
                let (on, off): (Vec<usize>, Vec<usize>) = mutants.iter().partition(|m| always(m));
                this.put(" if (false");
                for mutant in on {
                    this.put(" || ");
                    this.on(mutant);
                }
                this.put(" || (true");
                for mutant in off {
                    this.put(" && !");
                    this.on(mutant);
                }
                if let Some(guard) = guard {
                    this.put(" && (");
                    this.copy(guard.clone(), inner);
                    this.put(")");
                }
                this.put(")) ");
            }
            Shape::Literal { cuts } => {
                this.put("(");
                for (&mutant, cut) in site.mutants.iter().zip(cuts) {
                    if !mutants.contains(&mutant) {
                        continue;
                    }
                    this.instead(mutant, |this| {
                        this.copy(site.range.start..cut.start, inner);
                        this.copy(cut.end..site.range.end, inner);
                    });
                }
                this.put("{ ");
                this.copy(site.range.clone(), inner);
                this.put(" })");
            }
        });
    }

    fn operation(
        &mut self,
        kind: Kind,
        left: &Range<usize>,
        op: &str,
        right: &Range<usize>,
        mutants: &[usize],
        inner: &[Site],
    ) {
        let (open, comma, close, l, r) = match kind {
            Kind::Lazy => return self.lazy(left, op, right, mutants, inner),
            Kind::Comparison => ("match (&(", "), &(", ")) { (__l, __r) => ", "__l", "__r"),
            Kind::Arithmetic => ("match ((", "), (", ")) { (__l, __r) => ", "__l", "__r"),
            // The right operand first, as the language has it for numbers.
            Kind::Assignment => ("match (", ") { __r => match &mut (", ") { __l => ", "*__l", "__r"),
        };
        let (first, second) = if kind == Kind::Assignment { (right, left) } else { (left, right) };
        self.put(open);
        self.copy(first.clone(), inner);
        self.put(comma);
        self.copy(second.clone(), inner);
        self.put(close);
        for &mutant in mutants {
            self.instead(mutant, |this| {
                let op = &this.mutants[mutant].replacement;
                this.put(&format!("{l} {op} {r}"));
            });
        }
        self.put(&format!("{{ {l} {op} {r} }} }}"));
        if kind == Kind::Assignment {
            self.put(" }");
        }
    }

    /// With m for the switch: `a && b`, or `a || b` if m, is b where a differs from m, and m where not. The mirror image
    /// of that for `a || b`.
    fn lazy(
        &mut self,
        left: &Range<usize>,
        op: &str,
        right: &Range<usize>,
        mutants: &[usize],
        inner: &[Site],
    ) {
        let [mutant] = *mutants else { unreachable!("there is one other lazy operator") };
        let (test, not) = if op == "&&" { ("!=", "") } else { ("==", "!") };
        self.put("if (");
        self.copy(left.clone(), inner);
        self.put(&format!(") {test} "));
        self.on(mutant);
        self.put(" { ");
        self.copy(right.clone(), inner);
        self.put(&format!(" }} else {{ {not}"));
        self.on(mutant);
        self.put(" }");
    }
}
