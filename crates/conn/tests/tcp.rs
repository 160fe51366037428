//! Tests of the TCP tracker: cases from the RFCs, a comparison with a naive tracker that keeps the whole history, and
//! the segments of two simulated ends over a path that loses, repeats and reorders segments.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conn::Direction::{self, Original, Reply};
use conn::tcp::{Connection, Invalid, Segment, State, Verdict};
use packet::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use proptest::prelude::*;

fn segment(flags: u16, seq: u32, ack: u32, payload: u32) -> Segment {
    Segment { seq, ack, flags, window: 1000, payload, scale: None }
}

fn scaled(segment: Segment, shift: u8) -> Segment {
    Segment { scale: Some(shift), ..segment }
}

/// A connection and the segments that it has been given.
struct Case(Connection);

impl Case {
    fn opened(first: &Segment) -> Case {
        Case(Connection::open(first, false).unwrap())
    }

    /// A connection whose ends have begun with the sequence numbers 100 and 500.
    fn established() -> Case {
        let mut case = Case::opened(&segment(SYN, 99, 0, 0));
        case.accepts(Reply, segment(SYN | ACK, 499, 100, 0), State::SynReceived);
        case.accepts(Original, segment(ACK, 100, 500, 0), State::Established);
        case
    }

    fn accepts(&mut self, direction: Direction, segment: Segment, state: State) {
        assert_eq!(self.0.track(direction, &segment, true), Verdict::Accepted, "{direction:?} {segment:?}");
        assert_eq!(self.0.state(), state, "after {direction:?} {segment:?}");
    }

    fn ignores(&mut self, direction: Direction, segment: Segment) {
        let before = self.0;
        assert_eq!(self.0.track(direction, &segment, true), Verdict::Unconfirmed, "{segment:?}");
        assert_eq!(self.0, before, "an unconfirmed segment changes nothing");
    }

    fn refuses(&mut self, direction: Direction, segment: Segment, why: Invalid) {
        let before = self.0;
        assert_eq!(self.0.track(direction, &segment, true), Verdict::Invalid(why), "{segment:?}");
        assert_eq!(self.0, before, "an invalid segment changes nothing");
    }
}

#[test]
fn a_connection_passes_through_the_states_of_the_rfc() {
    let mut case = Case::established();
    case.accepts(Original, segment(ACK | PSH, 100, 500, 50), State::Established);
    case.accepts(Reply, segment(ACK, 500, 150, 0), State::Established);
    case.accepts(Original, segment(FIN | ACK, 150, 500, 0), State::FinWait);
    case.accepts(Reply, segment(ACK, 500, 151, 200), State::CloseWait);
    case.accepts(Original, segment(ACK, 151, 700, 0), State::CloseWait);
    case.accepts(Reply, segment(FIN | ACK, 700, 151, 0), State::LastAck);
    case.accepts(Original, segment(ACK, 151, 701, 0), State::TimeWait);
    // The last acknowledgement was lost.
    case.accepts(Reply, segment(FIN | ACK, 700, 151, 0), State::TimeWait);
    assert_eq!(case.0.track(Original, &segment(SYN, 9000, 0, 0), true), Verdict::NewConnection);
}

#[test]
fn both_ends_may_open_and_close_at_once() {
    let mut case = Case::opened(&segment(SYN, 99, 0, 0));
    case.accepts(Reply, segment(SYN, 499, 0, 0), State::SynReceived);
    case.accepts(Original, segment(SYN | ACK, 99, 500, 0), State::SynReceived);
    case.accepts(Reply, segment(SYN | ACK, 499, 100, 0), State::Established);
    case.accepts(Original, segment(FIN | ACK, 100, 500, 0), State::FinWait);
    case.accepts(Reply, segment(FIN | ACK, 500, 100, 0), State::Closing);
    case.accepts(Reply, segment(ACK, 501, 101, 0), State::LastAck);
    case.accepts(Original, segment(ACK, 101, 501, 0), State::TimeWait);
}

#[test]
fn handshakes_that_do_not_fit_are_refused() {
    let mut case = Case::opened(&segment(SYN, 99, 0, 0));
    case.refuses(Reply, segment(SYN | ACK, 499, 99, 0), Invalid::Handshake);
    case.refuses(Reply, segment(SYN | ACK, 499, 101, 0), Invalid::Handshake);
    case.refuses(Reply, segment(RST | ACK, 0, 101, 0), Invalid::Handshake);
    case.refuses(Reply, segment(ACK, 500, 100, 10), Invalid::Handshake);
    case.refuses(Original, segment(ACK, 100, 500, 0), Invalid::Handshake);
    // The SYN is repeated, then the end tries again with another number.
    case.accepts(Original, segment(SYN, 99, 0, 0), State::SynSent);
    case.accepts(Original, segment(SYN, 7000, 0, 0), State::SynSent);
    case.refuses(Reply, segment(SYN | ACK, 499, 100, 0), Invalid::Handshake);
    case.accepts(Reply, segment(SYN | ACK, 499, 7001, 0), State::SynReceived);
    case.refuses(Original, segment(ACK, 7001, 499, 0), Invalid::Handshake);
    case.accepts(Original, segment(ACK, 7001, 500, 0), State::Established);
}

