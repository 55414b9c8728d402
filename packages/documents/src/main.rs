//! Writes the documents of `docs/` as pages into a built page: `documents DIST`, or no folder within a build of trunk's, which says where
//! it builds. A document's address is `docs/NAME.html`, that of `docs/README.md`, which lists them, `docs/index.html`; `data/SOURCES.md` is one of them; each heading has
//! the anchor that GitHub gives it.

mod document;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use document::Document;

const PAGE: &str = include_str!("page.html");

fn main() -> ExitCode {
    let folder = env::args().nth(1).or_else(|| env::var("TRUNK_STAGING_DIR").ok());
    let Some(folder) = folder.map(PathBuf::from) else {
        eprintln!("give the built page's folder: documents dist");
        return ExitCode::from(2);
    };
    match write_all(Path::new("docs"), &folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("documents: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_all(docs: &Path, built: &Path) -> io::Result<()> {
    let documents = fs::read_dir(docs)?
        .map(|entry| entry.map(|entry| entry.path()))
        .filter(|path| {
            path.as_ref().map_or(true, |path| path.extension().is_some_and(|ending| ending == "md"))
        })
        .map(|path| path.and_then(|path| Document::read(&path)))
        .collect::<io::Result<Vec<_>>>()?;
    let out = built.join("docs");
    fs::create_dir_all(&out)?;
    let (tokens, base) = (style_sheet(built, "tokens")?, style_sheet(built, "base")?);
    let page = |title: &str, body: &str| {
        PAGE.replace("{tokens}", &tokens)
            .replace("{base}", &base)
            .replace("{title}", &document::escaped(title))
            .replace("{body}", body)
    };
    let sources = Document { name: "sources".to_owned(), ..Document::read(Path::new(document::SOURCES))? };
    fs::create_dir_all(out.join("data"))?;
    for file in document::DATA {
        fs::copy(Path::new("data").join(file), out.join("data").join(file))?;
    }
    for document in documents.into_iter().chain([sources]) {
        fs::write(out.join(format!("{}.html", document.name)), page(&document.title, &document.html))?;
    }
    Ok(())
}

/// The file of a style sheet, whose name trunk ends with a hash of its content.
fn style_sheet(built: &Path, name: &str) -> io::Result<String> {
    let mut found = fs::read_dir(built)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    found
        .find(|file| file.starts_with(&format!("{name}-")) && file.ends_with(".css"))
        .ok_or_else(|| io::Error::other(format!("{name}.css is not in {}", built.display())))
}
