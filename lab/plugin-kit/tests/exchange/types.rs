//! Tests plugins whose frame types have other numbers on the wire than in their manifests. Bytecode
//! must use the numbers of the manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use equic_plugin::exchange::{Accepted, Bytecode, Load, Loaded, Progress, Push, Status};
use equic_plugin::{Bundle, Origin, Policy, decide, pack};
use equic_plugin_kit::{End, Network};
use equic_transport::Connection;
use equic_transport::operation::{
    AttachPoint, Call, Hook, HookContext, HookError, Operation, OwnFrame,
};

use crate::common::{link, network, object, of_text, seed};
use crate::party::{Party, policy, settle};

/// C code that sends five frames of the plugin's type, each with a letter and a number. It reports
/// each received frame to the application: its type, length, letter and number. HEAD has the bytes
/// of the frame type, and LENGTH is the number of these bytes.
const POST: &str = "
    #include <equic_plugin.h>
    static const equic_u8 head[] = {HEAD, 2};
    static equic_u64 sent, acked;

    equic_u64 initopaquedata(void) { equic_set_timer(0); return EQUIC_DONE; }
    equic_u64 hooktimer(void)
    {
        if (sent < 5 && equic_queue_frame(NAMED, sent))
            sent++;
        if (sent < 5)
            equic_set_timer(0);
        return EQUIC_DONE;
    }
    equic_u64 writeframe(struct equic_write_frame *call, equic_u8 *bytes, equic_u64 room)
    {
        call->out.length = 0;
        if (room < sizeof(head) + 2)
            return EQUIC_DONE;
        for (equic_u64 at = 0; at < sizeof(head); at++)
            bytes[at] = head[at];
        bytes[sizeof(head)] = LETTER;
        bytes[sizeof(head) + 1] = call->in.token;
        call->out.length = sizeof(head) + 2;
        return EQUIC_DONE;
    }
    equic_u64 parseframe(struct equic_parse_frame *call, const equic_u8 *bytes, equic_u64 length)
    {
        call->out.length = length < sizeof(head) + 2 || bytes[0] != head[0] ? 0 : sizeof(head) + 2;
        return EQUIC_DONE;
    }
    equic_u64 processframe(struct equic_process_frame *call, const equic_u8 *bytes, equic_u64 length, equic_u64 type)
    {
        equic_u64 got[] = {type, length, bytes[sizeof(head)], bytes[sizeof(head) + 1]};

        call->out.accept = 1;
        equic_tell(got, sizeof(got));
        return EQUIC_DONE;
    }
    equic_u64 frameacked(struct equic_frame_acked *call)
    {
        equic_u64 arrived[] = {LETTER, ++acked};

        (void)call;
        if (acked == 5)
            equic_tell(arrived, sizeof(arrived));
        return EQUIC_DONE;
    }";

/// Returns the bundle of a plugin that sends this letter in its frames. Its manifest defines the
/// frame type `named`.
fn post(letter: char, named: u64, head: &[u8]) -> Vec<u8> {
    let name = format!("post-{letter}-{named:x}");
    let bytes: Vec<String> = head.iter().map(u8::to_string).collect();
    let text = POST
        .replace("HEAD", &bytes.join(", "))
        .replace("NAMED", &named.to_string())
        .replace("LETTER", &format!("'{letter}'"));
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    let at = |operation: &str, frame: String| {
        let function = operation.to_lowercase();
        format!(
            "[[operations]]\noperation = \"{operation}\"\nanchor = \"replace\"\nfunction = \"{function}\"\n{frame}\n"
        )
    };
    let of_frames = ["WriteFrame", "ParseFrame", "ProcessFrame", "FrameAcked"];
    let of_frames = of_frames.map(|one| at(one, format!("frame = {named}"))).concat();
    let life = ["InitOpaqueData", "HookTimer"].map(|one| at(one, String::new())).concat();
    let manifest = format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\nsteps = 1000\n\
         capabilities = [\"observe\", \"frames\"]\n{of_frames}{life}\
         [[frames]]\ntype = {named}\nack-eliciting = true\n"
    );
    pack(&manifest, &object(&source, &name), None).unwrap()
}

/// Reports of the plugins: for each letter, the types and lengths of the received frames, and the
/// received numbers. Then the letters whose frames were all acknowledged.
type Told = (BTreeMap<char, (BTreeSet<(u64, u64)>, BTreeSet<u64>)>, BTreeSet<char>);

