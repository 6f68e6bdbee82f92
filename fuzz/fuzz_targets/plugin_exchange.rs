//! A peer that says anything in the exchange of plugins: nothing panics, and what it can have kept is bounded.
//!
//! The input is a sequence of frames, each with two bytes of length before it; the first byte says which of the known
//! bundles the other end offers, too. The rest of it, taken as transport parameter, is read as well.
#![no_main]

use std::sync::{Arc, OnceLock};

use equic_plugin::exchange::{
    Accepted, Action, Exchange, ExchangeConfig, Frame, Kind, Loaded, Parameter, PluginId, Push,
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

const MANIFEST: &str = "name = \"a\"\nversion = \"1.0.0\"\nauthor = \"A\"\nabi = 1\nsteps = 1000\n\
    capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"f\"\n";

fn config() -> Arc<ExchangeConfig> {
    static CONFIG: OnceLock<Arc<ExchangeConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let mut config = ExchangeConfig::new(load);
        config.policy = Policy::parse("anyone = [\"observe\"]").ok();
        let bundle = pack(MANIFEST, b"code", None).expect("it is a plugin");
        config.push = vec![Arc::new(Push::new(&bundle).expect("it is a bundle"))];
        Arc::new(config)
    });
    config.clone()
}

/// The parameters of a peer that takes plugins.
fn parameters(config: &ExchangeConfig) -> Vec<u8> {
    let (id, value) = config.parameter();
    let mut bytes = (id | 0x8000_0000).to_be_bytes()[4..].to_vec();
    bytes.push(value.len() as u8);
    [bytes, value].concat()
}

fuzz_target!(|data: &[u8]| {
    if let Ok(parameter) = Parameter::read(data) {
        // Classes that a peer's plugin never gets are not written.
        let again = Parameter::read(&parameter.write(None)).expect("what is written is read");
        assert_eq!((again.abi, again.budgets), (parameter.abi, parameter.budgets));
    }
    let Some((first, mut rest)) = data.split_first() else { return };
    let config = config();
    let mut end = Exchange::new(config.clone());
    if first & 2 != 0 {
        end.set_side(Side::Server);
    }
    if first % 2 == 0 {
        end.handle_parameters(&parameters(&config)).expect("they are ours");
        end.handle_confirmed();
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
        // What the application and the clock do in between is the length's to say, too.
        match length % 5 {
            0 => _ = end.detach(PluginId { by: Origin::Peer, number: length as u64 % 16 }),
            1 => _ = end.detach(PluginId { by: Origin::Own, number: 0 }),
            2 => _ = end.check_expiry(),
            _ => {}
        }
        assert!(end.memory() <= (320 << 10) * 9 / 8);
    }
});
