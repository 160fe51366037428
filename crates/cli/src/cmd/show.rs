//! `trivium show`: state of the daemon as tables or JSON.
//!
//! The registry of lists ([`control::LISTS`]) names the commands. Most commands are generated from the registry. The
//! other commands have special arguments or a special text form. The grammar of each of these commands is in a separate
//! file below this module.

mod caches;
mod config;
mod drift;
mod drops;
mod fdb;
mod flows;
mod interfaces;
mod named;
mod of_bridge;
mod of_router;
mod output;
mod punts;
mod router_parts;
mod routes;
mod why;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use control::{Arguments, LISTS, List};

pub use fdb::Fdb;
pub use flows::Flows;
pub use of_bridge::OfBridge;
pub use of_router::{OfRouter, Several};
pub use routes::Routes;
pub use why::Why;

use crate::client::Client;
use crate::failure::Failure;
use drops::Drops;
use interfaces::Interfaces;
use named::absent;
use punts::Punts;

/// Arguments of `trivium show`.
#[derive(Clone, Debug, Args)]
pub struct Show {
    /// Kind of state to show
    #[command(subcommand)]
    pub what: Shown,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// State that `trivium show` shows.
#[derive(Clone, Debug)]
pub enum Shown {
    /// A list whose command is generated from the registry.
    Listed(&'static List, Selection),
    /// State whose command is not generated, but defined in a file below this module.
    Own(Own),
}

/// Part of a list that the command line of `trivium show` selects.
#[derive(Clone, Debug)]
pub enum Selection {
    /// All entries of the list.
    All,
    /// The entry of the list that has this name.
    Name(String),
    /// Entries of one bridge or of all bridges.
    Bridge(OfBridge),
    /// Entries of one router.
    Router(Several),
}

/// Commands with special arguments or a special text form. Their help texts and their order are in the registry.
#[derive(Clone, Debug, Subcommand)]
pub enum Own {
    /// `trivium show fdb`.
    Fdb(Fdb),
    /// `trivium show flows`.
    Flows(Flows),
    /// `trivium show caches`.
    Caches,
    /// `trivium show drops`.
    Drops(Drops),
    /// `trivium show config`.
    Config,
    /// `trivium show routes`.
    Routes(Routes),
    /// `trivium show why`.
    Why(Why),
    /// `trivium show interfaces`.
    Interfaces(Interfaces),
    /// `trivium show drift`.
    Drift(OfRouter),
    /// `trivium show punts`.
    Punts(Punts),
}

impl Subcommand for Shown {
    fn augment_subcommands(command: Command) -> Command {
        let own = Own::augment_subcommands(Command::new("show"));
        let lists = LISTS.iter().enumerate();
        // Commands with a file of their own already have a display order, but this order ignores the other commands.
        // Therefore each command gets its order in the list.
        lists
            .fold(command, |command, (at, list)| command.subcommand(subcommand(list, &own).display_order(at)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Shown::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        LISTS.iter().any(|list| list.name == name)
    }
}

/// Returns the grammar of the command that prints a list. `own` contains the subcommands that have arguments of their
/// own.
fn subcommand(list: &List, own: &Command) -> Command {
    let command = Command::new(list.name);
    let command = match list.arguments {
        Arguments::None => command,
        Arguments::Name(kind, placeholder) => {
            let help = format!("Show only this {kind}");
            command.arg(Arg::new(kind).value_name(placeholder).help(help))
        }
        Arguments::Bridge => OfBridge::augment_args(command),
        Arguments::Router => Several::augment_args(command),
        Arguments::Own => own.find_subcommand(list.name).cloned().unwrap_or(command),
    };
    command.about(list.about).aliases(list.alias)
}

impl FromArgMatches for Shown {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Shown, clap::Error> {
        let found = matches.subcommand();
        let Some((list, inner)) = found.and_then(|(name, inner)| Some((list(name)?, inner))) else {
            return Err(clap::Error::new(ErrorKind::MissingSubcommand));
        };
        let selection = match list.arguments {
            Arguments::None => Selection::All,
            Arguments::Name(kind, _) => {
                inner.get_one::<String>(kind).cloned().map_or(Selection::All, Selection::Name)
            }
            Arguments::Bridge => Selection::Bridge(OfBridge::from_arg_matches(inner)?),
            Arguments::Router => Selection::Router(Several::from_arg_matches(inner)?),
            Arguments::Own => return Own::from_arg_matches(matches).map(Shown::Own),
        };
        Ok(Shown::Listed(list, selection))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Shown::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the list with this name in the registry [`control::LISTS`].
fn list(name: &str) -> Option<&'static List> {
    LISTS.iter().find(|list| list.name == name)
}

/// Prints the part of the daemon's state that the command line requests.
///
/// # Errors
/// Returns an error if the daemon does not answer, or the object does not exist.
pub async fn show(client: &Client, args: &Show) -> Result<(), Failure> {
    let json = args.json;
    let own = match &args.what {
        Shown::Listed(list, selection) => return show_list(client, list, selection, json).await,
        Shown::Own(own) => own,
    };
    match own {
        Own::Fdb(args) => args.show(client, json).await,
        Own::Flows(args) => args.show(client, json).await,
        Own::Caches => caches::show(client, json).await,
        Own::Drops(args) => args.show(client, json).await,
        Own::Config => config::show(client, json).await,
        Own::Routes(args) => args.show(client, json).await,
        Own::Why(args) => args.show(client, json).await,
        Own::Interfaces(args) => args.show(client, json).await,
        Own::Drift(args) => drift::show(client, args, json).await,
        Own::Punts(args) => args.show(client, json).await,
    }
}

/// Prints the objects of the list `name`, or only the object with the name `object`.
///
/// # Errors
/// Returns an error if the daemon does not answer, or the object does not exist.
pub async fn show_named(
    client: &Client,
    name: &str,
    object: Option<&String>,
    json: bool,
) -> Result<(), Failure> {
    let list = list(name).ok_or_else(|| absent(name))?;
    let selection = object.cloned().map_or(Selection::All, Selection::Name);
    show_list(client, list, &selection, json).await
}

/// Prints the selected part of a list.
async fn show_list(client: &Client, list: &List, selection: &Selection, json: bool) -> Result<(), Failure> {
    let path = match selection {
        Selection::All | Selection::Name(_) => format!("/v1/{}", list.name),
        Selection::Bridge(of) => of.path(list.name),
        Selection::Router(several) => several.path(client, list.name).await?,
    };
    let name = match selection {
        Selection::Name(name) => Some(name.as_str()),
        _ => None,
    };
    let answer = client.answer(&path).await?;
    let list = list.format(&answer.body, name).map_err(|error| client.not_understood(&error))?;
    if let Some(name) = name.filter(|_| list.count == 0) {
        return Err(absent(name));
    }
    match json {
        true => println!("{}", list.json),
        false => print!("{}", list.text),
    }
    if let Selection::Router(several) = selection {
        several.tell_more(list.count, json);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
