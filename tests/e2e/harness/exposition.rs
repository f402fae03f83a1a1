//! Reads OpenMetrics text strictly: what a scraper would refuse fails here.

use libtest_mimic::Failed;
use std::collections::{BTreeMap, BTreeSet};

/// A sample's name and labels, as in `a_total{b="c"}`, and its value.
pub type Samples = BTreeMap<String, u64>;

/// The samples of `text`: each belongs to the family declared last, by a name that the family's
/// type allows, and comes once.
pub fn samples(text: &str) -> Result<Samples, Failed> {
    let body = text.strip_suffix("# EOF\n").ok_or("no end")?;
    let mut families = BTreeSet::new();
    let mut family: Option<(&str, &str)> = None;
    let mut described = "";
    let mut samples = Samples::new();
    for line in body.lines() {
        let wrong = |why: &str| Failed::from(format!("{why}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            described = rest.split_once(' ').ok_or_else(|| wrong("no text"))?.0;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("no type"))?;
            let fresh = name == described && families.insert(name);
            family = Some((name, kind)).filter(|_| fresh);
            family.ok_or_else(|| wrong("not described, or twice"))?;
        } else {
            let (series, value) = line.rsplit_once(' ').ok_or_else(|| wrong("no value"))?;
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let (base, kind) = family.ok_or_else(|| wrong("no family"))?;
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                "gauge" => "",
                _ => return Err(wrong("unknown type")),
            };
            let belongs = name.strip_suffix(suffix) == Some(base);
            belongs
                .then_some(())
                .ok_or_else(|| wrong("not of its family"))?;
            check_labels(labels).ok_or_else(|| wrong("labels"))?;
            let value = value.parse().map_err(|_| wrong("no number"))?;
            let first = samples.insert(series.to_owned(), value).is_none();
            first.then_some(()).ok_or_else(|| wrong("twice"))?;
        }
    }
    Ok(samples)
}

/// `name="value",...}` with the three escapes and nothing behind it.
fn check_labels(mut labels: &str) -> Option<()> {
    while labels != "}" {
        let (name, rest) = labels.split_once("=\"")?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        (!name.is_empty() && name.bytes().all(plain)).then_some(())?;
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (end, '"') => break end,
                (_, '\\') => "\\\"n".contains(characters.next()?.1).then_some(())?,
                _ => {}
            }
        };
        let behind = &rest[end + 1..];
        labels = behind.strip_prefix(',').unwrap_or(behind);
    }
    Some(())
}
