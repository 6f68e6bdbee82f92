//! Replaces the compiler on machines that the compiler does not support. Such machines interpret
//! programs.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::check::{Checked, Function};
use crate::helper::{HelperHost, Helpers, Run};
use crate::interpret::End;
use crate::sandbox::Sandbox;

/// Compiled code of a program. No value of this type exists on this machine, because there is no
/// compiler for it.
#[derive(Debug)]
pub(crate) struct Compiled<H> {
    never: Infallible,
    host: PhantomData<H>,
}

impl<H: HelperHost> Compiled<H> {
    pub(crate) fn new(
        _checked: &Checked,
        _entries: &[Function],
        _memory: usize,
        _helpers: Arc<Helpers<H>>,
    ) -> io::Result<Option<Compiled<H>>> {
        Ok(None)
    }

    pub(crate) fn size(&self) -> usize {
        match self.never {}
    }
}

/// A compiled program together with its sandbox. No value of this type exists on this machine,
/// because there is no compiler for it.
#[derive(Debug)]
pub(crate) struct Ready<H> {
    compiled: Arc<Compiled<H>>,
}

impl<H: HelperHost> Ready<H> {
    pub(crate) fn new(compiled: Arc<Compiled<H>>, _sandbox: Sandbox) -> Ready<H> {
        Ready { compiled }
    }

    pub(crate) fn sandbox(&mut self) -> &mut Sandbox {
        match self.compiled.never {}
    }

    pub(crate) fn enter(
        &mut self,
        _entry: u32,
        _arguments: [u64; 5],
        _budget: &mut u64,
        _data: &mut H::Data<'_>,
    ) -> End {
        match self.compiled.never {}
    }
}

/// Functions through which compiled code calls helpers. On this machine, there is no compiled code,
/// so the type is empty.
#[derive(Debug, Default)]
pub(crate) struct Shims;

impl Shims {
    pub(crate) fn push<H: HelperHost, R: Run<H>>(&mut self) {}
}
