//! Actions that write fields, with the checks that all encodings of these actions share.

use switch::flow::{Action, SubField};

use crate::wire::error::Error;
use crate::wire::oxm::Wire;

/// Returns the action that sets the bits of `mask` in a field to `value`.
pub(super) fn set(wire: Wire, value: u128, mask: u128, load: bool) -> Result<Action, Error> {
    if !wire.field.is_writable() {
        return Err(Error::ActionSetType);
    }
    if value & !mask != 0 {
        return Err(Error::ActionSetArgument);
    }
    Ok(Action::Set { field: wire.field, value, mask, load })
}

/// Returns the action that copies a subfield to another one.
pub(super) fn movement(from: SubField, to: SubField) -> Result<Action, Error> {
    if from.bits != to.bits {
        return Err(Error::ActionArgument);
    }
    if !to.field.is_writable() {
        return Err(Error::ActionSetType);
    }
    Ok(Action::Move { from, to })
}
