//! Aligned columns for the terminal.

use crate::text::one_line;

/// Writes rows in columns that are two spaces apart: the first to the left, the others to the right. A row is one line.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:width$}"),
            _ => format!("  {cell:>width$}"),
        });
        out.push_str(cells.collect::<String>().trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["model".to_owned(), "full".to_owned()], vec!["a".to_owned(), "12".to_owned()]];
        assert_eq!(aligned(&rows), "model  full\na        12\n");
        assert_eq!(aligned(&[]), "");
    }
}
