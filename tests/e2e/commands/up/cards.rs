//! A component that drives cards: each of its runs has them, whatever became of the one before.

use super::{ALL, System, kill};
use crate::harness::build::Images;
use crate::harness::process::Running;
use libtest_mimic::Failed;

/// A component that drives cards, under a supervisor.
pub struct OnCards<'a> {
    system: System<'a>,
    supervisor: Running,
    /// Who drives them.
    name: &'static str,
}

impl<'a> OnCards<'a> {
    /// Starts this variant of the firewall on cards with these addresses, and waits until it is up.
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
        let name = "firewall";
        Ok(Self {
            system,
            supervisor,
            name,
        })
    }

    /// Starts a stack on a card, and an application of another image that has its sockets from
    /// there, each on a host.
    pub fn stack(
        images: &'a Images,
        hosts: [&str; 2],
        card: &str,
        address: &str,
    ) -> Result<Self, Failed> {
        let text = format!(
            "[component.stack]\nimage = {:?}\nhost = {:?}\nmemory = 64\narguments = \
             [\"--ipv4={address}\"]\npci.service = {card:?}\nnet.app = \"link:inner\"\n\n\
             [component.echo]\nimage = {:?}\nhost = {:?}\nmemory = 64\nnet.service = \
             \"link:inner\"\n",
            images.appliance("stack", "-nic"),
            hosts[0],
            images.appliance("echo", "-remote"),
            hosts[1],
        );
        let system = System::new(images, &text)?;
        let supervisor = system.up(2)?;
        let name = "stack";
        Ok(Self {
            system,
            supervisor,
            name,
        })
    }

    /// Kills the guest, and waits until the next one is up.
    pub fn kill(&self) -> Result<(), Failed> {
        let run = self.system.run_of(self.name);
        kill(self.system.guest(self.name)?)?;
        self.system.wait_for_run(self.name, run + 1)
    }

    /// Ends it all, and looks whether anything is left.
    pub fn down(self) -> Result<(), Failed> {
        self.system.down(Some(self.supervisor))
    }
}
