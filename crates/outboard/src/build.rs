//! Builds the image of an appliance: `cargo build` in its folder, then a check of what came out.
//! The code is the same for all manifests of an appliance, and compiled once.

use crate::inspect::device_list;
use abi::note::Target;
use image::manifest::ManifestError;
use image::{Image, ImageError, Manifest};
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, fs};

/// Images are built for this target and with these flags, not those of the place where they are
/// built, so that they come out the same anywhere.
const TARGET_TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Frame pointers tell who called when an image fails; they cost less than one instruction in a
/// hundred. Flags are separated by 0x1f.
const FLAGS: &str = "-Cforce-frame-pointers=yes";

/// `outboard build`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The appliance's folder, with Cargo.toml and manifest.json
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Another manifest than manifest.json, in the appliance's folder or elsewhere; its name
    /// becomes part of the image's: firewall-nic.spt by nic.json
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Features of the appliance or of what it depends on, as cargo takes them: separated by
    /// commas, or the option several times; their names become part of the image's:
    /// iperf3-smoltcp.spt by service/smoltcp
    #[arg(long, value_name = "FEATURES", value_delimiter = ',')]
    features: Vec<String>,
    /// The host that the image is for
    #[arg(long, value_enum, default_value_t = Host::Spt)]
    host: Host,
    /// Where to write the image, instead of the appliance's folder; made if it is not there
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Write TO for FROM in the names of source files that the image holds (may be repeated), so
    /// that it does not show where it was built; rustc has the same option
    #[arg(long, value_name = "FROM=TO")]
    remap_path_prefix: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Host {
    /// A process under seccomp
    Spt,
    /// A KVM virtual machine
    Hvt,
    /// One image for each
    All,
}

impl Host {
    fn targets(self) -> &'static [Target] {
        match self {
            Self::Spt => &[Target::Spt],
            Self::Hvt => &[Target::Hvt],
            Self::All => &[Target::Spt, Target::Hvt],
        }
    }
}

