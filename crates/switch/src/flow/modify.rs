//! Changes of flow entries, groups and meters. Each change is validated before it is made, and a batch is
//! reverted as a whole if one change is refused.

mod group;
mod learn;
mod meter;

use super::action::{Reference, port};
use super::batch::{BATCH_WORK, Batch, DecidedPacket, Undo};
use super::message::{
    ALL_TABLES, ANY_GROUP, Event, FlowCommand, FlowError, FlowFilter, FlowFlags, FlowMod, ForwardedRequest,
    Mod, Removed,
};
use super::pipeline::{GroupState, MAX_MASKS, Pipeline, TABLES, Touched, VISIBLE_TABLES, is_selected};
use super::rule::{Rule, RuleRef};
use super::{Action, Field, Instructions, Match};

/// Maximum number of actions of a rule, nested actions included.
const MAX_ACTIONS: usize = 4096;

impl Pipeline {
    /// Makes a batch of changes, either all of them or none.
    ///
    /// # Errors
    /// Returns the index of the first change that is refused, and the reason. In this case, the
    /// tables are unchanged. A batch whose changes visit more than [`BATCH_WORK`] rules, groups and
    /// buckets is refused with [`FlowError::TooMuchWork`]. Usually an estimate detects the excess
    /// before any change is made.
    pub fn modify(&mut self, mods: &[Mod], now_ns: u64) -> Result<(), (usize, FlowError)> {
        self.modify_and_decide(mods, now_ns).map(|_| ())
    }

    /// Makes a batch of changes like [`Pipeline::modify`], and returns its packet-outs in order, translated into
    /// datapath actions.
    ///
    /// # Errors
    /// Returns the errors of [`Pipeline::modify`]. In this case the caller must not send any packet
    /// of the batch.
    pub fn modify_and_decide(
        &mut self,
        mods: &[Mod],
        now_ns: u64,
    ) -> Result<Vec<DecidedPacket>, (usize, FlowError)> {
        if let Some(place) = self.place_beyond(mods, BATCH_WORK) {
            return Err((place, FlowError::TooMuchWork));
        }
        let mut batch = Batch::new(now_ns, self.held, self.held_most);
        let told = self.events.mark();
        for (place, change) in mods.iter().enumerate() {
            if let Err(why) = self.change_in(change, &mut batch) {
                for step in batch.into_steps() {
                    self.undo(step);
                }
                self.events.back_to(told);
                self.learned.forget_orphans();
                return Err((place, why));
            }
        }
        self.drop_orphans(now_ns);
        self.queue_vacancy_events();
        Ok(std::mem::take(&mut batch.decided))
    }

    /// Makes one change of a batch. Returns the reason if the change is refused.
    pub(super) fn change_in(&mut self, change: &Mod, batch: &mut Batch) -> Result<(), FlowError> {
        match change {
            Mod::Flow(change) => self.flow_mod(change, batch),
            Mod::Group(change) => {
                let existed = self.is_about_group(change);
                self.group_mod(change, batch)?;
                if self.events.forwards_requests() {
                    self.forward_group_mod(change, existed);
                }
                Ok(())
            }
            Mod::Meter(change) => {
                self.meter_mod(change, batch)?;
                if self.events.forwards_requests() {
                    let request = ForwardedRequest::Meter(change.clone());
                    self.events.queue(Event::Request(Box::new(request)));
                }
                Ok(())
            }
            Mod::PacketOut(packet) => self.decide_packet_out(packet, batch),
        }
    }

