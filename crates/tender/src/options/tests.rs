use super::*;

fn request(line: &[&str]) -> Result<Request, Error> {
    parse(line.iter().map(Into::into))
}

fn options(line: &[&str]) -> Options {
    match request(line) {
        Ok(Request::Start(options)) => *options,
        other => panic!("{line:?}: {other:?}"),
    }
}

fn error(option: &str) -> Error {
    request(&[option, "a.spt"]).expect_err(option)
}

#[test]
fn defaults_are_solo5s() {
    let options = options(&["hello.spt"]);
    assert_eq!(options.memory_bytes, 512 << 20);
    assert_eq!(options.image, PathBuf::from("hello.spt"));
    assert_eq!((options.host, options.create_taps), (None, false));
    assert!(options.nets.is_empty() && options.blocks.is_empty());
    assert!(options.share.is_none() && options.parent.is_none());
}

#[test]
fn what_follows_the_image_is_the_guests() {
    let line = ["--mem=2", "a.spt", "--mem=3", "--", "--help"];
    let options = options(&line);
    assert_eq!(options.memory_bytes, 2 << 20);
    assert_eq!(options.arguments, ["--mem=3", "--", "--help"]);
}

#[test]
fn two_dashes_end_the_options() {
    let options = options(&["--", "-odd", "-x"]);
    assert_eq!(options.image, PathBuf::from("-odd"));
    assert_eq!(options.arguments, ["-x"]);
    assert_eq!(request(&["--"]), Err(Error::MissingImage));
    assert_eq!(request(&[]), Err(Error::MissingImage));
}

#[test]
fn help_and_version_need_no_image() {
    assert_eq!(request(&["--mem=2", "--help"]), Ok(Request::Help));
    assert_eq!(request(&["--version"]), Ok(Request::Version));
}

#[test]
fn a_network_takes_its_properties_in_any_order() {
    let line = [
        "--net-mac:a=02:0:00:00:00:fE",
        "--net:b=@7",
        "--net:a=tap0",
        "--net:c=macvtap:eth0",
        "--net-offload:b=off",
        "x.spt",
    ];
    let net = |name: &str, source, mac, offload| Net {
        name: name.into(),
        source,
        mac,
        offload,
    };
    assert_eq!(
        options(&line).nets,
        [
            net("b", NetSource::Descriptor(7), None, false),
            net(
                "a",
                NetSource::Tap("tap0".into()),
                Some([2, 0, 0, 0, 0, 0xfe]),
                true
            ),
            net("c", NetSource::Macvtap("eth0".into()), None, true),
        ]
    );
}

#[test]
fn a_disk_takes_its_sector_size_in_any_order() {
    let options = options(&[
        "--block-sector-size:d=4096",
        "--block:d=a=b",
        "--block:e=e",
        "--block-read-only:d=on",
        "--block-direct:e=on",
        "x",
    ]);
    let block = |name: &str, path: &str, sector_bytes| Block {
        read_only: name == "d",
        direct: name == "e",
        name: name.into(),
        path: path.into(),
        sector_bytes,
    };
    assert_eq!(
        options.blocks,
        [block("d", "a=b", 4096), block("e", "e", 512)]
    );
}

#[test]
fn the_rest_of_the_options() {
    let line = [
        "--host=process",
        "--share=@5",
        "--event=a/fifo",
        "--standby=@7",
        "--rules=a.nft",
        "--die-with-parent=42",
        "--create-taps",
        "x",
    ];
    let options = options(&line);
    assert_eq!(options.host, Some(Host::Process));
    assert_eq!(options.share, Some(Location::Descriptor(5)));
    assert_eq!(options.event, Some(Location::Path("a/fifo".into())));
    assert_eq!(options.standby, Some(Location::Descriptor(7)));
    assert_eq!(options.rules, Some("a.nft".into()));
    assert_eq!((options.parent, options.create_taps), (Some(42), true));
}

