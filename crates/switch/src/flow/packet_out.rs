//! Packet-outs of controllers: validation of their actions, and packet-outs that are part of a batch of changes.
//!
//! The tables process a packet-out of a batch in their state after the preceding changes of the
//! batch, and the `learn` actions of the packet-out take effect immediately. The packet is sent
//! after the whole batch has been made, and is not sent if the batch is refused. The tables are
//! locked during the batch. The packet-outs of a batch therefore share limits, and a batch that
//! exceeds these limits is refused.

use super::action::port;
use super::batch::{Batch, DecidedPacket};
use super::learned::LearnedFlow;
use super::message::{FlowError, Mod, PacketOut};
use super::pipeline::{Pipeline, TABLES};
use super::translate::TranslationInput;
use super::work::WORK_OF_CHANGE;
use super::{Action, Instructions};

/// Maximum number of table lookups of all packet-outs of a batch together.
const MAX_LOOKUPS: usize = 65_536;
/// Maximum memory, in octets, of all packet-outs of a batch and their translations together.
const MAX_MEMORY: usize = 4 << 20;
/// Work of one action that a packet-out executes. The unit is the work of visiting one rule.
const WORK_OF_ACTION: usize = 16;

impl Pipeline {
    /// Validates the actions of a packet-out and the saved state of the paused packet that the
    /// packet-out resumes, if any.
    ///
    /// # Errors
    /// Returns the error for the first action that would be refused in a flow entry. Output to the flow tables
    /// (OFPP_TABLE) is permitted.
    pub fn check_packet_out(&self, packet: &PacketOut) -> Result<(), FlowError> {
        let mut count = 0;
        let mut check = |actions: &[Action]| {
            let to_tables = |action: &&Action| matches!(action, Action::Output { port: port::TABLE, .. });
            let mut others = actions.iter().filter(|action| !to_tables(action));
            others.try_for_each(|action| self.check_action(action, true, &mut count))
        };
        check(&packet.actions)?;
        let Some(left) = &packet.resumes else { return Ok(()) };
        check(&left.action_set)?;
        for rest in &left.rest {
            let Instructions { meter, apply, write, goto, .. } = &rest.instructions;
            if goto.is_some_and(|to| to <= rest.table || usize::from(to) >= TABLES) {
                return Err(FlowError::BadGoto);
            }
            if meter.is_some_and(|meter| !self.meters.contains_key(&meter)) {
                return Err(FlowError::InvalidMeter);
            }
            check(apply)?;
            check(write)?;
        }
        Ok(())
    }

    /// Translates a packet-out of a batch. The flow entries that its `learn` actions add become changes of the batch.
    /// Returns the reason if the packet-out is refused.
    pub(super) fn decide_packet_out(
        &mut self,
        packet: &PacketOut,
        batch: &mut Batch,
    ) -> Result<(), FlowError> {
        self.check_packet_out(packet)?;
        // A malformed frame is dropped, as outside of batches.
        let Ok(flow) = self.read_packet_out(packet) else { return Ok(()) };
        let asked = TranslationInput { flow: &flow, frame: Some(&packet.frame), trace: false };
        let mut translated = self.packet_out(asked, &packet.actions);
        batch.work(usize::try_from(translated.work).unwrap_or(usize::MAX).saturating_mul(WORK_OF_ACTION))?;
        for learned in std::mem::take(&mut translated.learns) {
            self.teach_in(&learned, batch)?;
        }
        let (lookups, octets) = &mut batch.decided_costs;
        *lookups += translated.rules.len() + translated.missed.len();
        *octets += translated.memory() + packet.memory();
        if *lookups > MAX_LOOKUPS || *octets > MAX_MEMORY {
            return Err(FlowError::TooMany);
        }
        batch.decided.push(DecidedPacket { packet: packet.clone(), translated });
        Ok(())
    }

    /// Adds a learned flow entry as a change of the batch. Does nothing if the limit of the `learn` action is reached.
    fn teach_in(&mut self, learned: &LearnedFlow, batch: &mut Batch) -> Result<(), FlowError> {
        // Charged before the search, because the search compares all actions of the flow entry with an existing one.
        batch.work(WORK_OF_CHANGE + learned.rule.instructions.work())?;
        if let Some(at) = self.taught(&learned.rule) {
            if let Some(rule) = self.rules.get(at) {
                batch.retimed(at, rule.modified_ns);
            }
            self.refresh(&learned.rule, batch.now_ns);
            return Ok(());
        }
        if !self.may_learn(learned) {
            return Ok(());
        }
        self.change_in(&Mod::Flow(Box::new(learned.rule.clone())), batch)
    }
}
