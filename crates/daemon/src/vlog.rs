//! `vlog/*` commands of `ovs-appctl` (ovs-appctl(8), "Logging commands").

use model::vlog_module;

use crate::log;
use ovs::unixctl::{Answer, Commands};

/// Maximum number of arguments of one `vlog/*` command.
const MOST: usize = 64;

/// Adds the `vlog/*` commands to the commands that `ovs-appctl` can call.
pub fn add(commands: &mut Commands) {
    commands.add("vlog/set", "{spec | PATTERN:destination:pattern}", 0..=MOST, |arguments| {
        if arguments.is_empty() {
            log::set("")?;
        }
        arguments.iter().try_for_each(|specification| log::set(specification))?;
        Ok(String::new())
    });
    commands.add("vlog/list", "", 0..=0, |_| log::list());
    commands.add("vlog/list-pattern", "", 0..=0, |_| log::list_patterns());
    commands.add("vlog/reopen", "", 0..=0, |_| log::reopen().map(|()| String::new()));
    commands.add("vlog/close", "", 0..=0, |_| log::close().map(|()| String::new()));
    commands.add("vlog/enable-rate-limit", "[module]...", 0..=MOST, rate_limit);
    commands.add("vlog/disable-rate-limit", "[module]...", 0..=MOST, rate_limit);
}

/// Implements `vlog/enable-rate-limit` and `vlog/disable-rate-limit`. The function only checks the
/// module names, because log messages that peers can cause are always rate-limited.
fn rate_limit(modules: &[String]) -> Answer {
    let known = |name: &String| name.eq_ignore_ascii_case("ANY") || vlog_module(name).is_some();
    if modules.iter().all(known) { Ok(String::new()) } else { Err("unknown module".to_owned()) }
}
