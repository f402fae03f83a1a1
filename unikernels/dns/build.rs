//! Beside the image's own, writes the records of the file `zone` for `src/zone.rs` to include.

use domain::base::iana::{Class, Rtype};
use domain::base::rdata::ComposeRecordData;
use domain::base::{Name, ToName};
use domain::zonefile::inplace::{Entry, Zonefile};
use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

const FILE: &str = "zone";

/// Owner, type, time to live and data, as they are on the wire.
type Record = (Vec<u8>, u16, u32, Vec<u8>);

fn main() {
    image::appliance();
    println!("cargo::rerun-if-changed={FILE}");
    if let Err(error) = embed() {
        println!("cargo::error={FILE}: {error}");
    }
}

fn embed() -> Result<(), Box<dyn Error>> {
    let folder = env::var("CARGO_MANIFEST_DIR")?;
    let mut records = read(&fs::read(Path::new(&folder).join(FILE))?)?;
    records.sort();
    let apex = check(&records)?;
    let row = |(owner, rtype, ttl, data): &Record| {
        format!("Record {{ owner: &{owner:?}, rtype: {rtype}, ttl: {ttl}, data: &{data:?} }},\n")
    };
    let rows: String = records.iter().map(row).collect();
    // Names that have no records exist if names below them have some.
    let mut names = BTreeSet::new();
    for (owner, ..) in &records {
        let mut name = owner.as_slice();
        while name.len() >= apex.len() {
            names.insert(name);
            name = &name[1 + usize::from(name[0])..];
        }
    }
    let names: String = names.iter().map(|name| format!("&{name:?},\n")).collect();
    let table = format!(
        "const APEX: &[u8] = &{apex:?};\nconst RECORDS: &[Record] = &[\n{rows}];\n\
         const NAMES: &[&[u8]] = &[\n{names}];\n"
    );
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    Ok(fs::write(Path::new(&out).join("zone.rs"), table)?)
}

fn read(text: &[u8]) -> Result<Vec<Record>, Box<dyn Error>> {
    let mut file = Zonefile::load(&mut &text[..])?;
    file.set_origin(Name::root_bytes());
    file.set_default_class(Class::IN);
    let mut records = Vec::new();
    while let Some(entry) = file.next_entry()? {
        let Entry::Record(record) = entry else {
            return Err("$INCLUDE is not followed".into());
        };
        let mut owner = Vec::new();
        record.owner().compose_canonical(&mut owner)?;
        let mut data = Vec::new();
        record.data().compose_rdata(&mut data)?;
        let ttl = record.ttl().as_secs();
        records.push((owner, record.rtype().to_int(), ttl, data));
    }
    Ok(records)
}

/// The zone's own name, if the records make a zone.
fn check(records: &[Record]) -> Result<Vec<u8>, Box<dyn Error>> {
    let soa = Rtype::SOA.to_int();
    let mut apexes = records.iter().filter(|(_, rtype, ..)| *rtype == soa);
    let (Some((apex, ..)), None) = (apexes.next(), apexes.next()) else {
        return Err("one SOA is wanted".into());
    };
    for (owner, rtype, ..) in records {
        if !owner.ends_with(apex) {
            return Err("a record lies outside of the zone".into());
        }
        let others = records.iter().filter(|(other, ..)| other == owner);
        if *rtype == Rtype::CNAME.to_int() && others.count() > 1 {
            return Err("a name has a CNAME and something else".into());
        }
    }
    Ok(apex.clone())
}