#[test]
fn paths_need_not_be_text() {
    let path = OsString::from_vec(b"--block:d=\xff.img".to_vec());
    let Ok(Request::Start(options)) = parse([path, "x".into()]) else {
        panic!()
    };
    assert_eq!(options.blocks[0].path.as_os_str().as_bytes(), b"\xff.img");
}

#[test]
fn values_that_are_none_are_refused() {
    for option in [
        "--mem=",
        "--mem=0",
        "--mem=-1",
        "--mem=+1",
        "--mem=1.5",
        "--mem=64M",
        "--mem=262145",
        "--mem=99999999999999999999",
        "--net:a=",
        "--net:a=@",
        "--net:a=@x",
        "--net:a=@-1",
        "--net:a=@99999999999",
        "--net:a=sixteencharacter",
        "--net:a=tap%d",
        "--net:a=a/b",
        "--net:a=..",
        "--net:a=macvtap:",
        "--net:a=macvtap:tap 0",
        "--net-mac:a=02:00:00:00:00",
        "--net-mac:a=02:00:00:00:00:00:00",
        "--net-mac:a=02:00:00:00:00:+1",
        "--net-mac:a=03:00:00:00:00:00",
        "--net-mac:a=00:00:00:00:00:00",
        "--net-offload:a=on",
        "--block:d=",
        "--block-sector-size:d=256",
        "--block-read-only:d=off",
        "--block-direct:d=yes",
        "--block-sector-size:d=521",
        "--block-sector-size:d=65536",
        "--host=xen",
        "--share=",
        "--share=@",
        "--die-with-parent=",
    ] {
        assert!(matches!(error(option), Error::Value { .. }), "{option}");
    }
}

#[test]
fn options_that_do_not_exist_are_refused() {
    for option in [
        "-",
        "-m",
        "--mem",
        "--net=tap0",
        "--x=",
        "--mem:a=5",
        "--pci-x:a=b",
    ] {
        assert!(matches!(error(option), Error::Unknown { .. }), "{option}");
    }
    assert_eq!(error("--x-exec-heap"), Error::ExecutableHeap);
}

#[test]
fn what_is_wrong_with_an_option_is_said() {
    let said = |line: &[&str]| request(line).unwrap_err().to_string();
    assert_eq!(
        said(&["--memory=16", "a.spt"]),
        "no such option: \"--memory=16\"; did you mean --mem=MIB?"
    );
    assert_eq!(
        said(&["--mem", "16", "a.spt"]),
        "no such option: \"--mem\"; write --mem=16"
    );
    let control = said(&["--mem\u{1b}[2J", "a.spt"]);
    assert!(!control.contains('\u{1b}'), "{control}");
}

#[test]
fn names_are_checked_and_given_once() {
    for option in ["--net:=tap0", "--net:a-b=tap0", "--block::=x"] {
        assert_eq!(error(option), Error::DeviceName(option.into()));
    }
    for line in [
        ["--net:a=t", "--net:a=u", "x"],
        ["--block:a=t", "--block:a=u", "x"],
        ["--net-offload:a=off", "--net-offload:a=off", "x"],
        [
            "--block-sector-size:a=512",
            "--block-sector-size:a=512",
            "x",
        ],
    ] {
        assert!(matches!(request(&line), Err(Error::Twice(_))), "{line:?}");
    }
}

#[test]
fn a_property_needs_its_device() {
    let message = error("--net-mac:a=02:00:00:00:00:01").to_string();
    assert_eq!(
        message,
        "--net-mac:a is given, but a is not attached; add --net:NAME=IFACE or remove --net-mac:a"
    );
    assert!(matches!(
        error("--block-sector-size:a=512"),
        Error::Unattached { .. }
    ));
}

