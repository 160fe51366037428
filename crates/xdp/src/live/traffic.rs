//! Traffic of a generator: the frames, their flows, and the rate at which they are sent.

use std::net::Ipv4Addr;

use crate::Error;

const LENGTH_MIN: u16 = 60;
const LENGTH_MAX: u16 = 1514;
const VLAN_MAX: u16 = 4094;

/// Frame fields that differ between flows: each varies with the flow number. If no field varies, all frames are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vary {
    /// Whether the TCP or UDP ports vary. The lower 14 bits of the flow number are added to the source port, and the
    /// bits above to the destination port.
    pub ports: bool,
    /// Whether the flow number is added to the last four bytes of the source MAC address.
    pub source_mac: bool,
    /// Whether the flow number is added to the last four bytes of the destination MAC address.
    pub destination_mac: bool,
    /// Whether the flow number, shifted left by `destination_shift`, is added to the IPv4 destination
    /// address.
    pub destination: bool,
    /// Whether the IPv4 source address is the [`scattered`](super::scattered) address of the flow number, instead of
    /// [`Traffic::source`].
    pub source: bool,
}

/// Order of the flow numbers in successive frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Ascending order of the flow numbers.
    InTurn,
    /// Pseudo-random order from this seed, which must not be 0. Equal seeds result in equal orders.
    Random(u32),
}

/// Transport protocol of generated frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// UDP datagrams whose checksum field is 0 (no checksum), which IPv4 allows.
    Udp,
    /// TCP segments with the ACK flag and an invalid checksum, for data planes that do not verify the checksum.
    Tcp,
}

/// Traffic of a generator. [`Traffic::to`] returns default traffic, in which fields can be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Index of the transmitting device, in the namespace of the sending thread.
    pub ifindex: u32,
    /// Length of each frame in bytes, without frame check sequence, 60 to 1514.
    pub length: u16,
    /// Number of flows, which must be a power of two.
    pub flows: u32,
    /// Frame fields that vary with the flow number.
    pub vary: Vary,
    /// Order of the flow numbers in successive frames.
    pub order: Order,
    /// Source Ethernet address of the first flow.
    pub source_mac: [u8; 6],
    /// Destination Ethernet address of the first flow.
    pub destination_mac: [u8; 6],
    /// VLAN identifier in the frames' 802.1Q tag. `None` for untagged frames.
    pub vlan: Option<u16>,
    /// IPv4 source address of the frames.
    pub source: Ipv4Addr,
    /// IPv4 destination address of the first flow.
    pub destination: Ipv4Addr,
    /// Number of bits by which the flow number is shifted left before it is added to the destination address.
    /// With 8, each flow has a destination in another /24 network.
    pub destination_shift: u8,
    /// Transport protocol of the frames.
    pub protocol: Protocol,
    /// Destination port of the first flow. The source port of the first flow is 1024.
    pub destination_port: u16,
    /// Rate in packets per second. While the program is attached to a device ([`Traffic::park`]), each millisecond's
    /// frames are sent in one burst. `None` sends at full rate.
    pub rate: Option<u64>,
    /// Whether the program is attached to the device while it generates frames. The attached program passes received
    /// frames to the kernel. If the program is not attached, the kernel rewrites its XDP dispatcher twice in each
    /// system call, at the first use and at the release of the program, and waits about 25 ms for all CPUs.
    pub park: bool,
    /// Index of an unused device to which the program is attached instead of the transmitting device. Such a device is
    /// needed when the transmitting device has another XDP program or must receive frames. `None` attaches the program
    /// to the transmitting device.
    pub park_on: Option<u32>,
}

impl Traffic {
    /// Returns default traffic to the device `ifindex`: one flow of 60-byte UDP frames at full rate.
    #[must_use]
    pub fn to(ifindex: u32) -> Traffic {
        Traffic {
            ifindex,
            length: 60,
            flows: 1,
            vary: Vary::default(),
            order: Order::InTurn,
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            vlan: None,
            source: Ipv4Addr::new(10, 0, 1, 2),
            destination: Ipv4Addr::new(10, 0, 2, 2),
            destination_shift: 0,
            protocol: Protocol::Udp,
            destination_port: 9,
            rate: None,
            park: true,
            park_on: None,
        }
    }

    /// Checks whether the parameters of this traffic are within their ranges.
    ///
    /// # Errors
    /// Returns [`Error::Generator`] for a parameter that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |field, value: u64, allowed| Err(Error::Generator { field, value, allowed });
        let length = self.length;
        if !(LENGTH_MIN..=LENGTH_MAX).contains(&length) {
            return wrong("length", u64::from(length), "give 60 to 1514 bytes");
        }
        if !self.flows.is_power_of_two() {
            return wrong("flows", u64::from(self.flows), "give a power of two");
        }
        if let Some(vlan) = self.vlan.filter(|vlan| *vlan > VLAN_MAX) {
            return wrong("vlan", u64::from(vlan), "give 0 to 4094");
        }
        if self.destination_shift > 31 {
            return wrong("destination_shift", u64::from(self.destination_shift), "give 0 to 31");
        }
        if self.order == Order::Random(0) {
            return wrong("seed", 0, "give anything else");
        }
        if self.rate == Some(0) {
            return wrong("rate", 0, "give at least one packet per second");
        }
        Ok(())
    }
}
