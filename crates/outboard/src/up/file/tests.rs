use super::super::progress::STILL_DEFAULT;
use super::*;
use proptest::prelude::*;
use std::time::Duration;

const WHOLE: &str = r#"
[component.firewall]
image = "firewall.spt"
host = "spt"
memory = 16
arguments = ["--a", "b"]
rules = "rules.nft"
net.private = "tap:private0"
net.public = "macvtap:eth1"
mac.private = "02:00:00:00:00:01"
block.disk = "disk.img"
state.vault = "memory"
pci.nic = "0000:01:00.0"
after = ["stack"]
restart = "on-failure"
core = 3
limits.memory = 512
limits.cpu = 150
limits.progress = 3

[component.stack]
image = "/lib/stack.spt"
"#;

fn parse_here(text: &str) -> Result<Vec<Component>, Vec<String>> {
    let lines = |all: Vec<Mistake>| {
        let line = |mistake: &Mistake| mistake.line(Path::new("a.toml"), text);
        all.iter().map(line).collect()
    };
    parse(text, Path::new("/here")).map_err(lines)
}

#[test]
fn components_come_in_the_order_of_their_start_with_whole_paths() {
    let components = parse_here(WHOLE).unwrap();
    let names: Vec<_> = components.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["stack", "firewall"]);
    assert_eq!(components[0].image, Path::new("/lib/stack.spt"));
    let expected = "--name=firewall --mem=16 --host=spt --rules=/here/rules.nft \
                    --net:private=@3 --net-mac:private=02:00:00:00:00:01 \
                    --net:public=macvtap:eth1 --block:disk=/here/disk.img --state:vault=@4 \
                    --pci:nic=0000:01:00.0 -- /here/firewall.spt --a b";
    assert_eq!(components[1].command_line(&[]).join(" "), expected);
    assert_eq!(components[1].restart, Restart::OnFailure);
    assert_eq!([components[0].cores, components[1].cores], [0, 3]);
    let limits = components[1].limits;
    assert_eq!((limits.memory, limits.cpu), (Some(512), Some(150)));
    let still = components.iter().map(Component::may_stand_still);
    let still: Vec<_> = still.collect();
    assert_eq!(still, [Some(STILL_DEFAULT), Some(Duration::from_secs(3))]);
}

#[test]
fn each_mistake_has_its_line() {
    let text = r#"
[component.fw]
imag = "firewall.spt"
memory = 0
host = "xen"
net.a = "private0"
net.b = "tap:@5"
state.c = "disk"
mac.c = "02:00:00:00:00:01"
limits.progres = 5
limits.memory = -1
restart = "sometimes"
arguments = "one"
after = ["stak"]
[component.stack]
image = 5
block = "disk"
[link.a]
mtu = 9000
[links.a]
"#;
    let said = parse_here(text).unwrap_err();
    let expected = [
        "a.toml:2:12: fw has no image; write image = \"fw.spt\", or program = [\"...\"]",
        "a.toml:2:12: after \"stak\": no such component; did you mean stack?",
        "a.toml:3:1: no such key: imag; did you mean image?",
        "a.toml:4:10: memory: expected MiB from 1 to 262144",
        "a.toml:5:8: host: expected \"spt\", \"hvt\" or \"process\"",
        "a.toml:6:9: net.a: expected \"tap:IFACE\", \"macvtap:PARENT\" or \"link:NAME\", as in \
         net.private = \"tap:private0\"",
        "a.toml:7:9: net.b: expected \"tap:IFACE\", \"macvtap:PARENT\" or \"link:NAME\", as in \
         net.private = \"tap:private0\"",
        "a.toml:8:11: state.c: expected \"memory\", as in state.vault = \"memory\"",
        "a.toml:9:9: mac.c: there is no net.c",
        "a.toml:10:8: limits: no such key: progres; did you mean progress?",
        "a.toml:11:17: limits.memory: expected MiB",
        "a.toml:12:11: restart: expected \"always\", \"on-failure\" or \"never\"",
        "a.toml:13:13: arguments: expected texts, as in arguments = [\"--ipv4=10.0.0.2/24\"]",
        "a.toml:16:9: image: expected a path, as in image = \"firewall.spt\"",
        "a.toml:17:9: expected a path, as in block.disk = \"disk.img\"",
        "a.toml:18:7: there is no link a; write net.NAME = \"link:a\" in two components",
        "a.toml:20:2: no such key: links; did you mean link?",
    ];
    assert_eq!(said, expected);
}