    fn undo(&mut self, step: Undo) {
        match step {
            Undo::Added(at) => {
                self.take_out(at);
            }
            Undo::Removed(at, rule, doomed) => {
                self.rules.restore(at, *rule, doomed);
                self.link(at);
            }
            Undo::Changed(at, old) => {
                self.rules.set_cookie(at, old.cookie);
                let Some(rule) = self.rules.get_mut(at) else { return };
                let (table, matching) = (old.table, old.matching);
                let parts = usize::from(old.is_conjunctive());
                let were = usize::from(rule.is_conjunctive());
                self.learned.unlinked(rule);
                self.uses.unlinked(rule);
                self.held = (self.held + old.memory()).saturating_sub(rule.memory());
                *rule = *old;
                self.learned.linked(rule);
                self.uses.linked(rule);
                let held = &mut self.tables[usize::from(table)].conjunctive;
                *held = *held + parts - were;
                self.rules.update_work(at);
                self.touch_rule(at, table, matching);
            }
            Undo::Times(at, modified_ns) => {
                if let Some(rule) = self.rules.get_mut(at) {
                    rule.modified_ns = modified_ns;
                    self.touch_times(at);
                }
            }
            Undo::Group(id, state) => {
                let more = state.as_ref().map_or(0, |state| state.memory());
                let less = self.groups.get(&id).map_or(0, GroupState::memory);
                self.held = (self.held + more).saturating_sub(less);
                let count = |state: Option<&GroupState>| state.map_or(0, |state| state.group.buckets.len());
                let less = count(self.groups.get(&id));
                self.buckets = self.buckets + count(state.as_deref()) - less;
                if let Some(state) = &state {
                    self.uses.group_linked(&state.meters);
                }
                let undone = match state {
                    Some(state) => self.groups.insert(id, *state),
                    None => self.groups.remove(&id),
                };
                if let Some(undone) = undone {
                    self.uses.group_unlinked(&undone.meters);
                }
                self.touch(Touched::All);
            }
            Undo::Meter(id, state) => {
                match state {
                    Some(state) => self.meters.insert(id, *state),
                    None => self.meters.remove(&id),
                };
                self.touch(Touched::All);
            }
        }
    }

    /// Adds a rule that is already in `rules` to its flow table and to the reference counts of learned rules, groups
    /// and meters.
    fn link(&mut self, at: RuleRef) {
        let Some(rule) = self.rules.get(at) else { return };
        let (number, matching, priority) = (rule.table, rule.matching, rule.priority);
        let parts = usize::from(rule.is_conjunctive());
        self.learned.linked(rule);
        self.uses.linked(rule);
        self.held += rule.memory();
        let table = &mut self.tables[usize::from(number)];
        let rule = lookup::Rule { value: matching.value.0, mask: matching.mask.0, priority, payload: at };
        // The insertion cannot fail, because the limits of tables are far below the capacity of a classifier.
        let _ = table.classifier.insert(rule);
        table.conjunctive += parts;
        if let Some(rule) = self.rules.get(at) {
            table.evictable.linked(rule);
        }
        self.touch_rule(at, number, matching);
    }

    fn take_out(&mut self, at: RuleRef) -> Option<Rule> {
        let rule = self.rules.remove(at)?;
        self.learned.unlinked(&rule);
        self.uses.unlinked(&rule);
        self.held = self.held.saturating_sub(rule.memory());
        let table = &mut self.tables[usize::from(rule.table)];
        table.classifier.remove(&rule.matching.value.0, &rule.matching.mask.0, rule.priority);
        table.conjunctive -= usize::from(rule.is_conjunctive());
        table.evictable.unlinked(&rule);
        self.touch_rule(at, rule.table, rule.matching);
        Some(rule)
    }

    /// Records that only the times of a rule have changed. Cached megaflows therefore remain valid.
    fn touch_times(&mut self, at: RuleRef) {
        self.touch(Touched::Settings);
        self.rules.mark(at, self.version());
    }

    /// Removes a rule and returns it. Queues the removal event if the rule requests the event.
    /// Returns `None` if the rule does not exist.
    pub(super) fn remove_rule(&mut self, at: RuleRef, why: Removed, now_ns: u64) -> Option<Rule> {
        let rule = self.take_out(at)?;
        let event = || Event::Removed(rule.stats(now_ns), why);
        if rule.flags.send_removed {
            self.events.queue(event());
        } else if self.events.is_monitored() {
            self.events.queue_change(event);
        }
        Some(rule)
    }

    /// Removes a rule as part of a batch, and records the removal in the undo log.
    fn remove_in(&mut self, at: RuleRef, why: Removed, batch: &mut Batch) {
        if let Some(rule) = self.remove_rule(at, why, batch.now_ns) {
            batch.removed(at, rule, self.rules.doomed_chain(at));
        }
    }

