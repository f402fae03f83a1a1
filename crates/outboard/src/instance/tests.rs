use super::*;
use abi::share::{BYTES, REPORT_MAGIC, Report};
use zerocopy::IntoBytes;

/// A directory for the instances of one test.
struct Base(PathBuf);

impl Base {
    fn new(test: &str) -> Self {
        let name = format!("outboard-instance-{}-{test}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn claim(&self, name: &str) -> Result<Claim, Error> {
        Claim::new_in(&self.0, name)
    }

    /// A guest that its monitor has described.
    fn start(&self, name: &str) -> Claim {
        let claim = self.claim(name).unwrap();
        claim.describe(&description()).unwrap();
        claim
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn description() -> Description {
    let mut description = Description::new("/fw.spt".into(), "spt".into(), 1_790_000_000, 7);
    description.devices.push(Device {
        name: "private".into(),
        index: 1,
        kind: Kind::Net,
        interface: Some("tap0".into()),
        tap_namespace: Some(4_026_531_840),
        mac: Some("02:00:00:00:00:01".into()),
    });
    description
}

#[test]
fn names_stay_inside_their_directory() {
    for name in ["a", "web-1", "fw_2.b"] {
        check_name(name).unwrap();
    }
    for name in ["", ".", "..", ".a", "a/b", "a b", "ä", &"a".repeat(65)] {
        assert!(matches!(check_name(name), Err(Error::Name(_))), "{name}");
    }
}

#[test]
fn a_spare_appears_where_a_guest_has_ended() {
    let base = Base::new("spare");
    let running = base.start("a");
    let mut spare = Claim::aside_in(&base.0, "a").unwrap();
    let mut log = spare.log().unwrap();
    let names = || -> Vec<_> {
        let all = Instance::all_in(&base.0).unwrap().into_iter();
        all.map(|instance| instance.name).collect()
    };
    assert_eq!(names(), ["a"], "nobody sees it");
    assert!(matches!(
        spare.appear("a", &description()),
        Err(Error::Running(..))
    ));
    drop(running);
    spare.appear("a", &description()).unwrap();
    let found = Instance::open_in(&base.0, "a").unwrap();
    assert!(found.is_running().unwrap());
    log.append(b"hello");
    assert_eq!(found.console().unwrap(), b"hello");
    drop(spare);
    assert!(!base.0.exists(), "nothing is left");
}

/// A process that was killed may hold its files for a while.
#[test]
fn a_spare_waits_for_the_end_of_the_one_before_it() {
    let base = Base::new("spare-waits");
    let former = Claim::aside_in(&base.0, "a").unwrap();
    std::thread::scope(|threads| {
        let next = threads.spawn(|| Claim::aside_in(&base.0, "a").map(drop));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!next.is_finished());
        drop(former);
        next.join().unwrap().unwrap();
    });
}

#[test]
fn a_spare_takes_over_what_a_dead_guest_has_left() {
    let base = Base::new("spare-left");
    let dead = base.start("a");
    let directory = base.0.join("a");
    let kept = base.0.join("kept");
    std::fs::rename(&directory, &kept).unwrap();
    drop(dead);
    std::fs::create_dir_all(&directory).unwrap();
    for file in std::fs::read_dir(&kept).into_iter().flatten().flatten() {
        std::fs::rename(file.path(), directory.join(file.file_name())).unwrap();
    }
    std::fs::write(directory.join(SHARE), "old").unwrap();
    let mut spare = Claim::aside_in(&base.0, "a").unwrap();
    spare.appear("a", &description()).unwrap();
    assert!(
        Instance::open_in(&base.0, "a")
            .unwrap()
            .is_running()
            .unwrap()
    );
}

#[test]
fn a_name_is_taken_once_and_nothing_is_left_afterwards() {
    let base = Base::new("taken");
    let first = base.claim("a").unwrap();
    assert!(matches!(base.claim("a"), Err(Error::Running(..))));
    drop(first);
    assert!(!base.0.exists());
    drop(base.claim("a").unwrap());
}

#[test]
fn a_leftover_is_taken_over_without_its_report_and_its_description() {
    let base = Base::new("leftover");
    std::mem::forget(base.start("a"));
    // A claim that is forgotten holds its lock: so that of a dead process is made by hand.
    let directory = base.0.join("a");
    std::fs::remove_file(directory.join(SHARE)).unwrap();
    let stale = Report {
        magic: REPORT_MAGIC,
        ..Report::default()
    };
    std::fs::write(directory.join(SHARE), stale.as_bytes()).unwrap();
    let left = Instance::open_in(&base.0, "a").unwrap();
    assert!(!left.is_running().unwrap());
    let claim = base.claim("a").unwrap();
    assert_eq!(claim.share().report(), Some(Report::default()));
    assert!(matches!(
        Instance::open_in(&base.0, "a"),
        Err(Error::Unknown { .. })
    ));
    claim.describe(&description()).unwrap();
    assert!(
        Instance::open_in(&base.0, "a")
            .unwrap()
            .is_running()
            .unwrap()
    );
}

#[test]
fn others_find_what_the_monitor_wrote_down() {
    let base = Base::new("found");
    assert!(Instance::all_in(&base.0).unwrap().is_empty());
    let _b = base.start("b");
    let _a = base.start("a");
    let _starting = base.claim("c").unwrap();
    let all = Instance::all_in(&base.0).unwrap();
    let names: Vec<_> = all.iter().map(Instance::name).collect();
    assert_eq!(names, ["a", "b"]);
    let found = Instance::open_in(&base.0, "b").unwrap();
    assert_eq!(found.description(), &description());
    assert_eq!(found.description().ports(), ["private"]);
    let size = rustix::fs::fstat(found.share()).unwrap().st_size;
    assert_eq!(u64::try_from(size).unwrap(), BYTES);
    let error = Instance::open_in(&base.0, "x").unwrap_err();
    let says = format!(
        "no guest in {} is called x; there is a and b",
        base.0.display()
    );
    assert_eq!(error.to_string(), says);
}

#[test]
fn who_looks_does_not_keep_a_guest_from_starting() {
    let base = Base::new("look");
    for _ in 0..50 {
        let claim = base.start("a");
        let instance = Instance::open_in(&base.0, "a").unwrap();
        assert!(instance.is_running().unwrap());
        drop(claim);
        assert!(!instance.is_running().unwrap());
        assert!(matches!(instance.event(), Err(Error::Ended(_))));
    }
}

#[test]
fn a_description_of_another_version_is_refused() {
    let base = Base::new("version");
    let _claim = base.start("a");
    let path = base.0.join("a").join(DESCRIPTION);
    let json = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, json.replace("\"version\": 1", "\"version\": 2")).unwrap();
    let error = Instance::open_in(&base.0, "a").unwrap_err();
    assert!(
        error.to_string().contains("version 2 instead of 1"),
        "{error}"
    );
    assert!(Instance::all_in(&base.0).unwrap().is_empty());
}
