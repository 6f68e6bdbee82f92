//! Malicious plugins that a server pushes to a client. The client must refuse, contain or detach
//! each of them, and data that is sent afterwards must arrive intact.

use std::sync::Arc;
use std::time::Duration;

use equic_net::{Link, Queue};
use equic_plugin::exchange::{Progress, Push, Status};
use equic_plugin::{SigningKey, pack};
use equic_transport::TransportConfig;

use crate::clang::compile_text;
use crate::network::{End, sent_hash};
use crate::pair::{Pair, TrialError, key, policy};

/// What happened to a plugin at the client that received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The client refused the plugin, so it never ran.
    Refused,
    /// The plugin broke a rule while it ran, and was detached.
    TakenOff,
    /// The plugin runs, but the client limits its effects.
    Contained,
}

impl Fate {
    /// Returns the outcome in words.
    pub const fn words(self) -> &'static str {
        match self {
            Fate::Refused => "refused",
            Fate::TakenOff => "taken off",
            Fate::Contained => "contained",
        }
    }
}

/// A malicious plugin.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// Description of what the plugin tries to do.
    pub tries: &'static str,
    /// Outcome that the attack must have.
    pub expected: Fate,
    /// Lines of the manifest after those that all attacks have in common.
    manifest: &'static str,
    code: &'static str,
    signed: Signed,
}

/// How the bundle of an attack is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signed {
    No,
    /// The signature is invalid, because one of its bits was changed.
    Wrong,
    /// An author that the client's policy does not name signed the bundle.
    Stranger,
}

/// Result of an attack.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The attack.
    pub attack: Attack,
    /// What happened to the plugin.
    pub fate: Fate,
    /// Why the client refused or detached the plugin. Empty if the plugin runs.
    pub why: String,
    /// Duration of the data transfer after the attack, in virtual time.
    pub took: Duration,
    /// True if the data that the client read has the same SHA-256 as the data that the server sent.
    pub intact: bool,
}

impl Outcome {
    /// Returns `true` if the plugin has the expected outcome and the data is intact.
    pub fn is_good(&self) -> bool {
        self.intact && self.fate == self.attack.expected
    }
}

const TUNE: &str = "capabilities = [\"observe\", \"tune\"]\n[[operations]]\noperation = \"AckPolicy\"\n\
                    anchor = \"replace\"\nfunction = \"run\"\n";

const RAISE: &str = "capabilities = [\"observe\", \"tune\", \"raise\"]\n[[operations]]\n\
                     operation = \"CongestionAcked\"\nanchor = \"replace\"\nfunction = \"run\"\n";

const HOG: &str = "memory = 16777216\ncapabilities = [\"observe\", \"tune\"]\n[[operations]]\n\
                   operation = \"AckPolicy\"\nanchor = \"replace\"\nfunction = \"run\"\n";

const FLOOD: &str = "capabilities = [\"observe\", \"tune\", \"frames\"]\n\
                     [[frames]]\ntype = 0x1f0f\nack-eliciting = true\n\
                     [[operations]]\noperation = \"AckPolicy\"\nanchor = \"replace\"\nfunction = \"run\"\n\
                     [[operations]]\noperation = \"WriteFrame\"\nanchor = \"replace\"\nfunction = \"write\"\n\
                     frame = 0x1f0f\n\
                     [[operations]]\noperation = \"ParseFrame\"\nanchor = \"replace\"\nfunction = \"parse\"\n\
                     frame = 0x1f0f\n";

const LIAR: &str = "capabilities = [\"observe\", \"tune\"]\n\
                    [[operations]]\noperation = \"AckPolicy\"\nanchor = \"replace\"\nfunction = \"never\"\n\
                    [[operations]]\noperation = \"AckIsDue\"\nanchor = \"replace\"\nfunction = \"zero\"\n\
                    [[operations]]\noperation = \"AckDeadline\"\nanchor = \"replace\"\nfunction = \"never\"\n\
                    [[operations]]\noperation = \"CongestionWindow\"\nanchor = \"replace\"\nfunction = \"zero\"\n\
                    [[operations]]\noperation = \"PacingRate\"\nanchor = \"replace\"\nfunction = \"zero\"\n\
                    [[operations]]\noperation = \"SetTimer\"\nanchor = \"replace\"\nfunction = \"timer\"\n";

const TRUTH: &str = "capabilities = [\"observe\", \"tune\"]\n[[operations]]\noperation = \"AckIsDue\"\n\
                     anchor = \"replace\"\nfunction = \"run\"\n";

