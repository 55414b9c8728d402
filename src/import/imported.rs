//! What the names of a Python text were imported from: `from galore_torch import GaLoreAdamW`, `import bitsandbytes as bnb`.

use std::collections::HashMap;

/// The names of a text with the whole paths that they stand for.
pub(super) struct Imported<'t>(HashMap<&'t str, String>);

impl<'t> Imported<'t> {
    /// Reads the imports of a text, in brackets over several lines too.
    pub fn of(text: &'t str) -> Imported<'t> {
        let mut names = HashMap::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let line = without_comment(line);
            if let Some((module, first)) =
                line.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
            {
                let mut parts = vec![first];
                if first.trim_start().starts_with('(') {
                    while !parts.last().is_some_and(|part| part.contains(')')) {
                        let Some(next) = lines.next() else { break };
                        parts.push(without_comment(next));
                    }
                }
                for item in parts.iter().flat_map(|part| part.split(',')) {
                    let item = item.trim_matches(|c: char| c.is_whitespace() || matches!(c, '(' | ')'));
                    let (own, name) = item.split_once(" as ").unwrap_or((item, item));
                    if !own.is_empty() {
                        names.insert(name.trim(), format!("{}.{}", module.trim(), own.trim()));
                    }
                }
            } else if let Some(rest) = line.strip_prefix("import ") {
                for (own, name) in rest.split(',').filter_map(|item| item.split_once(" as ")) {
                    names.insert(name.trim(), own.trim().to_owned());
                }
            }
        }
        Imported(names)
    }

    /// The whole path of what a path stands for.
    pub fn whole(&self, path: &str) -> String {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        match (self.0.get(first), rest) {
            (Some(own), Some(rest)) => format!("{own}.{rest}"),
            (Some(own), None) => own.clone(),
            (None, _) => path.to_owned(),
        }
    }
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_what_they_were_imported_from() {
        let text = "import torch.optim as optim, bitsandbytes as bnb\nfrom torchao.optim import (\n    AdamW8bit,  # of torchao\n    \
                    CPUOffloadOptimizer as Offloaded,\n)\nfrom galore_torch import GaLoreAdamW, GaLoreAdamW8bit\nfrom broken import (";
        let imported = Imported::of(text);
        for (path, whole) in [
            ("optim.AdamW", "torch.optim.AdamW"),
            ("bnb.optim.AdamW8bit", "bitsandbytes.optim.AdamW8bit"),
            ("AdamW8bit", "torchao.optim.AdamW8bit"),
            ("Offloaded", "torchao.optim.CPUOffloadOptimizer"),
            ("GaLoreAdamW8bit", "galore_torch.GaLoreAdamW8bit"),
            ("torch.optim.SGD", "torch.optim.SGD"),
        ] {
            assert_eq!(imported.whole(path), whole);
        }
    }
}
