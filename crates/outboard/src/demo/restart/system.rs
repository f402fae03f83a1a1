//! What is killed: three images, joined by links.

use super::super::error::Error;
use super::super::system::{FILE, Folder, System};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The components, in the order in which frames come to them.
pub const COMPONENTS: [&str; 3] = ["edge", "firewall", "stack"];
/// The address of the stack.
pub const STACK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The tap that the edge is given.
pub const TAP: &str = "wan0";

/// What passes the edge: everything.
const EDGE: &str = "table bridge edge {\n\tchain forward {\n\t\ttype filter hook forward priority \
                    filter; policy accept;\n\t}\n}\n";
/// What passes the firewall: connections to the service of the stack that were seen to begin.
const FIREWALL: &str = "define SERVICE = 7\n\ntable bridge filter {\n\tchain forward {\n\t\ttype \
                        filter hook forward priority filter; policy drop;\n\n\t\tether type arp \
                        accept\n\t\tct state established accept\n\t\tct state new tcp dport \
                        $SERVICE tcp flags & (fin | syn | rst | ack) == syn accept\n\t\tct \
                        state new udp dport $SERVICE accept\n\t}\n}\n";

/// Images of the components.
pub struct Images {
    pub edge: PathBuf,
    pub firewall: PathBuf,
    pub stack: PathBuf,
}

/// Starts them, with a spare each if they are to have some.
///
/// # Errors
/// They do not come up.
pub fn start(images: &Images, spares: bool) -> Result<System, Error> {
    let Images {
        edge,
        firewall,
        stack,
    } = images;
    let text = format!(
        "[component.stack]\nspare = {spares}\nimage = {stack:?}\nmemory = 64\narguments = \
         [\"--ipv4={STACK}/24\"]\nnet.service = \"link:inner\"\nstate.connections = \
         \"memory\"\n\n[component.firewall]\nspare = {spares}\nimage = \
         {firewall:?}\nmemory = 16\nrules = \"firewall.nft\"\nnet.private = \
         \"link:inner\"\nnet.public = \"link:outer\"\nstate.connections = \
         \"memory\"\n\n[component.edge]\nspare = {spares}\nimage = {edge:?}\nmemory = \
         16\nrules = \"edge.nft\"\nnet.private = \"link:outer\"\nnet.public = \
         \"tap:{TAP}\"\n"
    );
    let files = [
        (FILE, &*text),
        ("edge.nft", EDGE),
        ("firewall.nft", FIREWALL),
    ];
    System::start(Folder::new("restart", &files)?, &COMPONENTS)
}
