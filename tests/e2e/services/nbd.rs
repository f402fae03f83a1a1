//! `nbd`: a disk of the host's, served to stock clients of others, and to one that says anything.

use super::{OUR_SIDE, start};
use super::{PATIENCE, PLAIN, SERVICE, SOCKETS, Served, on_sockets, serve_by, tender};
use crate::devices::software_virtio::model;
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, run};
use crate::harness::programs;
use crate::harness::temporary::{TemporaryFile, TemporaryFolder};
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use testbed::segment::Segment;

/// Bytes of the disk.
const BYTES: u64 = 16 << 20;
/// Connections that the appliance serves at a time: `CONNECTIONS_MAX`.
const CONNECTIONS: usize = 8;
const PORT: u16 = 10809;

type Test = fn(&Images, &str) -> Result<(), Failed>;
type OnHost = fn(&Images) -> Result<(), Failed>;

const TESTS: &[(&str, &[&str], Test)] = &[
    ("nbdinfo says what the disk is like", &["nbdinfo"], info),
    ("nbdcopy copies it there and back", &["nbdcopy"], copied),
    (
        "qemu-img copies and compares it",
        &["qemu-img"],
        images_of_qemu,
    ),
    (
        "qemu-io's requests do what they say",
        &["qemu-io"],
        requests,
    ),
    (
        "a disk that is read-only is so for clients",
        &["qemu-io"],
        read_only,
    ),
    ("nothing that is sent ends it", &["nbdinfo"], hostile),
    ("connections are bounded", &["nbdinfo"], bounded),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, programs, test) in TESTS {
        let missing = programs::missing(programs);
        for host in ["spt", "process", SOCKETS] {
            let name = format!("nbd::{name}::{host}");
            trials.push(network.trial_unless(missing, name, move || test(images, host)));
        }
    }
    let missing = programs::missing(&["nbdcopy"]);
    for host in ["spt", "process"] {
        let name = format!("nbd::an NVM Express disk is copied::{host}");
        trials.push(network.trial_unless(missing, name, move || on_nvme(images, host)));
    }
    trials
}

/// The tests on `hvt`.
pub const ON_HVT: [(&str, OnHost); 1] = [("a disk is served", |images| copied(images, "hvt"))];

/// A disk that tells each place by its bytes, half of it a hole.
fn disk() -> Result<TemporaryFile, Failed> {
    let file = TemporaryFile::new("nbd", BYTES)?;
    let bytes: Vec<u8> = (0..BYTES / 2).map(|at| ((at / 512) ^ at) as u8).collect();
    let write = fs::OpenOptions::new().write(true).open(&file.path)?;
    write.write_all_at(&bytes, 0)?;
    Ok(file)
}

fn serve(images: &Images, host: &str, disk: &Path, options: &[&str]) -> Result<Served, Failed> {
    let image = images.appliance("nbd", "");
    let block = format!("--block:disk={}", disk.display());
    if host != SOCKETS {
        let mut command = tender(images, host);
        command.arg(block).args(options);
        return serve_by(command, &PLAIN, &image, &[]);
    }
    let segment = Segment::new()?;
    for address in [OUR_SIDE, SERVICE] {
        segment.netlink(|netlink| netlink.add_address("lo", address.into(), 32))?;
    }
    let mut command = tender(images, "process");
    command
        .args(["--mem=64", "--sockets:service=host"])
        .arg(block);
    command.args(options).arg(on_sockets(&image));
    let running = segment.run(|| start(&mut command))?;
    running.wait_for("the host's sockets as service")?;
    Ok(Served { segment, running })
}

/// What a client of others says; `URI` stands for the disk.
fn client(served: &Served, words: &[&str]) -> Result<Ended, Failed> {
    let uri = format!("nbd://{SERVICE}/disk");
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string());
    command.args(words.iter().map(|word| word.replace("URI", &uri)));
    served.segment.run(|| run(&mut command))
}

