//! A snapshot for Prometheus: OpenMetrics text, which it has read since version 2.5.

use super::snapshot::{Port, Rule, Snapshot, Traffic};
use crate::instance::Description;
use net::metrics::Kind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// What HTTP calls this format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Encodes what a guest has counted, of this name or without one.
///
/// # Errors
/// A number that the format cannot carry.
pub fn encode(
    name: Option<&str>,
    description: &Description,
    snapshot: Snapshot,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("outboard");
    registry.register_collector(Box::new(Exposition {
        name: name.unwrap_or_default().to_owned(),
        description: description.clone(),
        snapshot,
    }));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Exposition {
    name: String,
    description: Description,
    snapshot: Snapshot,
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.guest(&mut encoder)?;
        self.traffic(&mut encoder)?;
        self.counted(&mut encoder)?;
        self.connections(&mut encoder)?;
        self.net(&mut encoder)?;
        self.exits(&mut encoder)?;
        self.rules(&mut encoder)?;
        let help = "Frames that were not captured because the ring was full";
        let lost = self.snapshot.captures_lost;
        counter(&mut encoder, "capture_lost_frames", help)?.encode_counter(&lost, NO_EXEMPLAR)
    }
}

/// Counters here never name an example.
const NO_EXEMPLAR: Option<
    &prometheus_client::metrics::exemplar::Exemplar<[(&'static str, &'static str); 0], u64>,
> = None;

fn counter<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

fn sample(family: &mut MetricEncoder<'_>, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
    family
        .encode_family(labels)?
        .encode_counter(&value, NO_EXEMPLAR)
}

/// One number of a port or of a rule.
type Value<T> = fn(&T) -> u64;

impl Exposition {
    fn guest(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let image = self.description.image.to_string_lossy();
        let labels = [
            ("name", &*self.name),
            ("image", &*image),
            ("host", &*self.description.host),
        ];
        encoder
            .encode_descriptor("guest", "The guest that runs", None, MetricType::Info)?
            .encode_info(&labels)?;
        let help = "When the guest was started, in seconds since 1970";
        encoder
            .encode_descriptor("guest_start_time_seconds", help, None, MetricType::Gauge)?
            .encode_gauge(&self.description.started)
    }

    fn traffic(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let families: [(&str, &str, Value<Port>); 4] = [
            ("port_receive_frames", "Frames taken from the host", |p| {
                p.receive.frames
            }),
            ("port_receive_bytes", "Bytes taken from the host", |p| {
                p.receive.bytes
            }),
            ("port_transmit_frames", "Frames handed to the host", |p| {
                p.transmit.frames
            }),
            ("port_transmit_bytes", "Bytes handed to the host", |p| {
                p.transmit.bytes
            }),
        ];
        for (name, help, value) in families {
            let mut family = counter(encoder, name, help)?;
            for port in &self.snapshot.ports {
                sample(&mut family, &[("port", &*port.name)], value(port))?;
            }
        }
        Ok(())
    }

    fn counted(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Frames dropped at a port; those that a rule dropped are the rule's";
        let mut family = counter(encoder, "port_drops", help)?;
        for port in &self.snapshot.ports {
            for (reason, count) in &port.drops {
                let labels = [("port", &*port.name), ("reason", reason)];
                sample(&mut family, &labels, *count)?;
            }
        }
        let help = "What else has happened at a port";
        let mut family = counter(encoder, "port_events", help)?;
        for port in &self.snapshot.ports {
            for (event, count) in &port.events {
                let labels = [("port", &*port.name), ("event", event)];
                sample(&mut family, &labels, *count)?;
            }
        }
        Ok(())
    }

