//! Tests the frame types that offers use on the wire. Plugins with the same types in their
//! manifests must be able to run at the same time. An offer with an invalid type must be refused
//! before anything of the bundle is fetched.

use std::sync::{Arc, Mutex};

use equic_plugin::exchange::{
    Accepted, ExchangeConfig, Frame, Kind, Offer, PluginId, Progress, Push, Status,
};
use equic_plugin::{Origin, Policy};

use crate::common::{key, manifest};
use crate::hostile::{give, hand, last_status, offer, victim_of};
use crate::pair::{Heard, Pair, load, progress, taking};

fn id(by: Origin, number: u64) -> PluginId {
    PluginId { by, number }
}

/// Returns a bundle whose plugin defines two frame types. Each number gives a different manifest.
fn with_frames(number: u64) -> Vec<u8> {
    let frames = "[[frames]]\ntype = 0x1f00\nack-eliciting = true\n\
                  [[frames]]\ntype = 0x41\nack-eliciting = true\n";
    let manifest = manifest(
        "\"observe\", \"frames\"",
        &format!("expires = \"{}-01-01T00:00:00Z\"", 2100 + number),
        frames,
    );
    equic_plugin::pack(&manifest, b"code", Some(&key(7))).unwrap()
}

fn push(number: u64) -> Arc<Push> {
    Arc::new(Push::new(&with_frames(number)).unwrap().at_both_ends())
}

/// The loaded plugins: for each, the side that offered it, and its frame types on the wire.
type Allotted = Arc<Mutex<Vec<(Origin, Vec<u64>)>>>;

/// Returns the configuration of an end that accepts such plugins, and offers those in `push`.
fn end(push: Vec<Arc<Push>>) -> ((ExchangeConfig, Heard), Allotted) {
    let allotted = Allotted::default();
    let loaded = allotted.clone();
    let config = taking(|config| {
        config.policy = Policy::parse("anyone = [\"observe\", \"frames\"]").ok();
        config.push = push;
        config.load = Arc::new(move |plugin: &Accepted<'_>| {
            loaded.lock().unwrap().push((plugin.origin, plugin.frame_types.to_vec()));
            load(plugin)
        });
    });
    (config, allotted)
}

/// Returns the sorted frame types of the plugins that `by` offered and that this end has loaded.
fn types(of: &Allotted, by: Origin) -> Vec<Vec<u64>> {
    let all = of.lock().unwrap();
    let mut types: Vec<Vec<u64>> =
        all.iter().filter(|(origin, _)| *origin == by).map(|(_, types)| types.clone()).collect();
    types.sort();
    types
}

#[test]
fn frame_types_of_plugins_with_equal_names_differ_on_the_wire() {
    for seed in 0..40 {
        let ((server, servers), (client, clients)) =
            (end((0..3).map(push).collect()), end((3..6).map(push).collect()));
        let mut pair = Pair::new(seed, 0.3, server, client);
        pair.run();
        for end in &mut pair.ends {
            end.attached.sort();
            let all = [Origin::Own, Origin::Peer]
                .into_iter()
                .flat_map(|by| (0..3).map(move |n| id(by, n)));
            assert_eq!(end.attached, all.collect::<Vec<_>>(), "seed {seed}");
        }
        // Both ends must use the same types for each plugin. The check after this loop requires
        // that no two plugins share a type.
        for (ours, theirs) in [(&servers, &clients), (&clients, &servers)] {
            assert_eq!(types(ours, Origin::Own), types(theirs, Origin::Peer), "seed {seed}");
        }
        let all = [types(&servers, Origin::Own), types(&clients, Origin::Own)].concat().concat();
        let mut different = all.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!((all.len(), different.len()), (12, 12), "{all:#x?}");
        assert!(
            types(&clients, Origin::Own).contains(&vec![0x1f00, 0x40]),
            "named, where it can be"
        );
        // A plugin that replaces another one may reuse its frame types. No other plugin may use
        // them.
        pair.ends[0].exchange.offer(push(7), Some(id(Origin::Own, 1)));
        pair.run();
        assert!(pair.ends[1].attached.contains(&id(Origin::Peer, 3)), "seed {seed}");
        pair.ends[0].exchange.detach(id(Origin::Own, 0));
        pair.run();
        pair.ends[0].exchange.offer(push(8), None);
        pair.run();
        let last = servers.lock().unwrap().last().cloned().unwrap();
        assert!(last.1.iter().all(|one| !all.contains(one)), "frames of the old may be under way");
    }
}

#[test]
fn frame_types_that_are_invalid_are_refused_before_the_fetch() {
    let bytes = with_frames(0);
    let with = |plugin, types: &[u64]| {
        Frame::Offer(Offer { frame_types: types.to_vec(), ..offer(plugin, &bytes) })
    };
    let data = Kind::Data.frame_type();
    let rows: [(&[u64], &str); 8] = [
        (&[0x1f01, 0x06], "0x6 is not private"),
        (&[0x1f01, 0xaf], "0xaf belongs to the transport"),
        (&[0x1f01, data], "belongs to the plugin exchange"),
        (&[0x1f01, 0x1f00], "0x1f00 was allotted by the wrong side"),
        (&[0x1f01, 0x1f01], "0x1f01 is allotted twice"),
        (&[0x1f11, 0x1f01], "0x1f11 is already in use"),
        (&[0x1f01, 0x1f0b], "0x1f0b is already in use"),
        (&[0x1f01], "the offer allots 1 frame types, but the plugin has 2"),
    ];
    for (types, why) in rows {
        let (config, _) = end(Vec::new());
        let mut victim = victim_of(config);
        victim.exchange.set_taken(vec![0x1f0b]);
        hand(&mut victim, &with(0, &[0x1f11, 0x1f13])).unwrap();
        give(&mut victim, 0, &bytes);
        assert_eq!(victim.attached, [id(Origin::Peer, 0)]);
        hand(&mut victim, &with(1, types)).unwrap();
        if types.len() == 2 {
            assert_eq!(last_status(&victim), Some(Status::FrameTypes), "at once: {why}");
        }
        give(&mut victim, 1, &bytes);
        assert_eq!((victim.attached.len(), victim.exchange.memory()), (1, 0), "{why}");
        let Some(Progress::Over(Status::FrameTypes, said)) = progress(&victim.heard).pop() else {
            panic!("{why}: {:?}", progress(&victim.heard))
        };
        assert!(said.contains(why), "{said}");
        // The connection must remain usable, so that another plugin is accepted.
        hand(&mut victim, &with(2, &[0x1f01, 0x41])).unwrap();
        give(&mut victim, 2, &bytes);
        assert_eq!(victim.attached.len(), 2);
    }
}

#[test]
fn frame_types_in_use_on_the_connection_are_not_allotted() {
    let ((server, servers), (client, _)) = (end(Vec::new()), end(Vec::new()));
    let mut pair = Pair::new(1, 0.0, server, client);
    pair.ends[0].exchange.set_taken(vec![0x1f01, 0x1f03, 0x41]);
    pair.ends[0].exchange.offer(push(0), None);
    pair.run();
    assert_eq!(types(&servers, Origin::Own), [[0x1f05, 0x43]]);
}
