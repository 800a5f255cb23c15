//! NUMA nodes: the cores that are close to a device. Does nothing on a single node, or if the system does not
//! report nodes in `/sys`, as macOS and Windows.

use std::fs::read_to_string;
use std::path::Path;

use feedline_device::Device;

#[cfg_attr(target_os = "linux", path = "numa/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "numa/other.rs")]
mod affinity;

use affinity::OnNode;

/// The node that `device` is close to; `None` if it is not known, or if there is only one.
pub(crate) fn node_of(device: &Device) -> Option<Node> {
    let (sys, address) = (Path::new("/sys"), feedline_device::backend(device).pci_address()?);
    Nodes::read(sys).at(sys, &address).cloned()
}

/// The nodes of a machine that have cores; empty unless there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Nodes(Vec<Node>);

/// A node: memory, and the cores that are close to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    number: usize,
    cpus: Vec<usize>,
}

impl Nodes {
    fn read(sys: &Path) -> Self {
        let Ok(folders) = std::fs::read_dir(sys.join("devices/system/node")) else { return Self(Vec::new()) };
        let node = |name: &str| {
            let number = name.strip_prefix("node")?.parse().ok()?;
            let cpus = read_to_string(sys.join("devices/system/node").join(name).join("cpulist")).ok()?;
            // A node may have memory only.
            list(cpus.trim()).filter(|cpus| !cpus.is_empty()).map(|cpus| Node { number, cpus })
        };
        let names = folders.filter_map(|folder| folder.ok()?.file_name().into_string().ok());
        let mut nodes: Vec<_> = names.filter_map(|name| node(&name)).collect();
        nodes.sort_unstable_by_key(|node| node.number);
        if nodes.len() < 2 { Self(Vec::new()) } else { Self(nodes) }
    }

    fn at(&self, sys: &Path, pci_address: &str) -> Option<&Node> {
        let path = sys.join("bus/pci/devices").join(pci_address).join("numa_node");
        // -1 if the firmware does not report it.
        let number: usize = read_to_string(path).ok()?.trim().parse().ok()?;
        self.0.iter().find(|node| node.number == number)
    }
}

impl Node {
    /// Moves the calling thread to the node's cores; `None` if it may use none of them.
    pub(crate) fn enter(&self) -> Option<OnNode> {
        OnNode::enter(&self.cpus)
    }
}

/// The numbers of a list as in `0-3,8,10-11`; `None` for another text.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        // No machine has more; a longer list would only fill memory.
        if last >= 1 << 16 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
pub(crate) fn node(number: usize, cpus: Vec<usize>) -> Node {
    Node { number, cpus }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with the given CPU lists of its nodes, and devices with the given `numa_node` texts.
    fn machine(nodes: &[(&str, &str)], devices: &[(&str, &str)]) -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let put = |folder: String, name: &str, text: &str| {
            let folder = sys.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), text).unwrap();
        };
        nodes.iter().for_each(|(node, cpus)| put(format!("devices/system/node/{node}"), "cpulist", cpus));
        devices.iter().for_each(|(at, node)| put(format!("bus/pci/devices/{at}"), "numa_node", node));
        put("devices/system/node/power".into(), "cpulist", "7");
        sys
    }

    #[test]
    fn a_device_is_on_the_node_that_the_system_names() {
        let devices = [("0000:1b:00.0", "1\n"), ("0000:1c:00.0", "-1\n"), ("0000:1d:00.0", "2\n")];
        let nodes = [("node1", "4-5,7\n"), ("node0", "0-3,6\n"), ("node2", "\n"), ("node10", "8\n")];
        let sys = machine(&nodes, &devices);
        let nodes = Nodes::read(sys.path());
        let node = |number, cpus: &[usize]| Node { number, cpus: cpus.to_vec() };
        assert_eq!(nodes.0, [node(0, &[0, 1, 2, 3, 6]), node(1, &[4, 5, 7]), node(10, &[8])]);
        assert_eq!(nodes.at(sys.path(), "0000:1b:00.0"), Some(&nodes.0[1]));
        for other in ["0000:1c:00.0", "0000:1d:00.0", "0000:00:00.0"] {
            assert_eq!(nodes.at(sys.path(), other), None, "{other}");
        }
    }

    #[test]
    fn one_node_or_none_places_nothing() {
        assert_eq!(Nodes::read(machine(&[("node0", "0-63")], &[]).path()).0, []);
        assert_eq!(Nodes::read(Path::new("/nowhere")).0, []);
        assert_eq!(Nodes::read(machine(&[("node0", "0-3"), ("node1", "x")], &[]).path()).0, []);
        assert_eq!(list("0-99999999999"), None);
    }
}
