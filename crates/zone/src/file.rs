//! A zone as files have it (RFC 1035, 5).

use crate::{Record, Zone};
use domain::base::iana::Class;
use domain::base::rdata::ComposeRecordData;
use domain::base::{Name, ToName};
use domain::zonefile::inplace::{Entry, Zonefile};
use std::boxed::Box;
use std::error::Error;
use std::fmt::Write;
use std::string::String;
use std::vec::Vec;

/// The records of a file, in order.
pub struct File(Vec<Row>);

/// Owner, type, time to live and data, as they are on the wire.
type Row = (Vec<u8>, u16, u32, Vec<u8>);

impl File {
    /// Reads a file's text.
    ///
    /// # Errors
    /// What is wrong with it. Whether the records make a zone, [`Zone::new`] says.
    pub fn read(text: &[u8]) -> Result<Self, Box<dyn Error>> {
        let mut file = Zonefile::load(&mut &text[..])?;
        file.set_origin(Name::root_bytes());
        file.set_default_class(Class::IN);
        let mut rows = Vec::new();
        while let Some(entry) = file.next_entry()? {
            let Entry::Record(record) = entry else {
                return Err("$INCLUDE is not followed".into());
            };
            if record.class() != Class::IN {
                return Err("a record of another class than IN".into());
            }
            let mut owner = Vec::new();
            record.owner().compose_canonical(&mut owner)?;
            let mut data = Vec::new();
            record.data().compose_rdata(&mut data)?;
            let ttl = record.ttl().as_secs();
            rows.push((owner, record.rtype().to_int(), ttl, data));
        }
        rows.sort();
        Ok(Self(rows))
    }

    /// The records.
    pub fn records(&self) -> Vec<Record<'_>> {
        let rows = self.0.iter();
        rows.map(|(owner, rtype, ttl, data)| Record::new(owner, *rtype, *ttl, data))
            .collect()
    }
}

/// An expression in Rust that is the records of a file, for a build to put into its image.
///
/// # Errors
/// Why the file is no zone.
pub fn expression(text: &[u8]) -> Result<String, Box<dyn Error>> {
    let file = File::read(text)?;
    Zone::new(&file.records())?;
    let mut expression = String::from("&[\n");
    for (owner, rtype, ttl, data) in &file.0 {
        writeln!(
            expression,
            "zone::Record::new(&{owner:?}, {rtype}, {ttl}, &{data:?}),"
        )?;
    }
    expression.push(']');
    Ok(expression)
}
