//! Writes changes of the expressions of a folder's Rust files into a copy of them, each behind `crate::mutant(NUMBER)`, of the kinds that
//! cargo-mutants makes: bodies that return a plain value, other operators, no negation, arms of a match and guards.
//!   mutants FROM TO FOLDER LEFT_OUT OUT    the numbers in the file LEFT_OUT are left out; OUT gets a line for each change
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::*;

/// What is written into a file.
struct Edits<'a> {
    file: String,
    /// Changes that are left out.
    skip: &'a HashSet<usize>,
    /// The number of the next change.
    next: &'a mut usize,
    out: &'a mut Vec<String>,
    source: &'a str,
    /// By offset: what closes there, the outermost first, and what opens.
    before: BTreeMap<usize, (Vec<String>, Vec<String>)>,
    /// From, to, and with what.
    replaced: Vec<(usize, usize, String)>,
    /// The names around what is looked at.
    function: Vec<String>,
    line_starts: Vec<usize>,
}

impl Edits<'_> {
    fn text(&self, range: std::ops::Range<usize>) -> &str {
        &self.source[range]
    }
    fn open(&mut self, at: usize, text: String) {
        self.before.entry(at).or_default().1.push(text);
    }
    fn close(&mut self, at: usize, text: String) {
        self.before.entry(at).or_default().0.push(text);
    }
    /// The file with all edits.
    fn written(mut self) -> String {
        self.replaced.sort();
        let mut text = String::with_capacity(self.source.len() * 2);
        let mut at = 0;
        // at one offset what closes and opens comes before what is replaced from there on
        let points = self.before.keys().map(|offset| (*offset, None));
        let replaced = self.replaced.iter().map(|edit| (edit.0, Some(edit)));
        let mut points: Vec<_> = points.chain(replaced).collect();
        points.sort();
        for (offset, edit) in points {
            text += &self.source[at.min(offset)..offset];
            at = at.max(offset);
            match edit {
                Some((_, end, with)) => {
                    text += with;
                    at = *end;
                }
                None => {
                    let (closings, openings) = &self.before[&offset];
                    closings.iter().rev().chain(openings).for_each(|edit| text += edit);
                }
            }
        }
        text + &self.source[at..]
    }
    /// The number of a new change, none where it is to be left out.
    fn new(&mut self, at: usize, what: &str) -> Option<usize> {
        let n = *self.next;
        *self.next += 1;
        if self.skip.contains(&n) {
            return None;
        }
        let line = self.line_starts.partition_point(|s| *s <= at);
        self.out.push(format!("{n}\t{}:{line}\t{}\t{what}", self.file, self.function.join("::")));
        Some(n)
    }
    fn range(node: &impl Spanned) -> std::ops::Range<usize> {
        node.span().byte_range()
    }
}

fn values(ty: &Type) -> Vec<String> {
    let text = ty.to_token_stream().to_string().replace(' ', "");
    let list = |all: &[&str]| all.iter().map(|s| s.to_string()).collect();
    match text.as_str() {
        "bool" => list(&["true", "false"]),
        "u64" | "u32" | "usize" | "i64" | "i32" | "u8" | "u16" | "u128" => list(&["0", "1"]),
        "f64" | "f32" => list(&["0.0", "1.0"]),
        "String" => list(&["String::new()"]),
        "&str" | "&'staticstr" => list(&["\"\"", "\"xyzzy\""]),
        "Bytes" => list(&["Default::default()"]),
        _ => {
            let inner =
                |start: &str| text.strip_prefix(start).and_then(|t| t.strip_suffix('>')).map(str::to_owned);
            if let Some(t) = inner("Option<") {
                let mut all = vec!["None".to_owned()];
                if let Ok(ty) = parse_str::<Type>(&t) {
                    all.extend(values(&ty).into_iter().map(|v| format!("Some({v})")));
                }
                all
            } else if text.starts_with("Vec<") {
                list(&["Vec::new()"])
            } else if text.starts_with("Result<(),") {
                list(&["Ok(())"])
            } else {
                Vec::new()
            }
        }
    }
}

fn has_let(e: &Expr) -> bool {
    match e {
        Expr::Let(_) => true,
        Expr::Binary(b) => has_let(&b.left) || has_let(&b.right),
        _ => false,
    }
}

fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|a| {
        let t = a.to_token_stream().to_string().replace(' ', "");
        t.contains("cfg(test)") || t.contains("#[test]")
    })
}

