//! Results of a benchmark scenario: named figures in one or more rows.

/// Results of one benchmark scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Command-line name of the scenario.
    pub scenario: &'static str,
    /// Rows of figures. A scenario has either one row without a name or several rows with names.
    pub rows: Vec<Row>,
}

/// One row of a scenario's results, which contains named figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the row. The name is empty if the scenario has only one row.
    pub name: &'static str,
    /// Pairs of a figure's name and value. The name contains the unit.
    pub figures: Vec<(&'static str, f64)>,
}

impl Figures {
    pub(super) fn one(scenario: &'static str, figures: Vec<(&'static str, f64)>) -> Figures {
        Figures { scenario, rows: vec![Row { name: "", figures }] }
    }

    /// Returns the value of figure `figure` in row `row`, or `None` if there is no such row or figure.
    #[must_use]
    pub fn get(&self, row: &str, figure: &str) -> Option<f64> {
        let row = self.rows.iter().find(|own| own.name == row)?;
        row.figures.iter().find(|(name, _)| *name == figure).map(|(_, value)| *value)
    }
}