#[test]
fn a_closed_port_answers_with_a_reset() {
    let mut case = Case::opened(&segment(SYN, 99, 0, 0));
    case.accepts(Reply, segment(RST | ACK, 0, 100, 0), State::Closed);
    assert_eq!(case.0.track(Original, &segment(SYN, 200, 0, 0), true), Verdict::NewConnection);
}

/// RFC 9293 section 3.5.1: one end has lost its state, and connects again with the same ports.
#[test]
fn half_open_connections_recover() {
    // The tracker has lost its state, too.
    let mut case = Case::opened(&segment(SYN, 99, 0, 0));
    case.accepts(Reply, segment(ACK, 80_000, 70_000, 0), State::SynSent);
    case.accepts(Original, segment(RST, 70_000, 0, 0), State::SynSent);
    case.accepts(Original, segment(SYN, 99, 0, 0), State::SynSent);
    case.accepts(Reply, segment(SYN | ACK, 499, 100, 0), State::SynReceived);
    // The tracker still has the connection.
    let mut case = Case::established();
    case.ignores(Original, segment(SYN, 1_000_000, 0, 0));
    case.accepts(Reply, segment(ACK, 500, 100, 0), State::Established);
    case.accepts(Original, segment(RST, 100, 0, 0), State::Closed);
    assert_eq!(case.0.track(Original, &segment(SYN, 1_000_000, 0, 0), true), Verdict::NewConnection);
}

/// RFC 7413: data in the SYN is acknowledged completely or not at all.
#[test]
fn a_syn_may_have_data() {
    for ack in [100, 150] {
        let mut case = Case::opened(&segment(SYN, 99, 0, 50));
        case.accepts(Reply, segment(SYN | ACK, 499, ack, 0), State::SynReceived);
        case.accepts(Original, segment(ACK, 100, 500, 50), State::Established);
    }
}

/// RFC 5961: only a reset with exactly the expected number ends the connection.
#[test]
fn resets_need_the_exact_number() {
    let mut case = Case::established();
    case.accepts(Original, segment(ACK, 100, 500, 300), State::Established);
    case.refuses(Reply, segment(RST, 1501, 0, 0), Invalid::BeyondWindow);
    case.refuses(Reply, segment(RST, 500u32.wrapping_sub(1200), 0, 0), Invalid::BeforeWindow);
    case.ignores(Reply, segment(RST, 700, 0, 0));
    // The other end has acknowledged 100, although more was sent.
    case.accepts(Original, segment(RST, 100, 0, 0), State::Closed);
    // The reset may get lost, so that the end must hear it again.
    case.accepts(Reply, segment(ACK, 500, 400, 0), State::Closed);
    case.accepts(Original, segment(RST, 400, 0, 0), State::Closed);
}

#[test]
fn segments_outside_the_windows_are_refused() {
    let mut case = Case::established();
    case.refuses(Original, segment(ACK, 1101, 500, 1), Invalid::BeyondWindow);
    case.accepts(Original, segment(ACK, 1100, 500, 1), State::Established);
    case.refuses(Original, segment(ACK, 50, 500, 50), Invalid::BeforeWindow);
    case.refuses(Original, segment(ACK, 101, 501, 0), Invalid::AckOfUnsent);
    case.refuses(Original, segment(ACK, 101, 500u32.wrapping_sub(66_001), 0), Invalid::OldAck);
    case.refuses(Original, segment(SYN | FIN, 100, 500, 0), Invalid::Flags);
    case.refuses(Original, segment(0, 100, 500, 0), Invalid::Flags);
    case.refuses(Original, segment(FIN, 100, 500, 0), Invalid::Flags);
}

#[test]
fn no_data_comes_behind_a_fin() {
    let mut case = Case::established();
    case.accepts(Original, segment(FIN | ACK, 100, 500, 10), State::FinWait);
    case.refuses(Original, segment(ACK, 111, 500, 1), Invalid::AfterFin);
    case.accepts(Original, segment(FIN | ACK, 110, 500, 0), State::FinWait);
}

