//! What an image carries: ABI, manifest, extension and segments, or the crates that it is made of,
//! as a table or as JSON.

mod components;
mod lines;
mod sources;

use crate::symbols;
use abi::extension::feature;
use abi::manifest::{Entry, kind};
use abi::pci::{BARS, Request, request_flag};
use abi::region;
use abi::ring::lanes::DATA_OFFSET;
use image::{Image, Segment};
use serde::Serialize;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use tender::load;

/// `outboard inspect`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The image
    file: PathBuf,
    /// Print JSON; addresses and sizes are numbers, sizes in bytes
    #[arg(long)]
    json: bool,
    /// Say instead which crates the image is made of, and how much of each is linked
    #[arg(long)]
    components: bool,
}

/// Why a file cannot be inspected.
#[derive(Debug)]
pub enum Error {
    /// It cannot be read, or is no image.
    Load(PathBuf, load::Error),
    /// What it is made of cannot be known.
    Components(PathBuf, lines::Error),
    /// What was found cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Components(path, error) => {
                let path = path.display();
                match error {
                    lines::Error::Stripped => write!(f, "{path}: it has no line table")?,
                    lines::Error::Damaged(e) => write!(f, "{path}: its line table: {e}")?,
                    lines::Error::Sections => write!(f, "{path}: its sections cannot be read")?,
                }
                f.write_str("; build it again, and do not strip it: outboard build FOLDER")
            }
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// What an image carries, under the names that the JSON has.
#[derive(Debug, Serialize)]
pub struct Report {
    file: PathBuf,
    file_size: u64,
    abi: Abi,
    entry: u64,
    end: u64,
    manifest: Manifest,
    extension: Option<Extension>,
    /// Its version, if it is not known here.
    #[serde(skip)]
    other_version: Option<u32>,
    segments: Vec<Loaded>,
}

#[derive(Debug, Serialize)]
struct Abi {
    target: &'static str,
    version: u32,
}

#[derive(Debug, Serialize)]
struct Manifest {
    version: u32,
    /// Bytes of DMA memory.
    dma_size: u64,
    devices: Vec<Device>,
}

#[derive(Debug, Serialize)]
struct Device {
    name: String,
    r#type: &'static str,
    #[serde(flatten)]
    more: Option<More>,
}

/// What an image says of a device beside its name and type.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum More {
    Pci(Pci),
    Link {
        /// Frames that it may send before one is taken.
        slots: usize,
        /// What it carries, if that is no frames of an Ethernet's.
        #[serde(skip_serializing_if = "Option::is_none")]
        carries: Option<&'static str>,
    },
    State {
        /// In bytes.
        size: u32,
    },
    Disk {
        /// Bytes for the buffers of requests in flight.
        queue: u64,
    },
}

/// A PCIe device, under the names that `manifest.json` has.
#[derive(Debug, Serialize)]
struct Pci {
    class: u8,
    subclass: u8,
    progif: u8,
    vendor: u16,
    device_id: u16,
    bus_master_enable: bool,
    /// Numbers of the BARs that are mapped.
    bars: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Extension {
    version: u32,
    features: Vec<String>,
    host_info: u64,
}

#[derive(Debug, Serialize)]
struct Loaded {
    address: u64,
    memory_size: u64,
    file_offset: usize,
    file_size: usize,
    rights: String,
}

/// Prints what the image carries.
///
/// # Errors
/// The file cannot be read or is no image.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let report = inspect(&arguments.file)?;
    let text = if arguments.components {
        text(&components(&arguments.file)?, arguments.json)?
    } else {
        text(&report, arguments.json)?
    };
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)
}

fn text(report: &(impl fmt::Display + Serialize), json: bool) -> Result<String, Error> {
    if !json {
        return Ok(report.to_string());
    }
    let json = serde_json::to_string_pretty(report);
    Ok(json.map_err(|e| Error::Print(e.into()))? + "\n")
}

/// What the image in `file` is made of.
fn components(file: &Path) -> Result<components::Report, Error> {
    // It is an image that was read before; whoever removed it meanwhile has stripped it.
    let bytes = symbols::read(file).unwrap_or_default();
    let report = components::Report::new(file, &bytes);
    report.map_err(|error| Error::Components(file.to_owned(), error))
}

/// What the image in `file` carries.
///
/// # Errors
/// The file cannot be read or is no image.
pub fn inspect(file: &Path) -> Result<Report, Error> {
    let refused = |error| Error::Load(file.to_owned(), error);
    let (opened, image) = load::open(file).map_err(refused)?;
    let metadata = opened.metadata();
    let metadata = metadata.map_err(|error| refused(load::Error::Read(error)))?;
    Ok(Report::new(file, metadata.len(), &image))
}

