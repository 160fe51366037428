//! Meters, the requests that change them, and their counters.

/// The type of a meter band.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BandKind {
    /// Drops packets above the rate of the band.
    Drop,
    /// Raises the drop precedence in the DSCP of packets above the band's rate by this number of levels (RFC 2597).
    DscpRemark(u8),
}

/// A band of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// Type of the band.
    pub kind: BandKind,
    /// Rate above which the band applies, in kilobits per second or packets per second ([`Meter::packets`]).
    pub rate: u32,
    /// Burst size in kilobits or packets ([`Meter::packets`]). 0 means the amount that the rate allows in one second.
    pub burst: u32,
}

/// An OpenFlow meter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meter {
    /// Number of the meter: 1 to 0xffff0000, or a reserved number.
    pub id: u32,
    /// Whether rates are in packets per second, and bursts in packets, instead of kilobits per second and kilobits.
    pub packets: bool,
    /// Whether the controller specified burst sizes.
    pub bursts: bool,
    /// Whether statistics of the meter are kept.
    pub stats: bool,
    /// Bands of the meter.
    pub bands: Vec<Band>,
}

/// A meter-mod: a change of meters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MeterMod {
    /// Adds a meter.
    Add(Meter),
    /// Changes a meter.
    Modify(Meter),
    /// Removes the meter with this number, or all meters if the value is `None`. Flow entries that use the removed
    /// meters are also removed.
    Delete(Option<u32>),
}

/// Counters of a meter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterStats {
    /// Number of the meter.
    pub id: u32,
    /// Number of flow entries that use the meter.
    pub flows: u32,
    /// Number of packets that the meter received.
    pub packets: u64,
    /// Number of octets that the meter received.
    pub bytes: u64,
    /// Nanoseconds since the meter was added.
    pub age_ns: u64,
    /// For each band, in the order of the bands, the number of packets and of octets above the
    /// band's rate.
    pub bands: Vec<(u64, u64)>,
}
