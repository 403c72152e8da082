//! Aligned text tables.

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows under headings.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&str, Side)]) -> Self {
        Self { columns: columns.iter().map(|&(name, side)| (name.to_owned(), side)).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as lines.
    pub fn text(&self) -> String {
        let headings: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines = || std::iter::once(&headings).chain(&self.rows);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| lines().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in lines() {
            let cells: Vec<String> = row
                .iter()
                .zip(&self.columns)
                .zip(&widths)
                .map(|((cell, (_, side)), &width)| match side {
                    Side::Left => format!("{cell:<width$}"),
                    Side::Right => format!("{cell:>width$}"),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// A share as per cent: `0.3333` is `33.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A whole number with thin groups of three digits: `1234567` is `1 234 567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("tag", Side::Left), ("n", Side::Right)]);
        table.row(["Bandit".to_owned(), "5".to_owned()]);
        table.row(["é".to_owned(), "1000".to_owned()]);
        assert_eq!(table.text(), "tag        n\nBandit     5\né       1000\n");
    }

    #[test]
    fn numbers_are_grouped_from_the_right() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
