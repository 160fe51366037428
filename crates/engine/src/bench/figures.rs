//! What a scenario of the tables measured: figures by name, in one row or in several.

/// What a scenario measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Its name.
    pub scenario: &'static str,
    /// One row without a name, or several with one each.
    pub rows: Vec<Row>,
}

/// Figures that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What is special about them; empty for the only row.
    pub name: &'static str,
    /// Names, which say the unit, and values.
    pub figures: Vec<(&'static str, f64)>,
}

impl Figures {
    pub(super) fn one(scenario: &'static str, figures: Vec<(&'static str, f64)>) -> Figures {
        Figures { scenario, rows: vec![Row { name: "", figures }] }
    }

    /// A figure of a row.
    #[must_use]
    pub fn get(&self, row: &str, figure: &str) -> Option<f64> {
        let row = self.rows.iter().find(|own| own.name == row)?;
        row.figures.iter().find(|(name, _)| *name == figure).map(|(_, value)| *value)
    }
}
