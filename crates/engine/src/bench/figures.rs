//! Results of a scenario: named figures in one or more rows.

/// Results of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// Rows of figures: one row without a name, or several rows with names.
    pub rows: Vec<Row>,
}

/// A row of figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the row, which is empty for an only row.
    pub name: &'static str,
    /// Names and values of the figures. The name contains the unit.
    pub figures: Vec<(&'static str, f64)>,
}

impl Figures {
    pub(super) fn one(scenario: &'static str, figures: Vec<(&'static str, f64)>) -> Figures {
        Figures { scenario, rows: vec![Row { name: "", figures }] }
    }

    /// Returns a figure of a row, or `None` if there is none.
    #[must_use]
    pub fn get(&self, row: &str, figure: &str) -> Option<f64> {
        let row = self.rows.iter().find(|own| own.name == row)?;
        row.figures.iter().find(|(name, _)| *name == figure).map(|(_, value)| *value)
    }
}
