//! What is wrong with something, doubtful, or good to know.

use leptos::prelude::*;

use crate::issue::{Issue, Severity};
use crate::ui::markup::capitalised;

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
    let fix = issue.fix.as_ref().map(|fix| format!(" {}.", capitalised(fix)));
    view! {
        <p class=class>
            <span class="unseen">{prefix}</span>
            {capitalised(&issue.message)}
            "."
            {fix}
        </p>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::Field;

    #[test]
    fn what_users_write_is_no_markup() {
        let issue = Issue::error(Field::Model, "no model is called <b>").with_fix("use \"a & b\"");
        let html = message(&issue).to_html().replace("<!>", "");
        assert!(html.contains("No model is called &lt;b&gt;. Use \"a &amp; b\"."), "{html}");
    }
}
