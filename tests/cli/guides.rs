//! The table of the guides' questions names panels of the page and commands that there are.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::headroom;

/// The pieces of a text between two marks: those at odd places.
fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).step_by(2)
}

/// All sources of a folder in one text.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            text.push_str(&sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            text.push_str(&fs::read_to_string(&path).expect("a source"));
        }
    }
    text
}

#[test]
fn what_the_guides_table_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/guides.md")).expect("the document");
    let shown = sources(&root.join("src/ui")) + &sources(&root.join("src/scenario"));
    let mut helps: HashMap<String, String> = HashMap::new();
    let mut help = |command: &str| {
        let asked = || {
            let run = headroom(&[command, "--help"]);
            assert_eq!(run.status, Some(0), "headroom {command} is in the table: {}", run.err);
            run.out
        };
        helps.entry(command.to_owned()).or_insert_with(asked).clone()
    };
    let (mut panels, mut commands) = (0, 0);
    for line in text.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---")).skip(1) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [_, question, page, command] = cells[..] else { panic!("four cells: {line}") };
        for name in between(page, '*') {
            panels += 1;
            // a panel's title or the label of an input, which may go on
            assert!(shown.contains(&format!("\"{name}")), "{question}: {name} is not on the page");
        }
        // flags alone are those of the command before them, or of every command
        let mut of = "estimate";
        for said in between(command, '`') {
            let mut words = said.split_whitespace();
            if said.starts_with("headroom ") {
                of = words.nth(1).expect("a command");
                commands += 1;
            }
            let (own, usual) = (help(of), help("estimate"));
            for flag in words.chain([said]).filter(|word| word.starts_with("--")) {
                let flag = flag.split_whitespace().next().unwrap_or(flag);
                let is_known = |help: &str| help.split([' ', '\n', ',', '=']).any(|word| word == flag);
                assert!(is_known(&own) || is_known(&usual), "{question}: headroom {of} has no {flag}");
            }
        }
    }
    assert!(panels > 15 && commands > 20, "{panels} names of the page, {commands} commands");
}
