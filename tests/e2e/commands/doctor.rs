//! What the doctor says of this machine is what happens on it.

use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, run};
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use testbed::segment::{Address, Segment};

/// An ordinary user, by number: nobody's.
const NOBODY: u32 = 65534;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let root = network.root().is_none();
    vec![
        Trial::test("doctor::a host that it calls usable runs guests", || {
            hosts(images, None)
        }),
        Trial::ignorable_test("doctor::so it does for an ordinary user", move || {
            if !root || !reachable(images) {
                let why = "needs root, and programs in a folder that everybody can enter";
                return Ok(Completion::ignored_with(why));
            }
            hosts(images, Some(NOBODY)).map(|()| Completion::Completed)
        }),
        Trial::test("doctor::the device for taps opens as it says", || {
            device(images)
        }),
        Trial::test("doctor::a program is where it says", || programs(images)),
        // In the lab as well, where KVM is complete.
        Trial::test("hvt::the doctor knows whether guests compute", || {
            kvm(images)
        }),
        network.trial(
            "doctor::it tells interfaces of different MTU in this network".into(),
            || mtu(images),
        ),
    ]
}

fn command(program: &Path, user: Option<u32>) -> Command {
    let mut command = Command::new(program);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

/// Whether an ordinary user can start the programs.
fn reachable(images: &Images) -> bool {
    let help = run(command(&images.program("outboard"), Some(NOBODY)).arg("--help"));
    let image = command(Path::new("/bin/cat"), Some(NOBODY))
        .arg(images.guest("hello"))
        .output();
    help.is_ok_and(|ended| ended.status == 0) && image.is_ok_and(|out| out.status.success())
}

/// What the doctor says, and its exit status.
fn doctor(images: &Images, user: Option<u32>) -> Result<(Value, Ended), Failed> {
    let ended = run(command(&images.program("outboard"), user).args(["doctor", "--json"]))?;
    Ok((serde_json::from_str(&ended.stdout)?, ended))
}

/// What it says of one thing.
fn field<'a>(report: &'a Value, check: &str, field: &str) -> Result<&'a str, Failed> {
    let mut checks = report["checks"].as_array().into_iter().flatten();
    let found = checks.find(|entry| entry["name"] == check);
    let value = found.and_then(|entry| entry[field].as_str());
    value.ok_or_else(|| format!("no {field} of {check:?} in {report}").into())
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, said: T, is: T) -> Result<(), Failed> {
    if said == is {
        return Ok(());
    }
    Err(format!("{what}: the doctor says {said:?}, but it is {is:?}").into())
}

fn hosts(images: &Images, user: Option<u32>) -> Result<(), Failed> {
    let (report, ended) = doctor(images, user)?;
    let mut all = true;
    for host in ["spt", "process"] {
        let mut hello = command(&images.program("outboard"), user);
        hello.args(["run", "--mem=16", &format!("--host={host}")]);
        let runs = run(hello.arg(images.guest("hello")))?.status == 0;
        expect(host, field(&report, host, "verdict")? == "ok", runs)?;
        all &= runs;
    }
    expect("runs", report["runs"] == true, all)?;
    ended.expect_status(i32::from(!all))?;
    // For people, with the same verdicts.
    let table = run(command(&images.program("outboard"), user).arg("doctor"))?;
    table.expect_status(ended.status)?;
    for line in table.stdout.lines().filter(|line| line.starts_with("ok ")) {
        let name = line.trim_start_matches("ok").trim_start();
        let known = report["checks"].as_array().into_iter().flatten();
        let mut known = known.filter(|check| check["verdict"] == "ok");
        let same = known.any(|check| check["name"].as_str().is_some_and(|n| name.starts_with(n)));
        expect(line, true, same)?;
    }
    Ok(())
}

fn device(images: &Images) -> Result<(), Failed> {
    let (report, _) = doctor(images, None)?;
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    let said = field(&report, "/dev/net/tun", "verdict")? == "ok";
    expect("/dev/net/tun", said, opened.is_ok())
}

/// With a PATH of one folder, where one program is.
fn programs(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("doctor")?;
    fs::write(folder.path.join("iperf3"), "")?;
    let mut doctor = Command::new(images.program("outboard"));
    let ended = run(doctor.args(["doctor", "--json"]).env("PATH", &folder.path))?;
    let report: Value = serde_json::from_str(&ended.stdout)?;
    expect("iperf3", field(&report, "iperf3", "state")?, "usable")?;
    // It lies in /usr/bin, if there is one.
    expect("nsenter", field(&report, "nsenter", "state")?, "absent")?;
    let remedy = field(&report, "nsenter", "remedy")?;
    expect("nsenter", remedy, "sudo apt-get install util-linux")
}

fn kvm(images: &Images) -> Result<(), Failed> {
    let (report, _) = doctor(images, None)?;
    let usable = field(&report, "KVM", "state")? == "usable";
    let mut guest = Command::new(images.program("outboard-tender"));
    guest.args(["--host=hvt", "--mem=16"]);
    let ended = run(guest.arg(images.guest("floating_point")))?;
    expect("KVM", usable, ended.status == 0)
}

fn mtu(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let address = |last, mtu| Address {
        ip: Ipv4Addr::new(10, 0, 0, last),
        prefix: 24,
        mtu,
    };
    let program = images.program("outboard");
    let said = || -> Result<Value, Failed> {
        let output = segment.run(|| Command::new(&program).args(["doctor", "--json"]).output())?;
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let _small = segment.tap("small0", false, address(1, 1400))?;
    let _same = segment.tap("same0", false, address(2, 1400))?;
    expect("MTU", field(&said()?, "MTU", "state")?, "same")?;
    let _large = segment.tap("large0", false, address(3, 9000))?;
    let report = said()?;
    expect("MTU", field(&report, "MTU", "state")?, "differs")?;
    let remedy = field(&report, "MTU", "remedy")?;
    expect("MTU", remedy, "sudo ip link set dev large0 mtu 1400")?;
    segment.netlink(|netlink| netlink.add_bridge("br0"))?;
    segment.netlink(|netlink| netlink.set_master("large0", "br0"))?;
    expect("MTU", field(&said()?, "MTU", "state")?, "same")?;
    segment.netlink(|netlink| netlink.set_master("small0", "br0"))?;
    let report = said()?;
    expect("MTU", field(&report, "MTU", "state")?, "differs")?;
    let evidence = field(&report, "MTU", "evidence")?;
    expect("MTU", evidence, "bridge br0: large0 9000, small0 1400")
}
