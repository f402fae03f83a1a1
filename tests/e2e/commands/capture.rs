//! Captures: what crossed a port stands in the file, with the reason if it was dropped; no trouble
//! with a file, or with a guest, costs a frame or the monitor.

use crate::harness::build::Images;
use crate::harness::frames::{self, TEST_MAC};
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::programs;
use crate::harness::temporary::{TemporaryFile, TemporaryFolder};
use crate::harness::wire::Wire;
use libtest_mimic::{Failed, Trial};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapError, PcapNGOption, PcapNGReader};
use rustix::fs::OFlags;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

type Test = fn(&Images) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("both directions and the reasons of drops", known_frames),
    ("frames of 64 KiB, cut to what was asked for", superframes),
    ("a full ring costs captures and no frame", overflow),
    ("a full disk ends the capture and not the guest", full_disk),
    (
        "a disk that fills up leaves a file of whole blocks",
        small_disk,
    ),
    ("a FIFO waits for its reader", fifo),
    ("standard output, and a reader that goes away", stdout),
];
/// What a hostile guest writes, and a word of what the monitor says.
const NONSENSE: [(&str, &str); 8] = [
    ("head", "position"),
    ("aligned", "position"),
    ("short", "record"),
    ("length", "record"),
    ("captured", "captured"),
    ("port", "port 63"),
    ("direction", "direction 2"),
    ("fate", "fate 0x3e7"),
];
/// Options, and a word of the answer.
const REFUSED: [(&str, &str); 8] = [
    (
        "--pcap:private=f --pcap:public=./f --net:private=x --net:public=y FIREWALL",
        "private and public would write into one file, ./f",
    ),
    (
        "--pcap:net=/dev/ptmx --net:net=x PORT",
        "this is a terminal",
    ),
    ("--pcap:net= --net:net=x PORT", "--pcap:PORT=FILE"),
    ("--pcap:lan=f --net:net=x PORT", "it has net"),
    ("--pcap:net=f --pcap:net=g --net:net=x PORT", "twice"),
    (
        "--pcap:net=/nonexistent/f --net:net=x PORT",
        "/nonexistent/f",
    ),
    ("--pcap:net=f --pcap-snap=0 --net:net=x PORT", "--pcap-snap"),
    ("--pcap:net", "--pcap:PORT=FILE"),
];
/// Conversations that the tests of the crate `nf` have written: how many frames tcpdump finds in
/// each, and what it says of some.
const GOLDEN: &[(&str, usize, &[&str])] = &[
    (
        "handshake",
        24,
        &[
            "10.0.0.3.4000 > 192.0.2.80.80",
            "192.0.2.1.4000 > 192.0.2.80.80",
        ],
    ),
    (
        "error",
        8,
        &[
            "192.0.2.80 > 10.0.0.2: ICMP 192.0.2.80 udp port 53 unreachable",
            "198.51.100.1 > 10.0.0.2: ICMP time exceeded in-transit",
        ],
    ),
    (
        "fragments",
        9,
        &[
            "192.0.2.1.4000 > 192.0.2.80.9",
            "192.0.2.80.9 > 10.0.0.2.4000",
        ],
    ),
];
/// How long a frame may take to come into its file.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the last frame of a test says.
const LAST: &[u8] = b"the last frame of all";

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["tcpdump"]);
    let mut trials =
        vec![network.trial_unless(missing, "capture::tcpdump".into(), || tcpdump(images))];
    for (name, frames, expected) in GOLDEN {
        let missing = programs::missing(&["tcpdump"]);
        let trial = format!("capture::golden: {name}");
        trials.push(network.trial_unless(missing, trial, || golden(name, *frames, expected)));
    }
    for &(name, test) in TESTS {
        trials.push(network.trial(format!("capture::{name}"), move || test(images)));
    }
    for (what, answer) in NONSENSE {
        let name = format!("capture::a guest that writes nonsense: {what}");
        trials.push(network.trial(name, move || nonsense(images, what, answer)));
    }
    for (options, answer) in REFUSED {
        let name = format!("capture::refused: {options}");
        trials.push(Trial::test(name, move || refused(images, options, answer)));
    }
    trials
}

/// A captured frame, as a parser that is not ours reads it.
#[derive(Debug, PartialEq, Eq)]
struct Captured {
    bytes: Vec<u8>,
    length: u32,
    outbound: bool,
    comment: String,
}

