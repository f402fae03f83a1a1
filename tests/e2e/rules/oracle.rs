//! Rules mean what they mean to nft: generated ones, and where `nf` differs on purpose.

use crate::harness::network::Network;
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use nf::nft::Limits;
use nf::{Key, Verdict, Way};
use oracle::conversation::{self, Compared, Family, Hosts, Judges, Packet, Router, StatefulRules};
use oracle::{
    Bridge, Case, Chain, Count, Disagreement, Frame, Judgement, PORTS, Rule, Source, judge,
    minimise, translation,
};

/// Rounds of generated rules and frames, a few seconds of them.
const ROUNDS: u64 = 60;
/// Where they begin.
const SEED: u64 = 2026;

pub fn trials(network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["nft"]);
    let mut trials = vec![network.trial_unless(
        missing,
        "oracle::generated_rules_and_frames".into(),
        generated,
    )];
    trials.push(network.trial_unless(
        missing,
        "oracle::a_disagreement_is_found_and_made_small".into(),
        found_and_made_small,
    ));
    trials.push(network.trial_unless(
        missing,
        "oracle::differs::a_counter_counts_where_it_stands".into(),
        counts_where_it_stands,
    ));
    trials.push(network.trial_unless(
        missing,
        "oracle::generated_conversations".into(),
        conversations,
    ));
    trials.push(network.trial_unless(
        missing,
        "oracle::generated_translations".into(),
        translations,
    ));
    for difference in TRACKED {
        let name = format!("oracle::differs::{}", difference.name);
        trials.push(network.trial_unless(missing, name, || difference.check()));
    }
    for difference in DIFFERENCES {
        let name = format!("oracle::differs::{}", difference.name);
        trials.push(network.trial_unless(missing, name, || difference.check()));
    }
    trials
}

fn generated() -> Result<(), Failed> {
    let bridge = Bridge::new()?;
    let mut sum = Judgement::default();
    for seed in SEED..SEED + ROUNDS {
        let (judgement, failure) = oracle::round(&bridge, seed)?;
        if let Some(failure) = failure {
            return Err(failure.to_string().into());
        }
        sum.add(&judgement);
    }
    // Else the generator, or the bridge, would be no test.
    let accepted = sum.accepted as f64 / sum.cases as f64;
    if sum.cases < 1000 * ROUNDS || !(0.1..0.9).contains(&accepted) || sum.counting < 2 * ROUNDS {
        return Err(format!("too little was compared: {sum:?}").into());
    }
    Ok(())
}

/// Conversations before rules that ask for connections: both judges say the same of each packet,
/// and list the same connections, with how long they stay.
fn conversations() -> Result<(), Failed> {
    let router = Router::new()?;
    let mut sum = Compared::default();
    for number in 0..ROUNDS {
        let (compared, disagreement) = conversation::round(&router, SEED + number, number)?;
        if let Some(disagreement) = disagreement {
            return Err(disagreement.to_string().into());
        }
        sum.add(&compared);
    }
    // Else the generator, or the router, would be no test.
    let passed = sum.passed as f64 / sum.packets as f64;
    let is_little = sum.packets < 500 * ROUNDS || sum.listed < 20 * ROUNDS;
    if is_little || !(0.3..0.95).contains(&passed) {
        return Err(format!("too little was compared: {sum:?}").into());
    }
    Ok(())
}

/// Conversations through a router that translates: both judges send the same frames on.
fn translations() -> Result<(), Failed> {
    let router = Router::new()?;
    let mut sum = translation::Compared::default();
    for number in 0..ROUNDS {
        let (compared, disagreement) = translation::round(&router, SEED + number, number)?;
        if let Some(disagreement) = disagreement {
            return Err(disagreement.to_string().into());
        }
        sum.add(&compared);
    }
    // Else the generator, or the router, would be no test.
    let (passed, translated) = (sum.passed as f64, sum.translated as f64);
    let passes = (0.3..0.95).contains(&(passed / sum.packets as f64));
    if sum.packets < 50 * ROUNDS || !passes || translated < 0.3 * passed || sum.counting < ROUNDS {
        return Err(format!("too little was compared: {sum:?}").into());
    }
    Ok(())
}