#[test]
fn components_have_devices_of_their_own_and_an_order() {
    let text = r#"
[component.a]
image = "a"
after = ["b"]
net.x = "tap:tap0"
[component.b]
image = "b"
after = ["a"]
net.y = "tap:tap0"
"#;
    let expected = [
        "a.toml:2:12: each comes after another one: a and b",
        "a.toml:9:5: tap0 is a's already; a device has one owner",
    ];
    assert_eq!(parse_here(text).unwrap_err(), expected);
    let text = "[component.\".a\"]\nimage = \"x\"\n[component.b]\nimage = \"x\"\nafter = [\"b\"]";
    let expected = [
        "a.toml:1:12: \".a\" is no name: 1 to 64 letters, digits, '-', '_' and '.', of which '.' \
         does not come first",
        "a.toml:3:12: each comes after another one: b",
    ];
    assert_eq!(parse_here(text).unwrap_err(), expected);
    let none = "a.toml:1:1: no component; write [component.NAME] and image = \"...\" below it";
    assert_eq!(parse_here("# nothing\n").unwrap_err(), [none]);
}

#[test]
fn a_link_joins_two_components() {
    let one = |name: &str, devices: &str| format!("[component.{name}]\nimage = \"x\"\n{devices}\n");
    let text = one("a", "net.x = \"link:l\"") + &one("b", "net.y = \"link:l\"");
    let components = parse_here(&text).unwrap();
    let peers: Vec<_> = components
        .iter()
        .map(|one| one.devices[0].peer.as_deref())
        .collect();
    assert_eq!(peers, [Some("b"), Some("a")]);
    let sides: Vec<_> = components.iter().flat_map(Component::handed).collect();
    assert_eq!(sides[0].other().as_ref(), Some(&sides[1]));

    let third = text.clone() + &one("c", "net.z = \"link:l\"");
    let expected = "a.toml:9:5: l has its ends in a and b already; a link joins two components";
    assert_eq!(parse_here(&third).unwrap_err(), [expected]);
    let alone = one("a", "net.x = \"link:l\"");
    let expected = "a.toml:3:5: l has one end; write net.NAME = \"link:l\" in another component \
                    too, or [link.l] and proxy = true";
    assert_eq!(parse_here(&alone).unwrap_err(), [expected]);
    let both = one("a", "net.x = \"link:l\"\nnet.y = \"link:l\"");
    let expected = "a.toml:4:5: l has both ends in a; a link joins two components";
    assert_eq!(parse_here(&both).unwrap_err(), [expected]);
    let wide = text.clone() + "[link.l]\nmtu = 9000\n";
    for component in parse_here(&wide).unwrap() {
        let line = component.command_line(&[]).join(" ");
        assert!(line.contains("--net-mtu:"), "{line}");
    }
    for (wrong, expected) in [
        (
            "mtu = 67",
            "a.toml:8:7: mtu: expected bytes from 68 to 65535",
        ),
        (
            "mtu = \"9k\"",
            "a.toml:8:7: mtu: expected bytes from 68 to 65535",
        ),
        (
            "mtus = 9000",
            "a.toml:8:1: no such key: mtus; did you mean mtu?",
        ),
    ] {
        let wrong = format!("{text}[link.l]\n{wrong}\n");
        assert_eq!(parse_here(&wrong).unwrap_err(), [expected]);
    }
    for wrong in ["link:", "link:@5", "link"] {
        let said = parse_here(&one("a", &format!("net.x = {wrong:?}"))).unwrap_err();
        assert!(
            said[0].starts_with("a.toml:3:9: net.x: expected"),
            "{said:?}"
        );
    }
    let many = |name: &str| {
        let nets = (0..16).map(|n| format!("net.n{n} = \"link:l{n}\"\n"));
        one(name, &nets.collect::<String>())
    };
    let said = parse_here(&(many("a") + &many("b"))).unwrap_err();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains("64 descriptors, 1, 4 and 1 each; 63 is the most"),
        "{said:?}"
    );
}

