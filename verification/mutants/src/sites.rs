//! Where in a file each mutant applies, and which shape of code it changes.

use std::{collections::HashMap, ops::Range};

use syn::{BinOp, Expr, Pat, ReturnType, Type, spanned::Spanned, visit::Visit};

use crate::{
    Fallible,
    listing::{Genre, Mutant},
};

/// A piece of code with mutants of its own.
#[derive(Clone)]
pub struct Site {
    pub range: Range<usize>,
    /// Numbers of the mutants that change it.
    pub mutants: Vec<usize>,
    pub shape: Shape,
    pub context: Context,
}

#[derive(Clone)]
pub enum Shape {
    /// The inside of a function's braces.
    Body,
    /// The keyword that would keep a function's body from reading the switch.
    Const {
        function: String,
    },
    Operation {
        kind: Kind,
        left: Range<usize>,
        op: String,
        right: Range<usize>,
    },
    Unary {
        operand: Range<usize>,
        op: String,
    },
    /// Between a pattern and its `=>`.
    Arm {
        guard: Option<Range<usize>>,
    },
    /// A struct expression; for each mutant the field that it leaves out.
    Literal {
        cuts: Vec<Range<usize>>,
    },
}

/// How an operator takes its operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The right one only if the left one does not decide.
    Lazy,
    /// By reference.
    Comparison,
    /// By value.
    Arithmetic,
    /// The left one is a place.
    Assignment,
}

/// What surrounds a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Context {
    /// Runs, and may read the switch.
    Ordinary,
    /// In this `const fn`; the keyword can go unless a constant needs it.
    ConstFn(String),
    /// Evaluated by the compiler.
    Constant,
    /// The body of a function that returns `impl Trait`: one type for all its returns.
    Opaque,
    /// An operand of a chain with `let`, where `||` is no expression.
    LetChain,
    /// Under a `cfg` that this build does not set.
    Absent,
}

/// The sites of one file, outermost first. Every mutant of `wanted` (number and mutant) is in exactly one.
pub fn find(text: &str, wanted: &[(usize, &Mutant)]) -> Fallible<Vec<Site>> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder {
        text,
        by_start: HashMap::new(),
        bodies: wanted
            .iter()
            .filter(|(_, mutant)| mutant.genre == Genre::FnValue)
            .map(|&(number, mutant)| (number, mutant.span.clone()))
            .collect(),
        sites: Vec::new(),
        context: Context::Ordinary,
        chained: false,
    };
    for &(number, mutant) in wanted {
        finder.by_start.entry((mutant.genre, mutant.span.start)).or_default().push(number);
    }
    finder.visit_file(&file);
    let mut sites = finder.sites;
    // Each value's mutants belong to the innermost body around them; visited outermost first.
    for (number, span) in finder.bodies {
        let body = sites
            .iter_mut()
            .filter(|site| matches!(site.shape, Shape::Body) && encloses(&site.range, &span))
            .min_by_key(|site| site.range.len());
        body.ok_or(format!("no body for mutant {number}"))?.mutants.push(number);
    }
    sites.retain(|site| !site.mutants.is_empty() || matches!(site.shape, Shape::Const { .. }));
    let mut placed: Vec<usize> = sites.iter().flat_map(|site| site.mutants.iter().copied()).collect();
    placed.sort_unstable();
    let mut expected: Vec<usize> = wanted.iter().map(|&(number, _)| number).collect();
    expected.sort_unstable();
    if placed != expected {
        let lost = wanted.iter().find(|(number, _)| !placed.contains(number));
        return Err(format!(
            "a mutant has no place: {}",
            lost.map_or("twice".into(), |(_, m)| m.to_string())
        )
        .into());
    }
    sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
    Ok(sites)
}

pub fn encloses(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

struct Finder<'a> {
    text: &'a str,
    by_start: HashMap<(Genre, usize), Vec<usize>>,
    bodies: Vec<(usize, Range<usize>)>,
    sites: Vec<Site>,
    context: Context,
    /// In the chain of `&&` of a condition with `let`.
    chained: bool,
}

