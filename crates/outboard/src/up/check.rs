//! What is wrong with a component before it is started: its image, its devices by their names, its
//! rules. It reads files and starts nothing.

use super::component::{Component, Device, Kind};
use super::handed::PROXY;
use abi::extension::feature;
use abi::manifest::kind;
use abi::region;
use image::Image;
use nf::Loaded;
use nf::nft::Limits;
use rule_files::{Failure, Gathered};
use std::ffi::OsString;
use tender::options::{Options, Request};
use tender::{check, load};

/// What a tender, and the guest, would say of it: one mistake of each kind.
pub fn component(component: &Component) -> Vec<String> {
    if let Some(program) = &component.program {
        return program.mistakes();
    }
    let line = component.command_line(&[]);
    // The name is the monitor's.
    let line = line.iter().skip(1).map(OsString::from);
    let options = match tender::options::parse(line) {
        Ok(Request::Start(options)) => options,
        Ok(Request::Help | Request::Version) => return Vec::new(),
        Err(error) => return vec![error.to_string()],
    };
    let path = options.image.display();
    let image = match load::open(&options.image) {
        Ok((_, image)) => image,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let host = load::host(&image, options.host).map_err(|error| format!("{path}: {error}"));
    let host =
        host.and_then(|host| check::host(&image.entries, host).map_err(|error| error.to_string()));
    let version = check::version(&image, &options).map_err(|error| error.to_string());
    let regions = links(component, &image).and_then(|()| states(component, &image));
    let pairs = regions.and_then(|()| {
        let pairs = check::pair(&image.entries, &image.pci, &image.regions, &options);
        pairs.map(drop).map_err(|error| error.to_string())
    });
    let rules = rules(&image, &options);
    [host, version, pairs, rules]
        .into_iter()
        .filter_map(Result::err)
        .collect()
}

/// What is not wrong with it, but not as one may think.
pub fn notes(component: &Component) -> Vec<String> {
    if component.program.is_some() {
        return Vec::new();
    }
    let Ok((_, image)) = load::open(&component.image) else {
        return Vec::new();
    };
    let features = image.extension.map_or(0, |extension| extension.features);
    let counts = features & feature::PROGRESS != 0;
    let unwatched = component.may_stand_still().filter(|_| !counts).map(|_| {
        format!(
            "not watched for progress: {} does not count its turns; outboard build makes one that \
             does",
            component.image.display()
        )
    });
    unwatched.into_iter().collect()
}

/// Whether the image has a link wherever the file says so, and nowhere else.
fn links(component: &Component, image: &Image) -> Result<(), String> {
    let path = component.image.display();
    let entries = || image.entries.iter();
    let has_tap =
        |name| entries().any(|entry| entry.kind == kind::NET_BASIC && entry.name() == Some(name));
    let nets = || {
        component
            .devices
            .iter()
            .filter(|device| device.kind == Kind::Net)
    };
    for device in nets() {
        let name = device.name.as_str();
        if let Some(link) = device.link().filter(|_| has_tap(name)) {
            return Err(format!(
                "net.{name} = \"link:{link}\": {path} takes a tap there; build the image that \
                 takes a link: outboard build --manifest=manifest-link.json"
            ));
        }
    }
    let links = image.regions.iter().filter(|region| region.is_link());
    for name in links.filter_map(region::Request::name) {
        let is_linked = |device: &Device| device.name == name && device.link().is_some();
        if !nets().any(is_linked) {
            return Err(format!(
                "{path} takes a link as {name}; write net.{name} = \"link:NAME\", here and in the \
                 component at its other end"
            ));
        }
    }
    Ok(())
}

/// An end of a link.
struct End<'a> {
    link: &'a str,
    /// Who has it.
    name: &'a str,
    /// Where the file has the component of it.
    place: usize,
    /// What the link carries there.
    kind: u32,
    /// Whether it is a program's.
    is_program: bool,
}

