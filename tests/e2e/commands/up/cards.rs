//! A component that drives cards: each of its runs has them, whatever became of the one before.

use super::{ALL, System, kill};
use crate::harness::build::Images;
use crate::harness::process::Running;
use libtest_mimic::Failed;

/// The firewall on two cards, under a supervisor.
pub struct OnCards<'a> {
    system: System<'a>,
    supervisor: Running,
}

impl<'a> OnCards<'a> {
    /// Starts this variant of it on cards with these addresses, and waits until it is up.
    pub fn start(
        images: &'a Images,
        host: &str,
        variant: &str,
        [private, public]: &[String; 2],
    ) -> Result<Self, Failed> {
        let image = images.appliance("firewall", variant);
        let text = format!(
            "[component.firewall]\nimage = {image:?}\nhost = {host:?}\nmemory = 64\nrules = \
             \"all.nft\"\npci.private = {private:?}\npci.public = {public:?}\n"
        );
        let system = System::new(images, &text)?;
        std::fs::write(system.runtime.path().join("all.nft"), ALL)?;
        let supervisor = system.up(1)?;
        Ok(Self { system, supervisor })
    }

    /// Kills the guest, and waits until the next one is up.
    pub fn kill(&self) -> Result<(), Failed> {
        let run = self.system.run_of("firewall");
        kill(self.system.guest("firewall")?)?;
        self.system.wait_for_run("firewall", run + 1)
    }

    /// Ends it all, and looks whether anything is left.
    pub fn down(self) -> Result<(), Failed> {
        self.system.down(Some(self.supervisor))
    }
}