fn told(network: &mut Network, end: End) -> Told {
    let (mut came, mut arrived) = (BTreeMap::new(), BTreeSet::new());
    for (_, message) in network.messages(end) {
        let words: Vec<u64> = message
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        match words[..] {
            [kind, length, letter, number] => {
                let letter = char::from(letter as u8);
                let (types, numbers): &mut (BTreeSet<_>, BTreeSet<_>) =
                    came.entry(letter).or_default();
                types.insert((kind, length));
                numbers.insert(number);
            }
            [letter, 5] => _ = arrived.insert(char::from(letter as u8)),
            _ => panic!("{words:?}"),
        }
    }
    (came, arrived)
}

/// A hook that records the types of received frames as they are on the wire.
struct Watch(Arc<Mutex<BTreeSet<u64>>>);

impl Hook for Watch {
    fn before(&mut self, _: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        self.0.lock().unwrap().insert(call.parameter);
        Ok(())
    }
}

fn watch(connection: &mut Connection) -> Arc<Mutex<BTreeSet<u64>>> {
    let seen = Arc::default();
    let point = AttachPoint::observe(Operation::ProcessFrame);
    connection.attach(Box::new(Watch(Arc::clone(&seen))), &[point]).unwrap();
    seen
}

#[test]
fn frame_types_of_plugins_with_equal_names_differ_on_the_wire() {
    let both = |letter| {
        let bytes = post(letter, 0x1f00, &[0x5f, 0x00]);
        Arc::new(Push::new(&bytes).unwrap().at_both_ends())
    };
    // The server and the client each push two plugins at the same time.
    let (server, server_end) = Party::new(|config| {
        (config.policy, config.push) = (Some(policy()), vec![both('a'), both('b')]);
    });
    let (client, client_end) = Party::new(|config| {
        (config.policy, config.push) = (Some(policy()), vec![both('c'), both('d')]);
    });
    let mut network = Network::between(&link(), client_end, server_end, seed()).unwrap();
    let seen = watch(network.connection(End::Client).unwrap());
    network.connect().unwrap();
    network.transfer(End::Server, 100_000, Duration::from_secs(60)).unwrap();
    network.transfer(End::Client, 100_000, Duration::from_secs(60)).unwrap();
    network.pass(Duration::from_secs(1)).unwrap();
    let active =
        |party: &Party| party.progress().iter().filter(|one| **one == Progress::Active).count();
    assert_eq!([active(&server), active(&client)], [4, 4], "{:?}", client.progress());
    for end in [End::Client, End::Server] {
        assert_eq!(network.failures(end), []);
        let (came, arrived) = told(&mut network, end);
        assert_eq!(arrived, BTreeSet::from(['a', 'b', 'c', 'd']), "{end:?}");
        assert_eq!(came.len(), 4, "{end:?}: {came:?}");
        for (letter, (types, numbers)) in came {
            assert_eq!(types, BTreeSet::from([(0x1f00, 5)]), "as it is named: {letter}");
            assert_eq!(numbers, (0..5).collect(), "{letter}");
        }
    }
    let seen = seen.lock().unwrap();
    let wire: Vec<u64> = seen.iter().copied().filter(|one| *one >> 8 == 0x1f).collect();
    assert_eq!(wire, [0x1f00, 0x1f01, 0x1f02, 0x1f03], "odd ones the server's");
}

/// The side that offers a plugin may choose numbers of any length for the wire.
#[test]
fn frame_types_on_the_wire_may_have_any_length() {
    let named: [(u64, &[u8]); 2] =
        [(0x1f00, &[0x5f, 0x00]), (0x12_3456, &[0x80, 0x12, 0x34, 0x56])];
    for (named, head) in named {
        let bytes = post('x', named, head);
        let bundle = Bundle::parse(&bytes).unwrap();
        let granted = decide(&bundle, Origin::Own, &Policy::default(), 0).unwrap();
        for wire in [0x1f00, 0x41, 0x4001, 0x12_3456, 1 << 40, named] {
            let accepted = Accepted {
                bundle: &bundle,
                hash: &[0; 32],
                granted: &granted,
                frame_types: &[wire],
                origin: Origin::Own,
                allowance: None,
            };
            let loader = Bytecode::default();
            let mut network = network(&link(), seed());
            let seen = watch(network.connection(End::Client).unwrap());
            for end in [End::Client, End::Server] {
                let Loaded { hook, points, frames } = loader.load(&accepted).unwrap();
                assert_eq!(frames, [OwnFrame::new(wire)]);
                let connection = network.connection(end).unwrap();
                connection.attach_with_frames(hook, &points, &frames).unwrap();
            }
            network.transfer(End::Server, 200_000, Duration::from_secs(60)).unwrap();
            network.pass(Duration::from_secs(1)).unwrap();
            for end in [End::Client, End::Server] {
                assert_eq!(network.failures(end), [], "{named:#x} as {wire:#x}");
                let (came, arrived) = told(&mut network, end);
                assert_eq!(arrived, BTreeSet::from(['x']), "{named:#x} as {wire:#x}");
                let types = BTreeSet::from([(named, head.len() as u64 + 3)]);
                assert_eq!(came, BTreeMap::from([('x', (types, (0..5).collect()))]));
            }
            assert!(seen.lock().unwrap().contains(&wire), "{wire:#x}");
        }
    }
}

