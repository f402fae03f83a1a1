//! What is wrong with a component before it is started: its image, its devices by their names, its
//! rules. It reads files and starts nothing.

use super::component::{Component, Device, Kind};
use crate::rules::include::{Failure, Gathered};
use abi::extension::feature;
use abi::manifest::kind;
use abi::region;
use image::Image;
use nf::Loaded;
use nf::nft::Limits;
use std::ffi::OsString;
use tender::options::{Options, Request};
use tender::{check, load};

/// What a tender, and the guest, would say of it: one mistake of each kind.
pub fn component(component: &Component) -> Vec<String> {
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

/// Links of which one end carries sockets and the other one frames: each with the place of the
/// component to which the sockets belong. Images that cannot be read are told of elsewhere.
pub fn carried(components: &[Component]) -> Vec<(usize, String)> {
    let kinds = components.iter().flat_map(|component| {
        let image = load::open(&component.image).ok();
        let regions = image.map_or_else(Vec::new, |(_, image)| image.regions);
        let ends = component.devices.iter().filter_map(move |device| {
            let mut regions = regions.iter();
            let region = regions.find(|region| region.name() == Some(&device.name))?;
            Some((device.link()?, component, region.kind))
        });
        ends.collect::<Vec<_>>()
    });
    let kinds: Vec<_> = kinds.collect();
    let of_sockets = kinds.iter().filter(|end| end.2 == region::kind::SOCKETS);
    let wrong = of_sockets.filter_map(|(link, component, _)| {
        let mut others = kinds.iter();
        let (_, other, _) =
            others.find(|other| other.0 == *link && other.2 == region::kind::LINK)?;
        let (name, other) = (&component.name, &other.name);
        let what = format!(
            "link:{link}: {name} takes a link there that carries sockets, and {other} one that \
             carries frames; build either with the manifest of the other's kind"
        );
        Some((component.place, what))
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
