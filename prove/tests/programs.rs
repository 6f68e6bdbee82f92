//! Tests PREVAIL with plugins in C. It must prove plugins of this source tree. In functions that
//! access other memory or do not end, it must report the faulty line.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The helpers of `plugins/sdk/equic_plugin.h`, in the form that `equic plugin check` passes.
const HELPERS: &str = "helper\t1\tn\nhelper\t2\tnn\nhelper\t3\t\nhelper\t4\trsn\nhelper\t5\tnn\nhelper\t6\trs\nhelper\t7\tn\nhelper\t8\tnn\n";

/// Compiles a plugin. If `debug` is true, the object has line numbers.
fn compile(folder: &Path, source: &Path, debug: bool) -> PathBuf {
    let object = folder.join("object.o");
    let names = ["clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang"];
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let mut clang = Command::new(names.into_iter().find(runs).expect("clang is installed"));
    clang.args(["-target", "bpf", "-O2", "-mcpu=v3", "-ffreestanding", "-c", "-I"]);
    clang.arg(format!("{ROOT}/plugins/sdk")).arg("-o").arg(&object).arg(source);
    let output = clang.args(debug.then_some("-g")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object
}

/// Runs equic-prove, and returns its output for these functions. Each function comes with the size
/// of its words in bytes.
fn prove(object: &Path, functions: &[(&str, usize)]) -> Vec<Vec<String>> {
    let lines = functions.iter().map(|(name, bytes)| format!("function\t{name}\t{bytes}\n"));
    let request = HELPERS.to_owned() + &lines.collect::<String>();
    let mut child = Command::new(env!("CARGO_BIN_EXE_equic-prove"))
        .arg(object)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Creates a separate folder for a test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn plugins_of_the_tree_are_proved() {
    let folder = folder("tree");
    for (name, functions) in [
        ("reno", &[("on_acked", 32), ("on_event", 32)][..]),
        ("cap", &[("window", 16), ("rate", 16)]),
        ("ack-delay", &[("policy", 64)]),
    ] {
        let object = compile(&folder, Path::new(&format!("{ROOT}/plugins/{name}/{name}.c")), false);
        for said in prove(&object, functions) {
            assert_eq!(said[0], "proved", "{name}: {said:?}");
        }
    }
}

const SOURCE: &str = "#include <equic_plugin.h>
static volatile equic_u64 table[4];
static volatile equic_u64 forever;
equic_u64 masked(struct equic_congestion_acked *call) { return table[call->in.bytes & 3]; }
equic_u64 counted(struct equic_congestion_acked *call)
{
	equic_u64 sum = 0;
	(void)call;
	for (int i = 0; i < 4; i++)
		sum += equic_now();
	return sum;
}
equic_u64 outside(struct equic_congestion_acked *call)
{
	return table[call->in.bytes]; /* line 15 */
}
equic_u64 beyond(struct equic_congestion_acked *call)
{
	return ((equic_u64 *)call)[9]; /* line 19 */
}
equic_u64 wild(struct equic_congestion_acked *call)
{
	return *(equic_u64 *)call->in.bytes; /* line 23 */
}
equic_u64 endless(struct equic_congestion_acked *call)
{
	while (forever != call->in.bytes) /* line 27 */
		;
	return 1;
}
equic_u64 unfinished(struct equic_congestion_acked *call)
{
	equic_u64 buffer[2];
	(void)call;
	return equic_tell(buffer, call->in.bytes); /* line 35 */
}
";

#[test]
fn findings_name_the_line_of_invalid_accesses_and_endless_loops() {
    let folder = folder("wrong");
    let source = folder.join("wrong.c");
    std::fs::write(&source, SOURCE).unwrap();
    let object = compile(&folder, &source, true);
    let good = [("masked", 32), ("counted", 32)];
    let wrong = [
        ("outside", 15, "valid_access"),
        ("beyond", 19, "at most 32"),
        ("wild", 23, "Invalid type"),
        ("endless", 27, "Loop counter"),
        ("unfinished", 35, ""),
    ];
    for said in prove(&object, &good) {
        assert_eq!(said[0], "proved", "{said:?}");
    }
    let functions: Vec<(&str, usize)> = wrong.iter().map(|(name, ..)| (*name, 32)).collect();
    for (said, (name, line, why)) in prove(&object, &functions).iter().zip(wrong) {
        assert_eq!((&*said[0], &*said[1]), ("finding", name), "{said:?}");
        assert!(said[3].ends_with("wrong.c") && said[5].contains(why), "{said:?}");
        assert_eq!(said[4], line.to_string(), "{said:?}");
    }
    // If the object has no line numbers, the result must only name an instruction.
    let object = compile(&folder, &source, false);
    let said = prove(&object, &[("beyond", 32), ("nothing", 32)]);
    assert_eq!(said[0][..5], ["finding", "beyond", "0", "", ""], "{said:?}");
    assert_eq!(said[1][..2], ["failed", "nothing"], "{said:?}");
}

/// `make test` must compile this suite with assertions and overflow checks.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "without debug assertions");
        let sum = std::panic::catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "without overflow checks");
    }
}