/// A plugin must queue frames by their types in the manifest. Queuing a frame by the number on the
/// wire must be refused.
#[test]
fn frame_types_of_the_wire_cannot_be_queued_by_bytecode() {
    let bytes = post('w', 0x1f00, &[0x5f, 0x00]);
    let bundle = Bundle::parse(&bytes).unwrap();
    let text = String::from_utf8(bundle.text().to_vec()).unwrap();
    let manifest: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    // The same object is packed with a manifest that has another number for the frame type.
    let manifest = manifest.replace(&0x1f00.to_string(), &0x1f10.to_string());
    let bytes = pack(&manifest, bundle.code(), None).unwrap();
    let bundle = Bundle::parse(&bytes).unwrap();
    let granted = decide(&bundle, Origin::Own, &Policy::default(), 0).unwrap();
    let accepted = Accepted {
        bundle: &bundle,
        hash: &[0; 32],
        granted: &granted,
        frame_types: &[0x1f00],
        origin: Origin::Own,
        allowance: None,
    };
    let Loaded { hook, points, frames } = Bytecode::default().load(&accepted).unwrap();
    let mut network = network(&link(), seed());
    let client = network.connection(End::Client).unwrap();
    client.attach_with_frames(hook, &points, &frames).unwrap();
    network.pass(Duration::from_secs(1)).unwrap();
    let failed = network.failures(End::Client);
    assert!(failed.len() == 1 && failed[0].1.0.contains("not the hook's own"), "{failed:?}");
}

/// The owner's own plugins use the frame types of their manifests on the wire. An offer that uses
/// one of these types must be refused.
#[test]
fn frame_types_of_the_owners_plugins_are_not_allotted() {
    let manifest = "capabilities = [\"frames\"]\nframes = [{ type = 0x1f01, ack-eliciting = true }]\n\
                    [[operations]]\noperation = \"ParseFrame\"\nanchor = \"replace\"\nfunction = \"run\"\n\
                    frame = 0x1f01\n";
    let text = "equic_u64 run(void) { return EQUIC_DEFAULT; }";
    let own = of_text("owners", manifest, text).unwrap();
    let push = Arc::new(Push::new(&post('p', 0x1f00, &[0x5f, 0x00])).unwrap().at_both_ends());
    for at in [End::Server, End::Client] {
        let (server, mut server_end) = Party::new(|config| config.push = vec![push.clone()]);
        let (client, mut client_end) = Party::new(|config| config.policy = Some(policy()));
        let end = if at == End::Server { &mut server_end } else { &mut client_end };
        let (own, prepare) = (own.clone(), end.prepare.take().unwrap());
        end.prepare = Some(Box::new(move |connection: &mut Connection| {
            prepare(connection);
            own.attach(connection).unwrap();
        }));
        let mut network = Network::between(&link(), client_end, server_end, seed()).unwrap();
        let seen = watch(network.connection(End::Client).unwrap());
        network.connect().unwrap();
        settle(&mut network, &server);
        match (at, client.progress().pop()) {
            // The server knows the frame types of its owner's plugins, so its offer uses another
            // number.
            (End::Server, Some(Progress::Active)) => {
                network.pass(Duration::from_secs(1)).unwrap();
                assert!(seen.lock().unwrap().contains(&0x1f03));
            }
            // The server cannot know the frame types of the plugins that the client's owner
            // attached, so the client must refuse the offer.
            (End::Client, Some(Progress::Over(Status::FrameTypes, why))) => {
                assert!(why.contains("0x1f01 is already in use"), "{why}");
                assert!(!client.has(&Progress::Fetched));
            }
            (_, other) => panic!("{at:?}: {other:?}"),
        }
        network.transfer(End::Client, 10_000, Duration::from_secs(60)).unwrap();
    }
}
