//! `outboard pci list`: what could be handed to a guest.

use super::routes::{self, Route};
use super::verdict::{Verdict, judge};
use super::{Error, print};
use crate::stats::table::{columns, printable};
use linux::pci::sysfs::{Device, Machine, Tree};
use serde::Serialize;
use std::collections::BTreeMap;

/// `outboard pci list`.
#[derive(clap::Args)]
pub struct Arguments {
    /// All devices, not only network cards, which come first
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A device, under the names that the JSON has.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    address: String,
    /// Its class code in hexadecimal.
    class: String,
    class_name: &'static str,
    vendor: String,
    device: String,
    driver: Option<String>,
    group: Option<u32>,
    /// Other devices of the group that have a driver.
    neighbours: Vec<Neighbour>,
    interfaces: Vec<String>,
    default_route: bool,
    verdict: &'static str,
    why: Option<String>,
    remedy: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Neighbour {
    name: String,
    driver: String,
}

/// Lists devices.
///
/// # Errors
/// Routes cannot be asked for, or nothing can be printed.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let tree = Tree::host();
    let machine = tree.machine();
    let routes = routes::observe().map_err(Error::Routes)?;
    let carriers = routes::carriers(&routes, |interface| tree.lower(interface));
    let rows = rows(&machine, &carriers, arguments.all);
    match arguments.json {
        true => {
            let json = serde_json::to_string_pretty(&rows);
            print(&(json.map_err(|error| Error::Print(error.into()))? + "\n"))
        }
        false => print(&render(&rows)),
    }
}

pub(super) fn rows(machine: &Machine, carriers: &BTreeMap<String, Route>, all: bool) -> Vec<Row> {
    let devices = machine.devices.values();
    let mut devices = Vec::from_iter(devices.filter(|device| all || device.class.is_network()));
    devices.sort_by_key(|device| (!device.class.is_network(), device.address));
    let row = |device: &Device| row(device, machine, carriers);
    devices.into_iter().map(row).collect()
}

fn row(device: &Device, machine: &Machine, carriers: &BTreeMap<String, Route>) -> Row {
    let (verdict, why, remedy) = match judge(device, &[], machine, carriers) {
        Verdict::Ready => ("ready", None, None),
        Verdict::BindNeeded => {
            let remedy = format!("sudo $(command -v outboard) pci bind {}", device.address);
            ("bind needed", None, Some(remedy))
        }
        Verdict::Refused(refusal) => {
            let remedy = refusal.remedy(device.address);
            ("refused", Some(refusal.to_string()), remedy)
        }
    };
    let group = device.group.and_then(|group| machine.groups.get(&group));
    let members = group.into_iter().flat_map(|group| &group.members);
    let others = members.filter(|member| member.name != device.address.to_string());
    Row {
        address: device.address.to_string(),
        class: format!("{:06x}", device.class.0),
        class_name: device.class.name(),
        vendor: format!("{:04x}", device.vendor),
        device: format!("{:04x}", device.device),
        driver: device.driver.clone(),
        group: device.group,
        neighbours: others
            .filter_map(|member| {
                let (name, driver) = (member.name.clone(), member.driver.clone()?);
                Some(Neighbour { name, driver })
            })
            .collect(),
        interfaces: Vec::from_iter(device.interfaces.iter().cloned()),
        default_route: device
            .interfaces
            .iter()
            .any(|name| carriers.contains_key(name)),
        verdict,
        why,
        remedy,
    }
}

pub(super) fn render(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no network card on PCI; for all devices type: outboard pci list --all\n".into();
    }
    let head = [
        "<address",
        "<class",
        "<ids",
        "<driver",
        "group",
        "<neighbours",
        "<interface",
        "<verdict",
    ];
    let cell = |text: String| match text.is_empty() {
        true => "-".to_owned(),
        false => printable(&text),
    };
    let cells = |row: &Row| {
        let neighbours = row.neighbours.iter();
        let neighbours = neighbours.map(|other| format!("{} ({})", other.name, other.driver));
        let route = if row.default_route {
            " (default route)"
        } else {
            ""
        };
        let verdict = [Some(row.verdict), row.why.as_deref()];
        let verdict = Vec::from_iter(verdict.into_iter().flatten()).join(": ");
        let verdict = match &row.remedy {
            Some(remedy) => format!("{verdict}; type: {remedy}"),
            None => verdict,
        };
        vec![
            row.address.clone(),
            row.class_name.to_owned(),
            format!("{}:{}", row.vendor, row.device),
            cell(row.driver.clone().unwrap_or_default()),
            cell(
                row.group
                    .map_or_else(String::new, |group| group.to_string()),
            ),
            cell(Vec::from_iter(neighbours).join(" ")),
            cell(row.interfaces.join(" ") + route),
            printable(&verdict),
        ]
    };
    columns(&head, &Vec::from_iter(rows.iter().map(cells)))
}