    fn flow_mod(&mut self, change: &FlowMod, batch: &mut Batch) -> Result<(), FlowError> {
        let change = &*self.in_form(change)?;
        let is_delete = matches!(change.command, FlowCommand::Delete { .. });
        if usize::from(change.table) >= TABLES && !(is_delete && change.table == ALL_TABLES) {
            return Err(FlowError::BadTable);
        }
        if !is_delete && change.table >= VISIBLE_TABLES {
            return Err(FlowError::HiddenTable);
        }
        if !is_delete {
            self.check(&change.instructions, change.table)?;
        }
        match change.command {
            FlowCommand::Add => self.add(change, batch),
            FlowCommand::Modify { strict, or_add } => {
                batch.work(self.work_to_search(change, strict))?;
                let found = self.targets(change, strict);
                if found.is_empty() && or_add && change.cookie_mask == 0 {
                    return self.add(change, batch);
                }
                batch.work(self.work_to_change(&found))?;
                found.into_iter().try_for_each(|at| self.change(at, change, batch))
            }
            FlowCommand::Delete { strict } => {
                batch.work(self.work_to_search(change, strict))?;
                let found = self.targets(change, strict);
                batch.work(self.work_to_change(&found))?;
                for at in found {
                    self.remove_in(at, Removed::Delete, batch);
                }
                Ok(())
            }
        }
    }

    /// Returns the rules that a flow-mod changes or removes. With `strict`, a rule must have exactly the match and
    /// priority of the flow-mod.
    fn targets(&self, change: &FlowMod, strict: bool) -> Vec<RuleRef> {
        let is_meant = |rule: &Rule| {
            (rule.cookie ^ change.cookie_value) & change.cookie_mask == 0
                && change.out_port.is_none_or(|port| rule.instructions.outputs_to(port))
                && change
                    .out_group
                    .is_none_or(|group| group == ANY_GROUP || rule.instructions.uses_group(group))
        };
        if strict {
            let found = self.named(change).copied();
            return found.filter(|at| self.rules.get(*at).is_some_and(is_meant)).collect();
        }
        let filter = FlowFilter { table: change.table, matching: change.matching, ..FlowFilter::default() };
        let is_meant =
            |(at, rule): (RuleRef, &Rule)| (is_selected(&filter, rule) && is_meant(rule)).then_some(at);
        if change.cookie_mask != u64::MAX && change.table == ALL_TABLES {
            return self.rules.iter().filter_map(is_meant).collect();
        }
        let mut found: Vec<RuleRef> = if change.cookie_mask == u64::MAX {
            let of = |table| self.rules.with_cookie(table, change.cookie_value);
            let tables = self.rules.tables_with(change.table, change.cookie_value);
            tables.flat_map(of).filter_map(is_meant).collect()
        } else {
            self.rules_of_table(change.table).filter_map(is_meant).collect()
        };
        // Sorted in the order in which a scan over all rules finds the rules.
        found.sort_unstable();
        found
    }

