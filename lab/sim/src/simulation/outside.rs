//! Support for runs in real time that exchange data with other programs.
//!
//! The program that drives the run calls [`Simulation::run`] with the elapsed time, and passes
//! input to an agent with [`Simulation::act`]. Then it waits until the time of
//! [`Simulation::next_event`], or for more input.

use std::any::Any;

use super::{AgentId, Simulation};
use crate::agent::Agent;
use crate::time::Time;

impl Simulation {
    /// Calls `act` with an agent at the current time, and then sends the agent's datagrams. Returns
    /// `None` if the agent is not of type `A`, or if the run has not begun.
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