fn info(images: &Images, host: &str) -> Result<(), Failed> {
    let disk = disk()?;
    let served = serve(images, host, &disk.path, &[])?;
    let ended = client(&served, &["nbdinfo", "URI"])?;
    ended.expect_status(0)?;
    for says in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "export-size: 16777216 (16M)",
        "is_read_only: false",
        "can_flush: true",
        "can_fua: true",
        "can_trim: true",
        "can_zero: true",
        "can_multi_conn: true",
        "block_size_minimum: 512",
        "block_size_maximum: 33554432",
    ] {
        ended.expect_stdout(says)?;
    }
    let listed = client(&served, &["nbdinfo", "--list", "nbd://10.0.0.2"])?;
    listed.expect_status(0)?.expect_stdout("export=\"disk\"")?;
    let unknown = client(&served, &["nbdinfo", "nbd://10.0.0.2/disc"])?;
    if unknown.status == 0 {
        return Err("there is no such disk".into());
    }
    served.goes_on()
}

fn same(one: &Path, other: &Path) -> Result<(), Failed> {
    match fs::read(one)? == fs::read(other)? {
        true => Ok(()),
        false => Err(format!("{} and {} differ", one.display(), other.display()).into()),
    }
}

fn copied(images: &Images, host: &str) -> Result<(), Failed> {
    let (disk, empty) = (disk()?, TemporaryFile::new("empty", BYTES)?);
    let folder = TemporaryFolder::new("nbd")?;
    let copy = folder.path.join("copy");
    let path = copy.display().to_string();
    let served = serve(images, host, &disk.path, &[])?;
    client(&served, &["nbdcopy", "URI", &path])?.expect_status(0)?;
    same(&copy, &disk.path)?;
    served.goes_on()?;
    let served = serve(images, host, &empty.path, &[])?;
    let back = client(&served, &["nbdcopy", "--flush", &path, "URI"])?;
    back.expect_status(0)?;
    same(&copy, &empty.path)?;
    served.goes_on()
}

/// A disk that the image drives itself, whose model is a process.
fn on_nvme(images: &Images, host: &str) -> Result<(), Failed> {
    let (disk, folder) = (disk()?, TemporaryFolder::new("nbd")?);
    let socket = folder.path.join("socket");
    let option = format!("--file={}", disk.path.display());
    let device = model(images, "nvme", &socket, [option])?;
    let mut command = tender(images, host);
    command.arg(format!("--pci:disk=vfio-user:{}", socket.display()));
    copied_by(command, &images.appliance("nbd", "-nvme"), &disk.path)?;
    let ended = device.finish()?;
    ended.expect_status(0)?.expect_stdout("\"violations\":0}")?;
    Ok(())
}

/// Fetches a disk whose first bytes are those of a file, by a command that attaches it.
pub fn copied_by(command: Command, image: &Path, content: &Path) -> Result<(), Failed> {
    let served = serve_by(command, &PLAIN, image, &[])?;
    let folder = TemporaryFolder::new("nbd")?;
    let copy = folder.path.join("copy");
    let mut fetch = Command::new("nbdcopy");
    fetch.arg(format!("nbd://{SERVICE}/disk")).arg(&copy);
    served.segment.run(|| run(&mut fetch))?.expect_status(0)?;
    served.goes_on()?;
    match fs::read(&copy)?.starts_with(&fs::read(content)?) {
        true => Ok(()),
        false => Err("the disk has other bytes".into()),
    }
}

fn images_of_qemu(images: &Images, host: &str) -> Result<(), Failed> {
    let disk = disk()?;
    let folder = TemporaryFolder::new("nbd")?;
    let copy = folder.path.join("copy.qcow2").display().to_string();
    let served = serve(images, host, &disk.path, &[])?;
    let convert = ["qemu-img", "convert", "-O", "qcow2", "URI", &copy];
    client(&served, &convert)?.expect_status(0)?;
    let compared = client(&served, &["qemu-img", "compare", "URI", &copy])?;
    compared
        .expect_status(0)?
        .expect_stdout("Images are identical")?;
    // The same to a disk of other bytes.
    let other = TemporaryFile::new("other", BYTES)?;
    fs::write(&other.path, vec![0x55; BYTES as usize])?;
    let to = serve(images, host, &other.path, &[])?;
    let convert = ["qemu-img", "convert", "-n", "-O", "raw", &copy, "URI"];
    client(&to, &convert)?.expect_status(0)?;
    to.goes_on()?;
    served.goes_on()?;
    same(&disk.path, &other.path)
}

