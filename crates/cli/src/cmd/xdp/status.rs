//! `trivium xdp status`: state of the XDP programs of each port (its hook).

use std::fmt::Write as _;
use std::time::Duration;

use model::{HookMap, HookProgram, HookRuns, HookState, UserProgram};

use crate::args::XdpStatus;
use crate::client::{Client, quoted};
use crate::failure::Failure;
use crate::table::{Table, short};

/// Prints the state of the XDP programs of all ports, or of one port.
///
/// # Errors
/// Returns an error if the daemon does not answer, or the port has no hook.
pub async fn status(client: &Client, args: &XdpStatus) -> Result<(), Failure> {
    let milliseconds = Duration::from_secs_f64(args.seconds).as_millis();
    let query = if milliseconds == 0 { String::new() } else { format!("?measure_ms={milliseconds}") };
    let hooks: Vec<HookState> = match &args.port {
        Some(port) => vec![client.get(&format!("/v1/hooks/{}{query}", quoted(port))).await?],
        None => client.get(&format!("/v1/hooks{query}")).await?,
    };
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&hooks).unwrap_or_default()),
        false if hooks.is_empty() => println!("no port has a hook"),
        false => hooks.iter().for_each(|hook| print!("{}", text(hook))),
    }
    Ok(())
}

/// Formats the state of one port's hook, with a table of its BPF maps.
fn text(hook: &HookState) -> String {
    let place = hook.namespace.as_ref().map_or_else(String::new, |namespace| format!("@{namespace}"));
    let driver = hook.driver.as_deref().unwrap_or("driver unknown");
    let buffers = if hook.multi_buffer { "" } else { ", single-buffer frames only" };
    let mut text = format!("{}: {}{place} ({driver}), {}{buffers}\n", hook.port, hook.device, hook.mode);
    // Writing to a string cannot fail.
    for refused in &hook.fallbacks {
        let _ = writeln!(text, "  refused   {refused}");
    }
    if let Some(features) = &hook.features {
        let features = if features.is_empty() { "none".to_owned() } else { features.join(" ") };
        let _ = writeln!(text, "  driver    {features}");
    }
    let filter = hook.filter.as_ref().map_or_else(String::new, |filter| format!(", filter {filter}"));
    let _ = writeln!(text, "  stages    {}; {}{filter}", hook.stages.join(" > "), hook.owner);
    if let Some(user) = &hook.user_program {
        text.push_str(&in_front(user, hook.link));
    }
    let link = hook.user_program.is_none().then_some(hook.link);
    match &hook.program {
        Some(program) => text.push_str(&of_program("program ", program, link)),
        None => text.push_str("  program   none: the device has gone\n"),
    }
    if let Some(measured) = &hook.measured {
        let _ = writeln!(text, "  runs      {}", runs(measured));
    }
    let frames: Vec<String> = hook
        .counters
        .iter()
        .filter(|(_, packets)| **packets > 0)
        .map(|(way, packets)| format!("{way} {}", short(*packets)))
        .collect();
    let frames = if frames.is_empty() { "none yet".to_owned() } else { frames.join(", ") };
    let _ = writeln!(text, "  frames    {frames}");
    let pinned = match &hook.pins {
        Some(pins) => format!("outlives the daemon in {pins}; what no socket wants then: {}", hook.when_down),
        None => format!("goes with the daemon; what no socket wants: {}", hook.when_down),
    };
    let _ = writeln!(text, "  away      {pinned}");
    text.push_str(&maps(hook));
    text
}

/// Formats the custom program that runs before the port's own program, and the path at which its maps are
/// pinned.
fn in_front(user: &UserProgram, link: u32) -> String {
    let mut text = of_program("in front", &user.program, Some(link));
    let goes_on = match user.goes_on {
        true => "its verdict is final unless it goes on by trivium_next",
        false => "its verdict is final: it does not refer to trivium_next",
    };
    let pins = user.pins.as_ref().map_or_else(String::new, |pins| format!("; maps in {pins}"));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "            {goes_on}{pins}");
    text
}