/// A chosen difference of connection tracking: what the kernel and `nf` say of the last packet.
struct Tracked {
    name: &'static str,
    packets: fn(Hosts) -> Vec<Packet>,
    kernel: bool,
    nf: bool,
}

/// Those that a router can show: packets are invalid, or they pass.
const TRACKED: &[Tracked] = &[
    Tracked {
        name: "a_wrong_checksum_is_the_receivers",
        packets: |hosts| {
            let mut packet = Packet::new(hosts, 0, 17, conversation::udp(9, 53, 4, 0));
            packet.payload[6] ^= 1;
            vec![packet]
        },
        kernel: false,
        nf: true,
    },
    Tracked {
        name: "ports_of_sctp_name_no_flow",
        packets: |hosts| {
            let init = |ports: [u16; 2]| {
                let mut bytes = ports.map(u16::to_be_bytes).concat();
                bytes.resize(16, 0);
                Packet::new(hosts, 0, 132, bytes)
            };
            vec![init([1, 2])]
        },
        kernel: false,
        nf: true,
    },
    Tracked {
        name: "a_flow_of_udp_lite_is_one_of_addresses",
        packets: |hosts| {
            let first = Packet::new(hosts, 0, 136, vec![0, 1, 0, 2, 0, 8, 0, 0]);
            let answer = Packet::new(hosts, 1, 136, vec![0, 9, 0, 9, 0, 8, 0, 0]);
            vec![first, answer]
        },
        kernel: false,
        nf: true,
    },
];

impl Tracked {
    fn check(&self) -> Result<(), Failed> {
        let rules = StatefulRules::new(
            "drop",
            &[
                "ct state established accept",
                "iifname private ct state new accept",
            ],
        );
        let router = Router::new()?;
        let judges = Judges::new(&router, &rules)?;
        let mut judges = judges.map_err(|(kernel, nf)| format!("{kernel}, {nf}"))?;
        let hosts = Hosts {
            family: Family::V4,
            number: 7,
        };
        let mut said = (false, false);
        for packet in (self.packets)(hosts) {
            let (kernel, nf) = (judges.kernels(&packet)?, judges.ours(&packet));
            said = (kernel.passes(), nf.passes());
        }
        if said != (self.kernel, self.nf) {
            return Err(format!("the kernel and nf pass it: {said:?}").into());
        }
        Ok(())
    }
}

/// One of the chosen differences, hidden among rules and frames, and not marked as such.
fn found_and_made_small() -> Result<(), Failed> {
    let source = source(&[
        &["tcp dport 80", "counter", "drop"],
        &["counter", "ip saddr 10.0.0.1", "udp dport 53", "drop"],
        &["icmp type 8", "accept"],
    ]);
    let frame = |offset| Frame {
        bytes: ipv4(offset, &udp(53)),
        from: 0,
        well_formed: true,
    };
    let frames = [frame(0), frame(0), frame(100), frame(0)];

    let bridge = Bridge::new()?;
    let judgement = judge(&bridge, &source, &frames)?;
    let disagreement = judgement.disagreement.ok_or("no disagreement was found")?;
    let case = Case {
        source,
        frames: frames.to_vec(),
        disagreement,
    };
    let case = minimise(&bridge, case)?;
    let [chain] = &case.source.chains[..] else {
        return Err(format!("chains are left: {}", case.source).into());
    };
    let statements: Vec<_> = chain.rules.iter().map(|rule| &rule.statements).collect();
    if case.frames.len() != 1 || statements != [&["udp dport 53", "drop"]] {
        return Err(format!(
            "not the smallest: {} frames\n{}",
            case.frames.len(),
            case.source
        )
        .into());
    }
    Ok(())
}