/// Why there is no image.
#[derive(Debug)]
pub enum Error {
    /// This file is not in the appliance's folder.
    Missing(PathBuf, &'static str),
    /// There is no such manifest, neither in the appliance's folder nor where we are.
    NoManifest(PathBuf, PathBuf),
    /// Cargo cannot be started or listened to.
    Cargo(io::Error),
    /// Cargo has failed and said why.
    Failed(PathBuf),
    /// The folder makes so many programs; an image is one.
    Programs(PathBuf, usize),
    /// The other manifest is none.
    Manifest(ManifestError),
    /// What cargo made cannot be read.
    Read(PathBuf, io::Error),
    /// What cargo made is no image.
    Image(PathBuf, ImageError),
    /// The image cannot be written.
    Write(PathBuf, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(directory, file) => write!(
                f,
                "{} has no {file}: name an appliance's folder, or make one with: outboard new NAME",
                directory.display()
            ),
            Self::NoManifest(manifest, directory) => write!(
                f,
                "there is no manifest {}, neither here nor in {}: name a file with --manifest",
                manifest.display(),
                directory.display()
            ),
            Self::Cargo(e) if e.kind() == io::ErrorKind::NotFound => {
                write!(
                    f,
                    "cargo is not in PATH: install Rust as https://rustup.rs says"
                )
            }
            Self::Cargo(e) => write!(f, "cannot run cargo: {e}"),
            Self::Failed(directory) => write!(
                f,
                "cargo could not build {}: see its messages above",
                directory.display()
            ),
            Self::Programs(directory, count) => write!(
                f,
                "{} makes {count} programs, and an image is one: keep src/main.rs alone",
                directory.display()
            ),
            Self::Manifest(e) => e.fmt(f),
            Self::Read(path, e) => write!(f, "cannot read {}: {e}", path.display()),
            Self::Image(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Write(path, e) => {
                write!(
                    f,
                    "cannot write {}: {e}; choose a folder with --out",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for Error {}

/// An image that was written.
#[derive(Debug)]
pub struct Built {
    /// Where it is.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: usize,
    /// Its devices, in a line.
    pub devices: String,
}

/// Builds and prints what was written.
///
/// # Errors
/// See [`build`].
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let out = arguments.out.as_ref().unwrap_or(&arguments.directory);
    let appliance = Appliance {
        directory: &arguments.directory,
        manifest: arguments.manifest.as_deref(),
        features: &arguments.features,
        remap_path_prefix: &arguments.remap_path_prefix,
    };
    for built in build(appliance, arguments.host.targets(), out)? {
        println!(
            "{}  {} bytes  {}",
            built.path.display(),
            built.size,
            built.devices
        );
    }
    Ok(())
}

/// What is to be built.
#[derive(Clone, Copy, Debug)]
pub struct Appliance<'a> {
    /// The appliance's folder.
    pub directory: &'a Path,
    /// Another manifest than `manifest.json`, in that folder or elsewhere.
    pub manifest: Option<&'a Path>,
    /// Features of cargo's that it is built with beside the default ones.
    pub features: &'a [String],
    /// What the image writes for prefixes of source files' names: `FROM=TO`.
    pub remap_path_prefix: &'a [String],
}

impl<'a> From<&'a Path> for Appliance<'a> {
    /// The appliance in this folder, with its own manifest.
    fn from(directory: &'a Path) -> Self {
        Self {
            directory,
            manifest: None,
            features: &[],
            remap_path_prefix: &[],
        }
    }
}

/// Builds an appliance and writes one image for each of `targets` to `out`.
///
/// # Errors
/// The folder is no appliance's, cargo fails, what it makes is no image, or it cannot be written.
pub fn build(
    Appliance {
        directory,
        manifest,
        features,
        remap_path_prefix,
    }: Appliance,
    targets: &[Target],
    out: &Path,
) -> Result<Vec<Built>, Error> {
    for file in ["Cargo.toml", "manifest.json"] {
        if !directory.join(file).is_file() {
            return Err(Error::Missing(directory.to_owned(), file));
        }
    }
    let other = manifest.map(|file| read_manifest(directory, file));
    let other = other.transpose()?;
    fs::create_dir_all(out).map_err(|e| Error::Write(out.to_owned(), e))?;
    let messages = cargo(directory, features, &flags(remap_path_prefix))?;
    let program = program(directory, &messages)?;
    let mut bytes = fs::read(&program).map_err(|e| Error::Read(program.clone(), e))?;
    let no_image = |e| Error::Image(program.clone(), e);
    if let Some(other) = &other {
        image::give_manifest(&mut bytes, other).map_err(no_image)?;
    }
    let image = Image::parse(&bytes).map_err(no_image)?;
    let devices = device_list(&image);
    let name = program.file_name().unwrap_or_default();
    let name = image_name(name, manifest, features);
    let mut built = Vec::new();
    for target in targets {
        image::retarget(&mut bytes, *target).map_err(no_image)?;
        let path = out.join(&name).with_added_extension(target.name());
        replace(&path, &bytes).map_err(|e| Error::Write(path.clone(), e))?;
        built.push(Built {
            path,
            size: bytes.len(),
            devices: devices.clone(),
        });
    }
    Ok(built)
}

/// The folder `folder` of the repository that the current directory is in, if it is in one.
///
/// # Errors
/// There is no current directory.
pub fn in_repository(folder: &str) -> io::Result<Option<PathBuf>> {
    let here = std::env::current_dir()?;
    let mut folders = here.ancestors().map(|directory| directory.join(folder));
    Ok(folders.find(|folder| folder.is_dir()))
}

/// The manifest `file`, in the appliance's folder or where we are.
fn read_manifest(directory: &Path, file: &Path) -> Result<Manifest, Error> {
    let places = [directory.join(file), file.to_owned()];
    let found = places.iter().find(|path| path.is_file());
    let found = found.ok_or_else(|| Error::NoManifest(file.to_owned(), directory.to_owned()))?;
    image::manifest::read(found).map_err(Error::Manifest)
}

/// The name of a program's image, without its extension: it tells manifests and features apart.
fn image_name(program: &OsStr, manifest: Option<&Path>, features: &[String]) -> OsString {
    let stem = manifest.and_then(|path| path.file_stem()?.to_str());
    let stem = stem.map(|stem| stem.strip_prefix("manifest-").unwrap_or(stem));
    let mut name = program.to_owned();
    let stem = stem.filter(|stem| *stem != "manifest");
    // Of a feature of a dependency (service/smoltcp), its own name.
    let features = features
        .iter()
        .filter_map(|feature| feature.rsplit('/').next());
    for part in stem.into_iter().chain(features) {
        name.push("-");
        name.push(part);
    }
    name
}

/// All flags of rustc, separated as cargo takes them.
fn flags(remap_path_prefix: &[String]) -> String {
    let remap = remap_path_prefix.iter();
    remap.fold(FLAGS.to_owned(), |flags, prefix| {
        format!("{flags}\x1f--remap-path-prefix={prefix}")
    })
}

/// Has cargo build the folder and returns what it prints for programs to read.
fn cargo(directory: &Path, features: &[String], flags: &str) -> Result<Vec<u8>, Error> {
    let output = Command::new("cargo")
        .args([
            "build",
            "--release",
            "--message-format=json-render-diagnostics",
        ])
        .args(["--target", TARGET_TRIPLE])
        .args(features.iter().flat_map(|feature| ["--features", feature]))
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(Error::Cargo)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(Error::Failed(directory.to_owned()))
    }
}

/// A line of cargo's, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
}

/// The one program among cargo's messages.
fn program(directory: &Path, messages: &[u8]) -> Result<PathBuf, Error> {
    let messages = serde_json::Deserializer::from_slice(messages).into_iter::<Message>();
    let programs: Result<Vec<_>, _> = messages
        .filter_map(|message| match message {
            Ok(message) if message.reason == "compiler-artifact" => message.executable.map(Ok),
            Ok(_) => None,
            Err(e) => Some(Err(e)),
        })
        .collect();
    let programs = programs.map_err(|e| Error::Cargo(e.into()))?;
    let count = programs.len();
    let [program] = <[PathBuf; 1]>::try_from(programs)
        .map_err(|_| Error::Programs(directory.to_owned(), count))?;
    Ok(program)
}

/// Writes beside `path`, then renames: a guest that runs from the old file keeps it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_added_extension("new");
    let mut file = fs::File::create(&fresh)?;
    file.write_all(bytes)?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(messages: &str) -> Result<PathBuf, Error> {
        program(Path::new("fw"), messages.as_bytes())
    }

