//! Finds the orderings of the library.
//!
//! The module tree is followed from `src/lib.rs`, as the compiler does, so that it is known which builds compile a site. What
//! the scan cannot account for is an error: an ordering in a macro, one that is imported by its bare name, a file that no
//! module names, a `cfg` in an unexpected place.

use std::{
    collections::BTreeSet,
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::{
    Attribute, Expr, ExprPath, ImplItem, Item, Stmt, TraitItem,
    punctuated::Punctuated,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::{
    builds::Builds,
    reasons::{Reason, Reasons},
};

/// An ordering that can be weakened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    Acquire,
    Release,
    AcqRel,
    SeqCst,
}

impl Strength {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "Acquire" => Strength::Acquire,
            "Release" => Strength::Release,
            "AcqRel" => Strength::AcqRel,
            "SeqCst" => Strength::SeqCst,
            _ => return None,
        })
    }

    /// The next weaker ones.
    pub fn weaker(self) -> &'static [&'static str] {
        match self {
            Strength::Acquire | Strength::Release => &["Relaxed"],
            Strength::AcqRel => &["Acquire", "Release"],
            // Of loads and stores they are the same to loom, so what it cannot tell apart needs a reason. Of fences they are not.
            Strength::SeqCst => &["AcqRel"],
        }
    }
}

/// One ordering in the source.
#[derive(Debug)]
pub struct Site {
    pub file: String,
    pub function: String,
    /// The access, as it is written, without line breaks.
    pub access: String,
    /// Which of the two orderings of a compare-and-swap it is, if both can be weakened.
    pub role: Option<&'static str>,
    pub strength: Strength,
    pub is_fence: bool,
    pub builds: Builds,
    /// What stands in the file and is replaced in the copy: the ordering, or the whole call of a fence.
    pub place: Range<usize>,
    /// The ordering itself.
    pub ordering: Range<usize>,
    /// What the comment above says of weakenings that survive.
    pub reasons: Vec<Reason>,
}

impl Site {
    /// What it is weakened to: the next weaker orderings; a fence is removed as well, and one that is no `SeqCst` only that: relaxed it would be
    /// none.
    pub fn ways(&self) -> Vec<&'static str> {
        match (self.is_fence, self.strength) {
            (false, strength) => strength.weaker().to_vec(),
            (true, Strength::SeqCst) => vec!["nothing", "AcqRel"],
            (true, _) => vec!["nothing"],
        }
    }
}

/// All sites under `root`, which holds `src/lib.rs`, but for those of programs and tests.
pub fn scan(root: &Path) -> Result<Vec<Site>, String> {
    let mut sites: Vec<Site> = Vec::new();
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    let mut modules = vec![(PathBuf::from("src/lib.rs"), Builds::BOTH)];
    while let Some((file, builds)) = modules.pop() {
        seen.insert(file.clone());
        let text =
            fs::read_to_string(root.join(&file)).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut one = File::new(root, &file, &text, builds);
        one.scan();
        modules.append(&mut one.modules);
        errors.append(&mut one.errors);
        for site in one.sites {
            // One file may be a module of the product in one build, and of the models in another.
            let same = |other: &&mut Site| other.file == site.file && other.place == site.place;
            match sites.iter_mut().find(same) {
                Some(known) => {
                    known.builds.product |= site.builds.product;
                    known.builds.loom |= site.builds.loom;
                }
                None => sites.push(site),
            }
        }
    }
    for file in sources(root)? {
        if !seen.contains(&file) {
            errors.push(format!("{}: no module names this file", file.display()));
        }
    }
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    sites.retain(|site| site.builds.product || site.builds.loom);
    sites.sort_by(|a, b| (&a.file, a.place.start).cmp(&(&b.file, b.place.start)));
    Ok(sites)
}

/// Every source file of the library, relative to `root`.
fn sources(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::from("src")];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(root.join(&directory)).map_err(|error| error.to_string())?;
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let path = directory.join(entry.file_name());
            if path == Path::new("src/bin") {
                continue;
            }
            if entry.path().is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    Ok(files)
}

