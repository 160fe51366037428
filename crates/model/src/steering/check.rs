//! Checks of the references from ports to steering policies: each policy that a port names must exist.

use crate::check::references::GUESSED;
use crate::spelling::nearest;
use crate::{Cause, Config, Problem, SteeringName};

pub(crate) fn policies(config: &Config, problems: &mut Vec<Problem>) {
    for (name, port) in &config.ports {
        let Some(steering) = port.kind.xdp().and_then(|xdp| xdp.steering.as_ref()) else { continue };
        if !config.steering.contains_key(steering) {
            let known = config.steering.keys().map(SteeringName::as_str).filter(|_| problems.len() < GUESSED);
            let near = nearest(steering.as_str(), known).map(str::to_owned);
            let cause = Cause::NoSuchSteering { steering: steering.to_string(), near };
            problems.push(Problem::new(format!("port.{name}.steering"), cause));
        }
    }
}
