//! Records in order, and what a name finds among them. Names are as on the wire, in small letters.

use alloc::vec::Vec;
use core::fmt;
use domain::base::Rtype;

/// A record of class IN. Records are in order by owner, then by type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record<'z> {
    /// Whose it is.
    pub owner: &'z [u8],
    rtype: u16,
    /// How long others may keep it, in seconds.
    pub ttl: u32,
    /// Its data.
    pub data: &'z [u8],
}

impl<'z> Record<'z> {
    /// A record of these parts; its type is the number that IANA gives it.
    pub const fn new(owner: &'z [u8], rtype: u16, ttl: u32, data: &'z [u8]) -> Self {
        Self {
            owner,
            rtype,
            ttl,
            data,
        }
    }

    /// Its type.
    pub fn rtype(&self) -> Rtype {
        Rtype::from_int(self.rtype)
    }
}

/// Why records make no zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// They are not in order.
    Order,
    /// There is no SOA, or more than one.
    Apex,
    /// An owner's name is not below that of the SOA.
    Outside,
    /// A name has a CNAME and something else (RFC 1034, 3.6.2).
    Alias,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Order => "its records are not in order",
            Self::Apex => "one SOA is wanted",
            Self::Outside => "a record lies outside of the zone",
            Self::Alias => "a name has a CNAME and something else",
        })
    }
}

impl core::error::Error for Error {}

/// What a zone has for a name.
pub enum Found<'z> {
    /// The name is another zone's.
    Foreign,
    /// The name lies in a part that others serve: their records of NS.
    Delegated(&'z [Record<'z>]),
    /// These records, of all types; none if only names below it have some.
    Records(&'z [Record<'z>]),
    /// There is no such name.
    Nothing,
}

/// A zone.
pub struct Zone<'z> {
    apex: &'z [u8],
    records: &'z [Record<'z>],
    /// Also those without records that are above one that has some, in order.
    names: Vec<&'z [u8]>,
}

/// The name above; `None` above the root.
fn above(name: &[u8]) -> Option<&[u8]> {
    match name.split_first()? {
        (0, _) => None,
        (len, rest) => rest.get(usize::from(*len)..),
    }
}

/// The records of this type among those of a name.
pub(crate) fn of_type<'z>(records: &'z [Record<'z>], rtype: Rtype) -> &'z [Record<'z>] {
    let first = records.partition_point(|record| record.rtype < rtype.to_int());
    let count = records[first..].partition_point(|record| record.rtype() == rtype);
    &records[first..first + count]
}

impl<'z> Zone<'z> {
    /// The zone of these records.
    ///
    /// # Errors
    /// Why they make none.
    pub fn new(records: &'z [Record<'z>]) -> Result<Self, Error> {
        if !records.is_sorted_by_key(|record| (record.owner, record.rtype)) {
            return Err(Error::Order);
        }
        let mut apexes = records.iter().filter(|record| record.rtype() == Rtype::SOA);
        let (Some(Record { owner: apex, .. }), None) = (apexes.next(), apexes.next()) else {
            return Err(Error::Apex);
        };
        let mut names = Vec::new();
        for one in records.chunk_by(|one, other| one.owner == other.owner) {
            if one.len() > 1 && !of_type(one, Rtype::CNAME).is_empty() {
                return Err(Error::Alias);
            }
            let mut name = one[0].owner;
            while name != *apex {
                names.push(name);
                name = above(name).ok_or(Error::Outside)?;
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(Self {
            apex,
            records,
            names,
        })
    }

    /// The records of exactly this name.
    pub fn records(&self, name: &[u8]) -> &'z [Record<'z>] {
        let first = self.records.partition_point(|record| record.owner < name);
        let count = self.records[first..].partition_point(|record| record.owner == name);
        &self.records[first..first + count]
    }

    /// The record that says where the zone begins.
    pub fn soa(&self) -> &'z [Record<'z>] {
        of_type(self.records(self.apex), Rtype::SOA)
    }

    /// Looks a name up (RFC 1034, 4.3.2; RFC 4592 for wildcards).
    pub fn find(&self, name: &[u8]) -> Found<'z> {
        let mut here = name;
        // The longest name above that exists, and the topmost delegation.
        let (mut encloser, mut delegation) = (None, None);
        while here != self.apex {
            if self.names.binary_search(&here).is_ok() {
                encloser.get_or_insert(here);
            }
            let ns = of_type(self.records(here), Rtype::NS);
            if !ns.is_empty() {
                delegation = Some(ns);
            }
            match above(here) {
                Some(name) => here = name,
                None => return Found::Foreign,
            }
        }
        if let Some(ns) = delegation {
            return Found::Delegated(ns);
        }
        let encloser = encloser.unwrap_or(self.apex);
        if encloser == name {
            return Found::Records(self.records(name));
        }
        let wildcard = [b"\x01*", encloser].concat();
        match self.names.binary_search(&wildcard.as_slice()) {
            Ok(_) => Found::Records(self.records(&wildcard)),
            Err(_) => Found::Nothing,
        }
    }
}
