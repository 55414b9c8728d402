//! Writes the first answer into a built page: `prerender dist/index.html`. Where the page will lie, `HEADROOM_URL` says it: what
//! shows a link to it wants its picture by a whole address.

use std::process::ExitCode;
use std::{env, fs, io};

/// The picture that stands for the page elsewhere, as the page names it.
const PICTURE: &str = "social.png";

/// Where the answer goes.
const PLACE: &str = "Loading …";

fn main() -> ExitCode {
    let Some(path) = env::args().nth(1) else {
        eprintln!("give the page: prerender dist/index.html");
        return ExitCode::from(2);
    };
    match write(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(path: &str) -> io::Result<()> {
    let page = fs::read_to_string(path)?;
    let (before, after) =
        page.split_once(PLACE).ok_or_else(|| io::Error::other(format!("{PLACE} is not in it")))?;
    let before = match env::var("HEADROOM_URL") {
        Ok(url) if !url.is_empty() => at(before, root(&url)?)?,
        Ok(_) | Err(_) => before.to_owned(),
    };
    fs::write(path, [&before, &headroom::ui::first_answer(), after].concat())
}

/// The head of a page that lies at an address: the picture's whole address, and its own.
fn at(head: &str, root: &str) -> io::Result<String> {
    let picture = format!("content=\"{PICTURE}\"");
    let (before, after) =
        head.split_once(&picture).ok_or_else(|| io::Error::other(format!("{picture} is not in it")))?;
    Ok(format!(
        "{before}content=\"{root}/{PICTURE}\" />\n    <meta property=\"og:url\" content=\"{root}/\"{after}"
    ))
}

/// The page's address without what it may end with, as it can stand in an attribute.
fn root(url: &str) -> io::Result<&str> {
    let is_plain = url.starts_with("https://") && !url.contains(['"', '\'', '<', '>', '&', ' ']);
    if is_plain {
        Ok(url.trim_end_matches('/'))
    } else {
        Err(io::Error::other(format!("HEADROOM_URL is {url:?} and not an address that begins with https://")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_knows_its_address_says_it() {
        let head = include_str!("../../index.html");
        let told = at(head, root("https://example.org/headroom/").expect("an address")).expect("a head");
        for whole in [
            "property=\"og:image\" content=\"https://example.org/headroom/social.png\" />",
            "property=\"og:url\" content=\"https://example.org/headroom/\" />",
            "href=\"public/social.png\"",
        ] {
            assert!(told.contains(whole), "{whole} is not in {told}");
        }
        assert!(!head.contains("og:url"));
        assert!(root("http://example.org/\"><script>").is_err());
    }
}