const IDLE: &str = "equic_u64 run(void) { return EQUIC_DEFAULT; }";

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "wrong signature",
        tries: "has a signature of the known author in which one bit was changed",
        expected: Fate::Refused,
        manifest: TUNE,
        code: IDLE,
        signed: Signed::Wrong,
    },
    Attack {
        name: "stranger",
        tries: "needs `raise`, but is signed by an author that the policy does not name",
        expected: Fate::Refused,
        manifest: RAISE,
        code: IDLE,
        signed: Signed::Stranger,
    },
    Attack {
        name: "out of policy",
        tries: "wants to raise the congestion window, but is not signed",
        expected: Fate::Refused,
        manifest: RAISE,
        code: IDLE,
        signed: Signed::No,
    },
    Attack {
        name: "memory hog",
        tries: "wants 16 MiB of memory for each connection",
        expected: Fate::Refused,
        manifest: HOG,
        code: IDLE,
        signed: Signed::No,
    },
    Attack {
        name: "endless loop",
        tries: "never returns from a function",
        expected: Fate::TakenOff,
        manifest: TUNE,
        code: "equic_u64 run(void) { for (;;) __asm__ volatile(\"\"); }",
        signed: Signed::No,
    },
    Attack {
        name: "wild pointer",
        tries: "writes to addresses all over the address space in each call",
        expected: Fate::Contained,
        manifest: TUNE,
        code: "equic_u64 run(void) { for (equic_u64 i = 1; i < 200; i++)
            { *(volatile equic_u64 *)(i * 0x9e3779b97f4a7c15) = i; } return EQUIC_DEFAULT; }",
        signed: Signed::No,
    },
    Attack {
        name: "wild helper",
        tries: "makes the host read from an address outside the plugin's memory",
        expected: Fate::TakenOff,
        manifest: TUNE,
        code: "equic_u64 run(void) { return equic_tell((void *)0xffffffffffff, 100); }",
        signed: Signed::No,
    },
    Attack {
        name: "frame flood",
        tries: "queues 64 frames of 1,000 bytes in each call",
        expected: Fate::Contained,
        manifest: FLOOD,
        code: "equic_u64 run(void) { for (int i = 0; i < 64; i++) equic_queue_frame(0x1f0f, i); return EQUIC_DEFAULT; }
            equic_u64 write(struct equic_write_frame *call, equic_u8 *bytes, equic_u64 room)
            { call->out.length = 0; if (room < 1000) return EQUIC_DONE;
              bytes[0] = 0x5f; bytes[1] = 0x0f; bytes[2] = 0x40 | 996 >> 8; bytes[3] = 996 & 0xff;
              call->out.length = 1000; return EQUIC_DONE; }
            equic_u64 parse(struct equic_parse_frame *call)
            { call->out.length = 1000; return EQUIC_DONE; }",
        signed: Signed::No,
    },
    Attack {
        name: "lying outputs",
        tries: "makes the host never acknowledge and never send, and sets its timer to the past",
        expected: Fate::Contained,
        manifest: LIAR,
        code: "equic_u64 zero(equic_u64 *words) { words[1] = 0; return EQUIC_DONE; }
            equic_u64 never(equic_u64 *words) { words[1] = words[2] = ~0ull; words[3] = 0; return EQUIC_DONE; }
            equic_u64 timer(equic_u64 *words) { words[0] = 0; return EQUIC_DONE; }",
        signed: Signed::No,
    },
    Attack {
        name: "impossible output",
        tries: "returns 2 although only 0 and 1 are valid",
        expected: Fate::TakenOff,
        manifest: TRUTH,
        code: "equic_u64 run(struct equic_ack_is_due *call) { call->out.due = 2; return EQUIC_DONE; }",
        signed: Signed::No,
    },
];

impl Attack {
    /// Returns the attack's bundle, ready to be pushed.
    fn push(&self) -> Result<Push, TrialError> {
        let name = self.name.replace(' ', "-");
        let code = format!("#include <equic_plugin.h>\n{}", self.code);
        let object = compile_text(&name, &code).map_err(TrialError::of)?;
        let manifest = format!(
            "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"An attacker\"\nabi = 2\nsteps = 10000\n{}",
            self.manifest
        );
        let stranger = SigningKey::from_seed(&[9; 32]).map_err(TrialError::of)?;
        let known = key()?;
        let key = match self.signed {
            Signed::No => None,
            Signed::Wrong => Some(&known),
            Signed::Stranger => Some(&stranger),
        };
        let bundle = pack(&manifest, &object, key).map_err(TrialError::of)?;
        let push = Push::new(&bundle).map_err(TrialError::of)?;
        if self.signed != Signed::Wrong {
            return Ok(push);
        }
        let mut forged = bundle;
        // The signature comes after the header (16 bytes) and the key (32 bytes).
        if let Some(byte) = forged.get_mut(16 + 32) {
            *byte ^= 1;
        }
        Ok(push.with_bytes(&forged))
    }

    /// Pushes the plugin to a client, and then sends `bytes` bytes of data to the client.
    ///
    /// # Errors
    /// The plugin cannot be built, or the data does not arrive completely.
    pub fn run(&self, seed: u64, bytes: u64) -> Result<Outcome, TrialError> {
        let link = Link {
            rate: Some(20_000_000),
            delay: Duration::from_millis(20),
            queue: Queue::Time(Duration::from_millis(100)),
            overhead: 28,
            ..Link::default()
        };
        let both = [TransportConfig::default(), TransportConfig::default()];
        let push = vec![Arc::new(self.push()?)];
        let mut pair = Pair::connect(&link, both, push, policy()?, seed)?;
        pair.settle()?;
        let patience = Duration::from_secs(600);
        let carried = pair.network.transfer_hashed(End::Server, bytes, patience);
        let carried = carried.map_err(TrialError::of)?;
        let standing = pair.standings(End::Client).pop();
        let standing =
            standing.ok_or_else(|| TrialError::of("the server offered no plugin to the client"))?;
        let (fate, why) = match standing.progress {
            Progress::Active => (Fate::Contained, String::new()),
            Progress::Over(Status::Failed, why) if standing.ran => (Fate::TakenOff, why),
            Progress::Over(status, why) if !standing.ran => {
                (Fate::Refused, format!("{status}: {why}"))
            }
            other => return Err(TrialError::of(format!("it is {other:?}"))),
        };
        let intact = carried.sha256 == sent_hash(bytes);
        Ok(Outcome { attack: *self, fate, why, took: carried.took, intact })
    }
}