/// Keep-alive segments repeat the byte before the window, and a closed window is probed with one byte.
#[test]
fn keep_alive_and_window_probes_are_accepted() {
    let mut case = Case::established();
    for payload in [0, 1] {
        case.accepts(Original, segment(ACK, 99, 500, payload), State::Established);
    }
    case.accepts(Reply, Segment { window: 0, ..segment(ACK, 500, 100, 0) }, State::Established);
    case.accepts(Original, segment(ACK, 100, 500, 1), State::Established);
}

/// RFC 7323 section 2.2: windows are scaled only if both SYN segments have the option.
#[test]
fn windows_are_scaled_if_both_ends_can() {
    for (both, reach) in [(true, 100 + 1000 * 128), (false, 100 + 1000)] {
        let mut case = Case::opened(&scaled(segment(SYN, 99, 0, 0), 3));
        let answer = segment(SYN | ACK, 499, 100, 0);
        case.accepts(Reply, if both { scaled(answer, 7) } else { answer }, State::SynReceived);
        case.accepts(Original, segment(ACK, 100, 500, 0), State::Established);
        case.accepts(Reply, segment(ACK, 500, 100, 0), State::Established);
        case.refuses(Original, segment(ACK, reach + 1, 500, 1), Invalid::BeyondWindow);
        case.accepts(Original, segment(ACK, reach, 500, 1), State::Established);
    }
    // The window of the SYN is kept where the scale is turned off.
    let syn = Segment { window: 65_535, ..scaled(segment(SYN, 99, 0, 0), 14) };
    let mut case = Case::opened(&syn);
    case.accepts(Reply, segment(SYN | ACK, 499, 100, 0), State::SynReceived);
    case.accepts(Original, Segment { window: 65_535, ..segment(ACK, 100, 500, 0) }, State::Established);
    case.accepts(Reply, segment(ACK, 500 + 65_535, 100, 0), State::Established);
}

#[test]
fn connections_are_picked_up_only_where_that_is_asked_for() {
    let middle = segment(ACK, 1000, 2000, 10);
    assert_eq!(Connection::open(&middle, false), Err(Invalid::NotOpening));
    for flags in [SYN | ACK, RST, RST | ACK] {
        assert_eq!(Connection::open(&segment(flags, 1, 1, 0), true), Err(Invalid::NotOpening));
    }
    let mut case = Case(Connection::open(&middle, true).unwrap());
    assert_eq!(case.0.state(), State::Established);
    // Scales are unknown, so nothing can be said of windows.
    case.accepts(Reply, segment(ACK, 900_000, 1010, 10), State::Established);
    case.accepts(Original, segment(ACK, 1010, 900_010, 0), State::Established);
    case.accepts(Original, segment(FIN | ACK, 1010, 900_010, 0), State::FinWait);
    case.accepts(Reply, segment(FIN | ACK, 900_010, 1011, 0), State::LastAck);
    case.accepts(Original, segment(ACK, 1011, 900_011, 0), State::TimeWait);
}

#[test]
fn windows_are_not_checked_on_asymmetric_paths() {
    let mut connection = Case::established().0;
    let far = segment(ACK, 5_000_000, 500, 10);
    assert_eq!(connection.track(Original, &far, true), Verdict::Invalid(Invalid::BeyondWindow));
    assert_eq!(connection.track(Original, &far, false), Verdict::Accepted);
}

#[test]
fn fields_are_read_from_the_header() {
    let mut bytes = [0; 24];
    let options = packet::ipv4::Options::new(&[3, 3, 9, 0]).unwrap();
    let header =
        packet::tcp::TcpRepr { seq: 7, ack: 8, flags: SYN | ACK, window: 9, options, ..Default::default() };
    header.emit(&mut bytes).unwrap();
    let tcp = packet::tcp::Tcp::parse(&bytes).unwrap();
    let wanted = Segment { seq: 7, ack: 8, flags: SYN | ACK, window: 9, payload: 5, scale: Some(9) };
    assert_eq!(Segment::of(&tcp, 5), wanted);
}

/// A tracker that keeps all accepted segments with sequence numbers that do not wrap, and derives everything from them
/// each time.
struct Naive {
    /// Direction, segment, and its sequence and acknowledgement numbers.
    log: Vec<(usize, Segment, i64, i64)>,
    is_reset: bool,
    /// Limits of the ends when the handshake was completed, and the number of segments until then.
    complete: Option<([i64; 2], usize)>,
}

impl Naive {
    fn of(&self, end: usize) -> impl Iterator<Item = &(usize, Segment, i64, i64)> {
        self.log.iter().filter(move |(from, ..)| *from == end)
    }