fn requests(images: &Images, host: &str) -> Result<(), Failed> {
    let disk = disk()?;
    let served = serve(images, host, &disk.path, &[])?;
    let commands = [
        "write -P 0x5a 0 1M",
        "write -f -P 0x3c 1M 4k",
        "discard 2M 1M",
        "write -z 4M 64k",
        "write -z -u 5M 64k",
        "flush",
        "read -P 0x5a 4096 500k",
        "read -P 0x3c 1M 4k",
        "read -P 0 4M 64k",
        "read -P 0 5M 64k",
        "read 15M 1M",
    ];
    let mut words = vec!["qemu-io", "-f", "raw", "URI"];
    words.extend(commands.iter().flat_map(|command| ["-c", *command]));
    let ended = client(&served, &words)?;
    ended.expect_status(0)?;
    if ended.stdout.contains("failed") || ended.stdout.contains("error") {
        return Err(format!("{ended:?}").into());
    }
    served.goes_on()?;
    let bytes = fs::read(&disk.path)?;
    let is = |range: std::ops::Range<usize>, byte| bytes[range].iter().all(|one| *one == byte);
    (is(0..1 << 20, 0x5a) && is(2 << 20..3 << 20, 0) && is(4 << 20..(4 << 20) + 65536, 0))
        .then_some(())
        .ok_or("the file holds something else".into())
}

fn read_only(images: &Images, host: &str) -> Result<(), Failed> {
    let disk = disk()?;
    let served = serve(images, host, &disk.path, &["--block-read-only:disk=on"])?;
    let words = ["qemu-io", "-f", "raw", "URI", "-c", "write -P 1 0 4k"];
    let written = client(&served, &words)?;
    if written.status == 0 && !written.stderr.contains("read-only") {
        return Err(format!("{written:?}").into());
    }
    let words = ["qemu-io", "-r", "-f", "raw", "URI", "-c", "read 0 1M"];
    client(&served, &words)?.expect_status(0)?;
    served.goes_on()
}

fn connect(served: &Served) -> Result<TcpStream, Failed> {
    let stream = served.segment.run(|| TcpStream::connect((SERVICE, PORT)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A client's flags, and the option that chooses the disk, answered.
fn chosen(served: &Served) -> Result<TcpStream, Failed> {
    let mut stream = connect(served)?;
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")?;
    stream.read_exact(&mut [0; 10])?;
    Ok(stream)
}

/// What no client says, at each stage; others are served as ever.
fn hostile(images: &Images, host: &str) -> Result<(), Failed> {
    let disk = disk()?;
    let served = serve(images, host, &disk.path, &[])?;
    let options: [&[u8]; 5] = [
        &[0xff; 4],
        b"\0\0\0\x03what is no option",
        b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff",
        b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x06\xff\xff\xff\xff\0\0IHAVE",
        &[],
    ];
    for bytes in options {
        let mut stream = connect(&served)?;
        stream.write_all(bytes)?;
    }
    let request = |command: u8, offset: u64, length: u32| {
        let mut bytes = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, command];
        bytes.extend([7; 8]);
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes
    };
    for bytes in [
        vec![0; 28],
        request(1, 0, u32::MAX),
        // Only a part of what it says that it writes.
        [request(1, 0, 1 << 20), vec![1; 70_000]].concat(),
        // Nobody takes what these read.
        request(0, 0, 8 << 20).repeat(200),
        request(0, u64::MAX - 511, 512).repeat(200),
    ] {
        let mut stream = chosen(&served)?;
        // It may end the connection while we write.
        let _ = stream.write_all(&bytes);
    }
    client(&served, &["nbdinfo", "--size", "URI"])?.expect_stdout("16777216")?;
    served.goes_on()
}

/// Who finds no place is sent away, and has one once another has gone.
fn bounded(images: &Images, host: &str) -> Result<(), Failed> {
    let disk = disk()?;
    let served = serve(images, host, &disk.path, &[])?;
    let mut all: Vec<_> = (0..CONNECTIONS)
        .map(|_| chosen(&served))
        .collect::<Result<_, _>>()?;
    let mut more = connect(&served)?;
    let mut answer = Vec::new();
    // The end, or that it was reset.
    let _ = more.read_to_end(&mut answer);
    if !answer.is_empty() {
        return Err(format!("one more was greeted: {answer:?}").into());
    }
    all.pop();
    eventually(PATIENCE, || {
        let ended = client(&served, &["nbdinfo", "--size", "URI"])?;
        ended.expect_status(0).map(drop)
    })?;
    served.goes_on()
}
