//! Prepares both switches for the action `NORMAL`: ports with equal VLANs, and addresses learned from equal frames.
//! Compares the MAC tables.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use super::frames::{Frame, Generator, PORTS, Random};
use super::rig::Rig;
use super::switches::Ovs;

/// VLANs that frames and rules use.
const VLANS: [u16; 4] = [5, 6, 7, 100];
/// VLAN that represents untagged frames in Trivium. OVS represents them by VLAN 0.
const UNTAGGED: u16 = 4094;

/// VLAN mode of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Member {
    /// Trunk port that carries all VLANs and untagged frames, the default of OVS.
    All,
    /// Trunk port that carries the VLANs in [`VLANS`].
    Trunk,
    /// Access port of one VLAN.
    Access(u16),
    /// Trunk port that carries the VLANs in [`VLANS`]. Untagged frames belong to the native VLAN, and frames of this
    /// VLAN leave untagged.
    NativeUntagged(u16),
    /// Like [`Member::NativeUntagged`], but frames of the native VLAN leave tagged.
    NativeTagged(u16),
}

/// Returns the VLAN modes of the ports: either the default for all, or random modes.
pub fn members(random: &mut Random) -> [Member; PORTS as usize] {
    let mixed = random.one_in(2);
    [(); PORTS as usize].map(|()| match random.below(6) {
        _ if !mixed => Member::All,
        0 => Member::All,
        1 => Member::Trunk,
        2 | 3 => Member::Access(random.of(&[5, 5, 6])),
        4 => Member::NativeUntagged(random.of(&[5, 6])),
        _ => Member::NativeTagged(random.of(&[5, 6])),
    })
}

impl Member {
    fn ours(self) -> String {
        let named = format!("trunk = {VLANS:?}\n");
        match self {
            Member::All => format!("trunk = \"all\"\nnative = {UNTAGGED}\n"),
            Member::Trunk => named,
            Member::Access(vlan) => format!("access = {vlan}\n"),
            Member::NativeUntagged(vlan) => format!("{named}native = {vlan}\n"),
            Member::NativeTagged(vlan) => format!("{named}native = {vlan}\nnative_tagged = true\n"),
        }
    }

    fn ovs(self, port: u8) -> String {
        let named = VLANS.map(|vlan| vlan.to_string()).join(",");
        let clear = format!(" -- clear port p{port} tag vlan_mode trunks");
        clear
            + &match self {
                Member::All => String::new(),
                Member::Trunk => format!(" -- set port p{port} vlan_mode=trunk trunks={named}"),
                Member::Access(vlan) => format!(" -- set port p{port} vlan_mode=access tag={vlan}"),
                Member::NativeUntagged(vlan) => {
                    format!(" -- set port p{port} vlan_mode=native-untagged tag={vlan} trunks={named}")
                }
                Member::NativeTagged(vlan) => {
                    format!(" -- set port p{port} vlan_mode=native-tagged tag={vlan} trunks={named}")
                }
            }
    }
}

/// Returns the configuration of Trivium for ports with these VLAN modes.
pub fn configuration(rig: &Rig, members: &[Member]) -> String {
    let mut text = format!(
        "[daemon]\napi = {:?}\nstate_dir = {:?}\n[memory]\nframes = 32768\nhuge_pages = \"off\"\n\
         [bridge.br0]\nsnooping = false\n[bridge.br0.openflow]\nfail_mode = \"secure\"\n",
        rig.socket(),
        rig.path("state")
    );
    for (port, member) in (1..).zip(members) {
        let _ = write!(
            text,
            "[port.h{port}]\nkind = \"af_xdp\"\ndevice = \"h{port}\"\n[bridge.br0.port.h{port}]\nnumber = {port}\n{}",
            member.ours()
        );
    }
    text
}

/// Configures the ports of both switches, and flushes both MAC tables.
pub fn prepare(rig: &Rig, ovs: &Ovs, members: &[Member]) {
    let file = rig.write("members.toml", &configuration(rig, members));
    rig.ok(&["apply", file.to_str().unwrap()]);
    let line: String = (1..).zip(members).map(|(port, member)| member.ovs(port)).collect();
    ovs.vsctl(line.trim_start_matches(" -- "));
    rig.ok(&["flush", "br0"]);
    ovs.appctl(&["fdb/flush", "br0"]);
}

/// Returns broadcast frames from which the switches learn: one frame for each source address of later frames in each
/// VLAN.
pub fn lessons(generator: &mut Generator) -> Vec<Frame> {
    let stations = (1..=PORTS).flat_map(|port| [[0, port], [1, port]]);
    let tags = std::iter::once(None).chain(VLANS.map(Some));
    let all: Vec<_> = stations.flat_map(|station| tags.clone().map(move |vlan| (station, vlan))).collect();
    all.into_iter().map(|([net, port], vlan)| generator.lesson([2, 0, 0, 0, net, port], port, vlan)).collect()
}

/// Returns a random destination MAC address: a reserved group address, a group address of a vendor, an unknown address,
/// or the address of a port.
pub fn address(random: &mut Random) -> [u8; 6] {
    let last = random.of(&[0, 1, 2, 3, 0xe, 0xf]);
    match random.below(7) {
        0 => [0x01, 0x80, 0xc2, 0, 0, last],
        1 => [0x01, 0x80, 0xc2, 0, 0, 0x10 | last],
        2 => random.of(&[[0x01, 0, 0x0c, 0xcc, 0xcc, 0xcc], [0, 0xe0, 0x2b, 0, 0, 0]]),
        3 | 4 => [2, 0, 0, 0, 2, 1 + last],
        _ => [2, 0, 0, 0, 1, 1 + last % PORTS],
    }
}

/// Returns the MAC table of OVS: port, VLAN and address.
pub fn known_to_ovs(ovs: &Ovs) -> BTreeSet<(String, u16, String)> {
    let text = ovs.appctl(&["fdb/show", "br0"]);
    let words = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let all = words.map(|words| (words[0].to_owned(), words[1].parse().unwrap(), words[2].to_owned()));
    // Frames with this VLAN are not compared (see `Difference::ReservedVlan`).
    all.filter(|(_, vlan, _)| *vlan != 4095).collect()
}

/// Returns the MAC table of Trivium in OVS's notation.
pub fn known_to_ours(rig: &Rig) -> BTreeSet<(String, u16, String)> {
    let spoken = |vlan: u64| if vlan == u64::from(UNTAGGED) { 0 } else { vlan as u16 };
    let words = |(mac, vlan, port): (String, u64, String)| (port.replace('h', ""), spoken(vlan), mac);
    rig.stations().into_iter().map(words).collect()
}

impl Ovs {
    /// Runs `ovs-appctl`, which must succeed.
    pub fn appctl(&self, arguments: &[&str]) -> String {
        let mut client = Command::new("ovs-appctl");
        let output = client.arg("-t").arg(self.control()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
