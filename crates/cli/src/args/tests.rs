//! Tests of the command line's grammar. The tests also check that the grammar accepts each command that the
//! help texts and the documentation show.

use clap::CommandFactory;
use packet::{filter::Filter, spec};

use super::*;
use crate::cmd::show::{Own, Selection, Shown};

fn parse(line: &[&str]) -> Result<Command, clap::Error> {
    Cli::read_from([&["trivium"], line].concat()).map(|cli| cli.command)
}

#[test]
fn the_grammar_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn seconds_have_an_optional_unit() {
    assert_eq!((seconds("60"), seconds("60s")), (Ok(60), Ok(60)));
    assert!(seconds("0").is_err() && seconds("a").is_err() && seconds("1m").is_err());
}

#[test]
fn a_bench_cannot_be_asked_for_nonsense() {
    for wrong in
        ["--seconds=-1", "--seconds=0", "--seconds=nan", "--seconds=inf", "--workers=0", "--workers=65"]
    {
        assert!(parse(&["bench", "bridge", wrong]).is_err(), "{wrong}");
    }
    assert!(parse(&["bench", "bridge", "--seconds", "0.5", "--workers", "2"]).is_ok());
}

#[test]
fn lengths_of_frames_are_a_list_with_weights_or_a_word() {
    let length = |text: &str| match parse(&["xdp", "gen", "eth0", "--length", text]) {
        Ok(Command::Xdp(Xdp::Gen(asked))) => Some(asked.length),
        _ => None,
    };
    assert_eq!(length("100"), Some(Lengths::Listed(vec![(100, 1)])));
    assert_eq!(length("60x7,594x4,1514x1"), Some(Lengths::Listed(vec![(60, 7), (594, 4), (1514, 1)])));
    assert_eq!((length("imix"), length("shortest")), (Some(Lengths::Imix), Some(Lengths::Shortest)));
    for wrong in ["", "60,", "60x0", "60x", "x7", "60x7x1", "-60", "65536", "60;70", "IMIX"] {
        assert_eq!(length(wrong), None, "{wrong}");
    }
}

#[test]
fn what_is_shown_has_its_own_flags() {
    let shown = |line: &str| match parse(
        &[&["show"], line.split_whitespace().collect::<Vec<_>>().as_slice()].concat(),
    ) {
        Ok(Command::Show(show)) => Some(show),
        _ => None,
    };
    let Some(Show { what: Shown::Own(Own::Routes(routes)), json: true }) =
        shown("routes 10.0.0.1/8 --router edge --table main --limit 7 --json")
    else {
        panic!("routes")
    };
    assert_eq!(routes.prefix.map(|prefix| prefix.to_string()).as_deref(), Some("10.0.0.0/8"));
    assert_eq!((routes.table, routes.several.limit), (Some(model::TableId::MAIN), 7));
    assert_eq!(routes.several.of.router.as_deref(), Some("edge"));
    let Some(Show { what: Shown::Own(Own::Why(why)), json: false }) = shown("why 2001:db8::1") else {
        panic!("why")
    };
    assert_eq!((why.what.length(), why.of.router), (128, None));
    let Some(Show { what: Shown::Listed(list, Selection::Name(port)), json: true }) =
        shown("--json ports web1")
    else {
        panic!("ports")
    };
    assert_eq!((list.name, port.as_str()), ("ports", "web1"));
    for right in [
        "routers",
        "routers edge",
        "routes",
        "neighbours --limit 100000",
        "nexthops --router edge",
        "interfaces",
        "drift",
        "punts --json",
        "workers --json",
        "config",
        "fdb br0",
    ] {
        assert!(shown(right).is_some(), "{right}");
    }
    for wrong in [
        "",
        "routes here",
        "routes --table 0",
        "routes --limit 0",
        "routes --limit 100001",
        "why",
        "why 10.0.0.0/33",
        "workers 1",
        "ports --router edge",
        "drift edge",
        "interfaces --limit 3",
        "everything",
    ] {
        assert!(shown(wrong).is_none(), "{wrong}");
    }
}

