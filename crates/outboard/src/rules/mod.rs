//! `outboard rules`: what can be done with a file of rules.
//!
//! | module | what |
//! |---|---|
//! | [`source`] | the text, read no further than it may be long |
//! | [`load`] | gives it to a running guest |

pub mod load;
pub mod source;
