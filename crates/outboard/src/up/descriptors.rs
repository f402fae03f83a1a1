//! Open files: how many a system needs, so that none is started that runs out of them.

use super::component::Component;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a supervisor or a keeper has open beside what is the components': its sockets, those of
/// commands, and what it reads and writes for a moment.
const OWN: u64 = 48;
/// What each component takes beside what it is handed: what is looked at while it runs, and what
/// its spare waits for.
const EACH: u64 = 4;

/// How many open files these components need in one process. The keeper has the most: it holds what
/// a component is handed, once more what its spare is, and twice more while it starts one.
fn needed(components: &[Component]) -> u64 {
    let handed = |component: &Component| -> u64 {
        let handed = component.handed().chain(component.kept());
        let each = handed.map(|what| what.descriptors() as u64);
        each.sum()
    };
    let most = components.iter().map(handed).max().unwrap_or(0);
    let all = components.iter().map(|one| EACH + 2 * handed(one));
    OWN + 2 * most + all.sum::<u64>()
}

/// Raises this process's limit of open files to what these components need.
///
/// # Errors
/// How many they need, and how many may be allowed.
pub fn allow(components: &[Component]) -> Result<(), (u64, u64)> {
    let needed = needed(components);
    let limit = getrlimit(Resource::Nofile);
    let (current, most) = (
        limit.current.unwrap_or(u64::MAX),
        limit.maximum.unwrap_or(u64::MAX),
    );
    if current >= needed {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum: limit.maximum,
    };
    match needed <= most && setrlimit(Resource::Nofile, raised).is_ok() {
        true => Ok(()),
        false => Err((needed, most)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::component::{Device, Kind};
    use super::*;

    #[test]
    fn what_components_hold_is_counted_twice() {
        assert_eq!(needed(&[]), OWN);
        let component = Component::default();
        assert_eq!(
            needed(&[component.clone(), component.clone()]),
            OWN + 2 * EACH
        );
        let tap = Device {
            kind: Kind::Net,
            name: "net".into(),
            source: "tap0".into(),
            peer: None,
            mac: None,
            mtu: None,
            open: false,
            place: 0,
        };
        let link = Device {
            source: "link:a".into(),
            peer: Some("b".into()),
            ..tap.clone()
        };
        let with = |devices| Component {
            devices,
            ..component.clone()
        };
        let all = [with(vec![tap]), with(vec![link])];
        assert_eq!(needed(&all), OWN + 2 * 4 + 2 * (1 + 4) + 2 * EACH);
    }
}
