//! The zone, as the file `zone` had it when the image was built. Names are as on the wire, in small
//! letters.

use domain::base::Rtype;

/// A record.
pub struct Record {
    /// Whose it is.
    pub owner: &'static [u8],
    rtype: u16,
    /// How long others may keep it, in seconds.
    pub ttl: u32,
    /// Its data.
    pub data: &'static [u8],
}

// APEX, RECORDS and NAMES, as build.rs writes them: both lists in order.
include!(concat!(env!("OUT_DIR"), "/zone.rs"));

impl Record {
    /// Its type.
    pub fn rtype(&self) -> Rtype {
        Rtype::from_int(self.rtype)
    }
}

/// What the zone has for a name.
pub enum Found {
    /// The name is another zone's.
    Foreign,
    /// The name lies in a part that others serve: their records of NS.
    Delegated(&'static [Record]),
    /// These records, of all types; none if only names below it have some.
    Records(&'static [Record]),
    /// There is no such name.
    Nothing,
}

/// The records of exactly this name.
pub fn records(name: &[u8]) -> &'static [Record] {
    let first = RECORDS.partition_point(|record| record.owner < name);
    let count = RECORDS[first..].partition_point(|record| record.owner == name);
    &RECORDS[first..first + count]
}

/// The records of this type among those of a name.
pub fn of_type(records: &'static [Record], rtype: Rtype) -> &'static [Record] {
    let first = records.partition_point(|record| record.rtype < rtype.to_int());
    let count = records[first..].partition_point(|record| record.rtype() == rtype);
    &records[first..first + count]
}

/// The record that says where the zone begins.
pub fn soa() -> &'static [Record] {
    of_type(records(APEX), Rtype::SOA)
}

/// Looks a name up (RFC 1034, 4.3.2; RFC 4592 for wildcards).
pub fn find(name: &[u8]) -> Found {
    let mut above = name;
    // The longest name above that exists, and the topmost delegation.
    let (mut encloser, mut delegation) = (None, None);
    while above != APEX {
        if NAMES.binary_search(&above).is_ok() {
            encloser.get_or_insert(above);
        }
        let ns = of_type(records(above), Rtype::NS);
        if !ns.is_empty() {
            delegation = Some(ns);
        }
        match above.split_first() {
            Some((len @ 1.., rest)) => above = rest.get((*len).into()..).unwrap_or_default(),
            _ => return Found::Foreign,
        }
    }
    if let Some(ns) = delegation {
        return Found::Delegated(ns);
    }
    let encloser = encloser.unwrap_or(APEX);
    if encloser == name {
        return Found::Records(records(name));
    }
    let wildcard = [b"\x01*", encloser].concat();
    match NAMES.binary_search(&wildcard.as_slice()) {
        Ok(_) => Found::Records(records(&wildcard)),
        Err(_) => Found::Nothing,
    }
}
