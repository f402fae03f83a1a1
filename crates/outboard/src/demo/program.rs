//! `outboard demo program`: nginx as it is, behind a firewall, on a stack of its own.
//!
//! ```text
//!   this program --- tap === firewall === link === stack === link === nginx
//! ```

use super::build::built;
use super::error::Error;
use super::shown;
use super::system::{FILE, Folder, System, wired};
use serde::Serialize;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use testbed::{privilege, table};

/// Folders of the appliances in the repository, a manifest of each, and what it becomes.
const FIREWALL: &str = "unikernels/firewall";
const STACK: &str = "unikernels/stack";
const FIREWALL_IMAGE: (&str, &str) = ("manifest-kept.json", "firewall-kept.spt");
const STACK_IMAGE: (&str, &str) = ("manifest-link-kept.json", "stack-link-kept.spt");
/// The program, and the package of Debian that has it.
const NGINX: (&str, &str) = ("nginx", "nginx-light");
/// The tap that the firewall is given.
const TAP: &str = "wan0";
/// Where nginx is, and where whoever asks it is.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 80;
/// A port at which nginx listens as well, and to which the firewall lets nobody.
const CLOSED: u16 = 81;
/// Bytes of the page.
const PAGE_BYTES: usize = 16 << 10;
/// Who asks at the same time, each on a connection that it keeps.
const CLIENTS: usize = 8;
/// From one kill to the next one.
const PAUSE: Duration = Duration::from_millis(1500);
/// How long an answer may take; twice the time in which TCP sends again what was lost at a kill.
const PATIENCE: Duration = Duration::from_secs(5);
/// Who is killed.
const COMPONENTS: [&str; 3] = ["firewall", "stack", "web"];
/// What lets connections to nginx pass that were seen to begin, and nothing else.
const RULES: &str = "table bridge filter {\n\tchain forward {\n\t\ttype filter hook forward \
                     priority filter; policy drop;\n\n\t\tether type arp accept\n\t\tct state \
                     established accept\n\t\tct state new tcp dport 80 tcp flags & (fin | syn | \
                     rst | ack) == syn accept\n\t}\n}\n";

/// `outboard demo program`.
#[derive(clap::Args)]
pub struct Options {
    /// A folder with the images, instead of building them
    #[arg(long, value_name = "FOLDER")]
    images: Option<PathBuf>,
    /// How often each component is killed
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: u32,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// What requests have come to while one component was killed.
#[derive(Clone, Debug, Default, Serialize)]
struct Row {
    component: &'static str,
    kills: u32,
    answered: u64,
    failed: u64,
    wrong: u64,
    longest_milliseconds: f64,
}

/// All that was seen.
#[derive(Debug, Serialize)]
struct Report {
    components: Vec<Row>,
    /// The port that the firewall does not open was not reached.
    closed_is_closed: bool,
    held: bool,
}

/// Shows it; succeeds if no request failed while the firewall and the stack were killed, all was
/// answered again after each kill, and no byte was wrong.
///
/// # Errors
/// What kept it from being shown.
pub fn run(options: &Options) -> Result<ExitCode, Error> {
    let found = Command::new(NGINX.0)
        .arg("-v")
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        return Err(Error::NoProgram(NGINX.0, NGINX.1));
    }
    let [firewall, stack] = images(options.images.as_deref())?;
    privilege::acquire().map_err(Error::Privilege)?;
    eprintln!(
        "A network of its own: {CLIENT} asks nginx at {SERVER}, behind a firewall and a stack that \
         are images. nginx is the one that this host has installed. Each of the three is killed \
         {} times.",
        options.kills
    );
    let segment = wired(TAP, CLIENT)?;
    let report = segment.run(|| show(options, &firewall, &stack))?;
    let text = || report.text();
    Ok(shown(options.json, &report, text, report.held))
}

/// The images of the firewall and the stack: built, unless they are given.
fn images(folder: Option<&Path>) -> Result<[PathBuf; 2], Error> {
    let image = |appliance, (manifest, file): (&str, &str)| match folder {
        Some(folder) => std::path::absolute(folder.join(file))
            .map_err(|e| Error::Io("cannot find the current directory", e)),
        None => built(appliance, Some(manifest), file),
    };
    Ok([image(FIREWALL, FIREWALL_IMAGE)?, image(STACK, STACK_IMAGE)?])
}

/// The page.
fn page() -> Vec<u8> {
    (0..PAGE_BYTES).map(|n| (n ^ (n >> 8)) as u8).collect()
}

/// Starts the three.
fn start(firewall: &Path, stack: &Path) -> Result<System, Error> {
    let folder = Folder::new("program", &[("firewall.nft", RULES)])?;
    let path = folder.path().display().to_string();
    let text = format!(
        "[component.stack]\nimage = {stack:?}\nmemory = 64\narguments = \
         [\"--ipv4={SERVER}/24\"]\nnet.service = \"link:inner\"\nnet.app = \
         \"link:sockets\"\nstate.connections = \"memory\"\n\n[component.firewall]\nspare = \
         true\nimage = {firewall:?}\nmemory = 16\nrules = \"firewall.nft\"\nnet.private = \
         \"link:inner\"\nnet.public = \"tap:{TAP}\"\nstate.connections = \
         \"memory\"\n\n[component.web]\nprogram = [\"nginx\", \"-e\", \"stderr\", \"-c\", \
         \"{path}/nginx.conf\"]\nnet.stack = \"link:sockets\"\nafter = [\"stack\"]\n"
    );
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {path}/{name};"));
    let nginx = format!(
        "user root root; daemon off; worker_processes 2; pid {path}/pid;\n\
         error_log stderr crit; events {{ worker_connections 256; }}\n\
         http {{ access_log off; keepalive_requests 1000000; {}\n\
         server {{ listen {PORT} reuseport; listen {CLOSED}; root {path}/pages; }} }}\n",
        temporary.concat()
    );
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes);
    let written = fs::create_dir(folder.path().join("pages"))
        .and_then(|()| write(FILE, text.as_bytes()))
        .and_then(|()| write("nginx.conf", nginx.as_bytes()))
        .and_then(|()| write("pages/page", &page()));
    written.map_err(|e| Error::Io("cannot write a temporary file", e))?;
    System::start(folder, &COMPONENTS)
}