#[test]
fn an_error_is_one_line_whatever_was_typed() {
    for option in [
        "--x\ny",
        "--mem=\n",
        "--net:\n=a",
        "--x-exec-heap",
        "--net-offload:a=off",
    ] {
        assert_eq!(error(option).to_string().lines().count(), 1, "{option:?}");
    }
}

#[test]
fn links_have_four_descriptors_and_states_one() {
    let options = options(&[
        "--net-mac:a=2:0:0:0:0:9",
        "--link:a=5,6,7,8",
        "--net-mtu:b=9000",
        "--link:b=9,10,11,12,open",
        "--state:s=@13",
        "x",
    ]);
    let link = |name: &str, descriptors, mac, mtu| Link {
        name: name.into(),
        descriptors,
        mac,
        mtu,
        open: name == "b",
    };
    let links = [
        link("a", [5, 6, 7, 8], Some([2, 0, 0, 0, 0, 9]), None),
        link("b", [9, 10, 11, 12], None, Some(9000)),
    ];
    assert_eq!(options.links, links);
    assert_eq!(options.links[0].option(), "--link:a=5,6,7,8");
    assert_eq!(options.links[1].option(), "--link:b=9,10,11,12,open");
    let (name, descriptor) = ("s".into(), 13);
    assert_eq!(options.states, [State { name, descriptor }]);
    assert_eq!(options.states[0].option(), "--state:s=@13");
    for wrong in [
        "5,6,7",
        "5,6,7,8,9",
        "5,6,7,open",
        "5,6,7,8,shut",
        "open",
        "5,6,7,",
        "a,b,c,d",
        "@5,6,7,8",
        "-1,6,7,8",
        "",
    ] {
        let error = error(&format!("--link:a={wrong}"));
        assert!(
            error.to_string().contains("four open descriptors"),
            "{error}"
        );
    }
    for wrong in ["5", "@", "@-1", "path"] {
        let error = error(&format!("--state:a={wrong}"));
        assert!(error.to_string().contains("--state:vault=@5"), "{error}");
    }
    for wrong in ["67", "65536", "-1", "jumbo", ""] {
        let error = error(&format!("--net-mtu:a={wrong}"));
        assert!(error.to_string().contains("68 to 65535"), "{error}");
    }
    // A tap has its own.
    let tap = request(&["--net:a=tap0", "--net-mtu:a=9000", "a.spt"]);
    assert!(matches!(tap, Err(Error::Unattached { .. })), "{tap:?}");
    let twice = request(&["--link:a=5,6,7,8", "--link:a=5,6,7,8", "a.spt"]);
    assert_eq!(twice, Err(Error::Twice("--link:a".into())));
}

#[test]
fn pci_devices_have_an_address_or_a_socket() {
    let line = [
        "--pci:a=0000:01:00.0",
        "--pci:b=C1:1f.7",
        "--pci:c=vfio-user:/run/x.sock",
        "a.spt",
    ];
    let options = options(&line);
    let address = |text: &str| PciSource::Address(text.parse().unwrap());
    let sources: Vec<_> = options.pci.iter().map(|pci| pci.source.clone()).collect();
    assert_eq!(sources[0], address("0000:01:00.0"));
    assert_eq!(sources[1], address("0000:c1:1f.7"));
    assert_eq!(sources[2], PciSource::Socket("/run/x.sock".into()));
    assert_eq!(options.pci[1].option(), "--pci:b=0000:c1:1f.7");
    let twice = request(&["--pci:a=01:00.0", "--pci:a=02:00.0", "a.spt"]);
    assert_eq!(twice, Err(Error::Twice("--pci:a".into())));
    for wrong in [
        "",
        "01:00",
        "1:00.0",
        "01:20.0",
        "01:00.8",
        "00:01:00.0",
        "0000:01:00.0/..",
        "123456789:01:00.0",
        "+000:01:00.0",
        "vfio-user:",
    ] {
        let error = error(&format!("--pci:a={wrong}"));
        assert!(matches!(error, Error::Value { .. }), "{wrong}");
    }
}
