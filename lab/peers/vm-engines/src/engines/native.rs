//! The same work as a Rust function, called through a pointer.

use std::hint::black_box;

use super::{Engine, Subject, context};
use crate::Object;

pub struct Native {
    context: [u64; 16],
    functions: [fn(&mut [u64; 16]) -> u64; 4],
}

impl Default for Native {
    fn default() -> Self {
        Native { context: context(), functions: [empty, on_ack, looped, helper] }
    }
}

impl Engine for Native {
    fn name(&self) -> &str {
        "native, by pointer"
    }

    fn call(&mut self, subject: Subject, times: u32) {
        for _ in 0..times {
            let function = black_box(self.functions)[subject as usize];
            black_box(function(black_box(&mut self.context)));
        }
    }

    fn compile(&mut self, _object: &Object) -> Option<f64> {
        None
    }
}

fn empty(_: &mut [u64; 16]) -> u64 {
    0
}

fn on_ack(c: &mut [u64; 16]) -> u64 {
    let [
        latest,
        min,
        smoothed,
        var,
        acked,
        window,
        threshold,
        avoided,
        in_flight,
        datagram,
        pace,
        limited,
        ..,
    ] = c;
    *min = (*min).min(*latest);
    let distance = smoothed.abs_diff(*latest);
    *var = (3_u64.wrapping_mul(*var)).wrapping_add(distance) >> 2;
    *smoothed = (7_u64.wrapping_mul(*smoothed)).wrapping_add(*latest) >> 3;
    *in_flight = in_flight.wrapping_sub(*acked);
    if *limited == 0 {
        if *window < *threshold {
            *window = window.wrapping_add(*acked);
        } else {
            *avoided = avoided.wrapping_add(*acked);
            if *avoided >= *window {
                *avoided = avoided.wrapping_sub(*window);
                *window = window.wrapping_add(*datagram);
            }
        }
    }
    *pace = (*window << 10) / (*smoothed | 1);
    *window
}

fn looped(c: &mut [u64; 16]) -> u64 {
    let mut sum = 0_u64;
    for i in 0..c[12] {
        sum ^= sum << 1;
        sum = sum.wrapping_add(i);
    }
    sum
}

fn helper(c: &mut [u64; 16]) -> u64 {
    let now: fn(u64) -> u64 = black_box(|a| a);
    now(c[0]) + 1
}
