//! Compiles the rules of one filter into tables, and writes the tables for hooks to the kernel. Both take seconds for
//! thousands of rules, so callers must not hold the lock of the data plane.

use std::sync::Arc;

use model::FilterName;
use xdp::filter::{Compiled, FilterError, RuleSet};

/// Compiles the rules of a filter. If hooks apply the filter, also writes the tables to the kernel.
pub(super) fn compile(
    name: &FilterName,
    rules: &RuleSet,
    in_hooks: bool,
) -> Result<Arc<Compiled>, FilterError> {
    let compiled = Compiled::new(rules)?;
    if in_hooks {
        write_tables(name, &compiled);
    }
    Ok(Arc::new(compiled))
}

/// Writes the tables of a filter to the kernel, for hooks. An error is only logged, because the tables are written
/// again when a hook gets the filter.
pub fn write_tables(name: &FilterName, compiled: &Compiled) {
    if let Err(error) = compiled.create_maps() {
        tracing::warn!(filter = %name, %error, "its tables cannot be written to the kernel in advance");
    }
}
