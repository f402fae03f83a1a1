//! `outboard rules load`: a running guest gets other rules, in one step.

use crate::instance::event::{LOCK_TIMEOUT, lock, wake};
use crate::instance::{self, Instance};
use abi::extension::feature;
use abi::share::{REVALIDATED_OFFSET, RULES_STATUS_OFFSET, RulesRefused, RulesStatus};
use nf::Loaded;
use nf::nft::Limits;
use rule_files::Source;
use rule_files::{Failure, Gathered};
use rustix::io::Errno;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fmt, io};
use zerocopy::{FromZeros, IntoBytes};

/// How long the guest may take to say that it uses the rules, or why it does not.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two looks at either.
const PAUSE: Duration = Duration::from_millis(1);

/// `outboard rules load`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The guest, by the name that it was started with: outboard run --name=INSTANCE
    instance: String,
    /// The rules, in nft's language; - is standard input
    file: PathBuf,
    /// End connections that these rules would not let begin, each at its next packet; the others
    /// go on, with their translations
    #[arg(long)]
    revalidate: bool,
}

/// Why the guest keeps the rules that it had.
#[derive(Debug)]
pub enum Error {
    /// No text.
    Source(rule_files::Error),
    /// The text is no rules.
    Rules {
        /// What [`nf`] says of it.
        rendered: String,
        /// The guest.
        name: String,
        /// The generation that stays in force, if the guest says.
        in_force: Option<u64>,
    },
    /// No guest.
    Instance(instance::Error),
    /// The guest's image takes no rules.
    NotTaken(String),
    /// Others are loading rules all the time.
    Busy(String),
    /// The shared file or the event cannot be used.
    System(io::Error),
    /// The guest said no.
    Refused {
        /// The guest.
        name: String,
        /// Why: a [`RulesRefused`], or another number.
        reason: u64,
        /// Where in the text, in bytes.
        position: u64,
        /// The generation that stays in force.
        in_force: u64,
    },
    /// The guest uses them, and does not judge connections anew.
    NotRevalidated {
        /// The guest.
        name: String,
        /// The generation that is in force.
        in_force: u64,
    },
    /// The guest said nothing.
    Silent(String),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::Rules {
                rendered,
                name,
                in_force: Some(generation),
            } => write!(
                f,
                "{rendered}\n{name} keeps generation {generation} of its rules"
            ),
            Self::Rules { rendered, name, .. } => {
                write!(f, "{rendered}\n{name} keeps the rules that it has")
            }
            Self::Instance(error) => error.fmt(f),
            Self::NotTaken(name) => write!(
                f,
                "{name} takes no rules; build its image with rule_files::appliance(FILE) in \
                 its build.rs"
            ),
            Self::Busy(name) => write!(
                f,
                "another process has been loading rules into {name} for {} s; try again",
                LOCK_TIMEOUT.as_secs()
            ),
            Self::System(error) => write!(f, "cannot hand the rules over: {error}"),
            Self::Refused {
                name,
                reason,
                position,
                in_force,
            } => {
                write!(f, "{name} keeps generation {in_force} of its rules: ")?;
                refusal(f, *reason, *position)
            }
            Self::NotRevalidated { name, in_force } => write!(
                f,
                "generation {in_force} of the rules of {name} is in force, and all its connections \
                 go on: its image is older than --revalidate; end them by: outboard flows {name} \
                 --flush"
            ),
            Self::Silent(name) => write!(
                f,
                "{name} has not answered for {} s and keeps its rules until it does; is it \
                 stopped?",
                ANSWER_TIMEOUT.as_secs()
            ),
        }
    }
}

/// What the guest gave as its reason, in words of ours.
fn refusal(f: &mut fmt::Formatter<'_>, reason: u64, position: u64) -> fmt::Result {
    const INVALID: u64 = RulesRefused::Invalid as u64;
    const MEMORY: u64 = RulesRefused::Memory as u64;
    const TORN: u64 = RulesRefused::Torn as u64;
    const RANDOM: u64 = RulesRefused::Random as u64;
    match reason {
        INVALID => write!(
            f,
            "it cannot read them, from byte {position} on; was its image built by another version?"
        ),
        MEMORY => write!(
            f,
            "they do not fit into its memory beside those in force; start it with more --mem"
        ),
        TORN => write!(f, "they changed while it read them; load them again"),
        RANDOM => f.write_str(
            "they have ct, which needs random bytes, and neither its tender nor the processor has \
             any",
        ),
        other => write!(f, "it gives no reason that is known here ({other})"),
    }
}