/// Who is trusted sees what its neighbour drops, and nobody else does.
#[test]
fn an_end_of_a_link_may_be_trusted() {
    let one = |name: &str| format!("[component.{name}]\nimage = \"x\"\nnet.x = \"link:l\"\n");
    let text = one("a") + &one("b");
    let trusted = text.clone() + "[link.l]\ntrusted = [\"b\"]\n";
    let components = parse_here(&trusted).unwrap();
    let lines = components.iter().map(|one| one.command_line(&[]).join(" "));
    let open: Vec<_> = lines.map(|line| line.contains("=3,4,5,6,open ")).collect();
    assert_eq!(
        open,
        [true, false],
        "b sees what a drops, and a nothing of b's"
    );
    for (wrong, expected) in [
        (
            "trusted = [\"c\"]",
            "a.toml:8:11: trusted: c is at no end of l",
        ),
        (
            "trusted = true",
            "a.toml:8:11: trusted: expected names of components, as in trusted = [\"firewall\"]",
        ),
    ] {
        let wrong = format!("{text}[link.l]\n{wrong}\n");
        assert_eq!(parse_here(&wrong).unwrap_err(), [expected]);
    }
}

#[test]
fn what_is_no_toml_is_told_with_its_place() {
    let said = parse_here("[component.a]\nimage = \"a\nmemory 5\n").unwrap_err();
    assert!(said.len() >= 2, "{said:?}");
    assert!(said[0].starts_with("a.toml:2:"), "{said:?}");
    assert!(said.iter().all(|line| !line.contains('\n')), "{said:?}");
}

#[test]
fn a_limit_leaves_room_for_the_memory() {
    let text = "[component.a]\nimage = \"a\"\nmemory = 16\nlimits.memory = 200";
    let said = parse_here(text).unwrap_err();
    assert_eq!(said.len(), 1);
    assert!(
        said[0].ends_with("less than memory and 256 MiB: 272"),
        "{said:?}"
    );
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ -~\n]{0,300}") {
        let _ = parse_here(&text);
    }

    /// Words of the file in any order: most are mistakes, and each has a line.
    #[test]
    fn no_words_make_it_panic(words in proptest::collection::vec(word(), 0..40)) {
        if let Err(said) = parse_here(&words.concat()) {
            prop_assert!(!said.is_empty());
            prop_assert!(said.iter().all(|line| !line.contains('\n')));
        }
    }
}

fn word() -> impl Strategy<Value = &'static str> {
    let words = [
        "[component.",
        "a",
        "b",
        "]\n",
        "image",
        " = ",
        "\"x\"",
        "\n",
        "[",
        "]",
        "net.",
        "mac.",
        "limits.",
        "memory",
        "progress",
        "5",
        "-1",
        "after",
        "{",
        "}",
        ",",
        "\"tap:t\"",
        "\"link:l\"",
        "[link.l]\n",
        "mtu",
        "trusted",
        "restart",
        "0x10",
        "\"always\"",
        ".",
        "pci.n",
        "component",
        "true",
        "é",
        "\"\"",
        "\\u0000",
    ];
    (0..words.len()).prop_map(move |index| words[index])
}

/// A component that is a program has a link, and what is said of programs.
#[test]
fn a_component_may_be_a_program() {
    let text = r#"
[component.stack]
image = "stack.spt"
net.apps = "link:inner"

[component.web]
program = ["./nginx", "-g", "daemon off;"]
net.stack = "link:inner"
environment = { A = "b", LANG = "C" }
folder = "srv"
files.read = ["/etc/nginx", "pages"]
files.write = ["/var/log"]
after = ["stack"]
restart = "on-failure"
limits.memory = 64

[link.inner]
mtu = 9000
"#;
    let components = parse_here(text).unwrap();
    let web = &components[1];
    let expected = "--component --link=3,4,5,6 --mtu=9000 --read=/etc/nginx --read=/here/pages \
                    --write=/var/log -- /here/./nginx -g daemon off;";
    assert_eq!(web.command_line(&[]).join(" "), expected);
    let settings = web.program.as_ref().unwrap().settings();
    assert_eq!(settings.folder, Path::new("/here/srv"));
    let variables = settings.environment.into_iter().collect::<Vec<_>>();
    assert_eq!(variables[0], ("A".to_owned(), "b".to_owned()));
    assert_eq!(web.may_stand_still(), None);
    assert_eq!(
        components[0].handed().next().unwrap().other(),
        web.handed().next()
    );
    let rows = web.holdings(None);
    let row = |expected: [&str; 3]| rows.iter().any(|row| row[..] == expected);
    assert!(
        row(["program", "/here/./nginx -g daemon off;", "run"]),
        "{rows:?}"
    );
    assert!(row(["files", "/var/log", "read, write"]), "{rows:?}");
    assert!(row(["environment", "LANG", "read"]), "{rows:?}");
    assert!(
        !rows
            .iter()
            .any(|row| row[0] == "image" || row[0] == "memory"),
        "{rows:?}"
    );
}