/// A capture file.
#[derive(Default)]
struct Capture {
    /// The name of its interface.
    interface: String,
    /// Frames with the test's source address.
    frames: Vec<Captured>,
    /// All frames, and how many were not captured.
    count: u64,
    lost: u64,
}

fn option<'a>(options: &'a [PcapNGOption<'_>], code: u16) -> &'a [u8] {
    let option = options
        .iter()
        .find(|option| option.code == OptionCode(code));
    option.map_or(&[], |option| option.as_bytes().unwrap_or_default())
}

fn read(file: &Path) -> Result<Capture, Failed> {
    parse(&fs::read(file)?)
}

fn parse(bytes: &[u8]) -> Result<Capture, Failed> {
    let mut reader = PcapNGReader::new(1 << 18, bytes).map_err(|e| format!("{e:?}"))?;
    let mut capture = Capture::default();
    let mut last = 0;
    loop {
        let (offset, block) = match reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof) => return Ok(capture),
            Err(PcapError::Incomplete(_)) => {
                reader.refill().map_err(|e| format!("{e:?}"))?;
                continue;
            }
            Err(e) => return Err(format!("no pcapng: {e:?}").into()),
        };
        match block {
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                capture.interface = String::from_utf8_lossy(option(&interface.options, 2)).into();
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                capture.count += 1;
                let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                if time < last {
                    return Err(format!("{time} ns come after {last}").into());
                }
                last = time;
                let bytes = packet.data[..packet.caplen as usize].to_vec();
                if bytes.get(6..12) == Some(&TEST_MAC) {
                    capture.frames.push(Captured {
                        bytes,
                        length: packet.origlen,
                        outbound: option(&packet.options, 2) == [2, 0, 0, 0],
                        comment: String::from_utf8_lossy(option(&packet.options, 1)).into(),
                    });
                }
            }
            PcapBlockOwned::NG(Block::InterfaceStatistics(statistics)) => {
                let lost = option(&statistics.options, 5).try_into()?;
                capture.lost = u64::from_le_bytes(lost);
            }
            _ => {}
        }
        reader.consume(offset);
    }
}

/// The firewall between two wires under the monitor, which captures both ports.
struct Captures {
    left: Wire,
    right: Wire,
    folder: TemporaryFolder,
    running: Running,
}

impl Captures {
    fn new(images: &Images, vnet_header: bool, options: &[&str]) -> Result<Self, Failed> {
        let left = Wire::new(1500, vnet_header)?;
        let right = Wire::new(1500, vnet_header)?;
        let folder = TemporaryFolder::new("captures")?;
        let mut command = Command::new(images.program("outboard"));
        command.args(["run", "--mem=16"]).args(options);
        for (name, wire) in [("private", &left), ("public", &right)] {
            let file = folder.path.join(name);
            command
                .arg(format!("--net:{name}={}", wire.descriptor()?))
                .arg(format!("--pcap:{name}={}", file.display()));
        }
        let running = start(command.arg(&images.firewall))?;
        let mut captures = Self {
            left,
            right,
            folder,
            running,
        };
        // Frames wait in the tap until the guest reads them.
        captures.pass(&frames::udp(53, b"up"))?;
        captures.left.hand_over();
        captures.right.hand_over();
        Ok(captures)
    }

    /// Sends a frame from left to right.
    fn pass(&self, frame: &[u8]) -> Result<(), Failed> {
        self.left.send(frame)?;
        let same = self.right.receive(TEST_MAC)? == frame;
        same.then_some(())
            .ok_or_else(|| "the frame was changed".into())
    }

    /// The captures of both ports once the last frame is there, and the guest has been ended.
    fn end(self) -> Result<(Capture, Capture), Failed> {
        self.await_last()?;
        self.running.signal(Signal::TERM);
        self.running.finish()?.expect_status(128 + 15)?;
        let private = read(&self.folder.path.join("private"))?;
        let public = read(&self.folder.path.join("public"))?;
        Ok((private, public))
    }
}

