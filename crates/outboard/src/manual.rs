//! `outboard man` and `outboard completions`: from the definition of the command line and the
//! tables of options, by which `--help` answers too.

use crate::run;
use clap::{Arg, ArgAction, Command, ValueEnum, ValueHint};
use std::fs;
use std::path::PathBuf;
use std::{fmt, io};
use tender::options::{self, Choice};

/// `outboard man`.
#[derive(clap::Args)]
pub struct Man {
    /// Where the pages go, such as ~/.local/share/man/man1; it is made if it is not there
    folder: PathBuf,
}

/// `outboard completions`.
#[derive(clap::Args)]
pub struct Completions {
    /// For which shell
    shell: Shell,
}

/// Shells that complete command lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Why there are no pages or completions.
#[derive(Debug)]
pub enum Error {
    /// A folder, or a file in it, cannot be written.
    Write(PathBuf, io::Error),
    /// Completions cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(path, e) => write!(
                f,
                "cannot write to {}: {e}; name a folder of yours, as in: outboard man \
                 ~/.local/share/man/man1",
                path.display()
            ),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Writes a page for each command of `outboard`, which `command` defines, and for the tender.
///
/// # Errors
/// A file cannot be written.
pub fn write_pages(arguments: &Man, command: Command) -> Result<(), Error> {
    let folder = &arguments.folder;
    let failed = |error| Error::Write(folder.clone(), error);
    fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(whole(command, Form::Page), folder).map_err(failed)?;
    let about = "Start an image with the devices that its manifest names, and nothing else";
    let tender = Command::new("outboard-tender").about(about);
    let tender = with(tender, &[options::CHOICES], Form::Page);
    clap_mangen::generate_to(tender, folder).map_err(failed)
}

/// Prints completions of `outboard`, which `command` defines.
///
/// # Errors
/// They cannot be printed.
pub fn print_completions(arguments: &Completions, command: Command) -> Result<(), Error> {
    let script = completions(arguments.shell, command);
    io::Write::write_all(&mut io::stdout(), &script).map_err(Error::Print)
}

fn completions(shell: Shell, command: Command) -> Vec<u8> {
    let mut script = Vec::new();
    let (form, kind) = match shell {
        Shell::Bash => (Form::Words, clap_complete::Shell::Bash),
        Shell::Zsh => (Form::Zsh, clap_complete::Shell::Zsh),
        Shell::Fish => (Form::Words, clap_complete::Shell::Fish),
    };
    let mut command = whole(command, form);
    clap_complete::generate(kind, &mut command, "outboard", &mut script);
    script
}

/// What an option with a name in it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// To be read: `--net:NAME`.
    Page,
    /// To be completed: `--net:`, behind which the user writes the name.
    Words,
    /// The same for zsh, to which a bare colon ends an option.
    Zsh,
}

/// The whole command line: that of `run` is read elsewhere, and only its options are listed here.
fn whole(command: Command, form: Form) -> Command {
    command.mut_subcommand("run", |run| {
        let run = Command::new("run").about(run.get_about().cloned().unwrap_or_default());
        with(run, &[options::CHOICES, run::CHOICES], form)
    })
}

/// With the options of these tables, the image and its arguments.
fn with(command: Command, tables: &[&'static [Choice]], form: Form) -> Command {
    let choices = tables.iter().copied().flatten();
    let mut described: Vec<(String, Vec<&Choice>)> = Vec::new();
    for choice in choices {
        let name = long(choice, form);
        // Forms of one option, such as `--net:NAME=IFACE` and `--net:NAME=@FD`, follow each other.
        match described.last_mut() {
            Some((last, forms)) if *last == name => forms.push(choice),
            _ => described.push((name, vec![choice])),
        }
    }
    let image = Arg::new("IMAGE")
        .help("The image")
        .value_hint(ValueHint::FilePath);
    let arguments = Arg::new("ARGUMENTS")
        .help("The guest's own arguments")
        .num_args(0..);
    command
        .disable_version_flag(true)
        .args(
            described
                .into_iter()
                .map(|(name, forms)| argument(name, &forms)),
        )
        .arg(image.required(true))
        .arg(arguments.trailing_var_arg(true))
}

/// The option without hyphens and value.
fn long(choice: &Choice, form: Form) -> String {
    let key = choice.key().trim_start_matches('-');
    match (choice.has_name(), form) {
        (false, _) => key.to_owned(),
        (true, Form::Page) => format!("{key}:NAME"),
        (true, Form::Words) => format!("{key}:"),
        (true, Form::Zsh) => format!("{key}\\:"),
    }
}

fn argument(name: String, forms: &[&Choice]) -> Arg {
    let helps: Vec<_> = forms.iter().map(|choice| choice.help).collect();
    let values: Vec<_> = forms.iter().filter_map(|choice| choice.value()).collect();
    let argument = Arg::new(name.clone()).long(name).help(helps.join("; or "));
    match values.is_empty() {
        true => argument.action(ArgAction::SetTrue),
        false => argument.value_name(values.join("|")).require_equals(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let run = Command::new("run").about("Start an image");
        Command::new("outboard").subcommand(run)
    }

    #[test]
    fn pages_have_all_options() {
        let folder = std::env::temp_dir().join(format!("outboard-man-{}", std::process::id()));
        let arguments = Man {
            folder: folder.join("man1"),
        };
        write_pages(&arguments, command()).unwrap();
        for (page, tables) in [
            ("outboard-run.1", &[options::CHOICES, run::CHOICES][..]),
            ("outboard-tender.1", &[options::CHOICES]),
        ] {
            let text = fs::read_to_string(arguments.folder.join(page)).unwrap();
            let text = text.replace('\\', "");
            for choice in tables.iter().copied().flatten() {
                assert!(
                    text.contains(&long(choice, Form::Page)),
                    "{page}: {}",
                    choice.form
                );
            }
            assert!(text.contains("IMAGE"), "{page}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn completions_end_where_a_name_begins() {
        for (shell, option) in [
            (Shell::Bash, "--net:"),
            (Shell::Zsh, "--net\\:="),
            (Shell::Fish, "-l net:"),
        ] {
            let script = String::from_utf8(completions(shell, command())).unwrap();
            assert!(script.contains(option), "{shell:?}: {script}");
            assert!(script.contains("create-taps"), "{shell:?}");
            assert!(!script.contains("net:NAME"), "{shell:?}");
        }
    }
}