    fn add(&mut self, change: &FlowMod, batch: &mut Batch) -> Result<(), FlowError> {
        let now_ns = batch.now_ns;
        let Match { value, mask } = change.matching;
        let table = &self.tables[usize::from(change.table)];
        let old = table.classifier.get(&value.0, &mask.0, change.priority).copied();
        batch.work(self.work_of_add(change))?;
        if old.is_none()
            && change.flags.check_overlap
            && table.classifier.overlaps(&value.0, &mask.0, change.priority)
        {
            return Err(FlowError::Overlap);
        }
        if old.is_none() && table.classifier.masks() >= MAX_MASKS && !table.classifier.has_mask(&mask.0) {
            return Err(FlowError::TableFull);
        }
        if old.is_none() && table.classifier.len() >= table.limit() as usize {
            let victim = if table.evicts() { self.victim(change.table, change.importance) } else { None };
            let victim = victim.ok_or(FlowError::TableFull)?;
            batch.work(self.rules.work_at(victim))?;
            self.remove_in(victim, Removed::Eviction, batch);
        }
        let mut rule = Rule {
            table: change.table,
            priority: change.priority,
            matching: change.matching,
            cookie: change.cookie.unwrap_or(0),
            idle_timeout: change.idle_timeout,
            hard_timeout: change.hard_timeout,
            importance: change.importance,
            flags: change.flags,
            instructions: change.instructions.clone(),
            created_ns: now_ns,
            modified_ns: now_ns,
            used_ns: now_ns,
            packets: 0,
            bytes: 0,
        };
        let less = old.and_then(|old| self.rules.get(old)).map_or(0, Rule::memory);
        if (self.held + rule.memory()).saturating_sub(less) > self.held_most
            || !batch.has_room(self.held, rule.memory())
        {
            return Err(FlowError::TableFull);
        }
        if let Some(old) = old
            && let Some(before) = self.take_out(old)
        {
            if !change.flags.reset_counts {
                (rule.packets, rule.bytes) = (before.packets, before.bytes);
            }
            if self.events.is_monitored() {
                // Replacing a rule is reported as an addition, as in Open vSwitch.
                let differs = before.instructions != rule.instructions;
                let did = || differs.then(|| Box::new(before.instructions.clone()));
                self.events.queue_change(|| Event::Added(rule.stats(now_ns), did()));
            }
            batch.removed(old, before, self.rules.doomed_chain(old));
        } else if self.events.is_monitored() {
            self.events.queue_change(|| Event::Added(rule.stats(now_ns), None));
        }
        let at = self.rules.insert(rule);
        self.link(at);
        batch.added(at);
        Ok(())
    }

    fn change(&mut self, at: RuleRef, change: &FlowMod, batch: &mut Batch) -> Result<(), FlowError> {
        let now_ns = batch.now_ns;
        let Some(rule) = self.rules.get_mut(at) else { return Ok(()) };
        batch.work_on(change.instructions.charged_memory())?;
        let does_same = rule.instructions == change.instructions;
        let is_same = does_same && change.cookie.is_none_or(|cookie| cookie == rule.cookie);
        if is_same && !change.flags.reset_counts && rule.flags.send_removed >= change.flags.send_removed {
            // Only the modification time changes.
            batch.retimed(at, rule.modified_ns);
            rule.modified_ns = now_ns;
            self.touch_times(at);
            return Ok(());
        }
        let (less, more) = (rule.instructions.charged_memory(), change.instructions.charged_memory());
        let grows = more.saturating_sub(less);
        let kept = if batch.knows(at) { 0 } else { rule.memory() };
        if grows > 0 && self.held + grows > self.held_most || !batch.has_room(self.held, grows + kept) {
            return Err(FlowError::TableFull);
        }
        self.held = (self.held + more).saturating_sub(less);
        batch.changed(at, rule);
        let were = usize::from(rule.is_conjunctive());
        let tells = !is_same && self.events.is_monitored();
        let did = (tells && !does_same).then(|| Box::new(rule.instructions.clone()));
        self.learned.unlinked(rule);
        self.uses.unlinked(rule);
        if let Some(cookie) = change.cookie {
            self.rules.set_cookie(at, cookie);
        }
        let Some(rule) = self.rules.get_mut(at) else { return Ok(()) };
        if !does_same {
            rule.instructions = change.instructions.clone();
        }
        if change.flags.reset_counts {
            (rule.packets, rule.bytes) = (0, 0);
        }
        self.learned.linked(rule);
        self.uses.linked(rule);
        rule.modified_ns = now_ns;
        rule.flags.send_removed |= change.flags.send_removed;
        let (table, matching) = (rule.table, rule.matching);
        let parts = usize::from(rule.is_conjunctive());
        if tells {
            self.events.queue_change(|| Event::Modified(rule.stats(now_ns), did));
        }
        let held = &mut self.tables[usize::from(table)].conjunctive;
        *held = *held + parts - were;
        self.rules.update_work(at);
        self.touch_rule(at, table, matching);
        Ok(())
    }

    /// Restores the counts (packets, octets) and times (added, changed, last used; in nanoseconds) of a rule that a
    /// predecessor process handed over.
    pub fn resume_counts(
        &mut self,
        table: u8,
        matching: &Match,
        priority: u16,
        counts: (u64, u64),
        times: (u64, u64, u64),
    ) {
        let Some(table) = self.tables.get(usize::from(table)) else { return };
        let Some(at) = table.classifier.get(&matching.value.0, &matching.mask.0, priority).copied() else {
            return;
        };
        if let Some(rule) = self.rules.get_mut(at) {
            (rule.packets, rule.bytes) = counts;
            (rule.created_ns, rule.modified_ns, rule.used_ns) = times;
        }
    }