    const LIBRARY: &str = r#"{"reason":"compiler-artifact","executable":null}"#;
    const SCRIPT: &str = r#"{"reason":"build-script-executed","out_dir":"/o"}"#;
    const PROGRAM: &str = r#"{"reason":"compiler-artifact","executable":"/t/fw"}"#;
    const END: &str = r#"{"reason":"build-finished","success":true}"#;

    #[test]
    fn the_one_program_is_found() {
        let messages = [LIBRARY, SCRIPT, PROGRAM, END].join("\n");
        assert_eq!(find(&messages).unwrap(), Path::new("/t/fw"));
    }

    #[test]
    fn prefixes_become_flags() {
        let prefixes = ["/a=b".to_owned(), "/c=d".to_owned()];
        let flags = flags(&prefixes);
        let flags: Vec<_> = flags.split('\x1f').collect();
        let expected = [
            FLAGS,
            "--remap-path-prefix=/a=b",
            "--remap-path-prefix=/c=d",
        ];
        assert_eq!(flags, expected);
    }

    #[test]
    fn none_or_two_programs_are_no_image() {
        assert!(matches!(find(LIBRARY), Err(Error::Programs(_, 0))));
        assert!(matches!(
            find(&[PROGRAM, PROGRAM].concat()),
            Err(Error::Programs(_, 2))
        ));
    }

    #[test]
    fn what_is_not_cargos_is_an_error() {
        assert!(matches!(find("warning: x"), Err(Error::Cargo(_))));
    }

    #[test]
    fn a_folder_without_an_appliance_is_named() {
        let empty = std::env::temp_dir().join(format!("outboard-build-{}", std::process::id()));
        fs::create_dir(&empty).unwrap();
        let error = build(empty.as_path().into(), &[Target::Spt], &empty).unwrap_err();
        fs::remove_dir(&empty).unwrap();
        assert!(matches!(error, Error::Missing(_, "Cargo.toml")), "{error}");
    }

    #[test]
    fn another_manifest_makes_another_image() {
        let name = |manifest: &str| {
            let manifest = Path::new(manifest);
            image_name(OsStr::new("firewall"), Some(manifest), &[]).into_string()
        };
        assert_eq!(name("/a/nic.json").unwrap(), "firewall-nic");
        assert_eq!(name("manifest-mixed.json").unwrap(), "firewall-mixed");
        assert_eq!(name("manifest.json").unwrap(), "firewall");
        assert_eq!(image_name(OsStr::new("firewall"), None, &[]), "firewall");
        let error = read_manifest(Path::new("fw"), Path::new("absent.json")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no manifest absent.json, neither here nor in fw: name a file with --manifest"
        );
    }

    #[test]
    fn features_make_another_image() {
        let features = ["service/smoltcp".to_owned(), "more".to_owned()];
        let name = |manifest: Option<&str>| {
            image_name(OsStr::new("iperf3"), manifest.map(Path::new), &features)
        };
        assert_eq!(name(None), "iperf3-smoltcp-more");
        let on_card = name(Some("manifest-82599.json"));
        assert_eq!(on_card, "iperf3-82599-smoltcp-more");
    }

    #[test]
    fn an_image_is_replaced_and_not_rewritten() {
        let path = std::env::temp_dir().join(format!("outboard-image-{}", std::process::id()));
        fs::write(&path, "old").unwrap();
        let running = fs::File::open(&path).unwrap();
        replace(&path, b"fresh").unwrap();
        assert_eq!(io::read_to_string(running).unwrap(), "old");
        assert_eq!(fs::read(&path).unwrap(), b"fresh");
        fs::remove_file(&path).unwrap();
    }
}