struct File<'a> {
    root: &'a Path,
    name: String,
    text: &'a str,
    reasons: Reasons<'a>,
    /// Where the files of child modules are.
    children: PathBuf,
    builds: Builds,
    owners: Vec<String>,
    functions: Vec<String>,
    /// Lines at which the statements, arms and fields around the present place begin.
    anchors: Vec<usize>,
    modules: Vec<(PathBuf, Builds)>,
    sites: Vec<Site>,
    errors: Vec<String>,
    /// Where orderings were found, and where conditions were met and taken into account.
    found: BTreeSet<usize>,
    conditions: BTreeSet<usize>,
    heeded: BTreeSet<usize>,
}

impl<'a> File<'a> {
    fn new(root: &'a Path, file: &Path, text: &'a str, builds: Builds) -> Self {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let directory = file.parent().unwrap_or(Path::new(""));
        let children =
            if matches!(stem, "lib" | "mod") { directory.to_owned() } else { directory.join(stem) };
        File {
            root,
            name: file.display().to_string(),
            text,
            reasons: Reasons::new(text),
            children,
            builds,
            owners: Vec::new(),
            functions: Vec::new(),
            anchors: Vec::new(),
            modules: Vec::new(),
            sites: Vec::new(),
            errors: Vec::new(),
            found: BTreeSet::new(),
            conditions: BTreeSet::new(),
            heeded: BTreeSet::new(),
        }
    }

    fn scan(&mut self) {
        let parsed = match syn::parse_file(self.text) {
            Ok(parsed) => parsed,
            Err(error) => return self.errors.push(format!("{}: {error}", self.name)),
        };
        self.within(&parsed.attrs, |file| visit::visit_file(file, &parsed));
        for &at in self.conditions.difference(&self.heeded) {
            self.errors.push(format!("{}: a `cfg` in a place that the tool does not know", self.at(at)));
        }
        match self.text.parse() {
            Ok(tokens) => self.account(tokens),
            Err(error) => self.errors.push(format!("{}: {error}", self.name)),
        }
        let stray = self
            .reasons
            .unclaimed()
            .map(|line| format!("{}:{line}: a reason without a weakening that it could be of", self.name));
        self.errors.extend(stray.collect::<Vec<_>>());
    }

    /// Goes on below these attributes.
    fn within(&mut self, attributes: &[Attribute], f: impl FnOnce(&mut Self)) {
        let before = self.builds;
        match before.under(attributes) {
            Ok(builds) => self.builds = builds,
            Err(error) => self.errors.push(format!("{}: {error}", self.name)),
        }
        self.heeded.extend(attributes.iter().map(|attribute| start(attribute.span())));
        f(self);
        self.builds = before;
    }

    fn anchored(&mut self, span: Span, f: impl FnOnce(&mut Self)) {
        self.anchors.push(span.start().line);
        f(self);
        self.anchors.pop();
    }

    fn in_function(&mut self, name: &syn::Ident, f: impl FnOnce(&mut Self)) {
        let owner = self.owners.last().map(|owner| format!("{owner}::")).unwrap_or_default();
        self.functions.push(format!("{owner}{name}"));
        f(self);
        self.functions.pop();
    }

    /// Looks at the arguments of a call: orderings among them are accesses, what else there is may contain some.
    fn arguments(&mut self, call: Span, method: &str, arguments: &Punctuated<Expr, syn::Token![,]>) {
        let is_strong = |expr: &Expr| matches!(expr, Expr::Path(path) if ordering(path).is_some());
        let both = arguments.iter().filter(|argument| is_strong(argument)).count() > 1;
        let is_exchange = method.starts_with("compare_exchange") || method == "fetch_update";
        let mut roles = ["success", "failure"].into_iter();
        for argument in arguments {
            match argument {
                Expr::Path(path) if ordering(path).is_some() => {
                    let role = if both && is_exchange { roles.next() } else { None };
                    if both && role.is_none() {
                        self.errors.push(format!(
                            "{}: two orderings in a call that the tool does not know",
                            self.at(start(call))
                        ));
                    }
                    self.site(path, call.byte_range(), method == "fence", role);
                }
                other => self.visit_expr(other),
            }
        }
    }

