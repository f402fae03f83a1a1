//! What a file says of a flowtable, and how that is printed.

use super::ast::{Name, Spanned, Value};
use alloc::boxed::Box;
use core::fmt::{self, Display, Formatter};

/// `flowtable NAME { hook ingress priority N; devices = { ... }; }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flowtable<'a> {
    /// Its name, without `@`.
    pub name: Name<'a>,
    /// Behind `priority`.
    pub priority: i32,
    /// Behind `devices`.
    pub devices: Box<[Spanned<Value<'a>>]>,
}

impl Display for Flowtable<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tflowtable {} {{", self.name)?;
        writeln!(f, "\t\thook ingress priority {}", self.priority)?;
        if !self.devices.is_empty() {
            f.write_str("\t\tdevices = { ")?;
            for (index, device) in self.devices.iter().enumerate() {
                let before = if index == 0 { "" } else { ", " };
                write!(f, "{before}{device}")?;
            }
            f.write_str(" }\n")?;
        }
        f.write_str("\t}")
    }
}