impl Report {
    fn new(file: &Path, file_size: u64, image: &Image) -> Self {
        Self {
            file: file.to_owned(),
            file_size,
            abi: Abi {
                target: image.target.name(),
                version: image.abi_version,
            },
            entry: image.entry,
            end: image.end,
            manifest: Manifest {
                // The only one that `Image` knows.
                version: abi::manifest::VERSION,
                dma_size: image.dma_bytes,
                devices: devices(image),
            },
            extension: image.extension.map(|extension| Extension {
                version: extension.version,
                features: features(extension.features),
                host_info: extension.host_info,
            }),
            other_version: image.other_version,
            segments: image.segments.iter().map(loaded).collect(),
        }
    }
}

fn devices(image: &Image) -> Vec<Device> {
    let device = |entry: &Entry| {
        Some(Device {
            name: entry.name()?.to_owned(),
            r#type: type_name(entry.kind),
            more: queue(image, entry.name()?),
        })
    };
    let pci_device = |request: &Request| {
        Some(Device {
            name: request.name()?.to_owned(),
            r#type: "PCI_BASIC",
            more: Some(More::Pci(pci(request))),
        })
    };
    let region = |request: &region::Request| {
        let (r#type, more) = match request.kind {
            region::kind::LINK | region::kind::SOCKETS => {
                let slots = abi::link::slots(request.bytes.into());
                let carries = (request.kind == region::kind::SOCKETS).then_some("sockets");
                ("LINK", More::Link { slots, carries })
            }
            // It is shown with its disk.
            region::kind::QUEUE => return None,
            _ => {
                let size = request.bytes;
                ("STATE", More::State { size })
            }
        };
        Some(Device {
            name: request.name()?.to_owned(),
            r#type,
            more: Some(more),
        })
    };
    let solo5 = image.entries.iter().filter_map(device);
    solo5
        .chain(image.pci.iter().filter_map(pci_device))
        .chain(image.regions.iter().filter_map(region))
        .collect()
}

/// The requests in flight of the disk of this name, if it has several.
fn queue(image: &Image, name: &str) -> Option<More> {
    let mut queues = image.regions.iter();
    let queue = queues.find(|r| r.kind == region::kind::QUEUE && r.name() == Some(name))?;
    let queue = u64::from(queue.bytes).checked_sub(DATA_OFFSET)?;
    Some(More::Disk { queue })
}

fn pci(request: &Request) -> Pci {
    Pci {
        class: request.class,
        subclass: request.subclass,
        progif: request.progif,
        vendor: request.vendor,
        device_id: request.device,
        bus_master_enable: request.flags & request_flag::BUS_MASTER != 0,
        bars: (0..BARS)
            .filter(|bar| request.bars & 1 << bar != 0)
            .collect(),
    }
}

impl fmt::Display for Pci {
    /// As `lspci` writes ids: vendor and device, then the class.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = [self.class, self.subclass, self.progif];
        let [class, subclass, progif] = class.map(|byte| format!("{byte:02x}"));
        write!(
            f,
            "  {:04x}:{:04x} class {class}{subclass} prog-if {progif}",
            self.vendor, self.device_id
        )?;
        for bar in &self.bars {
            write!(f, " bar{bar}")?;
        }
        if self.bus_master_enable {
            write!(f, " bus-master")?;
        }
        Ok(())
    }
}

/// The name of a device's type in `manifest.json`.
fn type_name(kind: u32) -> &'static str {
    match kind {
        kind::NET_BASIC => "NET_BASIC",
        kind::BLOCK_BASIC => "BLOCK_BASIC",
        kind::SOCKETS => "SOCKETS",
        _ => "unknown",
    }
}