#[test]
fn flags_may_come_behind_filters_and_packets() {
    let line = ["capture", "web1", "icmp", "vlan=10", "-n", "3", "--drops"];
    let Ok(Command::Capture(capture)) = parse(&line) else { panic!("{line:?}") };
    assert_eq!(
        (capture.filter.join(","), capture.number, capture.drops),
        ("icmp,vlan=10".into(), Some(3), true)
    );
    let line = ["trace", "arp", "--in", "web1", "--json"];
    let Ok(Command::Trace(trace)) = parse(&line) else { panic!("{line:?}") };
    assert_eq!((trace.filter, trace.port, trace.json), (vec!["arp".into()], Some("web1".into()), true));
    let line = ["explain", "--in", "web1", "arp", "--json"];
    let Ok(Command::Explain(explain)) = parse(&line) else { panic!("{line:?}") };
    assert_eq!((explain.packet, explain.json), (vec!["arp".into()], true));
}

#[test]
fn old_words_of_flow_steering_are_accepted() {
    for word in ["steering", "steers"] {
        let Ok(Command::Show(show)) = parse(&["show", word, "s"]) else { panic!("{word}") };
        let Shown::Listed(list, Selection::Name(name)) = show.what else { panic!("{word}") };
        assert_eq!((list.name, name.as_str()), ("steering", "s"), "{word}");
    }
    for (word, option) in [("steering", "--steering"), ("steer", "--steer")] {
        let line =
            format!("xdp {word} remove {option} s --source 10.0.0.1 --destination 10.0.0.2 --protocol gre");
        let line: Vec<&str> = line.split_whitespace().collect();
        let Ok(Command::Xdp(Xdp::Steering(SteeringCommand::Remove { flow }))) = parse(&line) else {
            panic!("{line:?}")
        };
        assert_eq!(flow.steering.as_deref(), Some("s"));
    }
}