    fn connections(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(connections) = &self.snapshot.connections else {
            return Ok(());
        };
        let (name, help) = ("connections", "Connections that are tracked, by class");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (class, count) in &connections.open {
            family
                .encode_family(&class_labels(class))?
                .encode_gauge(count)?;
        }
        let (name, help) = ("connections_max", "Connections of each family that fit");
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&connections.capacity)?;
        let help = "What has happened to connections";
        let mut family = counter(encoder, "connection_events", help)?;
        for (event, count) in &connections.events {
            sample(&mut family, &[("event", &**event)], *count)?;
        }
        Ok(())
    }

    fn net(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(net) = &self.snapshot.net else {
            return Ok(());
        };
        for number in net.numbers_of(Kind::Total) {
            let name = format!("net_{}", number.name);
            counter(encoder, &name, help(number.help))?
                .encode_counter(&number.value, NO_EXEMPLAR)?;
        }
        for number in net.numbers_of(Kind::Level) {
            let name = format!("net_{}", number.name);
            encoder
                .encode_descriptor(&name, help(number.help), None, MetricType::Gauge)?
                .encode_gauge(&number.value)?;
        }
        let what = "Frames, packets, segments and datagrams that the TCP/IP stack dropped";
        let mut family = counter(encoder, "net_drops", what)?;
        for number in net.numbers_of(Kind::Drop) {
            sample(&mut family, &[("reason", number.name)], number.value)?;
        }
        let what = "What else has gone wrong in the TCP/IP stack";
        let mut family = counter(encoder, "net_events", what)?;
        for number in net.numbers_of(Kind::Event) {
            sample(&mut family, &[("event", number.name)], number.value)?;
        }
        let (name, what) = ("net_tcp_connections", "TCP connections in each state");
        let mut family = encoder.encode_descriptor(name, what, None, MetricType::Gauge)?;
        for number in net.numbers_of(Kind::State) {
            family
                .encode_family(&[("state", number.name)])?
                .encode_gauge(&number.value)?;
        }
        Ok(())
    }

    fn exits(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(exits) = &self.snapshot.exits else {
            return Ok(());
        };
        let help = "Times that the virtual machine was left";
        let mut family = counter(encoder, "guest_exits", help)?;
        for (why, count) in [("interrupt", exits.interrupts), ("other", exits.others)] {
            sample(&mut family, &[("reason", why)], count)?;
        }
        Ok(())
    }

    fn rules(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(rules) = &self.snapshot.rules else {
            return Ok(());
        };
        let families: [(&str, &str, Value<Traffic>); 2] = [
            (
                "rule_frames",
                "Frames that a rule in force has counted",
                |t| t.frames,
            ),
            (
                "rule_bytes",
                "Bytes of those frames, from the network header on",
                |t| t.bytes,
            ),
        ];
        for (name, help, value) in families {
            let mut family = counter(encoder, name, help)?;
            for rule in &rules.entries {
                sample(&mut family, &rule_labels(rule), value(&rule.counted))?;
            }
        }
        let gauges = [
            (
                "rules_generation",
                "Number of the rules in force; 0 are built in",
                rules.generation,
            ),
            (
                "rules_loaded_generation",
                "Number of the rules loaded last",
                rules.loaded,
            ),
            (
                "rules_refused_generation",
                "Number of the last rules that the guest refused, or 0",
                rules
                    .refused
                    .as_ref()
                    .map_or(0, |refused| refused.generation),
            ),
        ];
        for (name, help, value) in gauges {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        Ok(())
    }
}