    fn site(&mut self, path: &ExprPath, access: Range<usize>, is_fence: bool, role: Option<&'static str>) {
        let Some(strength) = ordering(path) else { return };
        let ordering = path.span().byte_range();
        self.found.insert(ordering.start);
        let reasons = self.anchors.last().map(|&line| self.reasons.above(line)).unwrap_or_default();
        let Some(function) = self.functions.last().cloned() else {
            self.errors.push(format!("{}: an ordering outside of a function", self.at(ordering.start)));
            return;
        };
        self.sites.push(Site {
            file: self.name.clone(),
            function,
            access: one_line(&self.text[access.clone()]),
            role,
            strength,
            is_fence,
            builds: self.builds,
            place: if is_fence { access } else { ordering.clone() },
            ordering,
            reasons,
        });
    }

    /// Every ordering of the file must have been met.
    fn account(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (i, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.account(group.stream()),
                TokenTree::Ident(name) if name == "Ordering" => {
                    let path =
                        matches!(tokens.get(i + 1), Some(TokenTree::Punct(colon)) if colon.as_char() == ':');
                    let at = start(name.span());
                    let first = path_start(&tokens, i);
                    match tokens.get(i + if path { 3 } else { 1 }) {
                        Some(TokenTree::Ident(strength))
                            if path
                                && Strength::parse(&strength.to_string()).is_some()
                                && !self.found.contains(&first) =>
                        {
                            self.errors
                                .push(format!("{}: an ordering that the tool does not see", self.at(at)));
                        }
                        Some(TokenTree::Group(group)) if path && group.delimiter() == Delimiter::Brace => {
                            self.errors.push(format!("{}: orderings imported by name", self.at(at)));
                        }
                        Some(TokenTree::Punct(star)) if path && star.as_char() == '*' => {
                            self.errors.push(format!("{}: orderings imported by name", self.at(at)));
                        }
                        Some(TokenTree::Ident(alias)) if !path && alias == "as" => {
                            self.errors.push(format!("{}: an alias of `Ordering`", self.at(at)));
                        }
                        _ => {}
                    }
                }
                // It orders nothing in a model, so it may be only where models are not.
                TokenTree::Ident(name) if name == "compiler_fence" && !self.is_apart("compiler_fence") => {
                    self.errors
                        .push(format!("{}: no model sees a compiler's fence", self.at(start(name.span()))));
                }
                _ => {}
            }
        }
    }

    /// Whether the file has accesses with this word in them, and no model compiles any.
    fn is_apart(&self, word: &str) -> bool {
        let mut sites = self.sites.iter().filter(|site| site.access.contains(word)).peekable();
        sites.peek().is_some() && sites.all(|site| !site.builds.loom)
    }

    fn at(&self, byte: usize) -> String {
        let line = self.text[..byte].matches('\n').count() + 1;
        format!("{}:{line}", self.name)
    }
}

