//! Fuzzes the plugin exchange with a peer that sends anything. Nothing may panic, and the peer must
//! not be able to make this endpoint use more memory than the limits allow.
//!
//! The input is a sequence of frames, each preceded by its length in two bytes. The first byte has
//! flags: whether the peer supports the exchange, which side it is, and whether this endpoint has a
//! cache. Further flags select whether a valid plugin is offered first, and how much of its
//! manifest the offer contains. The whole input is also parsed as a transport parameter.
#![no_main]

use std::sync::{Arc, OnceLock};

use equic_plugin::exchange::{
    Accepted, Action, Exchange, ExchangeConfig, Frame, Kind, Loaded, MemoryCache, Offer, Parameter,
    PluginId, Push,
};
use equic_plugin::{Origin, Policy, pack};
use equic_transport::operation::Hook;
use equic_wire::Side;
use libfuzzer_sys::fuzz_target;

struct Nothing;

impl Hook for Nothing {}

fn load(_: &Accepted<'_>) -> Result<Loaded, String> {
    Ok(Loaded { hook: Box::new(Nothing), points: Vec::new(), frames: Vec::new() })
}

const MANIFEST: &str = "name = \"a\"\nversion = \"1.0.0\"\nauthor = \"A\"\nabi = 2\nsteps = 1000\n\
    capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"f\"\n";

fn bundle() -> &'static [u8] {
    static BUNDLE: OnceLock<Vec<u8>> = OnceLock::new();
    BUNDLE.get_or_init(|| pack(MANIFEST, b"code", None).expect("it is a plugin"))
}

/// Returns the configuration of this endpoint, with or without a plugin cache.
fn config(cached: bool) -> Arc<ExchangeConfig> {
    static CONFIGS: OnceLock<[Arc<ExchangeConfig>; 2]> = OnceLock::new();
    let configs = CONFIGS.get_or_init(|| {
        [false, true].map(|cached| {
            let mut config = ExchangeConfig::new(load);
            config.policy = Policy::parse("anyone = [\"observe\", \"frames\"]").ok();
            config.push = vec![Arc::new(Push::new(bundle()).expect("it is a bundle"))];
            config.cache = if cached { Some(Arc::new(MemoryCache::new(0))) } else { None };
            Arc::new(config)
        })
    });
    configs[usize::from(cached)].clone()
}

/// Returns an offer of the known bundle as plugin 0. The offer contains the first `carried` bytes
/// of the bundle's preamble.
fn offer(carried: usize) -> Vec<u8> {
    let push = Push::new(bundle()).expect("it is a bundle");
    let preamble = bundle().len() - b"code".len();
    let offer = Frame::Offer(Offer {
        plugin: 0,
        hash: *push.hash(),
        size: bundle().len() as u64,
        preamble: preamble as u64,
        replaces: None,
        frame_types: Vec::new(),
        carried: bundle()[..carried.min(preamble)].to_vec(),
    });
    let mut room = [0; 1200];
    let length = offer.write(&mut room).expect("it has room");
    room[..length].to_vec()
}

/// Returns the transport parameters of a peer that accepts plugins.
fn parameters(config: &ExchangeConfig) -> Vec<u8> {
    let (id, value) = config.parameter();
    let mut bytes = (id | 0x8000_0000).to_be_bytes()[4..].to_vec();
    bytes.push(value.len() as u8);
    [bytes, value].concat()
}

fuzz_target!(|data: &[u8]| {
    if let Ok(parameter) = Parameter::read(data) {
        // The classes are not compared, because `write` leaves out those that a peer's plugin can
        // never get.
        let again = Parameter::read(&parameter.write(None)).expect("what is written is read");
        assert_eq!((again.abi, again.budgets), (parameter.abi, parameter.budgets));
        assert_eq!(again.carried, parameter.carried);
    }
    let Some((first, mut rest)) = data.split_first() else { return };
    let config = config(first & 4 != 0);
    let mut end = Exchange::new(config.clone());
    if first & 2 != 0 {
        end.set_side(Side::Server);
    }
    if first % 2 == 0 {
        end.handle_parameters(&parameters(&config)).expect("they are ours");
        end.handle_confirmed();
        if first & 8 != 0 {
            // If this endpoint has a cache, the offer may contain no part of the preamble.
            let carried = if first & 4 != 0 { 0 } else { usize::from(first >> 4) * 40 };
            end.handle_frame(&offer(carried)).expect("it is a sound offer");
        }
    }
    while let Some((length, more)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(more.len());
        let (frame, more) = more.split_at(length);
        rest = more;
        if let Ok((read, taken)) = Frame::read(frame) {
            let mut room = vec![0; frame.len() + 64];
            let written = read.write(&mut room).expect("it has room");
            let again = Frame::read(&room[..written]).expect("what is written is read");
            assert_eq!((again.0, again.1 <= taken.max(written)), (read, true));
        }
        if end.handle_frame(frame).is_err() {
            return;
        }
        while let Some(action) = end.poll_action() {
            if let Action::Attach { id, .. } = action {
                end.on_attached(id);
            }
        }
        let mut room = [0; 1200];
        for kind in Kind::ALL {
            if let Some((length, sent)) = end.write(kind, &mut room) {
                assert_eq!(Frame::read(&room[..length]).map(|(_, taken)| taken), Ok(length));
                if length % 3 == 0 {
                    end.on_lost(sent);
                }
            }
        }
        // The length of the frame also selects an action of the application or a step of the clock,
        // which happens before the next frame.
        match length % 5 {
            0 => _ = end.detach(PluginId { by: Origin::Peer, number: length as u64 % 16 }),
            1 => _ = end.detach(PluginId { by: Origin::Own, number: 0 }),
            2 => _ = end.check_expiry(),
            _ => {}
        }
        assert!(end.memory() <= (320 << 10) * 9 / 8);
    }
});
