mod accepted;
mod refused;
mod round_trip;

use super::ast::File;
use super::{Error, Limits, parse};
use std::format;
use std::string::String;

/// A file with one rule.
fn file(rule: &str) -> String {
    format!("table bridge t {{\n\tchain c {{\n\t\t{rule}\n\t}}\n}}\n")
}

fn read(text: &str) -> Result<File<'_>, Error> {
    parse(text, &Limits::DEFAULT)
}