/// The ends that a component has of links, and those that programs outside of the file have there.
/// Images that cannot be read are told of elsewhere.
fn ends(component: &Component) -> Vec<End<'_>> {
    let (place, is_program) = (component.place, component.program.is_some());
    let image = load::open(&component.image).ok().filter(|_| !is_program);
    let regions = image.map_or_else(Vec::new, |(_, image)| image.regions);
    let end = |device: &'_ Device| {
        let mut regions = regions.iter();
        let region = regions.find(|region| region.name() == Some(&device.name));
        match is_program {
            true => Some(region::kind::SOCKETS),
            false => region.map(|region| region.kind),
        }
    };
    let all = component.devices.iter().filter_map(|device| {
        let link = device.link()?;
        let own = end(device).map(|kind| End {
            link,
            name: &component.name,
            place,
            kind,
            is_program,
        });
        let is_free = device.peer.as_deref() == Some(PROXY);
        let free = is_free.then_some(End {
            link,
            name: PROXY,
            place,
            kind: region::kind::SOCKETS,
            is_program: true,
        });
        Some(own.into_iter().chain(free))
    });
    all.flatten().collect()
}

/// Links of which one end carries sockets and the other one frames, or that join two programs: each
/// with the place of the component to which the sockets belong.
pub fn carried(components: &[Component]) -> Vec<(usize, String)> {
    let all: Vec<_> = components.iter().flat_map(ends).collect();
    let of_sockets = all.iter().enumerate();
    let of_sockets = of_sockets.filter(|(_, end)| end.kind == region::kind::SOCKETS);
    let wrong = of_sockets.filter_map(|(number, end)| {
        let others = all.iter().enumerate();
        let mut others = others.filter(|(_, other)| other.link == end.link);
        let (_, other) = others.find(|(other, _)| *other != number)?;
        let End { link, name, .. } = end;
        let what = match (other.kind, end.is_program && other.is_program) {
            (_, true) => format!(
                "link:{link}: {name} and {} are programs; join each to a stack: outboard build \
                 unikernels/stack",
                other.name
            ),
            (region::kind::LINK, _) if end.is_program => format!(
                "link:{link}: {name} is a program, and {} takes a link there that carries frames; \
                 join it to a stack: outboard build unikernels/stack",
                other.name
            ),
            (region::kind::LINK, _) => format!(
                "link:{link}: {name} takes a link there that carries sockets, and {} one that \
                 carries frames; build either with the manifest of the other's kind",
                other.name
            ),
            _ => return None,
        };
        Some((end.place, what))
    });
    wrong.collect()
}

/// Whether the file has each state of the image's. What it has beside, the options say.
fn states(component: &Component, image: &Image) -> Result<(), String> {
    let kept = |name| {
        let mut devices = component.devices.iter();
        devices.any(|device| device.kind == Kind::State && device.name == name)
    };
    let states = image
        .regions
        .iter()
        .filter(|region| region.kind == region::kind::STATE);
    let mut names = states.filter_map(region::Request::name);
    match names.find(|name| !kept(*name)) {
        Some(name) => Err(format!(
            "{} leaves {name} to its next instance; write state.{name} = \"memory\"",
            component.image.display()
        )),
        None => Ok(()),
    }
}

fn rules(image: &Image, options: &Options) -> Result<(), String> {
    let Some(path) = &options.rules else {
        return Ok(());
    };
    let gathered = Gathered::read(path).map_err(|failure| match failure {
        Failure::Source(error) => error.to_string(),
        Failure::Include(said) => said,
    })?;
    let ports: Vec<_> = image.networks().map(|(_, name)| name).collect();
    let loaded = Loaded::load(gathered.whole.text(), &ports, &Limits::DEFAULT);
    let name = &gathered.source.name;
    loaded
        .map(drop)
        .map_err(|error| format!("{name}: no rules: {error}; type: outboard rules check {name}"))
}
