//! The commands `man` and `completions`: a program's command line as man pages and as completions
//! for shells.
//!
//! Both are generated from clap's definitions, so they always agree with `--help`.

use std::io;
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::failure::{Failure, Result};
use crate::output;

/// A program whose man pages and completions are printed.
pub struct Manual {
    /// The definitions of its command line.
    pub program: clap::Command,
    /// Other documents to refer to, phrased as a part of a sentence.
    pub documents: &'static str,
}

/// Prints one page, or writes all of them.
#[derive(clap::Args)]
pub struct Pages {
    /// Words of the subcommand [default: the program itself]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
    /// Directory into which to write the pages of all commands
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints a script with completions of this command's arguments for a shell.
#[derive(clap::Args)]
pub struct Completions {
    /// Shell for which to print completions
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completions of a program for a shell.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(mut program: clap::Command, args: &Completions) -> Result {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, &name, &mut script);
    if args.shell == Shell::Bash && name.contains('-') {
        // clap_complete 4.6.11 writes a hyphen of the program's name in two ways, but its script
        // only looks up one of them.
        let [other, wanted] = ["__subcmd__", "__"].map(|hyphen| name.replace('-', hyphen));
        script = String::from_utf8_lossy(&script).replace(&other, &wanted).into_bytes();
    }
    output::bytes(&script)
}

/// Prints the page of a command, or writes those of all commands.
///
/// # Errors
/// There is no such command, or a page cannot be written.
pub fn pages(manual: Manual, args: &Pages) -> Result {
    let mut program = manual.program.disable_help_subcommand(true);
    program.build();
    match &args.out {
        Some(folder) => write_all(&program, None, manual.documents, folder),
        None => {
            let (command, parent) = find(&program, &args.command)?;
            output::bytes(&page(command, parent, manual.documents))
        }
    }
}

/// Finds the command with these words, such as `gateway run`. Also returns its parent command.
fn find<'a>(
    program: &'a clap::Command,
    path: &[String],
) -> Result<(&'a clap::Command, Option<&'a clap::Command>)> {
    let mut found = (program, None);
    for name in path {
        let (command, _) = found;
        let part = command.find_subcommand(name).ok_or_else(|| {
            let program = program.get_name();
            Failure::usage(format!(
                "there is no command `{program} {}`: `{program} --help` lists all commands",
                path.join(" ")
            ))
        })?;
        found = (part, Some(command));
    }
    Ok(found)
}

fn write_all(
    command: &clap::Command,
    parent: Option<&clap::Command>,
    documents: &str,
    folder: &Path,
) -> Result {
    let file = folder.join(format!("{}.1", name(command)));
    std::fs::write(&file, page(command, parent, documents)).map_err(|error| {
        let failed = Failure::because(format_args!("cannot write {}", file.display()), &error);
        match error.kind() {
            io::ErrorKind::NotFound => {
                failed.help(format!("make the directory first: mkdir -p {}", folder.display()))
            }
            _ => failed,
        }
    })?;
    shown(command).try_for_each(|part| write_all(part, Some(command), documents, folder))
}

fn shown(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

/// `equic-gateway-run`.
fn name(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Returns the usage of the command, with the value names of its options and arguments.
fn synopsis(command: &clap::Command) -> Roff {
    let mut line = vec![bold(command.get_bin_name().unwrap_or_else(|| command.get_name()))];
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let (words, options): (Vec<_>, Vec<_>) = shown.partition(|argument| argument.is_positional());
    for argument in options.into_iter().chain(words) {
        line.push(roman(if argument.is_required_set() { " " } else { " [" }));
        line.extend(written(argument));
        if !argument.is_required_set() {
            line.push(roman("]"));
        }
        let many = matches!(argument.get_action(), clap::ArgAction::Append);
        line.extend(many.then(|| roman("...")));
    }
    if command.has_subcommands() {
        line.push(roman(" "));
        line.push(italic("command"));
    }
    let mut roff = Roff::default();
    roff.control("SH", ["SYNOPSIS"]).text(line);
    roff
}

/// Formats the name of an option and its value, or a positional argument.
fn written(argument: &clap::Arg) -> Vec<Inline> {
    let mut line = Vec::new();
    if let Some(short) = argument.get_short() {
        line.push(bold(format!("-{short}")));
    }
    if let Some(long) = argument.get_long() {
        if !line.is_empty() {
            line.push(roman("|"));
        }
        line.push(bold(format!("--{long}")));
    }
    if argument.get_action().takes_values() {
        let names = match argument.get_value_names() {
            Some(names) => names.join(" "),
            None => argument.get_id().as_str().to_uppercase(),
        };
        if !line.is_empty() {
            line.push(roman(" "));
        }
        line.push(italic(names));
    }
    line
}

fn page(command: &clap::Command, parent: Option<&clap::Command>, documents: &str) -> Vec<u8> {
    let mut page = Vec::new();
    render(command, parent, documents, &mut page).expect("writing to memory does not fail");
    page
}

/// Renders the same sections as [`Man::render`], but keeps the lines of examples as they are, and
/// refers to further documents on every page.
fn render(
    command: &clap::Command,
    parent: Option<&clap::Command>,
    documents: &str,
    page: &mut Vec<u8>,
) -> io::Result<()> {
    let man = Man::new(command.clone())
        .source(concat!("equic ", env!("CARGO_PKG_VERSION")))
        .manual("eQUIC");
    man.render_title(page)?;
    man.render_name_section(page)?;
    synopsis(command).to_writer(page)?;
    man.render_description_section(page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(page)?;
    }
    if shown(command).next().is_some() {
        man.render_subcommands_section(page)?;
    }
    let mut roff = Roff::default();
    if let Some(text) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        let text = text.to_string();
        let (heading, text) = match text.strip_prefix("Examples:\n") {
            Some(examples) => ("EXAMPLES", examples),
            None => ("NOTES", &*text),
        };
        roff.control("SH", [heading]).control("nf", []);
        for line in text.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["EXIT STATUS"])
        .text([roman("0: done. 1: failed. 2: wrong usage or configuration.")]);
    roff.control("SH", ["SEE ALSO"]);
    if let Some(parent) = parent {
        roff.text([bold(name(parent)), roman("(1),")]);
    }
    roff.text([roman(format!("{documents} of the source, which"))]);
    roff.text([roman("a package installs in /usr/share/doc/equic.")]);
    roff.to_writer(page)
}