/// Has a guest use the rules in a file from now on, and says so. A file that is no rules, or that
/// the guest refuses, changes nothing.
///
/// False if the file is no rules: then standard error says where.
///
/// # Errors
/// Why else the guest does not use them.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let gathered = match Gathered::read(&arguments.file) {
        Ok(gathered) => gathered,
        Err(Failure::Source(error)) => return Err(Error::Source(error)),
        Err(Failure::Include(said)) => {
            eprintln!("{said}");
            return Ok(false);
        }
    };
    let instance = Instance::open(&arguments.instance).map_err(Error::Instance)?;
    let generation = match load(&instance, &gathered, arguments.revalidate) {
        Err(error @ Error::Rules { .. }) => {
            eprintln!("{error}");
            return Ok(false);
        }
        loaded => loaded?,
    };
    println!(
        "{}: generation {generation} of its rules is in force, from {}; it counts from zero",
        instance.name(),
        gathered.source.name
    );
    Ok(true)
}

/// Has a guest use these rules, and returns the generation that they are. If they `revalidate`,
/// connections that they would not let begin end.
///
/// # Errors
/// Why the guest does not use them.
pub fn load(instance: &Instance, gathered: &Gathered, revalidate: bool) -> Result<u64, Error> {
    let name = || instance.name().to_owned();
    let description = instance.description();
    if description.features & feature::RULES == 0 {
        return Err(Error::NotTaken(name()));
    }
    let Source { text, .. } = &gathered.source;
    Loaded::load(text, &description.ports(), &Limits::DEFAULT).map_err(|error| Error::Rules {
        rendered: gathered.whole.render(&error),
        name: name(),
        in_force: status(instance).ok().map(|status| status.generation),
    })?;
    super::warn(gathered, &description.ports());
    let event = instance.event().map_err(Error::Instance)?;
    // Loaders take turns; the lock goes with the descriptor.
    lock(&event)
        .map_err(|errno| Error::System(errno.into()))?
        .then_some(())
        .ok_or_else(|| Error::Busy(name()))?;
    let share = instance.writable_share().map_err(Error::Instance)?;
    let text = text.as_bytes();
    let generation = tender::rules::publish(&share, text, revalidate).map_err(Error::System)?;
    wake(&event).map_err(|errno| Error::System(errno.into()))?;
    await_answer(instance, generation)?;
    if revalidate
        && revalidated(instance).map_err(|errno| Error::System(errno.into()))? != generation
    {
        return Err(Error::NotRevalidated {
            name: name(),
            in_force: generation,
        });
    }
    Ok(generation)
}

fn await_answer(instance: &Instance, generation: u64) -> Result<(), Error> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    loop {
        // Looked at first: a guest that answers and ends has answered.
        let runs = instance.is_running().map_err(Error::Instance)?;
        let status = status(instance).map_err(|errno| Error::System(errno.into()))?;
        if status.generation == generation {
            return Ok(());
        }
        let name = instance.name().to_owned();
        if status.refused == generation {
            return Err(Error::Refused {
                name,
                reason: status.reason,
                position: status.position,
                in_force: status.generation,
            });
        }
        if !runs {
            return Err(Error::Instance(instance::Error::Ended(name)));
        }
        if Instant::now() > deadline {
            return Err(Error::Silent(name));
        }
        sleep(PAUSE);
    }
}

/// What the guest says, which need not be true: it is compared, and printed as numbers.
fn status(instance: &Instance) -> Result<RulesStatus, Errno> {
    let mut status = RulesStatus::new_zeroed();
    rustix::io::pread(
        instance.share(),
        status.as_mut_bytes(),
        RULES_STATUS_OFFSET as u64,
    )?;
    Ok(status)
}

/// The last generation with which the guest judges connections anew, as it says.
fn revalidated(instance: &Instance) -> Result<u64, Errno> {
    let mut generation = 0_u64;
    rustix::io::pread(
        instance.share(),
        generation.as_mut_bytes(),
        REVALIDATED_OFFSET as u64,
    )?;
    Ok(generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_in_force_is_said() {
        let says = |in_force| {
            let error = Error::Rules {
                rendered: "error: x".into(),
                name: "fw".into(),
                in_force,
            };
            error.to_string()
        };
        let known = "error: x\nfw keeps generation 3 of its rules";
        assert_eq!(says(Some(3)), known);
        assert_eq!(says(None), "error: x\nfw keeps the rules that it has");
    }
}
