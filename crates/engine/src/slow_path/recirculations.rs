//! Numbers of recirculations. A packet that the connection tracker has seen is looked up in a flow cache under the
//! number of its recirculation ([`Recirculation::number`]), in the place of its port. Each bridge, port and state of
//! translation has its own number.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use packet::PortId;
use switch::flow::{Op, Recirculation, Translated};

use crate::flows::UpcallPorts;

/// Lowest number of a recirculation. All ports have lower numbers.
const FIRST: u16 = 2048;
/// Number of numbers.
const NUMBERS: usize = (u16::MAX - FIRST) as usize;

/// Largest memory of the states of all recirculations, in octets.
const MEMORY: usize = 64 << 20;

/// A recirculation with a number. Two values are equal if bridge, port and state are equal.
struct Known {
    bridge: u16,
    port: PortId,
    to: Arc<Recirculation>,
    /// Port on which the first packet of the recirculation was received. The number counts toward its share.
    ingress: PortId,
    /// Memory of the state in octets.
    memory: usize,
}

impl PartialEq for Known {
    fn eq(&self, other: &Known) -> bool {
        (self.bridge, self.port, &self.to.state) == (other.bridge, other.port, &other.to.state)
    }
}

impl Eq for Known {}

impl Hash for Known {
    fn hash<H: Hasher>(&self, to: &mut H) {
        (self.bridge, self.port, &self.to.state).hash(to);
    }
}

/// Numbers in use and the memory of their states, in octets.
#[derive(Clone, Copy, Default)]
struct Usage {
    numbers: usize,
    memory: usize,
}

/// Recirculations with numbers. See the [module](self).
#[derive(Default)]
pub(super) struct Recirculations {
    known: HashSet<Known>,
    total: Usage,
    /// Use by the packets that were received on each port.
    of_ports: HashMap<PortId, Usage>,
    /// Numbers that were in use before and are free now.
    free: Vec<u16>,
    /// Number of numbers that have been in use.
    used: u16,
}

impl Recirculations {
    /// Gives numbers to the recirculations of a program that was translated for packets of a bridge's port, received on
    /// the port `ports.ingress`. Equal recirculations get equal numbers. The packets of one port may use half of the
    /// numbers, and half of the memory, that the others leave free. If there is no number, the program drops the
    /// packets of the recirculation, and its megaflow must not be cached.
    pub fn number(&mut self, bridge: u16, ports: UpcallPorts, actions: &mut Translated) {
        for op in &mut actions.program.ops {
            if let Op::Recirculate(to) = op {
                *to = self.numbered(bridge, ports, to);
                actions.is_own |= to.number.is_none();
            }
        }
    }

    fn numbered(&mut self, bridge: u16, ports: UpcallPorts, to: &Arc<Recirculation>) -> Arc<Recirculation> {
        let UpcallPorts { ingress, port } = ports;
        let memory = to.state.memory();
        let wanted = Known { bridge, port, to: Arc::clone(to), ingress, memory };
        if let Some(known) = self.known.get(&wanted) {
            return Arc::clone(&known.to);
        }
        let own = self.of_ports.get(&ingress).copied().unwrap_or_default();
        let has_room = own.numbers < NUMBERS - self.total.numbers
            && own.memory.saturating_add(memory) <= MEMORY.saturating_sub(self.total.memory);
        if !has_room {
            return Arc::clone(to);
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            FIRST + self.used - 1
        });
        let numbered = Arc::new(Recirculation { state: to.state.clone(), number: Some(PortId(number)) });
        self.known.insert(Known { to: Arc::clone(&numbered), ..wanted });
        for usage in [&mut self.total, self.of_ports.entry(ingress).or_default()] {
            (usage.numbers, usage.memory) = (usage.numbers + 1, usage.memory + memory);
        }
        numbered
    }

    /// Frees the numbers of recirculations that no megaflow and no packet uses.
    pub fn forget_unused(&mut self) {
        let Recirculations { known, total, of_ports, free, .. } = self;
        known.retain(|known| {
            let is_used = Arc::strong_count(&known.to) > 1;
            if !is_used {
                free.extend(known.to.number.map(|number| number.0));
                for usage in [&mut *total, of_ports.entry(known.ingress).or_default()] {
                    (usage.numbers, usage.memory) = (usage.numbers - 1, usage.memory - known.memory);
                }
            }
            is_used
        });
        of_ports.retain(|_, usage| usage.numbers > 0);
    }

    /// Returns the approximate memory of the states, in octets.
    pub fn memory(&self) -> usize {
        self.total.memory
    }
}

