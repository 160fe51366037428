//! `trivium check FILE`: reports all mistakes of a configuration as `file:line:column: object: cause; fix`.
//! The command needs neither a daemon nor privileges.

use std::path::Path;

use model::{Format, Loaded, Machine, Problem, Severity};

use crate::args::Check;
use crate::failure::{Failure, Kind};
use crate::table::counted;

/// Checks a configuration file and prints its mistakes.
///
/// # Errors
/// Returns an error if the file cannot be read or is refused.
pub fn run(args: &Check) -> Result<(), Failure> {
    let text = read_configuration(&args.file)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let machine = Machine { cores, frames: None };
    let name = args.file.display().to_string();
    let (problems, refused) = match model::load_on(&text, &name, Format::Toml, Some(&machine)) {
        Ok(Loaded { config, mut warnings }) => {
            let refused = dataplane::filter_refusals(&config).into_iter();
            let refused: Vec<Problem> =
                refused.map(|problem| Problem { file: name.clone(), ..problem }).collect();
            if refused.is_empty() && !args.json {
                let objects = [
                    counted(config.ports.len(), "port"),
                    counted(config.bridges.len(), "bridge"),
                    counted(config.routers.len(), "router"),
                    counted(config.filters.len(), "filter"),
                ];
                println!("{name}: {}: fine", objects.join(", "));
            }
            let is_refused = !refused.is_empty();
            warnings.extend(refused);
            (warnings, is_refused)
        }
        Err(problems) => (problems, true),
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&problems).unwrap_or_default());
    } else {
        print_problems(&problems);
        if refused {
            let mistakes = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
            eprintln!("{name}: {}", counted(mistakes, "mistake"));
        }
    }
    if refused { Err(Failure::told(Kind::Refused)) } else { Ok(()) }
}

/// Prints the problems of a configuration on standard error, one problem per line.
pub fn print_problems(problems: &[Problem]) {
    for problem in problems {
        eprintln!("{problem}");
    }
}

/// Reads a configuration file and returns its text.
///
/// # Errors
/// Returns an error if the file does not exist, cannot be read, or is not UTF-8.
pub fn read_configuration(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        let fix = match error.kind() {
            std::io::ErrorKind::NotFound => "check the path; examples/ has configurations to begin with",
            std::io::ErrorKind::PermissionDenied => "use sudo, or make it readable",
            _ => "it must be a text in TOML",
        };
        Failure::new(path.display().to_string(), error, fix)
    })
}