/// Of these two conditions nft makes one, in front of the counter.
fn counts_where_it_stands() -> Result<(), Failed> {
    let source = source(&[&["udp sport 999", "counter", "udp dport 80"]]);
    let frame = Frame {
        bytes: ipv4(0, &udp(53)),
        from: 0,
        well_formed: true,
    };
    let bytes = frame.counted_bytes();
    let judgement = judge(&Bridge::new()?, &source, &[frame])?;
    let counted = |packets, bytes| Some(Count { packets, bytes });
    match judgement.disagreement {
        Some(Disagreement::Count {
            rule: 0,
            kernel,
            nf,
        }) if kernel == counted(0, 0) && nf == counted(1, bytes) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// A base chain of these rules.
fn source(rules: &[&[&str]]) -> Source {
    let rule = |statements: &&[&str]| Rule {
        statements: statements.iter().map(|&text| text.to_owned()).collect(),
        joint: " ",
        tail: "\n".to_owned(),
    };
    Source {
        chains: vec![Chain {
            name: "forward".to_owned(),
            head: "type filter hook forward priority 0;".to_owned(),
            rules: rules.iter().map(rule).collect(),
        }],
        ..Source::default()
    }
}

/// A chosen difference: the kernel does one thing, and `nf` another.
struct Difference {
    name: &'static str,
    /// Rules of the base chain.
    rules: &'static str,
    frame: fn() -> Vec<u8>,
    kernel: Verdict,
    nf: Verdict,
}

/// All that there are, as the documentation of `nf` lists them.
const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "a_bad_checksum_is_malformed",
        rules: "accept",
        frame: || {
            let mut frame = ipv4(0, &udp(53));
            frame[24] ^= 1;
            frame
        },
        kernel: Verdict::Accept,
        nf: Verdict::Drop,
    },
    Difference {
        name: "a_cut_off_header_is_malformed",
        rules: "udp dport 53 accept; drop",
        frame: || ipv4(0, &udp(53)[..4]),
        kernel: Verdict::Accept,
        nf: Verdict::Drop,
    },
    Difference {
        name: "padding_is_no_header",
        rules: "udp dport 53 accept; drop",
        frame: || [ipv4(0, &[]), udp(53)].concat(),
        kernel: Verdict::Accept,
        nf: Verdict::Drop,
    },
    Difference {
        name: "a_cut_off_arp_packet_is_malformed",
        rules: "accept",
        frame: || ethernet(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1]),
        kernel: Verdict::Accept,
        nf: Verdict::Drop,
    },
    Difference {
        name: "nine_extension_headers_are_malformed",
        rules: "meta l4proto udp accept; drop",
        frame: || {
            let next = [60, 60, 60, 60, 60, 60, 60, 60, 17];
            let headers = next.map(|next| [next, 0, 0, 0, 0, 0, 0, 0]).concat();
            ipv6(60, &[headers, udp(53)].concat())
        },
        kernel: Verdict::Accept,
        nf: Verdict::Drop,
    },
    Difference {
        name: "a_later_fragment_has_no_ports",
        rules: "udp dport 53 drop; accept",
        frame: || ipv4(100, &udp(53)),
        kernel: Verdict::Drop,
        nf: Verdict::Accept,
    },
    Difference {
        name: "a_later_fragment_of_ipv6_has_no_ports",
        rules: "udp dport != 53 drop; accept",
        frame: || {
            let fragment = [[17, 0, 0, 80, 0, 0, 0, 7].as_slice(), &udp(53)].concat();
            ipv6(44, &fragment)
        },
        kernel: Verdict::Drop,
        nf: Verdict::Accept,
    },
    Difference {
        name: "raw_frames_of_802_3_are_as_llc",
        rules: "meta protocol 1 accept; drop",
        frame: || ethernet(3, &[0xff, 0xff, 0]),
        kernel: Verdict::Accept,
        nf: Verdict::Drop,
    },
    Difference {
        name: "two_inequalities_must_both_hold",
        rules: "udp dport != 53 udp sport != 80 accept; drop",
        frame: || ipv4(0, &udp(53)),
        kernel: Verdict::Accept,
        nf: Verdict::Drop,
    },
    Difference {
        name: "the_addresses_of_bridges_are_none_of_their_own",
        rules: "accept",
        frame: || [&[1, 0x80, 0xc2, 0, 0, 2], &ethernet(0x8809, &[1])[6..]].concat(),
        kernel: Verdict::Drop,
        nf: Verdict::Accept,
    },
    Difference {
        name: "a_group_may_be_the_source",
        rules: "accept",
        frame: || {
            let mut frame = ethernet(0x88cc, &[1]);
            frame[6] = 3;
            frame
        },
        kernel: Verdict::Drop,
        nf: Verdict::Accept,
    },
    Difference {
        name: "zero_may_be_the_source",
        rules: "accept",
        frame: || {
            let mut frame = ethernet(0x88cc, &[1]);
            frame[6..12].fill(0);
            frame
        },
        kernel: Verdict::Drop,
        nf: Verdict::Accept,
    },
    Difference {
        name: "a_second_tag_may_be_cut_off",
        rules: "accept",
        frame: || ethernet(0x8100, &[0, 5, 0x81, 0, 0, 6, 8]),
        kernel: Verdict::Drop,
        nf: Verdict::Accept,
    },
    Difference {
        name: "nothing_need_follow_a_tag",
        rules: "accept",
        frame: || ethernet(0x8100, &[0, 5, 0x88, 0xcc]),
        kernel: Verdict::Drop,
        nf: Verdict::Accept,
    },
    Difference {
        name: "pppoe_need_not_be_whole",
        rules: "accept",
        frame: || ethernet(0x8864, &[0x11, 0, 0, 7]),
        kernel: Verdict::Drop,
        nf: Verdict::Accept,
    },
];

