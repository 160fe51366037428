//! The grammar, and that everything that we tell people to type is understood: help texts, README, hints of the demo.

use clap::CommandFactory;
use packet::{filter::Filter, spec};

use super::*;

fn parse(line: &[&str]) -> Result<Command, clap::Error> {
    Cli::try_parse_from([&["trivium"], line].concat()).map(|cli| cli.command)
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

/// What stands between backquotes in the help of one argument.
fn examples(command: &str, argument: &str) -> Vec<String> {
    let cli = Cli::command();
    let command = cli.find_subcommand(command).unwrap();
    let argument = command.get_arguments().find(|it| it.get_id() == argument).unwrap();
    let help = argument.get_help().unwrap().to_string();
    let found: Vec<String> = help.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(!found.is_empty(), "{help}");
    found
}

/// The packet is one, or would be read from a file.
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

/// A command line as a person types it, with its own filter or packet read too.
fn assert_typed(line: &str) {
    let line = line.split([';', '#']).next().unwrap_or(line).trim().trim_end_matches('&');
    // What stands in quotes is one word.
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

/// What blocks of a document tell people to type.
fn typed(document: &str) -> impl Iterator<Item = &str> {
    let blocks = document.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).filter(|line| line.starts_with("trivium "))
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
fn every_hint_of_the_demo_is_understood() {
    for hint in crate::demo::HINTS {
        assert_typed(&format!("trivium {hint}"));
    }
}