impl Edits<'_> {
    fn body(&mut self, sig: &Signature, block: &Block) {
        if sig.constness.is_some() {
            return;
        }
        self.function.push(sig.ident.to_string());
        if !block.stmts.is_empty() {
            let at = Self::range(block).start + 1;
            let list = match &sig.output {
                ReturnType::Default => vec!["()".to_owned()],
                ReturnType::Type(_, ty) => values(ty),
            };
            for value in list {
                if let Some(n) = self.new(at, &format!("replace body with {value}")) {
                    self.open(at, format!(" if crate::mutant({n}) {{ return {value}; }} "));
                }
            }
        }
        visit::visit_block(self, block);
        self.function.pop();
    }
    /// What an operator could be instead, each behind its number.
    fn alternatives(&mut self, at: usize, left: &str, own: &str, others: &[&str]) -> String {
        let mut text = String::new();
        for other in others {
            if let Some(n) = self.new(at, &format!("replace {own} with {other}")) {
                text += &format!("if crate::mutant({n}) {{ {left} {other} r__ }} else ");
            }
        }
        text
    }
    /// Both sides are bound to names, by value or, as comparisons do it, by reference, and one of the operators joins them.
    fn binary(
        &mut self,
        b: &ExprBinary,
        own: &str,
        others: &[&str],
        [before, between, after, end]: [&str; 4],
    ) {
        let (l, op, r) = (Self::range(&b.left), Self::range(&b.op), Self::range(&b.right));
        let alternatives = self.alternatives(op.start, "l__", own, others);
        if !alternatives.is_empty() {
            self.open(l.start, before.into());
            self.replaced.push((l.end, r.start, between.into()));
            self.close(r.end, format!("{after} {alternatives} {{ l__ {own} r__ }} {end}"));
        }
        self.visit_expr(&b.left);
        self.visit_expr(&b.right);
    }
    fn arithmetic(&mut self, b: &ExprBinary, own: &str, others: &[&str]) {
        self.binary(b, own, others, ["({ let l__ = ", "; let r__ = ", ";", "})"]);
    }
    fn comparison(&mut self, b: &ExprBinary, own: &str, others: &[&str]) {
        self.binary(b, own, others, ["(match (&(", "), &(", ")) { (l__, r__) =>", "})"]);
    }
    fn assign(&mut self, b: &ExprBinary, own: &str, others: &[&str]) {
        let (l, op, r) = (Self::range(&b.left), Self::range(&b.op), Self::range(&b.right));
        let left = self.text(l.clone()).to_owned();
        let alternatives = self.alternatives(op.start, &left, own, others);
        if !alternatives.is_empty() {
            self.replaced.push((l.start, r.start, "({ let r__ = ".into()));
            self.close(r.end, format!("; {alternatives} {{ {left} {own} r__ }} }})"));
        } else {
            self.visit_expr(&b.left);
        }
        self.visit_expr(&b.right);
    }
}