impl Captures {
    /// Passes last frames until one is in both files: the signal that ends a guest may end it
    /// before its last captures can be seen.
    fn await_last(&self) -> Result<(), Failed> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.pass(&frames::udp(53, LAST))?;
            thread::sleep(Duration::from_millis(50));
            let holds = |port| {
                let file = fs::read(self.folder.path.join(port)).unwrap_or_default();
                file.windows(LAST.len()).any(|bytes| bytes == LAST)
            };
            if holds("private") && holds("public") {
                return Ok(());
            }
        }
        Err("the last frame is not in the files".into())
    }
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what().into()) }
}

fn known_frames(images: &Images) -> Result<(), Failed> {
    let captures = Captures::new(images, false, &[])?;
    let (passed, dropped) = (frames::udp(53, b"passes"), frames::tcp(1234, b"does not"));
    let malformed = frames::udp(53, &frames::payload(64))[..20].to_vec();
    captures.left.send(&dropped)?;
    captures.left.send(&malformed)?;
    captures.pass(&passed)?;
    captures.right.send(&passed)?;
    captures.left.receive(TEST_MAC)?;
    let (private, public) = captures.end()?;
    let captured = |bytes: &[u8], outbound, comment: &str| Captured {
        bytes: bytes.to_vec(),
        length: bytes.len() as u32,
        outbound,
        comment: comment.into(),
    };
    let up = frames::udp(53, b"up");
    let comments = private.frames.iter().map(|frame| frame.comment.clone());
    let comments: Vec<_> = comments.filter(|comment| !comment.is_empty()).collect();
    expect(
        comments.len() == 2
            && comments[0].starts_with("dropped by ")
            && comments[1] == "dropped: malformed, truncated_ip",
        || format!("{comments:?}"),
    )?;
    let expected = [
        captured(&up, false, ""),
        captured(&dropped, false, &comments[0]),
        captured(&malformed, false, &comments[1]),
        captured(&passed, false, ""),
        captured(&passed, true, ""),
    ];
    expect(private.frames.starts_with(&expected), || {
        format!("private: {:?}", private.frames)
    })?;
    let expected = [
        captured(&up, true, ""),
        captured(&passed, true, ""),
        captured(&passed, false, ""),
    ];
    expect(public.frames.starts_with(&expected), || {
        format!("public: {:?}", public.frames)
    })?;
    let names = (private.interface.as_str(), public.interface.as_str());
    expect(names == ("private", "public"), || format!("{names:?}"))?;
    expect(private.lost + public.lost == 0, || "lost".into())
}

fn superframes(images: &Images) -> Result<(), Failed> {
    let captures = Captures::new(images, true, &["--pcap-snap=100"])?;
    let payload = frames::payload(30_000);
    let sent = frames::unsegmented(7070, &payload, 1448);
    captures.left.send_raw(&sent)?;
    captures.right.receive(TEST_MAC)?;
    let (private, public) = captures.end()?;
    let frame = &sent[12..];
    for (capture, outbound) in [(private, false), (public, true)] {
        let expected = Captured {
            bytes: frame[..100].to_vec(),
            length: frame.len() as u32,
            outbound,
            comment: String::new(),
        };
        expect(capture.frames.get(1) == Some(&expected), || {
            format!("{:?}", capture.frames)
        })?;
    }
    Ok(())
}

/// More frames than the ring holds while the monitor is stopped.
fn overflow(images: &Images) -> Result<(), Failed> {
    const FRAMES: u64 = 2 * (abi::share::CAPTURE_RING_BYTES as u64) / 3000;
    let captures = Captures::new(images, false, &[])?;
    captures.running.signal(Signal::STOP);
    let frame = frames::udp(53, &frames::payload(1472));
    for number in 0..FRAMES {
        captures.pass(&frame).map_err(|e| {
            let message = e.message().unwrap_or_default().to_owned();
            format!("frame {number}: {message}")
        })?;
    }
    captures.running.signal(Signal::CONT);
    let (private, public) = captures.end()?;
    for capture in [&private, &public] {
        let frames = capture.frames.len() as u64;
        expect(capture.lost > 0 && frames > 1, || "nothing was lost".into())?;
        expect(frames + capture.lost > FRAMES + 1, || {
            format!("{frames} frames and {} lost, of {FRAMES}", capture.lost)
        })?;
        let changed = capture.frames[1..]
            .iter()
            .find(|captured| captured.bytes != frame && !captured.bytes.ends_with(LAST));
        expect(changed.is_none(), || format!("{changed:?}"))?;
    }
    Ok(())
}

