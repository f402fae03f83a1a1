//! The report: a page that needs no other file.

use super::axes::Run;
use super::outcome::Outcome;

/// What is reported.
pub struct Report<'a> {
    /// First line.
    pub title: &'a str,
    /// On what it was measured, as a list.
    pub machine: &'a str,
    /// Raw data of each run, and the plans that it belongs to.
    pub outcomes: &'a [(Outcome, Vec<String>)],
    /// What was left out, and why.
    pub impossible: &'a [(Run, &'static str)],
}

impl Report<'_> {
    /// The page.
    pub fn page(&self) -> String {
        String::new()
    }

    /// As data.
    pub fn json(&self) -> String {
        String::new()
    }

    /// In words.
    pub fn words(&self) -> String {
        String::new()
    }
}