impl Finder<'_> {
    fn take(&mut self, genre: Genre, start: usize) -> Vec<usize> {
        self.by_start.remove(&(genre, start)).unwrap_or_default()
    }

    fn add(&mut self, range: Range<usize>, mutants: Vec<usize>, shape: Shape) {
        self.sites.push(Site { range, mutants, shape, context: self.context.clone() });
    }

    fn within(&mut self, context: Context, visit: impl FnOnce(&mut Self)) {
        // What is absent or constant stays so, however deep.
        let inner = match self.context {
            Context::Absent | Context::Constant => self.context.clone(),
            _ => context,
        };
        let outer = std::mem::replace(&mut self.context, inner);
        let chained = std::mem::take(&mut self.chained);
        visit(self);
        (self.context, self.chained) = (outer, chained);
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block, visit: impl FnOnce(&mut Self)) {
        let context = match &signature.constness {
            None => Context::Ordinary,
            Some(keyword) => {
                let function = signature.ident.to_string();
                let start = keyword.span().byte_range().start;
                let range = start..start + "const ".len();
                debug_assert_eq!(&self.text[range.clone()], "const ");
                self.add(range, Vec::new(), Shape::Const { function: function.clone() });
                Context::ConstFn(function)
            }
        };
        self.within(context, |this| {
            let braces = block.brace_token.span;
            let range = braces.open().byte_range().end..braces.close().byte_range().start;
            let outer = this.context.clone();
            if this.context == Context::Ordinary && is_opaque(&signature.output) {
                this.context = Context::Opaque;
            }
            this.add(range, Vec::new(), Shape::Body);
            this.context = outer;
            visit(this);
        });
    }

    fn with_attributes(&mut self, attributes: &[syn::Attribute], visit: impl FnOnce(&mut Self)) {
        if attributes.iter().all(is_present) { visit(self) } else { self.within(Context::Absent, visit) }
    }
}

/// Macro for the visits that differ by their node only.
macro_rules! inside {
    ($($visit:ident($node:ty) $kind:ident;)*) => {
        $(fn $visit(&mut self, node: &'ast $node) {
            inside!(@$kind self, node, $visit);
        })*
    };
    (@constant $this:ident, $node:ident, $visit:ident) => {
        $this.within(Context::Constant, |this| syn::visit::$visit(this, $node))
    };
    (@attributes $this:ident, $node:ident, $visit:ident) => {
        $this.with_attributes(&$node.attrs, |this| syn::visit::$visit(this, $node))
    };
    (@function $this:ident, $node:ident, $visit:ident) => {
        $this.with_attributes(&$node.attrs, |this| {
            this.function(&$node.sig, &$node.block, |this| syn::visit::$visit(this, $node))
        })
    };
}