    fn syn(&self, end: usize) -> Option<(i64, &Segment)> {
        self.of(end)
            .find(|(_, segment, ..)| segment.flags & SYN != 0)
            .map(|(_, segment, seq, _)| (*seq, segment))
    }

    fn end_of(segment: &Segment, seq: i64) -> i64 {
        let flags = i64::from(segment.flags & SYN != 0) + i64::from(segment.flags & FIN != 0);
        seq + i64::from(segment.payload) + flags
    }

    /// The sequence number after all data that the end has sent.
    fn end(&self, end: usize) -> i64 {
        self.of(end).map(|(_, segment, seq, _)| Naive::end_of(segment, *seq)).max().unwrap_or_default()
    }

    fn acked(&self, end: usize) -> Option<i64> {
        let after_syn = self.syn(end)?.0 + 1;
        let acks = self.of(1 - end).filter(|(_, segment, ..)| segment.flags & ACK != 0);
        acks.map(|(.., ack)| *ack).filter(|ack| *ack >= after_syn).max()
    }

    fn shift(&self, end: usize) -> u32 {
        match (self.syn(end).and_then(|(_, it)| it.scale), self.syn(1 - end).map(|(_, it)| it.scale)) {
            // Until the other end has answered, the own scale rounds the window.
            (Some(shift), None | Some(Some(_))) => shift.min(14).into(),
            _ => 0,
        }
    }

    fn window(&self, end: usize, segment: &Segment) -> i64 {
        i64::from(segment.window) << if segment.flags & SYN != 0 { 0 } else { self.shift(end) }
    }

    /// The largest window, rounded up to what the scale can express. The window of a repeated SYN does not count.
    fn max_window(&self, end: usize) -> i64 {
        let first = self.syn(end).map(|(_, it)| *it);
        let later = self.of(end).filter(|(_, it, ..)| it.flags & SYN == 0).map(|(_, it, ..)| *it);
        let most = first.into_iter().chain(later).map(|it| self.window(end, &it)).max().unwrap_or_default();
        let (unit, own) = (1 << self.shift(end), first.and_then(|it| it.scale));
        // Without an agreement, a window of the SYN was rounded up before the scale was turned off.
        let before = if self.shift(end) == 0 { first.map_or(0, |it| i64::from(it.window)) } else { 0 };
        let old_unit = 1i64 << own.map_or(0, |shift| shift.min(14));
        let rounded = ((before + old_unit - 1) / old_unit * old_unit).min(65_535);
        ((most + unit - 1) / unit * unit).max(rounded).max(1)
    }

    fn limit(&self, end: usize) -> i64 {
        let Some((limits, count)) = self.complete else {
            let offered = |acked| acked + self.max_window(1 - end);
            return self.acked(end).map_or_else(|| self.end(end), offered);
        };
        let later = self.log[count..].iter().filter(|(from, it, ..)| *from != end && it.flags & ACK != 0);
        later.map(|(_, it, _, ack)| ack + self.window(1 - end, it).max(1)).chain([limits[end]]).max().unwrap()
    }

    /// Notes the completion of the handshake.
    fn look(&mut self) {
        if self.complete.is_none() && self.acked(0).is_some() && self.acked(1).is_some() {
            let limits = [0, 1].map(|end| self.acked(end).unwrap() + self.max_window(1 - end));
            self.complete = Some((limits, self.log.len()));
        }
    }

    fn fin(&self, end: usize) -> bool {
        self.of(end).any(|(_, it, ..)| it.flags & FIN != 0)
    }

    fn state(&self) -> State {
        if self.is_reset {
            return State::Closed;
        }
        if self.acked(0).is_none() || self.acked(1).is_none() {
            let both = self.syn(0).is_some() && self.syn(1).is_some();
            return if both { State::SynReceived } else { State::SynSent };
        }
        let fins = [0, 1].map(|end| self.fin(end));
        let acked = [0, 1].map(|end| fins[end] && self.acked(end).unwrap() >= self.end(end));
        match (fins, acked) {
            ([false, false], _) => State::Established,
            ([true, true], [true, true]) => State::TimeWait,
            ([true, true], [false, false]) => State::Closing,
            ([true, true], _) => State::LastAck,
            (_, [false, false]) => State::FinWait,
            _ => State::CloseWait,
        }
    }

