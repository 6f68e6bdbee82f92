//! A run that something outside of it takes part in: a network in real time, whose ends are other programs.
//!
//! The driver calls [`Simulation::run`] with the time that has passed, hands what came to an agent by
//! [`Simulation::act`], and waits until [`Simulation::next_event`] or until more comes.

use std::any::Any;

use super::{AgentId, Simulation};
use crate::agent::Agent;
use crate::time::Time;

impl Simulation {
    /// Lets `act` do something with an agent at the present moment, then asks the agent what it has to send. None if
    /// the type of the agent is not `A`, or the run has not begun.
    pub fn act<A: Agent, T>(&mut self, id: AgentId, act: impl FnOnce(&mut A) -> T) -> Option<T> {
        if !self.started {
            return None;
        }
        let agent: &mut dyn Any = &mut *self.agents.get_mut(id.0 as usize)?.agent;
        let done = act(agent.downcast_mut()?);
        self.serve(id);
        Some(done)
    }

    /// The moment of the next event; none: nothing happens any more of itself.
    pub fn next_event(&self) -> Option<Time> {
        self.agenda.next()
    }
}
