//! Pieces of Markdown that forges and mdBook render alike.

/// Text as the content of a table's cell: one line, with nothing that would be HTML, emphasis or the next cell.
pub fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut is_code = false;
    let mut cell = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '`' => {
                is_code = !is_code;
                cell.push(c);
            }
            '|' => cell.push_str("\\|"),
            '<' if !is_code => cell.push_str("&lt;"),
            '*' | '[' | ']' if !is_code => cell.extend(['\\', c]),
            _ => cell.push(c),
        }
    }
    cell
}

/// Text as code in a table's cell; nothing for an empty text.
pub fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { cell(&format!("`{text}`")) }
}

/// A table's row.
pub fn row(cells: &[String]) -> String {
    let mut row = String::from("|");
    for cell in cells {
        row.push_str(&if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") });
    }
    row.push('\n');
    row
}

/// The first two lines of a table.
pub fn header(titles: &[&str]) -> String {
    format!("| {} |\n|{}\n", titles.join(" | "), "---|".repeat(titles.len()))
}
