//! Columns that line up, whatever colours the cells have.

use anstyle::Style;

use super::paint;

/// A cell: its text, its colour, its side.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
    right: bool,
}

impl Cell {
    pub(crate) fn left(text: impl Into<String>) -> Self {
        Self { text: text.into(), style: Style::new(), right: false }
    }

    pub(crate) fn right(text: impl Into<String>) -> Self {
        Self { text: text.into(), style: Style::new(), right: true }
    }

    pub(crate) fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// Rows with two blanks between columns, each column as wide as its widest cell. The last one is not padded.
pub(crate) fn lines(rows: &[Vec<Cell>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.width());
            let text = if cell.text.is_empty() { String::new() } else { paint(cell.style, &cell.text) };
            if column > 0 {
                line.push_str("  ");
            }
            if cell.right {
                line.push_str(&pad);
                line.push_str(&text);
            } else {
                line.push_str(&text);
                line.push_str(&pad);
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
