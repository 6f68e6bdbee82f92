//! Tests that the cache loads each program once, shares it, and keeps to its memory limit.

#[path = "common/clang.rs"]
mod clang;

use std::sync::Arc;

use equic_vm::{Cache, Caller, Config, Helpers};

/// Creates an object file whose function returns `number`. Tests that run in parallel use different
/// names in `test`.
fn object(test: &str, number: u32) -> Vec<u8> {
    clang::object_of(&format!("long f(void) {{ return {number}; }}\n"), &format!("{test}-{number}"))
}

fn cache(limit: usize) -> Cache<()> {
    Cache::new(Arc::new(Helpers::new()), Config::default(), limit)
}

fn call(cache: &Cache<()>, elf: &[u8]) -> u64 {
    let program = cache.load(elf).unwrap();
    let entry = program.entry("f").unwrap();
    program.instantiate().unwrap().call(entry, [0; 5], &mut 100, &mut ()).unwrap()
}

#[test]
fn cache_loads_an_object_once() {
    let (cache, one, two) = (cache(1 << 20), object("once", 1), object("once", 2));
    let first = cache.load(&one).unwrap();
    assert!(first.is_same(&cache.load(&one.clone()).unwrap()));
    assert!(!first.is_same(&cache.load(&two).unwrap()));
    assert_eq!(cache.len(), 2);
    assert_eq!([call(&cache, &one), call(&cache, &two)], [1, 2]);
}

/// Object files that differ in one byte must be loaded as different programs.
#[test]
fn cache_compares_whole_objects() {
    let (cache, one) = (cache(1 << 20), object("whole", 1));
    let first = cache.load(&one).unwrap();
    let code = [0xb7, 0, 0, 0, 1, 0, 0, 0];
    let at = one.windows(8).position(|bytes| *bytes == code).unwrap();
    let mut other = one.clone();
    other[at + 4] = 7;
    assert!(!first.is_same(&cache.load(&other).unwrap()));
    assert_eq!([call(&cache, &one), call(&cache, &other)], [1, 7]);
}

#[test]
fn cache_evicts_the_least_recently_used_program() {
    let objects: Vec<_> = (1..5).map(|number| object("oldest", number)).collect();
    let whole = cache(1 << 20);
    whole.load(&objects[0]).unwrap();
    let size = whole.bytes();
    let cache = cache(3 * size);
    let programs: Vec<_> = objects[..3].iter().map(|elf| cache.load(elf).unwrap()).collect();
    assert_eq!((cache.len(), cache.bytes()), (3, 3 * size));
    cache.load(&objects[0]).unwrap();
    cache.load(&objects[3]).unwrap();
    assert_eq!((cache.len(), cache.bytes()), (3, 3 * size));
    let again = |which: usize| programs[which].is_same(&cache.load(&objects[which]).unwrap());
    assert!(again(0) && again(2), "they were used after the one that went");
    assert!(!again(1), "it was the one used longest ago");
    let entry = programs[1].entry("f").unwrap();
    let result = programs[1].instantiate().unwrap().call(entry, [0; 5], &mut 100, &mut ());
    assert_eq!(result, Ok(2), "a program that is in use works on");
}

#[test]
fn cache_keeps_no_program_that_is_too_large_or_refused() {
    let cache = cache(100);
    assert_eq!(call(&cache, &object("limit", 5)), 5);
    assert!(cache.load(b"no object").is_err());
    assert!(cache.is_empty() && cache.bytes() == 0);
}

/// The same object file is loaded through two caches with different helpers. Each cache must return
/// its own program, because the meaning of a helper call depends on the table of helpers.
#[test]
fn cache_programs_use_the_helpers_of_their_cache() {
    let elf = clang::object_of(
        "extern long number(void);\nlong f(void) { return number(); }\n",
        "helpers",
    );
    for expected in [3, 4] {
        let mut helpers = Helpers::<()>::new();
        helpers.add(1, "number", 1, move |_: &mut Caller<'_, ()>| Ok(expected)).unwrap();
        let cache = Cache::new(Arc::new(helpers), Config::default(), 1 << 20);
        assert_eq!([call(&cache, &elf), call(&cache, &elf)], [expected; 2]);
    }
}
