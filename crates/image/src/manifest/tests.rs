use super::*;

fn manifest(devices: &str) -> Result<Vec<Entry>, Malformed> {
    from_json(
        format!("{{\"type\":\"solo5.manifest\",\"version\":1,\n\"devices\":[{devices}]}}")
            .as_bytes(),
    )
}

/// The reason for which `json` is refused.
fn refusal(json: &str) -> String {
    from_json(json.as_bytes()).unwrap_err().to_string()
}

#[test]
fn devices_become_entries_behind_the_reserved_one() {
    let entries =
        manifest(r#"{"name":"private","type":"NET_BASIC"},{"type":"BLOCK_BASIC","name":"disk"}"#)
            .unwrap();
    let expected = [
        Entry::RESERVED,
        Entry::new("private", kind::NET_BASIC).unwrap(),
        Entry::new("disk", kind::BLOCK_BASIC).unwrap(),
    ];
    assert_eq!(entries, expected);
    assert_eq!(manifest("").unwrap(), [Entry::RESERVED]);
}

#[test]
fn as_many_devices_as_fit_and_no_more() {
    let list = |count: usize| {
        let devices: Vec<_> = (0..count)
            .map(|i| format!("{{\"name\":\"n{i}\",\"type\":\"NET_BASIC\"}}"))
            .collect();
        manifest(&devices.join(","))
    };
    assert_eq!(list(DEVICES_MAX).unwrap().len(), ENTRIES_MAX);
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
    let pci = r#"{"name":"pci0","class":2,"map_bar0":true,"type":"PCI_BASIC"}"#;
    assert!(reason(pci).starts_with("device \"pci0\": this version of Outboard hands out no PCI"));
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
    assert!(refusal("{\"dma_size\":16777216}").contains("hands out no DMA memory"));
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