/// The guest `port` under the monitor: it answers frames, and ends when one says 'quit'.
fn port(images: &Images, file: &str) -> Result<(Wire, Running), Failed> {
    let mut wire = Wire::new(1500, false)?;
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--mem=16", &format!("--pcap:net={file}")])
        .arg(format!("--net:net={}", wire.descriptor()?))
        .arg(images.guest("port"));
    let running = start(&mut command)?;
    wire.send(&frames::udp(1, b"hello"))?;
    wire.receive(TEST_MAC)?;
    wire.hand_over();
    Ok((wire, running))
}

fn quit(wire: &Wire, running: Running) -> Result<Ended, Failed> {
    wire.send(&frames::udp(1, b"quit"))?;
    wire.receive(TEST_MAC)?;
    let ended = running.finish()?;
    ended.expect_status(0)?;
    Ok(ended)
}

fn full_disk(images: &Images) -> Result<(), Failed> {
    let (wire, running) = port(images, "/dev/full")?;
    let ended = quit(&wire, running)?;
    ended
        .expect_stdout("SUCCESS")?
        .expect_stderr("/dev/full ends here: No space left")?
        .expect_stderr("/dev/full is not whole: No space left")?;
    expect(ended.behind_start().count() == 2, || format!("{ended:?}"))
}

/// A disk of two pages: frames of 1000 bytes end in the middle of one.
fn small_disk(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("small")?;
    let script = "trap '' INT; mkdir disk && mount -t tmpfs -o size=8k none disk && \"$@\"; \
                  status=$?; cp disk/capture capture; exit $status";
    let mut wire = Wire::new(1500, false)?;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(images.program("outboard"))
        .args(["run", "--mem=16", "--pcap:net=disk/capture"])
        .arg(format!("--net:net={}", wire.descriptor()?))
        .arg(images.guest("port"))
        .current_dir(&folder.path);
    let running = start(&mut command)?;
    for _ in 0..10 {
        wire.send(&frames::udp(1, &frames::payload(1000)))?;
        wire.receive(TEST_MAC)?;
    }
    wire.hand_over();
    let ended = quit(&wire, running)?;
    ended.expect_stderr("the capture disk/capture is not whole: No space left")?;
    let bytes = fs::read(folder.path.join("capture"))?;
    let mut rest = bytes.as_slice();
    while let Some(length) = rest.get(4..8) {
        let length = u32::from_le_bytes(length.try_into()?) as usize;
        rest = rest.get(length..).ok_or("the file ends within a block")?;
    }
    expect(rest.is_empty(), || format!("{} bytes too many", rest.len()))?;
    let frames = parse(&bytes)?.frames.len();
    expect((1..20).contains(&frames), || {
        format!("{frames} of 20 frames in {} bytes", bytes.len())
    })
}

fn fifo(images: &Images) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("fifo")?;
    let path = folder.path.join("fifo");
    run(Command::new("mkfifo").arg(&path))?.expect_status(0)?;
    let (wire, running) = port(images, &path.display().to_string())?;
    // The frames until now wait for the reader. It opens without waiting, for a run that has ended
    // would never open the other end; what is captured fits into the pipe.
    let mut reader = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    quit(&wire, running)?;
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    let frames = parse(&bytes)?.frames.len();
    expect(frames == 4, || {
        format!("{frames} frames, not two and their answers")
    })
}