#[test]
fn what_is_wrong_with_a_program_has_its_line() {
    let said = |rest: &str| {
        let text = format!(
            "[component.stack]\nimage = \"x\"\nnet.a = \"link:l\"\n[component.web]\n{rest}\n"
        );
        parse_here(&text).unwrap_err().join("\n")
    };
    let program = "program = [\"true\"]\nnet.s = \"link:l\"\n";
    for (rest, expected) in [
        ("net.s = \"link:l\"", "4:12: web has no image; write image"),
        (
            &format!("{program}image = \"y\""),
            "4:12: web has an image and a program; it is one of them",
        ),
        (
            &format!("{program}memory = 5"),
            "7:1: memory is for images; leave it away",
        ),
        (
            &format!("{program}spare = true"),
            "7:1: spare is for images; leave it away",
        ),
        (
            "image = \"y\"\nnet.s = \"link:l\"\nfolder = \"/\"",
            "7:1: folder is for programs; leave it away",
        ),
        (
            &format!("{program}net.t = \"tap:tap0\""),
            "4:12: web needs one link to a stack, and has no other network",
        ),
        (
            &format!("{program}limits.progress = 3"),
            "4:12: limits.progress of web",
        ),
        (
            &format!("{program}files.reed = [\"/\"]"),
            "7:7: files: no such key: reed",
        ),
        (
            &format!("{program}files.read = []"),
            "7:1: files: expected a table",
        ),
        (
            &format!("{program}environment = {{ A = 5 }}"),
            "7:15: environment: expected",
        ),
        (
            &format!("{program}environment = {{ \"A=B\" = \"\" }}"),
            "7:15: environment: expected",
        ),
        (
            "program = []\nnet.s = \"link:l\"",
            "5:11: program: expected texts",
        ),
        (
            &format!("{program}folder = 5"),
            "7:10: folder: expected a path",
        ),
        (
            &format!("{program}foldr = \"/\""),
            "7:1: no such key: foldr; did you mean folder?",
        ),
    ] {
        let said = said(rest);
        assert!(said.contains(expected), "{rest}: {said}");
    }
}

#[test]
fn an_end_of_a_link_may_be_left_to_a_proxy() {
    let one = |name: &str| format!("[component.{name}]\nimage = \"x\"\nnet.s = \"link:l\"\n");
    let free = "[link.l]\nproxy = true\n";
    let components = parse_here(&(one("a") + free)).unwrap();
    let device = &components[0].devices[0];
    assert_eq!(device.peer.as_deref(), Some(super::super::handed::PROXY));
    let kept: Vec<_> = components[0].kept().collect();
    assert_eq!(
        kept,
        [components[0].handed().next().unwrap().other().unwrap()]
    );
    let said = parse_here(&(one("a") + &one("b") + free)).unwrap_err();
    let expected = "a.toml:6:5: l has an end for outboard proxy and one in a already; write \
                    another link here";
    assert_eq!(said, [expected]);
    let closed = one("a") + &one("b") + "[link.l]\nproxy = false\n";
    assert!(
        parse_here(&closed)
            .unwrap()
            .iter()
            .all(|one| one.kept().count() == 0)
    );
    let said = parse_here(&(one("a") + &one("b") + "[link.l]\nproxy = 1\n")).unwrap_err();
    assert_eq!(said, ["a.toml:8:9: proxy: expected true or false"]);
}
