//! Components that are programs as they are: a stock server on the sockets of a stack, and one that
//! no file names at the end of a link that is left to it.
//!
//! ```text
//!   test --- wan0 === stack === link === busybox httpd
//!                           === link === outboard proxy --net=apps -- curl
//! ```

use super::links::system_of;
use super::{PATIENCE, System, kill};
use crate::commands::messages::shell;
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::programs;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};

type Test = fn(&Images) -> Result<(), Failed>;

/// What is tried.
const TRIALS: [(&str, Test); 2] = [
    ("a stock server is a component", serves),
    ("a program has the free end of a link", joins),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial = |(name, test): (&str, Test)| {
        let missing = programs::missing(&["ip", "busybox", "curl"]);
        network.trial_unless(missing, format!("up::{name}"), move || test(images))
    };
    TRIALS.into_iter().map(trial).collect()
}

/// What a client types, and the page that it gets.
const CLIENT: &str = "curl --silent --show-error --fail --max-time 10 http://10.0.0.2/page";
const PAGE: &str = "a page of a stock server's\n";

fn text(images: &Images) -> String {
    format!(
        "[component.stack]\nimage = {:?}\nmemory = 64\nnet.service = \"tap:wan0\"\n\
         arguments = [\"--ipv4=10.0.0.2/24\"]\nnet.first = \"link:inner\"\n\
         net.second = \"link:apps\"\n\n\
         [component.server]\nprogram = [\"busybox\", \"httpd\", \"-f\", \"-vv\"]\n\
         net.stack = \"link:inner\"\nenvironment = {{ MARK = \"known\" }}\n\
         folder = \"pages\"\nafter = [\"stack\"]\n\n\
         [link.apps]\nproxy = true\n",
        images.appliance("stack", "-two"),
    )
}

/// Both, with a page to be served.
fn system(images: &Images) -> Result<System<'_>, Failed> {
    let system = system_of(images, &text(images))?;
    let pages = system.runtime.path().join("pages");
    std::fs::create_dir(&pages)?;
    std::fs::write(pages.join("page"), PAGE)?;
    Ok(system)
}

/// A stock client in the network of the tap has the page, at the latest after a while.
fn served(system: &System<'_>) -> Result<(), Failed> {
    let segment = system.segment.as_ref().ok_or("no network")?;
    eventually(PATIENCE, || {
        let got = shell(segment, CLIENT)?;
        let is_it = got.stdout == PAGE;
        is_it.then_some(()).ok_or_else(|| got.stdout.into())
    })
}

/// It is listed as others are, and comes back when it, its stack or its supervisor is
/// killed. It has its own environment, and its own links alone.
fn serves(images: &Images) -> Result<(), Failed> {
    let system = system(images)?;
    let supervisor = system.up(2)?;
    served(&system)?;
    let says = |words: &[&str]| system.runtime.says(images, words);
    let listed = says(&["ps"])?;
    if !listed.contains("program") || !listed.contains("/busybox") {
        return Err(listed.into());
    }
    let proxy = system.guest("server")?;
    let environment = std::fs::read_to_string(format!("/proc/{proxy}/environ"))?;
    if !environment.contains("MARK=known") || environment.contains("XDG_RUNTIME_DIR") {
        return Err(environment.into());
    }
    for name in ["server", "stack"] {
        let run = system.run_of(name);
        kill(system.guest(name)?)?;
        system.wait_for_run(name, run + 1)?;
        served(&system)?;
    }
    says(&["restart", "server"])?;
    served(&system)?;
    let refused = system
        .outboard(&["replace", "server", "/bin/true"])?
        .finish()?;
    refused.expect_refusal(&["server is a program; write another one into the file"])?;
    let run = system.run_of("server");
    kill(supervisor.id())?;
    supervisor.finish()?;
    let supervisor = system.up(2)?;
    if system.run_of("server") != run {
        return Err("it was not taken over".into());
    }
    served(&system)?;
    system.down(Some(supervisor))
}

/// One has it at a time, until it ends or another supervisor begins.
fn joins(images: &Images) -> Result<(), Failed> {
    let system = system(images)?;
    let supervisor = system.up(2)?;
    served(&system)?;
    let proxy = |net: &str, words: &[&str]| {
        let net = format!("--net={net}");
        let all = [&["proxy", &net, "--"], words].concat();
        system.outboard(&all)
    };
    let client: Vec<_> = CLIENT.split(' ').collect();
    for net in ["apps", "stack"] {
        let ended = proxy(net, &client)?.finish()?;
        ended.expect_status(0)?.expect_stdout(PAGE)?;
    }
    let none = proxy("inner", &["true"])?.finish()?;
    none.expect_refusal(&["no end of a link inner is free", "apps"])?;
    let holder = proxy("apps", &["sh", "-c", "echo begun; sleep 600"])?;
    holder.wait_for("begun")?;
    let second = proxy("apps", &["true"])?.finish()?;
    second.expect_refusal(&["somebody has the end of apps already"])?;
    kill(supervisor.id())?;
    supervisor.finish()?;
    let ended = holder.finish()?;
    ended
        .expect_status(1)?
        .expect_stderr("the system of the link has ended")?;
    let run = system.run_of("stack");
    let supervisor = system.up(2)?;
    if system.run_of("stack") != run {
        return Err("its stack was started again".into());
    }
    let ended = proxy("apps", &client)?.finish()?;
    ended.expect_status(0)?.expect_stdout(PAGE)?;
    system.down(Some(supervisor))
}