    fn track(&mut self, from: usize, it: &Segment, seq: i64, ack: i64) -> Verdict {
        let (to, state) = (1 - from, self.state());
        let has = |flag| it.flags & flag != 0;
        let refused = |why| Verdict::Invalid(why);
        if !matches!(it.flags, SYN | ACK | RST) && ![SYN | ACK, FIN | ACK, RST | ACK].contains(&it.flags) {
            return refused(Invalid::Flags);
        }
        if it.flags == SYN && matches!(state, State::TimeWait | State::Closed) {
            return Verdict::NewConnection;
        }
        let acks_syn =
            has(ACK) && self.syn(to).is_some_and(|(syn, _)| (syn + 1..=self.end(to)).contains(&ack));
        if matches!(state, State::SynSent | State::SynReceived) && (has(SYN) || self.syn(from).is_none()) {
            if has(RST) {
                self.is_reset = acks_syn;
                return if acks_syn { Verdict::Accepted } else { refused(Invalid::Handshake) };
            }
            if !has(SYN) {
                let challenge = !acks_syn && it.payload == 0 && !has(FIN);
                return if challenge { Verdict::Accepted } else { refused(Invalid::Handshake) };
            }
            if has(ACK) && !acks_syn {
                return refused(Invalid::Handshake);
            }
            if self.syn(from).is_some_and(|(syn, _)| syn != seq) {
                if has(ACK) {
                    return refused(Invalid::Handshake);
                }
                if self.syn(to).is_none() {
                    self.log = vec![(from, *it, seq, ack)];
                }
                return Verdict::Accepted;
            }
            // Data in a repeated SYN is not counted, nor is its scale.
            let first = self.syn(from).map(|(_, it)| *it);
            let payload = first.map_or(it.payload, |first| first.payload);
            self.log.push((from, Segment { payload, ..*it }, seq, ack));
            return Verdict::Accepted;
        }
        if has(SYN) {
            return Verdict::Unconfirmed;
        }
        if state == State::SynSent {
            return if has(RST) { Verdict::Accepted } else { refused(Invalid::Handshake) };
        }
        if state == State::Closed && (self.syn(from).is_none() || self.syn(to).is_none()) {
            return Verdict::Accepted;
        }
        let end = Naive::end_of(it, seq);
        if seq > self.limit(from) {
            return refused(Invalid::BeyondWindow);
        }
        if end < self.end(from) - self.max_window(to) {
            return refused(Invalid::BeforeWindow);
        }
        if has(ACK) && !(has(RST) && it.ack == 0) {
            if self.acked(to).is_none() && ack < self.syn(to).unwrap().0 + 1 {
                return refused(Invalid::Handshake);
            }
            if ack > self.end(to) {
                return refused(Invalid::AckOfUnsent);
            }
            let acked = self.acked(to).unwrap_or(self.syn(to).unwrap().0);
            if ack < acked - (2 * self.max_window(from)).max(66_000) {
                return refused(Invalid::OldAck);
            }
        }
        if state == State::Closed {
            return Verdict::Accepted;
        }
        if has(RST) {
            let syn = self.syn(from).unwrap().0;
            self.is_reset |= seq == self.end(from) || seq == self.acked(from).unwrap_or(syn);
            return if self.is_reset { Verdict::Accepted } else { Verdict::Unconfirmed };
        }
        if self.fin(from) && end > self.end(from) {
            return refused(Invalid::AfterFin);
        }
        // A FIN in data that was sent or acknowledged already is not the end of the data.
        let is_old = end < self.end(from) || self.acked(from).is_some_and(|acked| end <= acked);
        let flags = if has(FIN) && is_old && !self.fin(from) { ACK } else { it.flags };
        let payload = if flags == it.flags { it.payload } else { it.payload + 1 };
        self.log.push((from, Segment { flags, payload, ..*it }, seq, ack));
        Verdict::Accepted
    }
}

/// One random segment: direction, flags, distances from the ends, window, payload.
type Step = (bool, usize, i64, i64, u16, u32, Option<u8>);

fn step() -> impl Strategy<Value = Step> {
    let near = || prop_oneof![6 => Just(0i64), 2 => -3i64..3, 1 => -2000i64..2000, 1 => -140_000i64..140_000];
    let payload = prop_oneof![4 => Just(0u32), 3 => 1u32..1500, 1 => 1500u32..65_000];
    let window = prop_oneof![Just(0u16), Just(1000), Just(65_535), any::<u16>()];
    let scale = prop_oneof![Just(None), (0u8..20).prop_map(Some)];
    (any::<bool>(), 0usize..24, near(), near(), window, payload, scale)
}

