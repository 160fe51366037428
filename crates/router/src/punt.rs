//! Reasons why packets are punted to the kernel.

use packet::PuntClass;

macro_rules! punts {
    ($($variant:ident = $explain:literal;)+) => {
        /// The reason why a packet is punted to the kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Punt {
            $(#[doc = $explain] $variant,)+
        }

        impl Punt {
            /// All reasons for punts, in the order of their numbers.
            pub const ALL: [Punt; [$($explain,)+].len()] = [$(Punt::$variant,)+];

            /// Returns a text that describes how the kernel handles packets that are punted for this reason.
            #[must_use]
            pub const fn explain(self) -> &'static str {
                match self {
                    $(Punt::$variant => $explain,)+
                }
            }

            /// Returns the punt class of packets that are punted for this reason. A packet whose protocol has a
            /// separate class belongs to that class instead.
            #[must_use]
            pub const fn class(self) -> PuntClass {
                match self {
                    $(Punt::$variant => PuntClass::$variant,)+
                }
            }
        }
    };
}

punts! {
    NotIp = "It is no IP packet, or bears a VLAN tag: ARP and the like are the kernel's.";
    Group = "It is for a group or for all hosts of the link: the kernel knows who listens.";
    Own = "Its destination is this host, or its route is one that the kernel follows itself.";
    Expired = "Its hops are used up: the kernel tells the sender.";
    NoRoute = "There is no route to its destination, or one that refuses it: the kernel tells the sender.";
    Unresolved = "The next hop's link-layer address is not known: the kernel asks for it, and sends the packet.";
    TooLong = "It is longer than the way out allows: the kernel fragments it, or tells the sender.";
    Options = "It bears options that every router reads.";
    Scope = "One of its addresses counts on its link only.";
    Elsewhere = "Its way out is a device that is none of the router's ports: the kernel sends it.";
    NotRouted = "Packets of its family are not routed where it came in: the kernel has it for whoever listens on the device.";
}