    /// Restores the flags of a rule that a predecessor process handed over. The flags are only
    /// displayed. Flags that take effect when a rule is added have no effect in this call.
    pub fn resume_flags(&mut self, table: u8, matching: &Match, priority: u16, flags: FlowFlags) {
        let Some(table) = self.tables.get(usize::from(table)) else { return };
        let at = table.classifier.get(&matching.value.0, &matching.mask.0, priority).copied();
        if let Some(rule) = at.and_then(|at| self.rules.get_mut(at)) {
            rule.flags = flags;
        }
    }

    /// Reduces the time-outs of a rule to at most these values, in seconds, at the end of a TCP connection
    /// (`fin_timeout`). An argument of 0 leaves the time-out unchanged.
    pub fn shorten(&mut self, at: RuleRef, idle: u16, hard: u16) {
        let Some(rule) = self.rules.get_mut(at) else { return };
        let evictable = &mut self.tables[usize::from(rule.table)].evictable;
        evictable.unlinked(rule);
        let shorter = |own: &mut u16, to: u16| {
            if to != 0 && (*own == 0 || *own > to) {
                *own = to;
            }
        };
        shorter(&mut rule.idle_timeout, idle);
        shorter(&mut rule.hard_timeout, hard);
        evictable.linked(rule);
    }

    /// Queues an event for controllers and monitors.
    pub fn push_event(&mut self, event: Event) {
        self.events.queue(event);
    }

    /// Queues an event that contains events which [`Pipeline::take_events`] has returned. The event is queued even if
    /// the memory of the queue is exhausted.
    pub fn push_taken(&mut self, event: Event) {
        self.events.queue_taken(event);
    }

    /// Adds matched packets and octets to the counters of a rule, and the packets to the counters of its table.
    /// `used_ns` is the time of the last packet in nanoseconds.
    pub fn credit(&mut self, at: RuleRef, packets: u64, bytes: u64, used_ns: u64) {
        if let Some(rule) = self.rules.get_mut(at) {
            (rule.packets, rule.bytes) = (rule.packets + packets, rule.bytes + bytes);
            rule.used_ns = rule.used_ns.max(used_ns);
            let table = &mut self.tables[usize::from(rule.table)];
            (table.lookups, table.matched) = (table.lookups + packets, table.matched + packets);
        }
    }

    /// Adds packets that matched no rule of a table to the table's count of lookups.
    pub fn credit_miss(&mut self, table: u8, packets: u64) {
        if let Some(table) = self.tables.get_mut(usize::from(table)) {
            table.lookups += packets;
        }
    }

    /// Adds packets and octets to the counters of a group and of its bucket with the index `bucket`.
    pub fn credit_group(&mut self, id: u32, bucket: usize, packets: u64, bytes: u64) {
        let Some(state) = self.groups.get_mut(&id) else { return };
        (state.packets, state.bytes) = (state.packets + packets, state.bytes + bytes);
        if let Some(own) = state.buckets.get_mut(bucket) {
            *own = (own.0 + packets, own.1 + bytes);
        }
    }

    /// Validates the instructions of a rule in the table `table`. Returns the reason if they are refused.
    fn check(&self, instructions: &Instructions, table: u8) -> Result<(), FlowError> {
        if instructions.goto.is_some_and(|to| to <= table || usize::from(to) >= TABLES) {
            return Err(FlowError::BadGoto);
        }
        if instructions.meter.is_some_and(|meter| !self.meters.contains_key(&meter)) {
            return Err(FlowError::InvalidMeter);
        }
        let mut count = 0;
        let mut conjunctions = 0;
        for action in &instructions.apply {
            conjunctions += usize::from(matches!(action, Action::Conjunction(_)));
            self.check_action(action, true, &mut count)?;
        }
        let others = instructions.apply.iter().filter(|action| !matches!(action, Action::Note(_))).count();
        if conjunctions > 0 && conjunctions != others {
            return Err(FlowError::BadArgument);
        }
        instructions.write.iter().try_for_each(|action| self.check_action(action, true, &mut count))
    }