/// Flags by frequency: mostly data and acknowledgements.
const FLAGS: [u16; 24] = [
    SYN,
    SYN,
    SYN | ACK,
    SYN | ACK,
    SYN | ACK,
    ACK,
    ACK,
    ACK,
    ACK,
    ACK,
    ACK,
    ACK,
    ACK,
    ACK,
    ACK,
    ACK,
    ACK,
    FIN | ACK,
    FIN | ACK,
    RST,
    RST | ACK,
    0,
    SYN | FIN,
    ACK,
];

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sequence numbers wrap")]
fn wrapped(number: i64) -> u32 {
    number as u32
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    /// Verdicts and states agree with the naive tracker, also where sequence numbers wrap.
    #[test]
    fn the_tracker_agrees_with_a_naive_one(
        starts in (any::<u32>(), any::<u32>()),
        opening in (any::<u16>(), 0u32..1000, prop_oneof![Just(None), (0u8..20).prop_map(Some)]),
        has_handshake in any::<bool>(),
        mut steps in proptest::collection::vec(step(), 1..60),
    ) {
        if has_handshake {
            let scale = opening.2;
            steps.splice(0..0, [(true, 2, 0, 0, 65_535, 0, scale), (false, 5, 0, 0, 1000, 0, None)]);
        }
        // Far from zero, so that no number is negative.
        let starts = [i64::from(starts.0) + (1 << 40), i64::from(starts.1) + (1 << 40)];
        let (window, payload, scale) = opening;
        let first = Segment { seq: wrapped(starts[0]), ack: 0, flags: SYN, window, payload, scale };
        let mut tracker = Connection::open(&first, false).unwrap();
        let mut naive = Naive { log: vec![(0, first, starts[0], 0)], is_reset: false, complete: None };
        for (is_reply, flags, seq, ack, window, payload, scale) in steps {
            let (from, flags) = (usize::from(is_reply), FLAGS[flags]);
            let to = 1 - from;
            let is_known = |end: usize| naive.syn(end).is_some();
            let base = match naive.syn(from) {
                Some((syn, _)) if flags & SYN != 0 => syn,
                Some(_) => naive.end(from),
                None => starts[from],
            };
            let seq = base + seq;
            let ack = if is_known(to) { naive.end(to) + ack } else { starts[to] + ack };
            let scale = if flags & SYN != 0 { scale } else { None };
            let it = Segment { seq: wrapped(seq), ack: wrapped(ack), flags, window, payload, scale };
            let direction = if is_reply { Reply } else { Original };
            let before = tracker;
            let wanted = naive.track(from, &it, seq, ack);
            naive.look();
            prop_assert_eq!(tracker.track(direction, &it, true), wanted, "{:?} {:?}", direction, it);
            prop_assert_eq!(tracker.state(), naive.state(), "after {:?} {:?}", direction, it);
            if wanted != Verdict::Accepted {
                prop_assert_eq!(tracker, before);
            }
        }
    }

    /// Segments with any content cause no panic, and the connection never changes to a state that cannot follow its
    /// current state.
    #[test]
    fn states_follow_each_other_as_in_the_rfc(
        segments in proptest::collection::vec((any::<bool>(), any::<[u32; 3]>(), any::<[u16; 2]>()), 1..60),
        is_checked in any::<bool>(),
        pick_up in any::<bool>(),
    ) {
        let of = |numbers: [u32; 3], [flags, window]: [u16; 2]| Segment {
            seq: numbers[0] % 8,
            ack: numbers[1] % 8,
            flags: FLAGS[usize::from(flags) % FLAGS.len()],
            window,
            payload: numbers[2] % 3,
            scale: None,
        };
        let mut connection: Option<Connection> = None;
        for (is_reply, numbers, words) in segments {
            let segment = of(numbers, words);
            let Some(present) = &mut connection else {
                connection = Connection::open(&segment, pick_up).ok();
                continue;
            };
            let (before, direction) = (present.state(), if is_reply { Reply } else { Original });
            if present.track(direction, &segment, is_checked) == Verdict::NewConnection {
                connection = Connection::open(&segment, pick_up).ok();
                prop_assert!(connection.is_some());
                continue;
            }
            let after = present.state();
            prop_assert!(before == after || rank(after) > rank(before), "{:?} to {:?}", before, after);
        }
    }
}

/// States in the order in which a connection passes through them.
fn rank(state: State) -> u32 {
    match state {
        State::SynSent => 0,
        State::SynReceived => 1,
        State::Established => 2,
        State::FinWait => 3,
        State::CloseWait | State::Closing => 4,
        State::LastAck => 5,
        State::TimeWait => 6,
        State::Closed => 7,
    }
}

