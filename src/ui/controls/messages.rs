//! What is wrong with something, doubtful, or good to know.

use leptos::either::Either;
use leptos::prelude::*;

use crate::issue::{Issue, Severity};
use crate::ui::markup::{capitalised, unbroken};

/// Notes of more characters are folded.
const LONG: usize = 120;

/// Issues as paragraphs, the severity before each for those who do not see its colour.
#[component]
pub fn Messages(
    /// What is said; mostly nothing.
    #[prop(into)]
    issues: Signal<Vec<Issue>>,
) -> impl IntoView {
    move || issues.get().iter().map(message).collect::<Vec<_>>()
}

/// One of them.
pub fn message(issue: &Issue) -> impl IntoView + use<> {
    let (class, prefix) = match issue.severity {
        Severity::Note => ("message note", "Note: "),
        Severity::Warning => ("message warning", "Warning: "),
        Severity::Error => ("message error", "Error: "),
    };
    let fix = issue.fix.as_ref().map(|fix| unbroken(&format!(" {}.", capitalised(fix))));
    let message = unbroken(&capitalised(&issue.message));
    let prefix = view! { <span class="unseen">{prefix}</span> };
    // what is good to know and long is a line, and the rest of it behind that
    match message.split_once("; ").filter(|_| issue.severity == Severity::Note && message.len() > LONG) {
        Some((first, rest)) => Either::Left(view! {
            <details class=class>
                <summary>{prefix} {first.to_owned()} "."</summary>
                {capitalised(rest)}
                "."
                {fix}
            </details>
        }),
        None => Either::Right(view! { <p class=class>{prefix} {message} "." {fix}</p> }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::Field;

    #[test]
    fn a_long_note_is_a_line_with_the_rest_behind_it() {
        let long = format!("NCCL may take 1 GiB more; {}", "its buffers are outside of it ".repeat(5));
        let folded = message(&Issue::new(Severity::Note, Field::Gpus, &long)).to_html().replace("<!>", "");
        assert!(folded.contains("NCCL may take 1\u{a0}GiB more.</summary>Its buffers"), "{folded}");
        let warned = message(&Issue::warning(Field::Gpus, long)).to_html();
        assert!(!warned.contains("<details"), "{warned}");
    }

    #[test]
    fn what_users_write_is_no_markup() {
        let issue = Issue::error(Field::Model, "no model is called <b>").with_fix("use \"a & b\"");
        let html = message(&issue).to_html().replace("<!>", "");
        assert!(html.contains("No model is called &lt;b&gt;. Use \"a &amp; b\"."), "{html}");
    }
}
