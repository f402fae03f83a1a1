//! This process's end of a link that carries sockets.