    pub(super) fn check_action(
        &self,
        action: &Action,
        groups_exist: bool,
        count: &mut usize,
    ) -> Result<(), FlowError> {
        self.check_part(action, groups_exist, false, count)
    }

    /// Validates an action. `is_in_ct` is true if the action is in `exec` of a `ct` action. Other actions cannot set
    /// the mark and the label of a connection.
    fn check_part(
        &self,
        action: &Action,
        groups_exist: bool,
        is_in_ct: bool,
        count: &mut usize,
    ) -> Result<(), FlowError> {
        *count += 1;
        if *count > MAX_ACTIONS {
            return Err(FlowError::TooMany);
        }
        let is_ct = matches!(action, Action::Ct(_));
        let is_outside = |field: Field| field.belongs_to_connection() && !is_in_ct;
        action.references(&mut |named| match named {
            Reference::Actions(actions) => {
                actions.iter().try_for_each(|action| self.check_part(action, groups_exist, is_ct, count))
            }
            Reference::Group(_) if !groups_exist => Ok(()),
            Reference::Written(part) if is_outside(part.field) => Err(FlowError::BadSetArgument),
            Reference::Constant(field, ..) if is_outside(field) => Err(FlowError::BadSetArgument),
            named => self.check_reference(named),
        })?;
        if action.has_valid_numbers() { Ok(()) } else { Err(FlowError::BadArgument) }
    }

    /// Validates an object that an action names. Nested actions are not validated.
    fn check_reference(&self, named: Reference<'_>) -> Result<(), FlowError> {
        let sound = |part: &super::SubField| {
            if part.is_sound() { self.options.check(part) } else { Err(FlowError::BadArgument) }
        };
        match named {
            Reference::Port(port::TABLE | port::ANY | port::UNSET) => Err(FlowError::BadOutPort),
            Reference::Port(number) if number > port::MAX && number < port::UNSET => {
                Err(FlowError::BadOutPort)
            }
            Reference::Group(id) if !self.groups.contains_key(&id) => Err(FlowError::BadOutGroup),
            Reference::Meter(id) if !self.meters.contains_key(&id) => Err(FlowError::InvalidMeter),
            Reference::Table(table) if usize::from(table) >= TABLES => Err(FlowError::BadArgument),
            Reference::Constant(field, value, mask) => {
                if !field.is_writable() {
                    Err(FlowError::BadSetType)
                } else if value & !field.all_ones() != 0 || mask == 0 || mask & !field.all_ones() != 0 {
                    Err(FlowError::BadSetArgument)
                } else {
                    self.options.check_value(field, value)
                }
            }
            Reference::Read(part) => sound(part),
            Reference::Written(part) => {
                sound(part)?;
                if part.field.is_writable() { Ok(()) } else { Err(FlowError::BadSetType) }
            }
            Reference::Learn(learn) => self.check_learn(learn),
            Reference::Port(_)
            | Reference::Group(_)
            | Reference::Meter(_)
            | Reference::Table(_)
            | Reference::Actions(_) => Ok(()),
        }
    }
}

impl Rule {
    /// Returns the time, in nanoseconds, at which the rule expires if no other packet matches. Returns `None` if the
    /// rule has no time-outs.
    pub(super) fn ends_ns(&self) -> Option<u64> {
        let after = |from: u64, secs: u16| (secs != 0).then(|| from + u64::from(secs) * 1_000_000_000);
        let (hard, idle) =
            (after(self.modified_ns, self.hard_timeout), after(self.used_ns, self.idle_timeout));
        match (hard, idle) {
            (Some(hard), Some(idle)) => Some(hard.min(idle)),
            (hard, idle) => hard.or(idle),
        }
    }

    pub(super) fn is_over(&self, now_ns: u64) -> Option<Removed> {
        if self.ends_ns()? > now_ns {
            return None;
        }
        let hard = self.modified_ns + u64::from(self.hard_timeout) * 1_000_000_000;
        Some(if self.hard_timeout != 0 && hard <= now_ns {
            Removed::HardTimeout
        } else {
            Removed::IdleTimeout
        })
    }
}