/// The devices of a manifest in a line.
pub(crate) fn device_list(image: &Image) -> String {
    let devices: Vec<_> = devices(image)
        .iter()
        .map(|device| format!("{} ({})", device.name, device.r#type))
        .collect();
    if devices.is_empty() {
        "no devices".to_owned()
    } else {
        devices.join(", ")
    }
}

fn features(bits: u32) -> Vec<String> {
    let known = [
        (feature::VIRTIO_NET_HEADER, "virtio_net_header"),
        (feature::COUNTERS, "counters"),
        (feature::RULES, "rules"),
        (feature::CAPTURE, "capture"),
        (feature::RINGS, "rings"),
        (feature::PROGRESS, "progress"),
    ];
    let names = known.iter().filter(|(bit, _)| bits & bit != 0);
    let mut names: Vec<_> = names.map(|(_, name)| (*name).to_owned()).collect();
    let unknown = bits & !feature::ALL;
    if unknown != 0 {
        names.push(format!("unknown {unknown:#x}"));
    }
    names
}

fn loaded(segment: &Segment) -> Loaded {
    let rights = segment.rights;
    let letter = |has, letter| if has { letter } else { '-' };
    Loaded {
        address: segment.address,
        memory_size: segment.memory_size,
        file_offset: segment.file_offset,
        file_size: segment.file_size,
        rights: String::from_iter([
            letter(rights.read, 'r'),
            letter(rights.write, 'w'),
            letter(rights.execute, 'x'),
        ]),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "file       {}, {} bytes",
            self.file.display(),
            self.file_size
        )?;
        writeln!(
            f,
            "abi        {}, version {}",
            self.abi.target, self.abi.version
        )?;
        writeln!(f, "entry      {:#x}", self.entry)?;
        writeln!(f, "end        {:#x}", self.end)?;
        match (&self.extension, self.other_version) {
            (Some(extension), _) => writeln!(
                f,
                "extension  version {}, {}, host info at {:#x}",
                extension.version,
                extension.features.join(", "),
                extension.host_info
            )?,
            (None, Some(version)) => writeln!(
                f,
                "extension  version {version}, not known here; build the image again"
            )?,
            (None, None) => writeln!(f, "extension  none")?,
        }
        self.write_devices(f)?;
        self.write_segments(f)
    }
}

impl Report {
    fn write_devices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = &self.manifest.devices;
        writeln!(
            f,
            "manifest   version {}, {} devices",
            self.manifest.version,
            devices.len()
        )?;
        let width = devices
            .iter()
            .map(|device| device.name.len())
            .max()
            .unwrap_or(0);
        for device in devices {
            write!(f, "  {:width$}  {}", device.name, device.r#type)?;
            match &device.more {
                Some(More::Pci(pci)) => writeln!(f, "{pci}")?,
                Some(More::Link { slots, carries }) => match carries {
                    Some(carries) => writeln!(f, "       {slots} slots, carries {carries}")?,
                    None => writeln!(f, "       {slots} slots")?,
                },
                Some(More::State { size }) => writeln!(f, "      {size} bytes")?,
                Some(More::Disk { queue }) => {
                    writeln!(f, "      several requests in flight, in {queue} bytes")?;
                }
                None => writeln!(f)?,
            }
        }
        if self.manifest.dma_size > 0 {
            writeln!(f, "dma        {} bytes", self.manifest.dma_size)?;
        }
        Ok(())
    }

    fn write_segments(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "segments      address    in memory      in file  rights")?;
        for segment in &self.segments {
            writeln!(
                f,
                "         {:#12x} {:12} {:12}  {}",
                segment.address, segment.memory_size, segment.file_size, segment.rights
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_names() {
        assert!(features(0).is_empty());
        assert_eq!(
            features(feature::ALL),
            [
                "virtio_net_header",
                "counters",
                "rules",
                "capture",
                "rings",
                "progress"
            ]
        );
        assert_eq!(
            features(1 << 31 | feature::COUNTERS),
            ["counters", "unknown 0x80000000"]
        );
    }

    #[test]
    fn what_has_no_end_is_not_read() {
        let error = inspect(Path::new("/dev/zero")).unwrap_err().to_string();
        let expected = "/dev/zero: no file of up to 256 MiB; name an image, as made by: outboard \
                        build";
        assert_eq!(error, expected);
    }

    #[test]
    fn devices_are_listed_with_their_type() {
        let mut image = Image::parse(&image::sample::sample()).unwrap();
        assert_eq!(
            device_list(&image),
            "net (NET_BASIC), disk (BLOCK_BASIC), nic (PCI_BASIC), peer (LINK)"
        );
        let text = Report::new(Path::new("sample"), 1, &image).to_string();
        let features = [
            "\nextension  version 5, virtio_net_header, counters, rules, capture, rings, ",
            "progress, ",
            "host info at 0x105000\n",
        ];
        assert!(text.contains(&features.concat()), "{text}");
        let nic = "  nic   PCI_BASIC  8086:10d3 class 0200 prog-if 00 bar0 bus-master\n";
        assert!(text.contains(nic), "{text}");
        assert!(text.contains("  peer  LINK       8 slots\n"), "{text}");
        assert!(text.contains("\ndma        2097152 bytes\n"), "{text}");
        image.entries.truncate(1);
        image.pci.clear();
        image.regions.clear();
        assert_eq!(device_list(&image), "no devices");
    }

    #[test]
    fn json_has_the_names_of_the_manifest() {
        let image = Image::parse(&image::sample::sample()).unwrap();
        let report = Report::new(Path::new("sample"), 1, &image);
        let json = serde_json::to_value(&report).unwrap();
        let manifest = &json["manifest"];
        assert_eq!(manifest["dma_size"], 2 << 20);
        let nic = &manifest["devices"][2];
        assert_eq!(nic["type"], "PCI_BASIC");
        assert_eq!(nic["device_id"], 0x10d3);
        assert_eq!(nic["bars"], serde_json::json!([0]));
        assert!(manifest["devices"][0].get("vendor").is_none());
    }
}
