//! Programs with runtimes of their own, and programs that measure, on the sockets of a stack in an
//! image; and one whose files are those of a disk.

use super::SERVICE;
use super::proxy::{PATIENCE, Stack, Tried, end, fetch, site, trials_of};
use crate::commands::mount::cannot;
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where Debian's package of lmbench has its programs.
const LMBENCH: &str = "/usr/lib/lmbench/bin/x86_64-linux-gnu";
const NO_LMBENCH: &str =
    "needs lmbench, which Debian has in non-free: sudo apt-get install lmbench";
/// A file that another program serves.
const ELSEWHERE: &str = "http://10.0.0.1:8000/1k";

/// A program with a runtime and a resolver of its own, linked statically: it asks, and then serves.
const GO: &str = r#"package main

import ("fmt"; "io"; "net/http"; "os")

func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil { panic(err) }
	body, _ := io.ReadAll(answer.Body)
	fmt.Println("got", len(body))
	http.HandleFunc("/", func(to http.ResponseWriter, _ *http.Request) { fmt.Fprint(to, "served") })
	panic(http.ListenAndServe(":80", nil))
}
"#;

/// The same on a virtual machine with several threads.
const JAVA: &str = r#"
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.net.URL;

public class Main {
    public static void main(String[] arguments) throws Exception {
        try (var in = new URL(arguments[0]).openStream()) {
            System.out.println("got " + in.readAllBytes().length);
        }
        var server = HttpServer.create(new InetSocketAddress(80), 0);
        server.createContext("/", exchange -> {
            exchange.sendResponseHeaders(200, 6);
            exchange.getResponseBody().write("served".getBytes());
            exchange.close();
        });
        server.start();
    }
}
"#;

const TRIALS: [Tried<'static>; 3] = [
    ("Go asks and serves", &["go", "curl", "python3"], go),
    ("Java asks and serves", &["javac", "curl", "python3"], java),
    ("netperf measures", &["netperf"], netperf),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = trials_of(images, network, &TRIALS);
    let missing = (!Path::new(LMBENCH).exists()).then_some(NO_LMBENCH);
    let name = "proxy::lmbench measures".to_owned();
    trials.push(network.trial_unless(missing, name, move || lmbench(images)));
    let missing = programs::missing(&["mke2fs", "python3"]).or_else(cannot);
    let name = "proxy::a program's files are those of a disk".to_owned();
    trials.push(network.trial_unless(missing, name, move || files(images)));
    trials
}

fn go(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("go")?;
    let (text, program) = (folder.path.join("main.go"), folder.path.join("program"));
    fs::write(&text, GO)?;
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(&text);
    run(build.env("CGO_ENABLED", "0"))?.expect_status(0)?;
    asks_and_serves(images, &[&program.display().to_string()])
}

fn java(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("java")?;
    let text = folder.path.join("Main.java");
    fs::write(&text, JAVA)?;
    let classes = folder.path.display().to_string();
    run(Command::new("javac").args(["-d", &classes]).arg(&text))?.expect_status(0)?;
    asks_and_serves(images, &["java", "-cp", &classes, "Main"])
}

/// A program that is told what to fetch, says how long that is, and then serves itself.
fn asks_and_serves(images: &Images, program: &[&str]) -> Result<(), Failed> {
    let (stack, site) = (Stack::new(images)?, site()?);
    let folder = site.path.display().to_string();
    let mut web = Command::new("python3");
    web.args(["-m", "http.server", "8000", "--directory", &folder]);
    let web = stack.served.segment.run(|| start(&mut web))?;
    eventually(PATIENCE, || {
        let curl = ["curl", "-sf", "-o", "/dev/null", ELSEWHERE];
        stack.beside(&curl)?.expect_status(0).map(drop)
    })?;
    let server = start(&mut stack.program(&[program, &[ELSEWHERE]].concat()))?;
    server.wait_for("got 1024")?;
    let url = format!("http://{SERVICE}/");
    eventually(PATIENCE, || {
        let asked = stack.beside(&["curl", "-sf", "--max-time", "5", &url])?;
        asked.expect_status(0)?.expect_stdout("served").map(drop)
    })?;
    end(server)?;
    end(web)?;
    stack.goes_on()
}

/// Streams both ways and questions with answers, on connections and datagrams, for a client on
/// Linux.
fn netperf(images: &Images) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    let server = start(&mut stack.program(&["netserver", "-D", "-4"]))?;
    server.wait_for("Starting netserver")?;
    let address = SERVICE.to_string();
    for test in ["TCP_STREAM", "TCP_MAERTS", "TCP_RR", "TCP_CRR", "UDP_RR"] {
        let ask = ["netperf", "-4", "-P0", "-l1", "-H", &address, "-t", test];
        eventually(PATIENCE, || stack.beside(&ask)?.expect_status(0).map(drop))?;
    }
    end(server)?;
    stack.goes_on()
}

/// Both ends in one program's network, which is the stack's.
fn lmbench(images: &Images) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    for (program, expected) in [
        ("lat_tcp", "TCP latency using"),
        ("lat_udp", "UDP latency using"),
        ("lat_connect", "TCP/IP connection cost"),
        ("bw_tcp", "MB/sec"),
    ] {
        let script = format!(
            "cd {LMBENCH}; ./{program} -s; sleep 1; ./{program} {SERVICE}; ./{program} -S {SERVICE}"
        );
        // They print what they measure as if it were an error.
        let ended = run(&mut stack.program(&["sh", "-c", &script]))?;
        ended.expect_stderr(expected)?;
    }
    stack.goes_on()
}

/// `outboard mount` has a program see a disk's files, and the proxy a stack's network.
fn files(images: &Images) -> Result<(), Failed> {
    let (stack, site) = (Stack::new(images)?, site()?);
    let folder = TemporaryFolder::new("files")?;
    let (disk, on) = (folder.path.join("disk"), folder.path.join("on"));
    fs::create_dir(&on)?;
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-t", "ext2", "-d"]).arg(&site.path);
    run(make.arg(&disk).arg("8M"))?.expect_status(0)?;
    let on_text = on.display().to_string();
    let web = [
        "python3",
        "-m",
        "http.server",
        "80",
        "--directory",
        &on_text,
    ];
    let proxy = stack.program(&web);
    let mut mounted = Command::new(images.program("outboard"));
    mounted.arg("mount").args([&disk, &on]).arg("--");
    mounted.arg(proxy.get_program()).args(proxy.get_args());
    let server = start(&mut mounted)?;
    eventually(PATIENCE, || fetch(&stack, &site, "1m"))?;
    end(server)?;
    stack.goes_on()
}