/// One end of a simulated connection, which sends bytes, then a FIN.
#[derive(Debug)]
struct Peer {
    /// Numbers of RFC 9293 section 3.3.1: ISS, SND.UNA, SND.NXT, RCV.NXT, without wrapping.
    iss: u64,
    una: u64,
    nxt: u64,
    rcv: Option<u64>,
    /// Number of the FIN.
    fin: u64,
    /// Number after the FIN of the other end, when it has arrived.
    peer_fin: Option<u64>,
    /// Receive window in bytes, and its scale.
    window: u64,
    shift: Option<u8>,
    /// Window of the other end in bytes, and its largest window so far (MAX.SND.WND of RFC 5961).
    offered: u64,
    most_offered: u64,
}

/// A segment on its way, with numbers that do not wrap.
#[derive(Clone, Debug)]
struct Sent {
    seq: u64,
    ack: Option<u64>,
    payload: u64,
    is_syn: bool,
    is_fin: bool,
    window: u16,
    scale: Option<u8>,
}

impl Sent {
    fn end(&self) -> u64 {
        self.seq + self.payload + u64::from(self.is_syn) + u64::from(self.is_fin)
    }

    fn segment(&self) -> Segment {
        let wrap = |number: u64| u32::try_from(number & 0xffff_ffff).unwrap();
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        Segment {
            seq: wrap(self.seq),
            ack: self.ack.map_or(0, wrap),
            flags: flag(self.is_syn, SYN) | flag(self.is_fin, FIN) | flag(self.ack.is_some(), ACK),
            window: self.window,
            payload: wrap(self.payload),
            scale: self.scale,
        }
    }
}

impl Peer {
    fn new(iss: u32, length: u64, window: u64, shift: Option<u8>) -> Peer {
        let iss = u64::from(iss);
        let (una, nxt, fin) = (iss, iss, iss + 1 + length);
        Peer {
            iss,
            una,
            nxt,
            rcv: None,
            fin,
            peer_fin: None,
            window,
            shift,
            offered: 1,
            most_offered: 65_535,
        }
    }

    /// Sends a segment. If `again` is set, the segment starts with the first byte that is not acknowledged, otherwise
    /// with the next byte.
    fn send(&mut self, again: bool, most: u64, is_scaled: bool) -> Sent {
        let seq = if again || self.una == self.iss { self.una } else { self.nxt };
        let shift = if is_scaled { self.shift.unwrap_or_default() } else { 0 };
        let window = u16::try_from((self.window >> shift).min(65_535)).unwrap();
        let (ack, scale) = (self.rcv, None);
        let sent = if seq == self.iss {
            let window = u16::try_from(self.window.min(65_535)).unwrap();
            Sent { seq, ack, payload: 0, is_syn: true, is_fin: false, window, scale: self.shift }
        } else {
            // A closed window is probed with one byte.
            let room = (self.una + self.offered.max(1)).saturating_sub(seq);
            let payload = most.min(self.fin.saturating_sub(seq)).min(room);
            let is_fin = seq + payload == self.fin && payload < room;
            Sent { seq, ack, payload, is_syn: false, is_fin, window, scale }
        };
        self.nxt = self.nxt.max(sent.end());
        sent
    }

    fn receive(&mut self, sent: &Sent, is_scaled: bool, peer_shift: Option<u8>) {
        let is_acceptable = self.accepts(sent);
        if let Some(ack) = sent.ack.filter(|ack| is_acceptable && (self.una..=self.nxt).contains(ack)) {
            self.una = ack;
            let shift = if is_scaled && !sent.is_syn { peer_shift.unwrap_or_default() } else { 0 };
            self.offered = u64::from(sent.window) << shift;
            self.most_offered = self.most_offered.max(self.offered);
        }
        let expected = self.rcv.unwrap_or(if sent.is_syn { sent.seq } else { u64::MAX });
        // Data that overlaps what has arrived is taken, and data behind a gap is not.
        if is_acceptable && sent.seq <= expected && expected < sent.end() {
            self.rcv = Some(sent.end());
            self.peer_fin = sent.is_fin.then_some(sent.end()).or(self.peer_fin);
        }
    }

    /// Returns whether the end accepts the acknowledgement of a segment. Acknowledgements of old segments are ignored
    /// (RFC 9293 section 3.10.7.4).
    fn accepts(&self, sent: &Sent) -> bool {
        // Ends that open at once acknowledge each other by repeated SYN segments (RFC 9293 section 3.5).
        let is_answer = sent.is_syn && self.una == self.iss;
        // RFC 5961 section 5.2.
        if sent.ack.is_some_and(|ack| ack + self.most_offered < self.una) {
            return false;
        }
        is_answer || self.rcv.is_none_or(|rcv| sent.end() > rcv || sent.seq == sent.end() && sent.seq == rcv)
    }