/// Returns the filter that results, in the daemon, from the `trivium xdp filter add` command line `line`.
fn added(line: &str) -> Result<model::Filter, Vec<model::Problem>> {
    let line: Vec<&str> =
        ["xdp", "filter", "add", "edge"].into_iter().chain(line.split_whitespace()).collect();
    let Command::Xdp(Xdp::Filter(FilterCommand::Add(args))) = parse(&line).unwrap() else {
        panic!("{line:?}")
    };
    let rule = serde_json::json!({ "rule": [args.rule.given()] }).to_string();
    let object = model::ObjectKey::Filter("edge".parse().unwrap());
    match model::load_change(&object, &rule)? {
        model::Change::PutFilter(_, filter) => Ok(filter),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rule_by_flags_is_the_rule_of_a_file() {
    for (line, fields) in [
        ("--action drop", "action = 'drop'"),
        ("--action drop --listed --priority 100", "action = 'drop'\nlisted = true\npriority = 100"),
        (
            "--action pass --dry-run --family ipv4,ipv6 --fragment whole,first --protocol udp,136 \
             --source 0.0.0.0/0,2001:db8::/32 --source 10.1.2.3 --destination 10.0.0.0/8 \
             --source-port 53,1900-1999 --destination-port 1024-65535 --length 400-9018 --vlan untagged,10,20-29",
            "action = 'pass'\ndry_run = true\nfamily = ['ipv4', 'ipv6']\nfragment = ['whole', 'first']\n\
             protocol = ['udp', 136]\nsource = ['0.0.0.0/0', '2001:db8::/32', '10.1.2.3']\n\
             destination = '10.0.0.0/8'\nsource_port = [53, '1900-1999']\ndestination_port = '1024-65535'\n\
             length = '400-9018'\nvlan = ['untagged', 10, '20-29']",
        ),
        (
            "--action limit --rate 1000 --unit bytes --per 60 --burst 20000 --per-source ipv4=24,ipv6=48 \
             --tcp-flags syn,!ack",
            "action = 'limit'\nrate = 1000\nunit = 'bytes'\nper = 60\nburst = 20000\n\
             per_source = { ipv4 = 24, ipv6 = 48 }\ntcp_flags = ['syn', '!ack']",
        ),
        (
            "--action sample --one-in 1000 --pattern at=payload,offset=0,bytes=16030100,mask=ffffff00 \
             --pattern at=frame,offset=12,bytes=0800",
            "action = 'sample'\none_in = 1000\npattern = [{ at = 'payload', offset = 0, bytes = '16030100', \
             mask = 'ffffff00' }, { at = 'frame', offset = 12, bytes = '0800' }]",
        ),
        (
            "--action syncookie --destination 10.0.0.1 --destination-port 80,443 --scheme retry --mode auto \
             --above 500 --ttl 60 --remember 30",
            "action = 'syncookie'\ndestination = '10.0.0.1'\ndestination_port = [80, 443]\nscheme = 'retry'\n\
             mode = 'auto'\nabove = 500\nttl = 60\nremember = 30",
        ),
        (
            "--action syncookie --destination ::1 --destination-port 80 --scheme cookie --mode always \
             --mss 1400 --wscale 7",
            "action = 'syncookie'\ndestination = '::1'\ndestination_port = 80\nscheme = 'cookie'\n\
             mode = 'always'\nmss = 1400\nwscale = 7",
        ),
    ] {
        let file = model::load(&format!("[[filter.edge.rule]]\nname = 'r'\n{fields}\n"), "file").unwrap();
        assert_eq!(added(&format!("--name r {line}")).unwrap(), file.filters["edge"], "{line}");
    }
}

#[test]
fn every_field_of_a_rule_has_its_flag() {
    let command = Cli::command();
    let path = ["xdp", "filter", "add"].into_iter();
    let add = path.fold(&command, |command, name| command.find_subcommand(name).unwrap());
    let flags: Vec<&str> = add.get_arguments().filter_map(clap::Arg::get_long).collect();
    // For an unknown key, the configuration reader returns the keys that it knows for this action.
    let known = |action: &str| {
        let rule = format!(r#"{{"rule":[{{"name":"r","action":"{action}","other":1}}]}}"#);
        let problems = model::load_change(&model::ObjectKey::Filter("edge".parse().unwrap()), &rule);
        let cause = problems.unwrap_err().into_iter().map(|problem| problem.cause);
        cause.into_iter().find_map(|cause| match cause {
            model::Cause::UnknownKey { known, .. } => Some(known),
            _ => None,
        })
    };
    for action in ["drop", "sample", "limit", "syncookie"] {
        for key in known(action).unwrap() {
            assert!(
                flags.contains(&key.replace('_', "-").as_str()),
                "{action}: {key} has no flag: {flags:?}"
            );
        }
    }
}

#[test]
fn a_rule_that_is_wrong_is_found_by_the_daemon_or_before() {
    for (line, object) in [
        ("--name a/b --action drop", "filter.edge.rule[0].name"),
        ("--name r --action drip", "filter.edge.rule[0].action"),
        ("--name r --action drop --source 10.0.0.0/33", "filter.edge.rule[0].source[0]"),
        ("--name r --action drop --rate 5", "filter.edge.rule[0]"),
        ("--name r --action limit", "filter.edge.rule[0]"),
        ("--name r --action drop --source-port 9-8", "filter.edge.rule[0].source_port[0]"),
        ("--name r --action drop --priority 18446744073709551615", "filter.edge.rule[0].priority"),
    ] {
        let problems = added(line).unwrap_err();
        assert_eq!(problems[0].object, object, "{line}: {problems:?}");
    }
    for wrong in [
        "--action drop",
        "--name r",
        "--name r --action drop --first --before b",
        "--name r --action drop --before a --after b",
        "--name r --action drop --first --priority 1",
        "--name r --action drop --before a/b",
        "--name r --action drop --expires 0",
        "--name r --action drop --expires 99999999999",
        "--name r --action drop --pattern bytes=00,bytes=01",
        "--name r --action drop --pattern 00",
    ] {
        let line: Vec<&str> = ["xdp", "filter", "add", "edge"].into_iter().chain(wrong.split(' ')).collect();
        assert!(parse(&line).is_err(), "{wrong}");
    }
    assert!(parse(&["xdp", "filter", "remove", "edge"]).is_err());
    assert!(parse(&["xdp", "filter", "remove", "edge", "r"]).is_ok());
}

#[test]
fn a_rule_ends_so_many_seconds_from_now() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let until = added("--name r --action drop --expires 60s").unwrap().rules[0].expires.unwrap();
    assert!((now + 60..now + 120).contains(&until.0), "{until}");
}

/// Returns the texts between backquotes in the help text of one argument.
fn examples(command: &str, argument: &str) -> Vec<String> {
    let cli = Cli::command();
    let command = cli.find_subcommand(command).unwrap();
    let argument = command.get_arguments().find(|it| it.get_id() == argument).unwrap();
    let help = argument.get_help().unwrap().to_string();
    let found: Vec<String> = help.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(!found.is_empty(), "{help}");
    found
}

/// Checks that the text is a valid packet description, or that the text begins with `@` and names a capture
/// file.
fn assert_packet(text: &str) {
    assert!(text.starts_with('@') || spec::parse(text).is_ok(), "{text}: {:?}", spec::parse(text));
}

#[test]
fn every_example_in_the_help_is_understood() {
    for text in examples("capture", "filter").into_iter().chain(examples("trace", "filter")) {
        assert!(Filter::parse(&text).is_ok(), "{text}: {:?}", Filter::parse(&text));
    }
    let packets = examples("explain", "packet");
    assert_eq!(packets.len(), 3);
    packets.iter().for_each(|text| assert_packet(text));
}

/// Checks that the grammar accepts a command line as a user types it. A packet filter or packet description in the
/// command line must be valid, too.
fn assert_typed(line: &str) {
    let line = line.split([';', '#']).next().unwrap_or(line).trim().trim_end_matches('&');
    // A text in quotes is one word.
    let words: Vec<&str> = line
        .split('"')
        .enumerate()
        .flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        })
        .skip(1)
        .collect();
    match parse(&words) {
        Ok(
            Command::Capture(Capture { filter, .. })
            | Command::Trace(Trace { filter, .. })
            | Command::Xdp(Xdp::Dump(XdpDump { filter, .. }))
            | Command::Xdp(Xdp::Filter(FilterCommand::Samples(FilterSamples { filter, .. }))),
        ) => {
            let filter = filter.join(",");
            assert!(Filter::parse(&filter).is_ok(), "{line}: {:?}", Filter::parse(&filter));
        }
        Ok(Command::Explain(explain)) => assert_packet(&explain.packet.join(",")),
        Ok(_) => {}
        Err(error) => panic!("{line}: {error}"),
    }
}

