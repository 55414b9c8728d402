//! What the documents say in numbers is what the program does.
#![cfg(not(target_arch = "wasm32"))]

use std::path::Path;

use headroom::estimate;
use headroom::model::catalogue;
use headroom::scenario::{Method, ModelChoice, Scenario};

/// The document's text, line breaks as spaces.
fn text(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The only place that says how large the catalogue is.
#[test]
fn the_readme_counts_the_catalogue() {
    let entries = catalogue::entries();
    let answered = |method: &Method| {
        let answers = |id: &str| {
            let model = ModelChoice::Catalogue(id.to_owned());
            estimate(&Scenario { model, method: *method, ..Scenario::default() }).memory.is_some()
        };
        entries.iter().filter(|entry| answers(entry.id)).count()
    };
    let sentence = format!(
        "It counts the parameters of all {} models of its catalogue, and predicts full fine-tuning of {} of them; \
         the method that the page begins with of {}.",
        entries.len(),
        answered(&Method::Full),
        answered(&Scenario::default().method),
    );
    assert!(text("README.md").contains(&sentence), "README.md does not say: {sentence}");
}

#[track_caller]
fn pins_its_actions(workflow: &Path) {
    for line in std::fs::read_to_string(workflow).unwrap().lines() {
        let Some((_, action)) = line.split_once("uses: ") else { continue };
        // the commit's own
        if action == "./packages/action" {
            continue;
        }
        let (_, version) = action.split_once('@').unwrap_or_default();
        let (commit, tag) = version.split_once(" # v").unwrap_or_default();
        let pinned = commit.len() == 40 && commit.chars().all(|digit| digit.is_ascii_hexdigit());
        assert!(pinned && !tag.is_empty(), "{}: {action} is not pinned by its commit", workflow.display());
    }
}

/// What others run of us takes what we run of others.
#[test]
fn our_own_action_pins_its_actions() {
    pins_its_actions(&Path::new(env!("CARGO_MANIFEST_DIR")).join("packages/action/action.yml"));
}

/// A tag of an action can be moved to other code; a commit cannot. And what is built of a pull request is never
/// published: only the job that publishes may write, and that job checks nothing out.
#[test]
fn workflows_pin_their_actions_and_only_a_push_is_published() {
    let folder = format!("{}/.github/workflows", env!("CARGO_MANIFEST_DIR"));
    let mut jobs_that_write = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let workflow = std::fs::read_to_string(&path).unwrap();
        pins_its_actions(&path);
        for event in ["workflow_run", "pull_request_target"] {
            assert!(
                !workflow.contains(event),
                "{}: {event} gives a fork's code this repository's token",
                path.display()
            );
        }
        // a blank line and a comment stand before each job
        for job in workflow.split("\n\n").filter(|job| job.contains(": write")) {
            jobs_that_write += 1;
            assert!(
                job.contains("if: github.event_name == 'push' && github.ref == 'refs/heads/main'"),
                "{job}"
            );
            assert!(
                !job.contains("run:") && !job.contains("checkout"),
                "a job that may write runs code:\n{job}"
            );
        }
    }
    assert_eq!(jobs_that_write, 1);
}

/// What a command before a pipe says is heard by bash alone as it is called for `shell: bash`, and `!` before a command is no failure to a
/// shell that ends at the first one. Without a word of its own a workflow's token may write.
#[test]
fn workflows_fail_where_a_command_does_and_may_read_alone() {
    let folder = format!("{}/.github/workflows", env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let workflow = std::fs::read_to_string(&path).unwrap();
        assert!(workflow.contains("\n\npermissions:\n  contents: read\n\n"), "{}", path.display());
        for step in workflow.split("\n      - ") {
            assert!(!step.contains(" | ") || step.contains("shell: bash\n"), "{}: {step}", path.display());
            assert!(
                !step.lines().any(|line| line.trim_start().starts_with("! ")),
                "{}: {step}",
                path.display()
            );
        }
    }
}

/// The page and the document say the same of every word.
#[test]
fn the_glossary_is_the_one_that_the_page_has() {
    let document = include_str!("../docs/glossary.md");
    let (_, table) = document.split_once("# Words of the field").expect("a part of its own");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let wanted: Vec<String> =
        headroom::glossary::TERMS.iter().map(|term| format!("| {} | {} |", term.word, term.means)).collect();
    assert_eq!(rows, wanted);
}