#[cfg(test)]
mod tests {
    use switch::flow::{Flow, FrozenState, Pipeline, TranslationInput};

    use super::*;

    const PORT: UpcallPorts = UpcallPorts { ingress: PortId(3), port: PortId(3) };
    const OTHER: UpcallPorts = UpcallPorts { ingress: PortId(4), port: PortId(4) };

    fn program(table: u8) -> Translated {
        let state = FrozenState {
            table,
            metadata: [0; switch::flow::STAGES[0]],
            stack: Vec::new(),
            action_set: Vec::new(),
            queue: None,
            passes: 1,
        };
        let asked = TranslationInput { flow: &Flow::ZERO, frame: None, trace: false };
        let mut translated = Pipeline::new().translate(asked);
        translated.program.ops = vec![Op::Recirculate(Arc::new(Recirculation { state, number: None }))];
        translated
    }

    fn number_of(translated: &Translated) -> Option<PortId> {
        match &translated.program.ops[..] {
            [Op::Recirculate(to)] => to.number,
            _ => None,
        }
    }

    #[test]
    fn equal_recirculations_share_a_number_until_nothing_uses_it() {
        let mut all = Recirculations::default();
        let (mut first, mut same, mut other) = (program(1), program(1), program(2));
        all.number(1, PORT, &mut first);
        all.number(1, PORT, &mut same);
        all.number(1, PORT, &mut other);
        assert!(number_of(&first).is_some_and(|number| number.0 >= FIRST));
        assert!(number_of(&first) == number_of(&same) && number_of(&first) != number_of(&other));
        // Another port and another bridge have numbers of their own.
        for (bridge, port) in [(1, OTHER), (2, PORT)] {
            let mut elsewhere = program(1);
            all.number(bridge, port, &mut elsewhere);
            assert_ne!(number_of(&elsewhere), number_of(&first));
        }
        let freed = number_of(&other);
        drop(other);
        all.forget_unused();
        let mut next = program(3);
        all.number(1, PORT, &mut next);
        assert!(number_of(&next).is_some() && number_of(&next) != number_of(&first));
        drop(next);
        all.forget_unused();
        assert!(all.free.contains(&freed.unwrap().0) && all.known.len() == 1);
    }

    #[test]
    fn one_port_leaves_numbers_for_others() {
        let mut all = Recirculations::default();
        let mut kept = Vec::new();
        let numbered = |all: &mut Recirculations, port, kept: &mut Vec<Translated>| {
            let mut own = program(1);
            if let [Op::Recirculate(to)] = &mut own.program.ops[..] {
                Arc::make_mut(to).state.metadata[0] = kept.len() as u64;
            }
            all.number(1, port, &mut own);
            kept.push(own);
            number_of(&kept[kept.len() - 1]).is_some()
        };
        while numbered(&mut all, PORT, &mut kept) {}
        assert_eq!(kept.len() - 1, NUMBERS / 2 + NUMBERS % 2);
        assert!(numbered(&mut all, OTHER, &mut kept));
        assert!(!numbered(&mut all, PORT, &mut kept));
        // A packet of another port behind the same port of the bridge has a share of its own.
        let behind = UpcallPorts { ingress: PortId(5), ..PORT };
        assert!(numbered(&mut all, behind, &mut kept));
        kept.clear();
        all.forget_unused();
        assert!(numbered(&mut all, PORT, &mut kept));
    }

    #[test]
    fn the_memory_of_states_is_limited() {
        let mut all = Recirculations::default();
        let mut kept = Vec::new();
        loop {
            let mut own = program(1);
            if let [Op::Recirculate(to)] = &mut own.program.ops[..] {
                let state = &mut Arc::make_mut(to).state;
                (state.metadata[0], state.stack) = (kept.len() as u64, vec![(0, 1); 1 << 15]);
            }
            all.number(1, PORT, &mut own);
            if number_of(&own).is_none() {
                assert!(own.is_own);
                break;
            }
            kept.push(own);
        }
        assert!(
            (MEMORY / 2 - (2 << 20)..=MEMORY / 2 + (1 << 20)).contains(&all.memory()),
            "{}",
            all.memory()
        );
        kept.clear();
        all.forget_unused();
        assert_eq!(all.memory(), 0);
    }
}