    /// Returns whether a segment contains new information for the end.
    fn needs(&self, sent: &Sent) -> bool {
        let has_new_data = sent.end() > sent.seq && self.rcv.is_none_or(|rcv| sent.end() > rcv);
        self.accepts(sent) && (has_new_data || sent.ack.is_some_and(|ack| ack > self.una))
    }

    fn is_done(&self) -> bool {
        self.una > self.fin && self.peer_fin.is_some()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// The paths on both sides of the tracker lose, repeat and reorder segments of a real connection. The tracker
    /// refuses no segment that contains new information for its receiver, and the connection is closed in the end.
    #[test]
    fn segments_of_real_ends_are_accepted(
        numbers in any::<[u32; 2]>(),
        lengths in [0u64..80, 0u64..80],
        windows in [1u64..200_000, 1u64..200_000],
        shifts in [prop_oneof![Just(None), (0u8..=14).prop_map(Some)], prop_oneof![Just(None), (0u8..=14).prop_map(Some)]],
        both_open in any::<bool>(),
        mut dice in any::<u64>().prop_map(|seed| seed | 1),
    ) {
        let mut roll = |sides: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            (dice >> 11) % sides
        };
        // An end chooses a scale that can express its window.
        let windows = [0, 1].map(|end| windows[end].max(16 << shifts[end].unwrap_or_default()));
        // Data of up to eight windows.
        let length = |end: usize| lengths[end] * windows[1 - end] / 10;
        let mut peers = [0, 1].map(|end| Peer::new(numbers[end], length(end), windows[end], shifts[end]));
        let is_scaled = shifts.iter().all(Option::is_some);
        let mut tracker: Option<Connection> = None;
        // Per direction: segments before and behind the tracker.
        let mut paths: [[Vec<Sent>; 2]; 2] = Default::default();
        let mut count = 0;
        while !(peers[0].is_done() && peers[1].is_done()) {
            count += 1;
            prop_assert!(count < 2_000_000, "the connection does not end: {:?}", peers);
            let from = usize::try_from(roll(2)).unwrap();
            let place = usize::try_from(roll(3)).unwrap();
            if place == 2 {
                // The second end does not open before it has heard of the first, unless both open at once.
                let may_open = from == 0 || peers[1].rcv.is_some() || both_open && tracker.is_some();
                if may_open && paths[from][0].len() < 8 {
                    let (again, most) = (roll(3) == 0, 1 + roll(20_000));
                    let sent = peers[from].send(again, most, is_scaled);
                    paths[from][0].push(sent);
                }
                continue;
            }
            let path = &mut paths[from][place];
            if path.is_empty() {
                continue;
            }
            // Mostly in order.
            let at = if roll(4) == 0 { roll(u64::try_from(path.len()).unwrap()) } else { 0 };
            let sent = path.remove(usize::try_from(at).unwrap());
            match roll(16) {
                0 => continue,
                1 => path.push(sent.clone()),
                _ => {}
            }
            if place == 1 {
                peers[1 - from].receive(&sent, is_scaled, shifts[from]);
                continue;
            }
            let (segment, direction) = (sent.segment(), if from == 0 { Original } else { Reply });
            let verdict = match &mut tracker {
                None if sent.is_syn => {
                    prop_assert_eq!(from, 0);
                    tracker = Some(Connection::open(&segment, false).unwrap());
                    Verdict::Accepted
                }
                None => continue,
                Some(tracker) => tracker.track(direction, &segment, true),
            };
            match verdict {
                Verdict::Accepted | Verdict::Unconfirmed => paths[from][1].push(sent),
                Verdict::NewConnection => prop_assert!(!peers[1 - from].needs(&sent), "{:?}", sent),
                Verdict::Invalid(why) => {
                    let (tracker, peer) = (tracker.unwrap(), &peers[1 - from]);
                    prop_assert!(!peer.needs(&sent), "{:?}: {:?}\n{:?}\n{:?}", why, sent, tracker, peer);
                }
            }
        }
        prop_assert_eq!(tracker.unwrap().state(), State::TimeWait);
    }
}

proptest! {
    /// A table may contain bytes that another process has written. No bytes lead to a panic.
    #[test]
    fn any_bytes_are_a_state(
        bytes: [u8; 32],
        steps in prop::collection::vec((any::<bool>(), 0..64_u16, any::<[u32; 3]>(), any::<u16>()), 1..9),
    ) {
        let mut connection: Connection = zerocopy::transmute!(bytes);
        for (is_reply, flags, [seq, ack, payload], window) in steps {
            let segment = Segment { seq, ack, flags, window, payload, scale: None };
            let _ = connection.track(if is_reply { Reply } else { Original }, &segment, true);
            let _ = connection.state();
        }
    }
}