fn stdout(images: &Images) -> Result<(), Failed> {
    let (wire, running) = port(images, "-")?;
    let ended = quit(&wire, running)?;
    ended.expect_stderr("mtu 1500")?.expect_stderr("SUCCESS")?;
    let only_capture = ended.stdout.starts_with("\n\r\r\n") && !ended.stdout.contains("SUCCESS");
    expect(only_capture, || format!("{ended:?}"))?;
    // The reader reads nothing, and is gone before there is anything to read: the writer waits
    // until it says so.
    let folder = TemporaryFolder::new("gone")?;
    let gone = folder.path.join("gone");
    run(Command::new("mkfifo").arg(&gone))?.expect_status(0)?;
    let mut wire = Wire::new(1500, false)?;
    let script = "trap '' INT; { read -r _ < \"$0\"; \"$@\"; echo \"status $?\" >&2; } |
                  { exec < /dev/null; echo > \"$0\"; }";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .args([gone.as_path(), &images.program("outboard")])
        .args(["run", "--mem=16", "--pcap:net=-"])
        .arg(format!("--net:net={}", wire.descriptor()?))
        .arg(images.guest("port"));
    let running = start(&mut command)?;
    wire.send(&frames::udp(1, b"hello"))?;
    wire.receive(TEST_MAC)?;
    wire.hand_over();
    let ended = quit(&wire, running)?;
    ended
        .expect_stderr("the capture - ends here: Broken pipe")?
        .expect_stderr("status 0")?;
    Ok(())
}

fn nonsense(images: &Images, what: &str, answer: &str) -> Result<(), Failed> {
    let wire = Wire::new(1500, false)?;
    let file = TemporaryFile::new("nonsense", 0)?;
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--mem=16"])
        .arg(format!("--pcap:net={}", file.path.display()))
        .arg(format!("--net:net={}", wire.descriptor()?))
        .arg(images.guest("capture_nonsense"))
        .arg(what);
    let ended = run(&mut command)?;
    ended.expect_status(0)?.expect_stdout("SUCCESS")?;
    ended
        .expect_stderr("captures end here")?
        .expect_stderr(answer)?;
    expect(ended.behind_start().count() == 1, || format!("{ended:?}"))?;
    // What is there is a whole file.
    read(&file.path).map(drop)
}

fn refused(images: &Images, options: &str, answer: &str) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("refused")?;
    let mut command = Command::new(images.program("outboard"));
    command.arg("run").current_dir(&folder.path);
    for word in options.split_ascii_whitespace() {
        match word {
            "PORT" => command.arg(images.guest("port")),
            "FIREWALL" => command.arg(&images.firewall),
            word => command.arg(word),
        };
    }
    let ended = run(&mut command)?;
    ended.expect_status(1)?.expect_stderr(answer)?;
    expect(ended.stderr.lines().count() == 1, || format!("{ended:?}"))
}

/// The bytes of the test's frames as tcpdump reads them.
fn tcpdump(images: &Images) -> Result<(), Failed> {
    let captures = Captures::new(images, false, &[])?;
    let sent = [
        frames::udp(53, b"one"),
        frames::tcp(1234, b"dropped"),
        frames::udp(53, &frames::payload(1000)),
    ];
    captures.pass(&sent[0])?;
    captures.left.send(&sent[1])?;
    captures.pass(&sent[2])?;
    captures.await_last()?;
    let file = captures.folder.path.join("private");
    captures.running.signal(Signal::TERM);
    captures.running.finish()?;
    let filter = "ether src 02:00:00:00:00:11";
    let mut command = Command::new("tcpdump");
    // Root of a user namespace cannot become the user that tcpdump would rather be.
    command.args(["-Z", "root", "-nn", "-xx", "-r"]);
    command.arg(&file).arg(filter);
    let ended = run(&mut command)?;
    let mut found: Vec<String> = Vec::new();
    for line in ended.expect_status(0)?.stdout.lines() {
        match line.strip_prefix("\t0x") {
            Some(digits) => {
                let (_, digits) = digits.split_once(':').ok_or("no offset")?;
                let last = found.last_mut().ok_or("no packet")?;
                last.extend(digits.chars().filter(char::is_ascii_hexdigit));
            }
            None => found.push(String::new()),
        }
    }
    let hex = |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected: Vec<String> = sent.iter().map(hex).collect();
    expect(found.get(1..4) == Some(&expected[..]), || {
        format!("{found:?}")
    })
}

/// A conversation that is kept as a file, as tcpdump reads it.
fn golden(name: &str, frames: usize, expected: &[&str]) -> Result<(), Failed> {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/nf/src/router/tests/golden"
    );
    let file = format!("{folder}/{name}.pcapng");
    let mut command = Command::new("tcpdump");
    let ended = run(command.args(["-Z", "root", "-nn", "-r", &file]))?;
    let said = &ended.expect_status(0)?.stdout;
    let is_said = |what: &&str| said.contains(what);
    expect(
        said.lines().count() == frames && expected.iter().all(is_said),
        || format!("{ended:?}"),
    )
}