impl<'ast> Visit<'ast> for Finder<'_> {
    inside! {
        visit_item_fn(syn::ItemFn) function;
        visit_impl_item_fn(syn::ImplItemFn) function;
        visit_item_mod(syn::ItemMod) attributes;
        visit_item_impl(syn::ItemImpl) attributes;
        visit_item_trait(syn::ItemTrait) attributes;
        visit_expr_block(syn::ExprBlock) attributes;
        visit_expr_if(syn::ExprIf) attributes;
        visit_local(syn::Local) attributes;
        visit_item_static(syn::ItemStatic) constant;
        visit_item_const(syn::ItemConst) constant;
        visit_impl_item_const(syn::ImplItemConst) constant;
        visit_trait_item_const(syn::TraitItemConst) constant;
        visit_expr_const(syn::ExprConst) constant;
        visit_type_array(syn::TypeArray) constant;
        visit_variant(syn::Variant) constant;
        visit_generic_argument(syn::GenericArgument) constant;
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default {
            self.with_attributes(&node.attrs, |this| {
                this.function(&node.sig, block, |this| syn::visit::visit_trait_item_fn(this, node));
            });
        }
    }

    fn visit_expr_repeat(&mut self, node: &'ast syn::ExprRepeat) {
        self.visit_expr(&node.expr);
        self.within(Context::Constant, |this| this.visit_expr(&node.len));
    }

    fn visit_expr(&mut self, node: &'ast Expr) {
        // A chain goes through `&&` alone: whatever is inside another expression is free of it.
        let chained = self.chained;
        self.chained &= matches!(node, Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)));
        syn::visit::visit_expr(self, node);
        self.chained = chained;
    }

    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        let op = node.op.span().byte_range();
        let mutants = self.take(Genre::BinaryOperator, op.start);
        let chained = self.chained || (matches!(node.op, BinOp::And(_)) && has_let(node));
        if !mutants.is_empty() {
            let (left, right) = (node.left.span().byte_range(), node.right.span().byte_range());
            let range = left.start..right.end;
            let outer = self.context.clone();
            if chained && outer == Context::Ordinary {
                self.context = Context::LetChain;
            }
            self.add(range, mutants, operation(&self.text[op], left, right));
            self.context = outer;
        }
        self.chained = chained;
        syn::visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        let mutants = self.take(Genre::UnaryOperator, node.op.span().byte_range().start);
        if !mutants.is_empty() {
            let operand = node.expr.span().byte_range();
            let op = node.op.span().byte_range();
            let range = op.start..operand.end;
            self.add(range, mutants, Shape::Unary { operand, op: self.text[op].to_owned() });
        }
        syn::visit::visit_expr_unary(self, node);
    }

    fn visit_arm(&mut self, node: &'ast syn::Arm) {
        self.with_attributes(&node.attrs, |this| {
            let mut mutants = this.take(Genre::MatchArm, node.span().byte_range().start);
            let (pattern, guard) = match &node.pat {
                Pat::Guard(guarded) => (&*guarded.pat, Some(guarded.guard.span().byte_range())),
                pattern => (pattern, None),
            };
            if let Some(guard) = &guard {
                mutants.extend(this.take(Genre::MatchArmGuard, guard.start));
            }
            if !mutants.is_empty() {
                let range = pattern.span().byte_range().end..node.fat_arrow_token.span().byte_range().start;
                this.add(range, mutants, Shape::Arm { guard });
            }
            syn::visit::visit_arm(this, node);
        });
    }

    fn visit_expr_struct(&mut self, node: &'ast syn::ExprStruct) {
        let (mut mutants, mut cuts) = (Vec::new(), Vec::new());
        for pair in node.fields.pairs() {
            let field = pair.value().span().byte_range();
            let found = self.take(Genre::StructField, field.start);
            let end = pair.punct().map_or(field.end, |comma| comma.span().byte_range().end);
            cuts.extend(found.iter().map(|_| field.start..end));
            mutants.extend(found);
        }
        if !mutants.is_empty() {
            self.add(node.span().byte_range(), mutants, Shape::Literal { cuts });
        }
        syn::visit::visit_expr_struct(self, node);
    }
}

/// Whether a `let` is among the operands of this chain.
fn has_let(node: &syn::ExprBinary) -> bool {
    [&node.left, &node.right].into_iter().any(|operand| match &**operand {
        Expr::Let(_) => true,
        Expr::Binary(inner) if matches!(inner.op, BinOp::And(_)) => has_let(inner),
        _ => false,
    })
}

fn is_opaque(output: &ReturnType) -> bool {
    struct Opaque(bool);
    impl<'ast> Visit<'ast> for Opaque {
        fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
            self.0 = true;
        }
    }
    let ReturnType::Type(_, output) = output else { return false };
    let mut found = Opaque(false);
    <Opaque as Visit>::visit_type(&mut found, output as &Type);
    found.0
}

/// Whether this attribute lets the code into the build: all features are on, no model's or fault's cfg is.
fn is_present(attribute: &syn::Attribute) -> bool {
    fn holds(meta: &syn::Meta) -> bool {
        let nested = |list: &syn::MetaList| {
            list.parse_args_with(syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated)
                .unwrap_or_default()
        };
        match meta {
            syn::Meta::Path(path) => {
                !["loom", "crossbeam_loom", "shuttle", "leasehold_fault", "miri", "doctest"]
                    .iter()
                    .any(|off| path.is_ident(off))
            }
            syn::Meta::List(list) if list.path.is_ident("not") => !nested(list).iter().all(holds),
            syn::Meta::List(list) if list.path.is_ident("any") => nested(list).iter().any(holds),
            syn::Meta::List(list) => nested(list).iter().all(holds),
            syn::Meta::NameValue(_) => true,
        }
    }
    match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => holds(&attribute.meta),
        _ => true,
    }
}

/// The shape of an operation, by the text of its operator.
fn operation(op: &str, left: Range<usize>, right: Range<usize>) -> Shape {
    let kind = match op {
        "&&" | "||" => Kind::Lazy,
        "==" | "!=" | "<" | "<=" | ">" | ">=" => Kind::Comparison,
        _ if op.ends_with('=') => Kind::Assignment,
        _ => Kind::Arithmetic,
    };
    Shape::Operation { kind, left, op: op.to_owned(), right }
}