/// A sentence without its full stop: the encoder adds one.
fn help(sentence: &'static str) -> &'static str {
    sentence.strip_suffix('.').unwrap_or(sentence)
}

/// A class of connections, its protocol, and of TCP the state; of UDP, whether it is a stream.
fn class_labels(class: &str) -> [(&'static str, &str); 3] {
    let (protocol, state) = class.split_once('_').unwrap_or((class, ""));
    [("class", class), ("protocol", protocol), ("state", state)]
}

/// The number makes them unique: one line may hold a rule twice.
fn rule_labels(rule: &Rule) -> [(&'static str, String); 4] {
    [
        ("number", rule.number.to_string()),
        ("chain", rule.chain.clone().unwrap_or_default()),
        (
            "line",
            rule.line.map(|line| line.to_string()).unwrap_or_default(),
        ),
        ("rule", rule.text.clone().unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::{description, snapshot};
    use super::*;
    use std::collections::BTreeSet;

    fn text(snapshot: Snapshot) -> String {
        encode(Some("fw"), &description(), snapshot).unwrap()
    }

    #[test]
    fn samples_have_the_names_of_the_convention() {
        let text = text(snapshot());
        for line in [
            "# TYPE outboard_port_receive_frames counter",
            "outboard_port_receive_frames_total{port=\"private\"} 12",
            "outboard_port_transmit_bytes_total{port=\"private\"} 300",
            "outboard_port_drops_total{port=\"private\",reason=\"too_big\"} 2",
            "outboard_port_events_total{port=\"private\",event=\"no_buffer\"} 4",
            "outboard_rule_frames_total{number=\"0\",chain=\"forward\",line=\"5\",\
             rule=\"tcp dport 7070 accept\"} 8",
            "outboard_rules_generation 2",
            "outboard_guest_info{name=\"fw\",image=\"/fw.spt\",host=\"spt\"} 1",
            "outboard_guest_start_time_seconds 1700000000",
            "outboard_capture_lost_frames_total 6",
        ] {
            assert!(text.lines().any(|l| l == line), "no {line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    /// The firewall, as if it had a TCP/IP stack as well, and tracked connections.
    fn with_a_stack() -> Snapshot {
        let mut snapshot = snapshot();
        let counted = |name: &&'static str| ((*name).into(), 7);
        let (open, events) = nf::conntrack::COUNTED.split_at(nf::conntrack::Class::ALL.len());
        snapshot.exits = Some(super::super::snapshot::Exits {
            interrupts: 3,
            others: 4,
        });
        snapshot.connections = Some(super::super::snapshot::Connections {
            capacity: 64,
            open: open.iter().map(counted).collect(),
            events: events.iter().map(counted).collect(),
        });
        snapshot.net = super::super::net::Net::of(&super::super::net::tests::counters()).unwrap();
        snapshot
    }

    #[test]
    fn a_stack_has_series() {
        let text = text(with_a_stack());
        for line in [
            "# TYPE outboard_net_tcp_segments_retransmitted counter",
            "outboard_net_tcp_segments_retransmitted_total 2",
            "# TYPE outboard_net_tcp_queued_bytes gauge",
        ] {
            assert!(text.lines().any(|l| l == line), "no {line} in\n{text}");
        }
        assert!(text.contains("outboard_net_drops_total{reason=\"tcp_checksum\"} "));
        assert!(text.contains("outboard_net_tcp_connections{state=\"established\"} "));
    }

    #[test]
    fn connections_have_series_by_protocol_and_state() {
        let text = text(with_a_stack());
        for line in [
            "outboard_connections{class=\"tcp_syn_sent\",protocol=\"tcp\",state=\"syn_sent\"} 7",
            "outboard_connections{class=\"udp_stream\",protocol=\"udp\",state=\"stream\"} 7",
            "outboard_connections{class=\"icmp\",protocol=\"icmp\",state=\"\"} 7",
            "outboard_connections_max 64",
            "outboard_connection_events_total{event=\"given_up\"} 7",
            "outboard_port_drops_total{port=\"public\",reason=\"ports_taken\"} 0",
            "outboard_port_drops_total{port=\"public\",reason=\"connections_full\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "no {line} in\n{text}");
        }
    }

    /// The names of all metrics that a text of PromQL asks for.
    fn asked_for(expression: &str) -> Vec<&str> {
        let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let words = expression.split(|character| !is_word(character));
        words.filter(|word| word.starts_with("outboard_")).collect()
    }

    /// All texts that stand under one of these keys, anywhere.
    fn texts<'a>(value: &'a serde_json::Value, keys: &[&str], found: &mut Vec<&'a str>) {
        match value {
            serde_json::Value::Object(members) => {
                for (key, value) in members {
                    let own = value.as_str().filter(|_| keys.contains(&key.as_str()));
                    found.extend(own);
                    texts(value, keys, found);
                }
            }
            serde_json::Value::Array(items) => {
                items.iter().for_each(|item| texts(item, keys, found));
            }
            _ => {}
        }
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_there_are() {
        let dashboard = include_str!("../../../../packaging/grafana-outboard.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let text = text(with_a_stack());
        let names: BTreeSet<_> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split(['{', ' ']).next())
            .collect();
        let mut expressions = Vec::new();
        texts(&dashboard, &["expr", "query"], &mut expressions);
        assert!(expressions.len() > 10, "{expressions:?}");
        let asked: BTreeSet<_> = expressions
            .iter()
            .flat_map(|text| asked_for(text))
            .collect();
        for name in &asked {
            assert!(names.contains(name), "{name} is no metric");
        }
        // Who looks at a firewall wants to see these.
        for name in [
            "outboard_connections",
            "outboard_connections_max",
            "outboard_connection_events_total",
            "outboard_port_drops_total",
            "outboard_rule_frames_total",
        ] {
            assert!(asked.contains(name), "{name} is not shown");
        }
        // Labels are those of some series.
        for expression in expressions {
            for label in expression.split(['(', ',', ')', '{']).filter_map(label_of) {
                assert!(
                    text.contains(&format!("{label}=\"")),
                    "{label} in {expression}"
                );
            }
        }
    }

    /// The label that a part of an expression compares; the dashboard's own are the scraper's.
    fn label_of(part: &str) -> Option<&str> {
        let (label, _) = part.split_once(['=', '~'])?;
        let label = label.trim_end_matches('!').trim();
        (!["instance", "job"].contains(&label)).then_some(label)
    }

    #[test]
    fn what_a_file_says_stays_inside_its_quotes() {
        let text = text(snapshot());
        let expected = r#"rule="log prefix \"odd \\ \" drop"} 0"#;
        assert!(text.contains(expected), "{text}");
        let mut snapshot = snapshot();
        snapshot.rules.as_mut().unwrap().entries[0].text = Some("a\n# EOF\nb".into());
        assert_eq!(self::text(snapshot).matches("\n# EOF").count(), 1);
    }

    #[test]
    fn any_number_can_be_told() {
        let mut snapshot = snapshot();
        snapshot.ports[0].receive.frames = u64::MAX;
        snapshot.rules.as_mut().unwrap().generation = u64::MAX;
        let text = text(snapshot);
        assert!(text.contains("receive_frames_total{port=\"private\"} 18446744073709551615"));
        assert!(text.contains("outboard_rules_generation 18446744073709551615"));
    }

    #[test]
    fn the_documentation_has_every_metric_and_reason() {
        let documentation = include_str!("../../../../docs/monitoring.md");
        let text = text(with_a_stack());
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            // Of these, one row tells the rule, and another one each name.
            let own = name.strip_prefix("outboard_net_");
            if net::metrics::names().any(|name| Some(name) == own) {
                continue;
            }
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            assert!(
                documentation.contains(&format!("`{name}{suffix}`")),
                "{name}"
            );
        }
        for number in with_a_stack().net.unwrap().numbers() {
            let super::super::net::Number {
                name, unit, help, ..
            } = number;
            let row = format!("| `{name}` | {unit} | {help} |");
            assert!(documentation.contains(&row), "{row}");
        }
        let own = snapshot().ports.remove(0);
        let runtime = abi::share::PORT_COUNTERS;
        for (name, _) in own.drops.iter().chain(&own.events) {
            let told = documentation.contains(&format!("| `{name}` |"));
            assert!(told || !runtime.contains(&&**name), "{name}");
        }
    }

    #[test]
    fn no_series_comes_twice() {
        let mut snapshot = with_a_stack();
        let rules = snapshot.rules.as_mut().unwrap();
        for rule in &mut rules.entries {
            (rule.line, rule.text) = (Some(1), Some("accept".into()));
        }
        let text = text(snapshot);
        let samples = || text.lines().filter(|line| !line.starts_with('#'));
        let series = samples().filter_map(|line| line.rsplit_once(' '));
        let unique: BTreeSet<_> = series.map(|(series, _)| series).collect();
        assert_eq!(unique.len(), samples().count());
    }
}
