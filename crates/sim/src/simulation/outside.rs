//! Runs that are connected to the outside: a network in real time, whose ends are other programs.
//!
//! The driver calls [`Simulation::run`] with the elapsed time and passes input to an agent with
//! [`Simulation::act`]. Then it waits until [`Simulation::next_event`] or for more input.

use std::any::Any;

use super::{AgentId, Simulation};
use crate::agent::Agent;
use crate::time::Time;

impl Simulation {
    /// Runs `act` on an agent at the present time, and then sends what the agent has to send.
    /// Returns `None` if the agent is not of type `A`, or if the run has not begun.
    pub fn act<A: Agent, T>(&mut self, id: AgentId, act: impl FnOnce(&mut A) -> T) -> Option<T> {
        if !self.started {
            return None;
        }
        let agent: &mut dyn Any = &mut *self.agents.get_mut(id.0 as usize)?.agent;
        let done = act(agent.downcast_mut()?);
        self.serve(id);
        Some(done)
    }

    /// Returns the time of the next event, or `None` if no event is scheduled.
    pub fn next_event(&self) -> Option<Time> {
        self.agenda.next()
    }
}