fn show(options: &Options, firewall: &Path, stack: &Path) -> Result<Report, Error> {
    let mut system = start(firewall, stack)?;
    let traffic = |error| Error::Traffic("nginx", error);
    answers(Instant::now()).map_err(traffic)?;
    let closed = SocketAddr::from((SERVER, CLOSED));
    let closed_is_closed = TcpStream::connect_timeout(&closed, PAUSE).is_err();
    let mut components = Vec::new();
    for component in COMPONENTS {
        components.push(killed(&mut system, component, options.kills)?);
        answers(Instant::now()).map_err(traffic)?;
    }
    let none_failed = |row: &Row| row.failed == 0 && row.answered > 0;
    let none_failed = components[..2].iter().all(none_failed);
    let none_wrong = components.iter().all(|row| row.wrong == 0);
    Ok(Report {
        held: none_failed && none_wrong && closed_is_closed,
        components,
        closed_is_closed,
    })
}

/// Waits until nginx answers.
fn answers(begin: Instant) -> io::Result<()> {
    let page = page();
    loop {
        let answered = Client::new().and_then(|mut client| client.ask(&page));
        match answered {
            Ok(true) => return Ok(()),
            Ok(false) => return Err(io::Error::other("it answers with another page")),
            Err(error) if begin.elapsed() > 2 * PATIENCE => return Err(error),
            Err(_) => sleep(PAUSE / 15),
        }
    }
}

/// Kills a component so often, while clients ask.
fn killed(system: &mut System, component: &'static str, kills: u32) -> Result<Row, Error> {
    let done = &AtomicBool::new(false);
    let (row, result) = scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| threads.spawn(move || client(done)))
            .collect();
        let result = (1..=u64::from(kills)).try_for_each(|run| {
            sleep(PAUSE);
            system.wait_for(component, run)?;
            system.kill(component)
        });
        let result = result.and_then(|()| system.wait_for(component, u64::from(kills) + 1));
        sleep(PAUSE);
        done.store(true, Ordering::Relaxed);
        let rows = clients.into_iter().filter_map(|client| client.join().ok());
        (rows.fold(Row::default(), Row::and), result)
    });
    result?;
    Ok(Row {
        component,
        kills,
        ..row
    })
}

/// Asks until all is done, on a connection that is made anew where it fails.
fn client(done: &AtomicBool) -> Row {
    let (mut row, page) = (Row::default(), page());
    let mut connection = None;
    while !done.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let client = match connection.take() {
            Some(client) => Ok(client),
            None => Client::new(),
        };
        let asked = client.and_then(|mut client| Ok((client.ask(&page)?, client)));
        match asked {
            Ok((is_right, client)) => {
                row.answered += 1;
                row.wrong += u64::from(!is_right);
                connection = Some(client);
                let took = begin.elapsed().as_secs_f64() * 1000.0;
                row.longest_milliseconds = row.longest_milliseconds.max(took);
            }
            Err(_) => {
                row.failed += 1;
                sleep(PAUSE / 100);
            }
        }
    }
    row
}

impl Row {
    fn and(self, other: Self) -> Self {
        Self {
            answered: self.answered + other.answered,
            failed: self.failed + other.failed,
            wrong: self.wrong + other.wrong,
            longest_milliseconds: self.longest_milliseconds.max(other.longest_milliseconds),
            ..self
        }
    }
}

impl Report {
    fn text(&self) -> String {
        let header = ["killed", "times", "answered", "failed", "wrong", "longest"];
        let rows = self.components.iter().map(|row| {
            vec![
                row.component.to_owned(),
                row.kills.to_string(),
                row.answered.to_string(),
                row.failed.to_string(),
                row.wrong.to_string(),
                format!("{:.0} ms", row.longest_milliseconds),
            ]
        });
        let closed = match self.closed_is_closed {
            true => "Nobody reaches the port that the firewall's rules leave out.",
            false => "The port that the firewall's rules leave out was reached!",
        };
        format!(
            "{}\n{closed}\nWhoever kills nginx ends its connections; the next ones are served.\n",
            table::render(&header, &rows.collect::<Vec<_>>())
        )
    }
}

/// A connection to nginx.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new() -> io::Result<Self> {
        let to = SocketAddr::from((SERVER, PORT));
        let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Asks for the page; whether it is this one.
    fn ask(&mut self, page: &[u8]) -> io::Result<bool> {
        let request = format!("GET /page HTTP/1.1\r\nHost: {SERVER}\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        if !line.contains(" 200 ") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        while !line.trim_end().is_empty() {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut body = vec![0; page.len()];
        self.0.read_exact(&mut body)?;
        Ok(body == page)
    }
}
