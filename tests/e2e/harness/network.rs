//! The right to make networks, and what a test does without it.

use libtest_mimic::{Completion, Failed, Trial};

/// What this run may do.
pub struct Network {
    /// Why no network can be made, if so.
    missing: Option<String>,
    /// Whether the user is root outside, and not only in a namespace of its own.
    root: bool,
}

impl Network {
    /// Obtains the right, in a user namespace if need be. The process must have one thread.
    pub fn acquire() -> Self {
        let root = rustix::process::geteuid().is_root();
        let missing = testbed::privilege::acquire()
            .err()
            .map(|missing| missing.to_string());
        Self { missing, root }
    }

    /// A test that needs networks of its own.
    pub fn trial(
        &self,
        name: String,
        test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
    ) -> Trial {
        self.trial_unless(None, name, test)
    }

    /// A test that needs networks and something else, which may be `missing`.
    pub fn trial_unless(
        &self,
        missing: Option<&str>,
        name: String,
        test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
    ) -> Trial {
        let missing = missing.map(str::to_owned).or_else(|| self.missing.clone());
        Trial::ignorable_test(name, move || match missing {
            Some(why) => Ok(Completion::ignored_with(why)),
            None => test().map(|()| Completion::Completed),
        })
    }

    /// What is missing for a test that opens device files of the machine.
    pub fn root(&self) -> Option<&'static str> {
        let why = "needs root: only root opens the device file of a macvtap";
        (!self.root).then_some(why)
    }
}
