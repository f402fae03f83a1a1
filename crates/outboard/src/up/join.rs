//! `outboard proxy --net=LINK`: a program that no file names has the free end of a link between a
//! component and nobody, as long as it is connected.

use super::Error;
use super::channel::{Channel, Received};
use super::message::{Command, End};
use super::place::Place;
use linux::link::Side;
use std::os::fd::OwnedFd;

/// What is said of an answer that is not four descriptors.
const NO_SIDE: &str = "the supervisor is of another version; start it again: outboard up FILE";

/// An end of a link of a system that is up.
#[derive(Debug)]
pub struct Joined {
    /// Its descriptors.
    pub side: Side,
    /// The MTU of the link in bytes, if its file says.
    pub mtu: Option<u16>,
    /// The end is this process's as long as this is open. It ends when somebody else may get it:
    /// the system has ended, another supervisor has begun, or the link was made anew.
    pub held: Channel,
}

/// The end of the link of this name, or of the one of the component of this name, that the file
/// leaves to `outboard proxy`.
///
/// # Errors
/// No system is up; there is no such end, or somebody has it.
pub fn join(net: &str) -> Result<Joined, Error> {
    let place = Place::find().map_err(Error::Place)?;
    let nothing = |_| Error::Nothing(place.path().to_owned());
    let held = Channel::connect(&place.control()).map_err(nothing)?;
    let command = Command::Join(net.to_owned());
    held.send(&command, &[]).map_err(Error::System)?;
    match held.wait::<End>(None).map_err(Error::System)? {
        Received::Message(Ok(mtu), descriptors) => {
            let side = side(descriptors).ok_or_else(|| Error::Refused(NO_SIDE.to_owned()))?;
            Ok(Joined { side, mtu, held })
        }
        Received::Message(Err(why), _) => Err(Error::Refused(why)),
        Received::Nothing | Received::End => {
            Err(Error::Refused("the supervisor has ended".to_owned()))
        }
    }
}

fn side(descriptors: Vec<OwnedFd>) -> Option<Side> {
    let [own, peer, bell, peer_bell] = <[OwnedFd; 4]>::try_from(descriptors).ok()?;
    Some(Side {
        own,
        peer,
        bell,
        peer_bell,
    })
}