/// Returns the `trivium` command lines in the shell code blocks of a document.
fn typed(document: &str) -> impl Iterator<Item = &str> {
    let blocks = document.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).filter(|line| line.starts_with("trivium "))
}

/// Returns the `trivium` command lines that follow a root prompt (`# `) in a document. A command line ends before
/// its first pipe.
fn prompted(document: &str) -> impl Iterator<Item = &str> {
    let lines = document.lines().filter_map(|line| line.trim_start().strip_prefix("# "));
    lines.filter_map(|line| line.split(" | ").next()).filter(|line| line.starts_with("trivium "))
}

#[test]
fn every_command_in_the_hooks_document_is_understood() {
    let all: Vec<&str> = typed(include_str!("../../../../docs/xdp.md")).collect();
    assert!(all.len() >= 8, "{all:?}");
    all.into_iter().for_each(assert_typed);
}

#[test]
fn every_command_in_the_readme_is_understood() {
    let readme = include_str!("../../../../README.md");
    let typed = typed(readme);
    let quoted = readme.split('`').filter(|text| text.starts_with("trivium ") && !text.contains('\n'));
    let all: Vec<&str> = typed.chain(quoted).collect();
    assert!(all.len() > 15, "{all:?}");
    all.into_iter().for_each(assert_typed);
}

#[test]
fn every_command_in_the_guides_is_understood() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut pages = vec![docs.join("getting-started.md")];
    pages.extend(std::fs::read_dir(docs.join("how-to")).unwrap().map(|entry| entry.unwrap().path()));
    let texts: Vec<String> = pages.iter().map(|page| std::fs::read_to_string(page).unwrap()).collect();
    let all: Vec<&str> = texts.iter().flat_map(|text| prompted(text)).collect();
    assert!(pages.len() > 6 && all.len() > 30, "{pages:?}: {all:?}");
    all.into_iter().for_each(assert_typed);
}