impl Difference {
    fn check(&self) -> Result<(), Failed> {
        let rules = self.rules.replace("; ", "\n");
        let text = format!(
            "table bridge t {{\nchain forward {{\n\
             type filter hook forward priority 0;\n{rules}\n}}\n}}\n"
        );
        let frame = Frame {
            bytes: (self.frame)(),
            from: 0,
            well_formed: false,
        };
        let bridge = Bridge::new()?;
        bridge.load(&text)??;
        let kernel = bridge.send(&frame)?;
        let rules = nf::load(&text, &PORTS, &Limits::DEFAULT)
            .map_err(|error| error.render("rules.nft", &text).to_string())?;
        let nf = match Key::parse(&frame.bytes) {
            Ok(key) => rules.verdict(&key, Way { from: 0, to: 1 }, &mut ()).0,
            Err(_) => Verdict::Drop,
        };
        if (kernel, nf) != (self.kernel, self.nf) {
            return Err(format!("the kernel says {kernel}, nf {nf}").into());
        }
        Ok(())
    }
}

fn ethernet(ether_type: u16, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(content);
    frame
}

/// UDP in IPv4, at an offset in units of 8 bytes.
fn ipv4(offset: u16, content: &[u8]) -> Vec<u8> {
    let mut header = etherparse::Ipv4Header::new(
        content.len() as u16,
        64,
        etherparse::IpNumber::UDP,
        [10, 0, 0, 1],
        [10, 0, 0, 2],
    )
    .expect("a short packet");
    header.fragment_offset = etherparse::IpFragOffset::try_new(offset).expect("a small offset");
    header.header_checksum = header.calc_header_checksum();
    ethernet(0x0800, &[&header.to_bytes(), content].concat())
}

fn ipv6(next: u8, content: &[u8]) -> Vec<u8> {
    let header = etherparse::Ipv6Header {
        payload_length: content.len() as u16,
        next_header: etherparse::IpNumber(next),
        hop_limit: 64,
        ..etherparse::Ipv6Header::default()
    };
    ethernet(0x86dd, &[&header.to_bytes(), content].concat())
}

fn udp(port: u16) -> Vec<u8> {
    let header = etherparse::UdpHeader {
        source_port: 999,
        destination_port: port,
        length: 8,
        checksum: 0,
    };
    header.to_bytes().to_vec()
}
