//! What a program is told when the stack says why not: the numbers of connect(2), bind(2), send(2).

use net::layer::Unsent;
use net::socket::Error;
use net::tcp::connection::Failure;
use net::tcp::host::Unusable;
use net::tcp::socket::Error as Failed;
use net::udp::BindError;
use rustix::io::Errno;

/// The number of an error.
pub fn number(error: Error) -> Errno {
    match error {
        Error::Unusable(Unusable::InUse) | Error::Bind(BindError::InUse) => Errno::ADDRINUSE,
        Error::Unusable(Unusable::NoRoute) => Errno::NETUNREACH,
        Error::Unusable(Unusable::NoPort) => Errno::ADDRNOTAVAIL,
        Error::Unusable(Unusable::NoPlace) | Error::Bind(BindError::TooMany) => Errno::NOBUFS,
        Error::Failed(Failed::Failed(Failure::Refused)) => Errno::CONNREFUSED,
        Error::Failed(Failed::Failed(Failure::Reset)) => Errno::CONNRESET,
        Error::Failed(Failed::Failed(Failure::TimedOut)) => Errno::TIMEDOUT,
        Error::Failed(Failed::Failed(Failure::Aborted)) => Errno::CONNABORTED,
        Error::Failed(Failed::Closed) => Errno::PIPE,
        Error::Unsent(Unsent::NoBuffer) => Errno::NOBUFS,
        Error::Unsent(Unsent::NoRoute) => Errno::NETUNREACH,
        Error::Unsent(Unsent::TooBig) => Errno::MSGSIZE,
        Error::Unsent(Unsent::NoNeighbour) => Errno::HOSTUNREACH,
        Error::Group => Errno::INVAL,
        Error::Host(errno) => Errno::from_raw_os_error(errno.0),
    }
}
