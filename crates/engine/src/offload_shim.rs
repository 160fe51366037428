//! TEMPORARY
use packet::{DropReason, FlowKey, Layers};
use port::{Capabilities, FrameMemory, FramePool, Packet};
pub fn complete(
    p: Packet,
    able: &Capabilities,
    pool: &mut FramePool,
    mut out: impl FnMut(Packet, &mut FramePool),
) -> Result<(), (Packet, DropReason)> {
    if p.len() > able.max_frame as usize {
        return Err((p, DropReason::MtuExceeded));
    }
    out(p, pool);
    Ok(())
}
pub fn mark_bare_checksum(_p: &mut Packet, _m: &FrameMemory, _l: &Layers, _k: &FlowKey) {}
pub struct Filter;
impl std::fmt::Debug for Filter {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
impl Filter {
    pub fn matches(&self, _k: &FlowKey) -> bool {
        true
    }
}
