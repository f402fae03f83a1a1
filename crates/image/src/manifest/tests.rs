use super::*;

fn manifest(devices: &str) -> Result<Manifest, Malformed> {
    from_json(
        format!("{{\"type\":\"solo5.manifest\",\"version\":1,\n\"devices\":[{devices}]}}")
            .as_bytes(),
    )
}

/// A PCIe device with all ids and these fields more.
fn nic(name: &str, more: &str) -> String {
    format!(
        r#"{{"name":"{name}","type":"PCI_BASIC","class":2,"subclass":0,"progif":0,
            "vendor":32902,"device_id":4347{more}}}"#
    )
}

/// The reason for which `json` is refused.
fn refusal(json: &str) -> String {
    from_json(json.as_bytes()).unwrap_err().to_string()
}

#[test]
fn devices_become_entries_behind_the_reserved_one() {
    let read =
        manifest(r#"{"name":"private","type":"NET_BASIC"},{"type":"BLOCK_BASIC","name":"disk"}"#)
            .unwrap();
    let expected = [
        Entry::RESERVED,
        Entry::new("private", kind::NET_BASIC).unwrap(),
        Entry::new("disk", kind::BLOCK_BASIC).unwrap(),
    ];
    assert_eq!(read.entries, expected);
    assert_eq!(manifest("").unwrap(), Manifest::none());
}

#[test]
fn as_many_devices_as_fit_and_no_more() {
    let list = |count: usize| {
        let devices: Vec<_> = (0..count)
            .map(|i| format!("{{\"name\":\"n{i}\",\"type\":\"NET_BASIC\"}}"))
            .collect();
        manifest(&devices.join(","))
    };
    assert_eq!(list(DEVICES_MAX).unwrap().entries.len(), INDICES_MAX);
    let error = list(DEVICES_MAX + 1).unwrap_err();
    assert_eq!(error.reason, "64 devices are too many; name at most 63");
}

#[test]
fn each_malformed_device_is_named() {
    let reason = |devices: &str| manifest(devices).unwrap_err().reason;
    assert_eq!(
        reason(r#"{"name":"a","type":"NET_BASIC"},{"name":"a","type":"BLOCK_BASIC"}"#),
        "device \"a\" is named twice; rename one of the two"
    );
    for name in ["", "a-b", "\u{e9}", &"a".repeat(68)] {
        assert_eq!(
            reason(&format!("{{\"name\":\"{name}\",\"type\":\"NET_BASIC\"}}")),
            format!("device \"{name}\": a name is 1 to 67 ASCII letters and digits")
        );
    }
    let unknown = reason(r#"{"name":"a","type":"NET_FAST"}"#);
    assert!(
        unknown.starts_with("unknown variant `NET_FAST`"),
        "{unknown}"
    );
    let extra = reason(r#"{"name":"a","type":"NET_BASIC","mtu":9000}"#);
    assert!(extra.starts_with("unknown field `mtu`"), "{extra}");
}

#[test]
fn a_reason_comes_with_its_place() {
    let error = manifest("\n{\"name\":\"a b\",\"type\":\"NET_BASIC\"}").unwrap_err();
    assert_eq!((error.line, error.column), (3, 34));
    assert_eq!(
        error.to_string(),
        "3:34: device \"a b\": a name is 1 to 67 ASCII letters and digits"
    );
}

#[test]
fn what_is_not_this_kind_of_file_is_refused() {
    assert_eq!(refusal(""), "1:0: EOF while parsing a value");
    assert!(refusal("{\"type\":\"other\"}").contains("expected `solo5.manifest`"));
    assert!(
        refusal("{\"type\":\"solo5.manifest\",\"version\":2,\"devices\":[]}")
            .contains("version is 2; write \"version\": 1")
    );
    assert!(refusal("{\"type\":\"solo5.manifest\",\"devices\":[]}").contains("`version`"));
    assert!(refusal("{\"typ\":\"solo5.manifest\"}").contains("unknown field `typ`"));
    assert!(from_json(b"{\"type\":\"\xff\"}").is_err());
}

#[test]
fn a_reason_is_one_line_whatever_the_file_holds() {
    let error = manifest(r#"{"name":"a\nb\u001b[2J","type":"NET_BASIC"}"#).unwrap_err();
    assert!(!error.to_string().contains(char::is_control), "{error}");
}

#[test]
fn an_unreadable_file_is_named() {
    let error = read(Path::new("/nonexistent/manifest.json")).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("cannot read the manifest /nonexistent/manifest.json: "),
        "{text}"
    );
}

/// The manifest by which the format of PCIe devices was published.
const FIGURE: &str = include_str!("figure.json");

#[test]
fn the_published_manifest_is_read_as_it_is_meant() {
    let manifest = from_json(FIGURE.as_bytes()).unwrap();
    assert_eq!(manifest.dma_bytes, 16 << 20);
    let service = Entry::new("service0", kind::NET_BASIC).unwrap();
    assert_eq!(manifest.entries, [Entry::RESERVED, service]);
    let device = |name, bars| Request {
        name: abi::manifest::name_field(name).unwrap(),
        class: 2,
        subclass: 0,
        progif: 0,
        bars,
        vendor: 0x8086,
        device: 0x10fb,
        flags: abi::pci::request_flag::BUS_MASTER,
    };
    assert_eq!(manifest.pci, [device("pci0", 0b101), device("pci1", 1)]);
}

#[test]
fn pci_devices_share_names_and_numbers_with_the_others() {
    let net = |i| format!("{{\"name\":\"n{i}\",\"type\":\"NET_BASIC\"}}");
    let list = |nets: usize, nics: usize| {
        let nics = (0..nics).map(|i| nic(&format!("p{i}"), ""));
        let devices: Vec<_> = (0..nets).map(net).chain(nics).collect();
        manifest(&devices.join(","))
    };
    let most = list(31, 32).unwrap();
    assert_eq!(most.entries.len() + most.pci.len(), INDICES_MAX);
    let reason = list(32, 32).unwrap_err().reason;
    assert_eq!(reason, "64 devices are too many; name at most 63");
    let reason = list(0, 33).unwrap_err().reason;
    assert_eq!(reason, "33 PCI devices are too many; name at most 32");
    let twice = manifest(&[net(0), nic("n0", "")].join(",")).unwrap_err();
    assert_eq!(
        twice.reason,
        "device \"n0\" is named twice; rename one of the two"
    );
}

#[test]
fn each_malformed_pci_device_is_named() {
    let reason = |device: &str| manifest(device).unwrap_err().reason;
    assert_eq!(
        reason(r#"{"name":"p","type":"PCI_BASIC","class":2,"subclass":0,"progif":0,"vendor":1}"#),
        "device \"p\": \"device_id\" is missing; `outboard pci list` shows the numbers of devices"
    );
    assert_eq!(
        reason(r#"{"name":"p","type":"PCI_BASIC","class":256}"#),
        "device \"p\": \"class\" is 256; write a number from 0 to 255"
    );
    let vendor = nic("p", "").replace("32902", "65536");
    assert_eq!(
        reason(&vendor),
        "device \"p\": \"vendor\" is 65536; write a number from 0 to 65535"
    );
    assert_eq!(
        reason(&nic("a-b", "")),
        "device \"a-b\": a name is 1 to 67 ASCII letters and digits"
    );
    let extra = reason(&nic("p", ",\"map_bar6\":true"));
    assert!(extra.starts_with("unknown field `map_bar6`"), "{extra}");
}

#[test]
fn dma_memory_adds_up_in_large_pages() {
    let bytes = |top: u64, devices: &[u64]| {
        let devices = devices.iter().enumerate();
        let devices = devices.map(|(i, n)| nic(&format!("p{i}"), &format!(",\"dma_size\":{n}")));
        let devices = devices.collect::<Vec<_>>().join(",");
        let head = r#""type":"solo5.manifest","version":1"#;
        let json = format!("{{{head},\"dma_size\":{top},\"devices\":[{devices}]}}");
        from_json(json.as_bytes()).map(|manifest| manifest.dma_bytes)
    };
    assert_eq!(bytes(0, &[]), Ok(0));
    assert_eq!(bytes(1, &[]), Ok(2 << 20));
    assert_eq!(bytes(1 << 20, &[1 << 20, 0]), Ok(2 << 20));
    assert_eq!(bytes(16 << 20, &[1 << 20, 1]), Ok(18 << 20));
    assert_eq!(bytes(1 << 31, &[1 << 31]), Ok(4 << 30));
    let reason = bytes(1 << 32, &[1]).unwrap_err().reason;
    assert_eq!(
        reason,
        "4294967297 bytes of DMA memory are too many; \
         let all \"dma_size\" together be at most 4294967296"
    );
    assert!(bytes(u64::MAX, &[u64::MAX]).is_err());
}

#[test]
fn links_and_states_have_a_size() {
    let link = |name: &str, more: &str| format!(r#"{{"name":"{name}","type":"LINK"{more}}}"#);
    let state = |size: &str| format!(r#"{{"name":"s","type":"STATE","size":{size}}}"#);
    let found = manifest(&[link("a", ""), link("b", ",\"slots\":256"), state("8192")].join(","));
    let found: Vec<_> = found
        .unwrap()
        .regions
        .iter()
        .map(|r| (r.kind, r.bytes))
        .collect();
    let bytes = |slots| abi::link::file_bytes(slots) as u32;
    let link_kind = abi::region::kind::LINK;
    let expected = [
        (link_kind, bytes(SLOTS as usize)),
        (link_kind, bytes(256)),
        (abi::region::kind::STATE, 8192),
    ];
    assert_eq!(found, expected);
    let reason = |device: &str| manifest(device).unwrap_err().reason;
    for slots in ["0", "257"] {
        assert_eq!(
            reason(&link("a", &format!(",\"slots\":{slots}"))),
            format!("device \"a\": \"slots\" is {slots}; write a number from 1 to 256")
        );
    }
    for size in ["0", "4097", "268439552"] {
        let says = format!("\"size\" is {size}; write a multiple of 4096 up to 268435456");
        assert_eq!(reason(&state(size)), format!("device \"s\": {says}"));
    }
    let named = reason(&link("a-b", ""));
    assert!(named.starts_with("device \"a-b\": a name is"), "{named}");
    let twice = reason(&[link("n0", ""), link("n0", "")].join(","));
    assert!(twice.contains("named twice"), "{twice}");
    let many: Vec<_> = (0..17).map(|n| link(&format!("l{n}"), "")).collect();
    let many = reason(&many.join(","));
    assert_eq!(
        many,
        "17 links, states and queues of disks are too many; name at most 16"
    );
}

#[test]
fn a_link_says_what_it_carries() {
    let carries = |what: &str| {
        let json = format!(
            r#"{{ "type": "solo5.manifest", "version": 1, "devices": [
                {{ "name": "a", "type": "LINK", "carries": {what} }} ] }}"#
        );
        from_json(json.as_bytes()).map(|manifest| manifest.regions[0].kind)
    };
    assert_eq!(carries(r#""sockets""#), Ok(abi::region::kind::SOCKETS));
    assert_eq!(carries(r#""frames""#), Ok(abi::region::kind::LINK));
    assert!(carries(r#""streams""#).is_err() && carries("1").is_err());
}

#[test]
fn a_disk_may_have_a_queue() {
    let disk = |name: &str, queue: u64| {
        format!(r#"{{"name":"{name}","type":"BLOCK_BASIC","queue":{queue}}}"#)
    };
    let found = manifest(&disk("d", 8192)).unwrap();
    assert_eq!(found.entries[1].name(), Some("d"));
    let queue = found.regions[0];
    assert_eq!((queue.name(), queue.kind), (Some("d"), 4));
    assert_eq!(queue.bytes, (2 << 20) + 8192);
    for bytes in [0, 4097, 256 << 20] {
        let why = manifest(&disk("d", bytes)).unwrap_err().reason;
        let says = format!("device \"d\": \"queue\" is {bytes}; write a multiple of 4096 up to");
        assert!(why.starts_with(&says), "{why}");
    }
    let twice = [disk("d", 8192), disk("d", 8192)].join(",");
    assert!(manifest(&twice).unwrap_err().reason.contains("named twice"));
}
