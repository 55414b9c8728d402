//! Texts that the command is given: files and standard input, up to a length.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The text of a file of at most so many bytes.
pub(super) fn read(path: &Path, most: usize) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    // devices and pipes have no length until they are read
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    if length > most as u64 { Err(too_long(most)) } else { read_all(file, most) }
}

/// Whether a text is read from standard input: where no file is given, or `-`.
pub(super) fn is_standard_input(path: Option<&Path>) -> bool {
    path.is_none_or(|path| path == Path::new("-"))
}

/// The text of a file of at most so many bytes, or of standard input.
pub(super) fn read_given(path: Option<&Path>, most: usize) -> Result<String, String> {
    match path.filter(|_| !is_standard_input(path)) {
        Some(path) => read(path, most).map_err(|problem| format!("{}: {problem}", path.display())),
        None => read_all(std::io::stdin(), most).map_err(|problem| format!("standard input: {problem}")),
    }
}

/// The text of a source of at most so many bytes.
pub(super) fn read_all(source: impl Read, most: usize) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = source.take(most as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() > most {
        return Err(too_long(most));
    }
    String::from_utf8(bytes).map_err(|_| "this is not text (UTF-8)".to_owned())
}

fn too_long(most: usize) -> String {
    format!("this has more than {} MB and was not read", most >> 20)
}
