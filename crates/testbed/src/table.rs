//! Tables that read well on a terminal and in Markdown.

use std::fmt::Write;

/// Renders rows under `header`, columns aligned. Cells that a row lacks are empty; those that the
/// header lacks are left out.
pub fn render(header: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let cells = rows.iter().map(|row| cell(row, column).chars().count());
            cells.max().unwrap_or(0).max(header[column].chars().count())
        })
        .collect();
    let mut text = String::new();
    let mut line = |cells: Vec<String>| {
        for (cell, &width) in cells.iter().zip(&widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
    };
    line(header.iter().map(|&name| name.to_owned()).collect());
    line(widths.iter().map(|&width| "-".repeat(width)).collect());
    for row in rows {
        line((0..header.len()).map(|column| cell(row, column)).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["µs".into(), "1".into()], vec!["longer".into()]];
        let expected = "\
| a      | bb |
| ------ | -- |
| µs     | 1  |
| longer |    |
";
        assert_eq!(render(&["a", "bb"], &rows), expected);
    }
}