impl<'ast> Visit<'ast> for Edits<'_> {
    fn visit_item_mod(&mut self, m: &'ast ItemMod) {
        if !is_test(&m.attrs) {
            visit::visit_item_mod(self, m);
        }
    }
    fn visit_item_fn(&mut self, f: &'ast ItemFn) {
        if !is_test(&f.attrs) {
            self.body(&f.sig, &f.block);
        }
    }
    fn visit_impl_item_fn(&mut self, f: &'ast ImplItemFn) {
        if !is_test(&f.attrs) {
            self.body(&f.sig, &f.block);
        }
    }
    fn visit_trait_item_fn(&mut self, f: &'ast TraitItemFn) {
        if let Some(block) = &f.default {
            self.body(&f.sig, block);
        }
    }
    fn visit_item_impl(&mut self, i: &'ast ItemImpl) {
        let name = i.self_ty.to_token_stream().to_string().replace(' ', "");
        self.function.push(name);
        visit::visit_item_impl(self, i);
        self.function.pop();
    }
    fn visit_item_const(&mut self, _: &'ast ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast ImplItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast ItemEnum) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_expr_const(&mut self, _: &'ast ExprConst) {}
    fn visit_expr_repeat(&mut self, e: &'ast ExprRepeat) {
        self.visit_expr(&e.expr);
    }
    fn visit_expr_binary(&mut self, b: &'ast ExprBinary) {
        use BinOp::*;
        match &b.op {
            And(_) | Or(_) => {
                if has_let(&b.left) || has_let(&b.right) {
                    return visit::visit_expr_binary(self, b);
                }
                let is_and = matches!(b.op, And(_));
                let (l, op, r) = (Self::range(&b.left), Self::range(&b.op), Self::range(&b.right));
                let what = if is_and { "replace && with ||" } else { "replace || with &&" };
                if let Some(n) = self.new(op.start, what) {
                    let test = if is_and { "!=" } else { "==" };
                    self.open(l.start, "({ let l__: bool = ".into());
                    self.replaced.push((l.end, r.start, format!("; if l__ {test} crate::mutant({n}) {{ ")));
                    self.close(r.end, " } else { l__ } })".into());
                }
                self.visit_expr(&b.left);
                self.visit_expr(&b.right);
            }
            Add(_) => self.arithmetic(b, "+", &["-", "*"]),
            Sub(_) => self.arithmetic(b, "-", &["+", "/"]),
            Mul(_) => self.arithmetic(b, "*", &["+", "/"]),
            Div(_) => self.arithmetic(b, "/", &["%", "*"]),
            Rem(_) => self.arithmetic(b, "%", &["/", "+"]),
            BitAnd(_) => self.arithmetic(b, "&", &["|", "^"]),
            BitOr(_) => self.arithmetic(b, "|", &["&", "^"]),
            BitXor(_) => self.arithmetic(b, "^", &["&", "|"]),
            Shl(_) => self.arithmetic(b, "<<", &[">>"]),
            Shr(_) => self.arithmetic(b, ">>", &["<<"]),
            Eq(_) => self.comparison(b, "==", &["!="]),
            Ne(_) => self.comparison(b, "!=", &["=="]),
            Lt(_) => self.comparison(b, "<", &["==", ">", "<="]),
            Gt(_) => self.comparison(b, ">", &["==", "<", ">="]),
            Le(_) => self.comparison(b, "<=", &[">"]),
            Ge(_) => self.comparison(b, ">=", &["<"]),
            AddAssign(_) => self.assign(b, "+=", &["-=", "*="]),
            SubAssign(_) => self.assign(b, "-=", &["+=", "/="]),
            MulAssign(_) => self.assign(b, "*=", &["+=", "/="]),
            DivAssign(_) => self.assign(b, "/=", &["%=", "*="]),
            BitOrAssign(_) => self.assign(b, "|=", &["&=", "^="]),
            BitAndAssign(_) => self.assign(b, "&=", &["|=", "^="]),
            _ => visit::visit_expr_binary(self, b),
        }
    }
    fn visit_expr_unary(&mut self, u: &'ast ExprUnary) {
        let sign = match u.op {
            UnOp::Not(_) => "!",
            UnOp::Neg(_) => "-",
            _ => return visit::visit_expr_unary(self, u),
        };
        let (all, inner) = (Self::range(u), Self::range(&u.expr));
        if let Some(n) = self.new(all.start, &format!("delete {sign}")) {
            self.replaced.push((all.start, inner.start, "({ let x__ = ".into()));
            self.close(inner.end, format!("; if crate::mutant({n}) {{ x__ }} else {{ {sign}x__ }} }})"));
        }
        self.visit_expr(&u.expr);
    }
    fn visit_expr_match(&mut self, m: &'ast ExprMatch) {
        let has_wild = m.arms.iter().any(|a| matches!(a.pat, Pat::Wild(_)) && a.guard.is_none());
        for arm in &m.arms {
            let pat = Self::range(&arm.pat);
            let what: String = self.text(pat.clone()).split_whitespace().collect::<Vec<_>>().join(" ");
            let delete = (has_wild && !matches!(arm.pat, Pat::Wild(_)))
                .then(|| self.new(pat.start, &format!("delete match arm {what}")))
                .flatten();
            match &arm.guard {
                None => {
                    if let Some(n) = delete {
                        self.close(pat.end, format!(" if !crate::mutant({n}) "));
                    }
                }
                Some((_, guard)) => {
                    let g = Self::range(&**guard);
                    let yes = self.new(g.start, "replace match guard with true");
                    let no = self.new(g.start, "replace match guard with false");
                    if !has_let(guard) {
                        let mut before = String::new();
                        if let Some(n) = delete {
                            before += &format!("!crate::mutant({n}) && ");
                        }
                        if let Some(n) = no {
                            before += &format!("!crate::mutant({n}) && ");
                        }
                        match yes {
                            Some(n) => before += &format!("(crate::mutant({n}) || ("),
                            None => before += "((",
                        }
                        self.open(g.start, before);
                        self.close(g.end, "))".into());
                    }
                    self.visit_expr(guard);
                }
            }
            self.visit_expr(&arm.body);
        }
        self.visit_expr(&m.expr);
    }
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    for path in all {
        if path.is_dir() {
            files(&path, out)
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path)
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, from, to, folder, skip, out] = args.as_slice() else { panic!("FROM TO FOLDER SKIP OUT") };
    let skip: HashSet<usize> = fs::read_to_string(skip)
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    let mut found = Vec::new();
    let root = Path::new(from).join(folder);
    if root.is_dir() {
        files(&root, &mut found)
    } else {
        found.push(root)
    }
    let (mut next, mut lines) = (0, Vec::new());
    for path in found {
        let source = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(from).unwrap().display().to_string();
        let target = Path::new(to).join(&name);
        let parsed = parse_file(&source).unwrap();
        let line_starts = std::iter::once(0).chain(source.match_indices('\n').map(|(i, _)| i + 1)).collect();
        let mut edits = Edits {
            file: name,
            skip: &skip,
            next: &mut next,
            out: &mut lines,
            source: &source,
            before: BTreeMap::new(),
            replaced: Vec::new(),
            function: Vec::new(),
            line_starts,
        };
        if !name_is_test(&path) {
            edits.visit_file(&parsed);
        }
        let text = edits.written();
        fs::write(&target, text).unwrap();
    }
    fs::write(out, lines.join("\n") + "\n").unwrap();
    println!("{next} mutants, {} written", lines.len());
}

fn name_is_test(path: &Path) -> bool {
    path.file_name().is_some_and(|n| n == "tests.rs")
}
