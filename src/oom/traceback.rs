//! The traceback of a text: the lines of Python that stand above a message.

use super::pool;

/// Between two of a traceback's lines that name a file stand no more: code over several lines, and the marks under it.
const BETWEEN: usize = 8;

/// The traceback above a message, or that of a text without one: from its header on where there is one, else as far up as lines name files;
/// none where none does.
pub(super) fn traceback(text: &str) -> Option<&str> {
    let begins = message_at(text).unwrap_or(text.len());
    let above = &text[..begins];
    above.rfind(HEADER).map(|start| &above[start..]).or_else(|| without_header(above))
}

/// The traceback that a log has behind a message, as some repeat the message before it.
pub(super) fn behind(text: &str) -> Option<&str> {
    let below = &text[message_at(text)?..];
    below.find(HEADER).map(|start| &below[start..])
}

const HEADER: &str = "Traceback (most recent call last)";

/// Where a message's figures begin.
fn message_at(text: &str) -> Option<usize> {
    ["Tried to allocate", pool::BEGINS].iter().filter_map(|said| text.find(said)).min()
}

/// The frames at the end of a text: people copy a traceback's last lines.
fn without_header(above: &str) -> Option<&str> {
    let mut start = None;
    let mut since = 0;
    let mut end = above.len();
    for line in above.rsplit('\n') {
        let at = end.saturating_sub(line.len());
        if is_frame(line) {
            (start, since) = (Some(at), 0);
        } else {
            since += 1;
        }
        if since > BETWEEN {
            break;
        }
        end = at.saturating_sub(1);
    }
    start.map(|start| &above[start..])
}

/// `  File "train.py", line 20, in <module>`, whatever a log writes before it.
fn is_frame(line: &str) -> bool {
    line.split_once("File \"").is_some_and(|(_, rest)| rest.contains("\", line "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceback_is_one_without_its_header() {
        let lines = "  File \"train.py\", line 20, in <module>\n    loss.backward()\n    ^^^^^^^^^^^^^^^\n";
        let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
        let text = format!("step 3: loss 2.1\n{lines}{message}");
        assert!(traceback(&text).is_some_and(|found| found.starts_with(lines)), "{:?}", traceback(&text));
        let ranks = format!("[rank1]: {}{message}", lines.replace('\n', "\n[rank1]: "));
        assert!(traceback(&ranks).is_some_and(|found| found.contains("backward()")));
        let whole = format!("{HEADER}:\n{lines}{message}");
        assert!(traceback(&whole).is_some_and(|found| found.starts_with(HEADER)));
        // what stands far above is of something else
        let far = format!("{lines}{}{message}", "step 3: loss 2.1\n".repeat(20));
        assert_eq!(traceback(&far), None);
        assert_eq!(traceback(message), None);
        assert_eq!(traceback(""), None);
    }

    #[test]
    fn a_log_may_say_the_error_before_its_traceback() {
        let text = format!(
            "OutOfMemoryError('CUDA out of memory. Tried to allocate 138.00 MiB.')\n{HEADER}:\n  File \"a.py\", line 1, in f"
        );
        assert_eq!((traceback(&text), behind(&text).is_some()), (None, true));
    }
}
