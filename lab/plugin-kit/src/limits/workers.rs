//! Plugins that do as much work as they can on an idle connection, driven by their timers.

use std::sync::Arc;

use equic_plugin::exchange::Push;
use equic_plugin::pack;

use super::{head, operation};
use crate::clang::compile_text_with;
use crate::pair::TrialError;

/// A kind of plugin that does the same work whenever its timer expires.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Description of the work in one iteration of the plugin's loop.
    pub does: &'static str,
    /// Number of loop iterations per call with which the plugins use about as many steps as the
    /// policy permits.
    pub turns: u32,
    /// Size of the plugin's memory, in bytes.
    memory: u32,
    /// What the plugin uses. It determines additional lines of the manifest.
    needs: Needs,
    /// C code with a function `work`, which does the work `TURNS` times.
    code: &'static str,
}

/// What a worker needs from the connection or from other plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// Reads these fields, written as in the manifest's list.
    Fields(&'static str),
    /// Sets these fields, written as in the manifest's list.
    Sets(&'static str),
    /// Defines the frame type 0x1f00. Its frames have this many bytes after the type.
    Frames(u8),
    /// Calls an operation of another plugin that no plugin provides.
    Missing,
    /// Calls the operation `next` of the next plugin, which in turn calls that of the plugin after
    /// it.
    Next,
    /// Attaches to the connection's timer, which the first plugin sets to the next nanosecond.
    EarlyTimer,
}

/// Returns C code for a function `work` that repeats an expression in a loop.
macro_rules! turns {
    ($begin:literal, $body:literal) => {
        concat!(
            "void work(void) { ",
            $begin,
            " for (equic_u64 i = 0; i < TURNS; i++) { ",
            $body,
            " } }"
        )
    };
}

const fn worker(does: &'static str, turns: u32, needs: Needs, code: &'static str) -> Worker {
    Worker { does, turns, memory: 16_384, needs, code }
}

/// All kinds of working plugins that the benchmark measures.
pub const WORKERS: &[Worker] = &[
    worker("nothing", 0, Needs::Nothing, turns!("", "")),
    worker(
        "64-bit division",
        600,
        Needs::Nothing,
        turns!(
            "equic_u64 a = ~0ull, b = 1;",
            "__asm__ volatile(\"%0 /= %1\" : \"+r\"(a) : \"r\"(b));"
        ),
    ),
    worker(
        "64-bit remainder",
        600,
        Needs::Nothing,
        turns!(
            "equic_u64 a = ~0ull, b = 0x1234567;",
            "__asm__ volatile(\"%0 %%= %1\" : \"+r\"(a) : \"r\"(b)); a ^= ~0ull;"
        ),
    ),
    worker(
        "multiplication",
        3_000,
        Needs::Nothing,
        turns!("equic_u64 a = 3;", "__asm__ volatile(\"%0 *= %0\" : \"+r\"(a));"),
    ),
    worker(
        "load from the address that the previous load returned",
        2_000,
        Needs::Nothing,
        turns!(
            "equic_u64 a = 64;",
            "__asm__ volatile(\"%0 = *(u64 *)(%0 + 0)\\n%0 += 4093\" : \"+r\"(a) : : \"memory\");"
        ),
    ),
    Worker {
        does: "load from a different cache line within 64 KiB",
        turns: 1_500,
        memory: 65_536,
        needs: Needs::Nothing,
        code: turns!(
            "equic_u64 a = 64;",
            "__asm__ volatile(\"r0 = *(u64 *)(%0 + 0)\\n%0 += r0\\n%0 += 20032\" : \"+r\"(a) : : \"r0\", \"memory\");"
        ),
    },
    worker(
        "load of eight bytes, of which one byte was just stored",
        1_800,
        Needs::Nothing,
        turns!(
            "equic_u64 a = 8192;",
            "__asm__ volatile(\"*(u8 *)(%0 + 3) = %0\\nr0 = *(u64 *)(%0 + 0)\\n%0 ^= r0\\n%0 &= 4095\" \
             : \"+r\"(a) : : \"r0\", \"memory\");"
        ),
    ),
    worker(
        "load that crosses a page boundary",
        1_800,
        Needs::Nothing,
        turns!(
            "equic_u64 a = 4093;",
            "__asm__ volatile(\"*(u64 *)(%0 + 0) = %0\\nr0 = *(u64 *)(%0 + 1)\\n%0 ^= r0\\n%0 &= 0\\n%0 += 4093\" \
             : \"+r\"(a) : : \"r0\", \"memory\");"
        ),
    ),
    worker(
        "jump that depends on a random bit",
        1_000,
        Needs::Nothing,
        turns!(
            "static equic_u64 s = 88172645463325252ull; equic_u64 a = s;",
            "a ^= a << 13; a ^= a >> 7; a ^= a << 17; if (a & 1) __asm__ volatile(\"%0 += 1\" : \"+r\"(s));"
        ),
    ),
    worker(
        "atomic addition",
        3_000,
        Needs::Nothing,
        turns!("static equic_u64 s;", "__sync_fetch_and_add(&s, i);"),
    ),
    worker("call of equic_now", 1_000, Needs::Nothing, turns!("", "equic_now();")),
    worker(
        "call of equic_log with 1,024 bytes",
        40,
        Needs::Nothing,
        turns!("static char text[1024];", "equic_log(text, 1024, i);"),
    ),
    worker(
        "call of equic_tell with 1,024 bytes",
        15,
        Needs::Nothing,
        turns!("static char text[1024];", "equic_tell(text, 1024);"),
    ),
    worker("call of equic_set_timer", 150, Needs::Nothing, turns!("", "equic_set_timer(i);")),
    worker(
        "read of BytesUnsent",
        500,
        Needs::Fields("\"BytesUnsent\""),
        turns!("", "equic_get(EQUIC_BYTES_UNSENT);"),
    ),
    worker(
        "read of ApplicationWaits",
        80,
        Needs::Fields("\"ApplicationWaits\""),
        turns!("", "equic_get(EQUIC_APPLICATION_WAITS);"),
    ),
    worker(
        "read of NextPath",
        500,
        Needs::Fields("\"NextPath\""),
        turns!("", "equic_get_of(EQUIC_NEXT_PATH, i);"),
    ),
    worker(
        "read of LastElicitingSent",
        500,
        Needs::Fields("\"LastElicitingSent\""),
        turns!("", "equic_get(EQUIC_LAST_ELICITING_SENT);"),
    ),
    worker(
        "read of ControllerPacingRate",
        500,
        Needs::Fields("\"ControllerPacingRate\""),
        turns!("", "equic_get(EQUIC_CONTROLLER_PACING_RATE);"),
    ),
    worker(
        "read of PathStatus",
        500,
        Needs::Fields("\"PathStatus\""),
        turns!("", "equic_get(EQUIC_PATH_STATUS);"),
    ),
    worker(
        "read of a path's PathCost and PathRoom",
        200,
        Needs::Fields("\"PathCost\", \"PathRoom\""),
        turns!("", "equic_get_of(EQUIC_PATH_COST, 0); equic_get_of(EQUIC_PATH_ROOM, 0);"),
    ),
    worker(
        "read of a stream's BytesUnsent",
        500,
        Needs::Fields("\"BytesUnsent\""),
        turns!("", "equic_get_of(EQUIC_BYTES_UNSENT, 4 * (i & 63));"),
    ),
    worker(
        "call of equic_set for CongestionWindow",
        400,
        Needs::Sets("\"CongestionWindow\""),
        turns!("", "equic_set(EQUIC_CONGESTION_WINDOW, i << 12);"),
    ),
    worker(
        "call of equic_queue_frame while 64 frames wait",
        180,
        Needs::Frames(0),
        turns!("", "equic_queue_frame(0x1f00, i);"),
    ),
    worker(
        "sending of a frame of 3 bytes",
        1,
        Needs::Frames(1),
        turns!("", "equic_queue_frame(0x1f00, i);"),
    ),
    worker(
        "call of equic_call for an operation that no plugin provides",
        3,
        Needs::Missing,
        turns!("equic_u64 word;", "equic_call(0, &word, 8);"),
    ),
    worker(
        "call of equic_call through four plugins",
        5,
        Needs::Next,
        turns!("equic_u64 word;", "equic_call(0, &word, 8);"),
    ),
    worker(
        "expiry of a connection timer that is always set to one nanosecond later",
        0,
        Needs::EarlyTimer,
        turns!("", ""),
    ),
];

/// Number of working plugins on each connection.
pub(super) const PLUGINS: usize = 15;

impl Worker {
    /// Builds as many plugins of this kind as a connection accepts. Each executes its loop `turns`
    /// times in a call.
    ///
    /// # Errors
    /// The code does not compile.
    pub fn push(&self, turns: u32) -> Result<Vec<Arc<Push>>, TrialError> {
        let forwards = if self.needs == Needs::Next { "equic_call(0, words, 8)" } else { "0" };
        let length = if let Needs::Frames(length) = self.needs { length } else { 0 };
        let text = format!(
            "#include <equic_plugin.h>\nstatic __attribute__((noinline)) {}\n\
             equic_u64 provided(equic_u64 *words) {{ (void)words; return {forwards}; }}\n\
             equic_u64 write(struct equic_write_frame *call, equic_u8 *bytes, equic_u64 room)\n\
             {{ call->out.length = 0; if (room < 64 || !{length}) return EQUIC_DONE;\n\
             bytes[0] = 0x5f; bytes[1] = 0; bytes[2] = {length} - 1;\n\
             call->out.length = 2 + {length}; return EQUIC_DONE; }}\n\
             equic_u64 early(struct equic_set_timer *call)\n\
             {{ call->out.at = equic_now() + 1; return EQUIC_DONE; }}\n\
             equic_u64 run(void) {{ equic_set_timer(0); work(); return EQUIC_DEFAULT; }}\n",
            self.code
        );
        let object = compile_text_with("worker", &text, &[("TURNS", &turns.to_string())]);
        let object = object.map_err(TrialError::of)?;
        let push = |number| {
            let bundle = pack(&self.manifest(number), &object, None).map_err(TrialError::of)?;
            Push::new(&bundle).map(Arc::new).map_err(TrialError::of)
        };
        (0..PLUGINS).map(push).collect()
    }

    fn manifest(&self, number: usize) -> String {
        // The comparison of names takes longest if they have the same length and differ only at the
        // end.
        let name = |number: usize| format!("worker-with-a-name-as-long-as-the-others-{number:02}");
        let capabilities = match self.needs {
            Needs::Frames(_) => "\"observe\", \"tune\", \"frames\"",
            Needs::Sets(_) | Needs::EarlyTimer => "\"observe\", \"tune\"",
            _ => "\"observe\"",
        };
        let mut manifest = head(&name(number), capabilities, self.memory);
        match self.needs {
            Needs::Fields(fields) => manifest += &format!("reads = [{fields}]\n"),
            Needs::Sets(fields) => manifest += &format!("sets = [{fields}]\n"),
            _ => {}
        }
        manifest += &operation("InitOpaqueData", "replace", "run");
        manifest += &operation("HookTimer", "replace", "run");
        match self.needs {
            Needs::Frames(_) => {
                manifest += "[[frames]]\ntype = 0x1f00\nack-eliciting = true\n";
                manifest += &operation("WriteFrame", "replace", "write");
                manifest += "frame = 0x1f00\n";
            }
            // Only one plugin of a connection can replace the operation that sets the timer.
            Needs::EarlyTimer if number == 0 => {
                manifest += &operation("SetTimer", "replace", "early");
            }
            Needs::Missing | Needs::Next => {
                for at in 0..16 {
                    manifest += &format!(
                        "[[provides]]\nname = \"an_operation_with_a_long_name_{at:02}\"\n\
                         function = \"provided\"\ninputs = 0\noutputs = 1\n"
                    );
                }
                let (plugin, at) = match self.needs {
                    Needs::Missing => (number, 99),
                    _ => ((number + 1) % PLUGINS, 15),
                };
                manifest += &format!(
                    "[[calls]]\noperation = \"{}.an_operation_with_a_long_name_{at:02}\"\n\
                     inputs = 0\noutputs = 1\n",
                    name(plugin)
                );
            }
            _ => {}
        }
        manifest
    }
}