impl<'ast> Visit<'ast> for File<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("cfg") {
            self.conditions.insert(start(attribute.span()));
        }
    }

    fn visit_item(&mut self, item: &'ast Item) {
        self.within(attributes_of_item(item), |file| visit::visit_item(file, item));
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.attrs.iter().any(|attribute| attribute.path().is_ident("path")) {
            self.errors.push(format!("{}: a module with a path", self.name));
        }
        let name = module.ident.to_string();
        if module.content.is_some() {
            self.children.push(&name);
            visit::visit_item_mod(self, module);
            self.children.pop();
            return;
        }
        module.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        let plain = self.children.join(format!("{name}.rs"));
        let nested = self.children.join(&name).join("mod.rs");
        let file = if self.root.join(&plain).exists() { plain } else { nested };
        self.modules.push((file, self.builds));
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let owner = match &*block.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.owners.push(owner.unwrap_or_else(|| "_".to_owned()));
        visit::visit_item_impl(self, block);
        self.owners.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.owners.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.owners.pop();
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let owners = std::mem::take(&mut self.owners);
        self.in_function(&function.sig.ident, |file| visit::visit_item_fn(file, function));
        self.owners = owners;
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &Vec::new(),
        };
        self.within(attributes, |file| visit::visit_impl_item(file, item));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.in_function(&function.sig.ident, |file| visit::visit_impl_item_fn(file, function));
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let attributes = match item {
            TraitItem::Const(item) => &item.attrs,
            TraitItem::Fn(item) => &item.attrs,
            TraitItem::Type(item) => &item.attrs,
            TraitItem::Macro(item) => &item.attrs,
            _ => &Vec::new(),
        };
        self.within(attributes, |file| visit::visit_trait_item(file, item));
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.in_function(&function.sig.ident, |file| visit::visit_trait_item_fn(file, function));
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let attributes = match statement {
            Stmt::Local(local) => &local.attrs[..],
            Stmt::Macro(invocation) => &invocation.attrs[..],
            Stmt::Expr(expr, _) => attributes_of_expr(expr),
            Stmt::Item(_) => &[],
        };
        self.anchored(statement.span(), |file| {
            file.within(attributes, |file| visit::visit_stmt(file, statement));
        });
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.anchored(arm.span(), |file| file.within(&arm.attrs, |file| visit::visit_arm(file, arm)));
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.within(&field.attrs, |file| visit::visit_field(file, field));
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        self.anchored(field.span(), |file| {
            file.within(&field.attrs, |file| visit::visit_field_value(file, field));
        });
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        self.within(attributes_of_expr(expr), |file| visit::visit_expr(file, expr));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        call.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        self.visit_expr(&call.receiver);
        self.arguments(call.span(), &call.method.to_string(), &call.args);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        call.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        let function = match &*call.func {
            Expr::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.visit_expr(&call.func);
        self.arguments(call.span(), &function.unwrap_or_default(), &call.args);
    }

    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        self.site(path, path.span().byte_range(), false, None);
        visit::visit_expr_path(self, path);
    }
}

/// The ordering that a path names, if it can be weakened.
fn ordering(path: &ExprPath) -> Option<Strength> {
    let mut segments = path.path.segments.iter().rev();
    let strength = Strength::parse(&segments.next()?.ident.to_string())?;
    (segments.next()?.ident == "Ordering").then_some(strength)
}

fn start(span: Span) -> usize {
    span.byte_range().start
}

/// Where the path begins of which the token `i` is a part.
fn path_start(tokens: &[TokenTree], mut i: usize) -> usize {
    let colon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    while i >= 2 && colon(&tokens[i - 1]) && colon(&tokens[i - 2]) {
        i -= 2;
        if i > 0 && matches!(tokens[i - 1], TokenTree::Ident(_)) {
            i -= 1;
        }
    }
    start(tokens[i].span())
}

/// Without line breaks, and without what is the same everywhere.
fn one_line(access: &str) -> String {
    let mut line = String::new();
    for part in access.split_whitespace() {
        let glued = line.is_empty() || line.ends_with('(') || part.starts_with(['.', ')']);
        if !glued {
            line.push(' ');
        }
        line.push_str(part);
    }
    line.replace(",)", ")").replace("Ordering::", "").replace("std::ptr::", "").replace("ptr::", "")
}

fn attributes_of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn attributes_of_expr(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::Assign(expr) => &expr.attrs,
        Expr::Binary(expr) => &expr.attrs,
        Expr::Block(expr) => &expr.attrs,
        Expr::Call(expr) => &expr.attrs,
        Expr::ForLoop(expr) => &expr.attrs,
        Expr::If(expr) => &expr.attrs,
        Expr::Loop(expr) => &expr.attrs,
        Expr::Macro(expr) => &expr.attrs,
        Expr::Match(expr) => &expr.attrs,
        Expr::MethodCall(expr) => &expr.attrs,
        Expr::Path(expr) => &expr.attrs,
        Expr::Return(expr) => &expr.attrs,
        Expr::Struct(expr) => &expr.attrs,
        Expr::Unsafe(expr) => &expr.attrs,
        Expr::While(expr) => &expr.attrs,
        _ => &[],
    }
}