fn of_program(what: &str, program: &HookProgram, link: Option<u32>) -> String {
    let machine = match program.jited_bytes {
        0 => "interpreted".to_owned(),
        bytes => format!("{bytes} bytes of machine code"),
    };
    let link = link.map_or_else(String::new, |link| format!(", link {link}"));
    format!(
        "  {what}  {} {} tag {}{link}: {} instructions, {machine}, {} walked by the verifier\n",
        program.name, program.id, program.tag, program.instructions, program.verified_instructions
    )
}

/// Formats the run time of a hook's program: runs per second, time of one run, and load in percent of one core.
#[allow(clippy::cast_precision_loss, reason = "a share for people to read")]
fn runs(measured: &HookRuns) -> String {
    let Some(each) = measured.ns_per_run() else { return "0/s".to_owned() };
    let share = measured.run_time_ns as f64 * 100.0 / measured.elapsed_ns.max(1) as f64;
    format!("{}/s, {each} ns each (counting included), {share:.1} % of a core", short(measured.per_second()))
}

fn maps(hook: &HookState) -> String {
    let mut table = Table::new(&["  MAP", "KIND", ">ID", ">ENTRIES", ">KEY", ">VALUE", ">MEMORY"]);
    let of_user = hook.user_program.iter().flat_map(|user| &user.maps);
    let all: Vec<&HookMap> = of_user.chain(&hook.maps).collect();
    for map in &all {
        table.row([
            format!("  {}", map.name),
            map.kind.clone(),
            map.id.to_string(),
            map.max_entries.to_string(),
            map.key_size.to_string(),
            map.value_size.to_string(),
            map.bytes.map_or_else(|| "-".to_owned(), short),
        ]);
    }
    if all.is_empty() { String::new() } else { table.render() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_in_words() {
        let hook = HookState {
            port: "web1".to_owned(),
            device: "eth1".to_owned(),
            namespace: Some("red".to_owned()),
            mode: "generic".to_owned(),
            fallbacks: vec!["native: Operation not supported: no".to_owned()],
            stages: vec!["filter".to_owned(), "steering".to_owned()],
            owner: "bridged".to_owned(),
            when_down: "drop".to_owned(),
            program: Some(HookProgram { name: "trivium_port".to_owned(), id: 7, ..HookProgram::default() }),
            counters: [("steered".to_owned(), 12_345), ("aborted".to_owned(), 0)].into(),
            measured: Some(HookRuns { elapsed_ns: 1_000_000_000, runs: 2_000_000, run_time_ns: 100_000_000 }),
            ..HookState::default()
        };
        let text = text(&hook);
        let lines = [
            "web1: eth1@red (driver unknown), generic, single-buffer frames only",
            "  refused   native: Operation not supported: no",
            "  stages    filter > steering; bridged",
            "  runs      2.00M/s, 50 ns each (counting included), 10.0 % of a core",
            "  frames    steered 12.3k",
            "  away      goes with the daemon; what no socket wants: drop",
        ];
        for line in lines {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(text.contains("interpreted") && !text.contains("aborted") && !text.contains("MAP"), "{text}");
    }

    #[test]
    fn a_users_program_stands_before_the_ports() {
        let program = |name: &str| HookProgram { name: name.to_owned(), ..HookProgram::default() };
        let maps = vec![HookMap { name: "reflected".to_owned(), ..HookMap::default() }];
        let user =
            UserProgram { program: program("mine"), goes_on: true, pins: Some("/pins".to_owned()), maps };
        let hook = HookState {
            link: 7,
            program: Some(program("trivium_port")),
            user_program: Some(user),
            ..HookState::default()
        };
        let shown = text(&hook);
        let (mine, ours) = (
            shown.find("  in front  mine 0 tag , link 7: "),
            shown.find("  program   trivium_port 0 tag : "),
        );
        assert!(mine.is_some() && mine < ours, "{shown}");
        assert!(shown.contains("final unless it goes on by trivium_next; maps in /pins\n"), "{shown}");
        assert!(shown.contains("  reflected"), "{shown}");
    }
}
