//! Parses the output of `perf script`.

/// A frame of a call stack: the running function, or one of its callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Name of the function, or `[unknown]`.
    pub symbol: &'a str,
    /// The file that contains it: a path, `[kernel.kallsyms]`, `[unknown]`.
    pub object: &'a str,
}

/// A sample: the running function and its callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack<'a> {
    /// Name of the thread.
    pub thread: &'a str,
    /// The frames, from the innermost to the outermost function. May be empty.
    pub frames: Vec<Frame<'a>>,
}

impl Frame<'_> {
    /// Returns true if the function is in the kernel.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        // Kernel modules are shown as "[veth]", for example. Files without names, and kernel code
        // in programs (vdso), are not modules.
        self.object.starts_with('[')
            && !matches!(self.object, "[unknown]" | "[vdso]" | "[vsyscall]")
    }
}

/// Parses the output of `perf script -F comm,pid,tid,time,event,ip,sym,dso`. The first line of a
/// sample is not indented, and its frames are. Other lines are ignored.
#[must_use]
pub fn parse(text: &str) -> Vec<Stack<'_>> {
    let mut stacks = Vec::new();
    let mut current: Option<Stack<'_>> = None;
    for line in text.lines() {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            stacks.extend(current.take());
        } else if line.starts_with(char::is_whitespace) {
            if let (Some(stack), Some(frame)) = (&mut current, frame(line)) {
                stack.frames.push(frame);
            }
        } else {
            stacks.extend(current.take());
            current = Some(Stack { thread: thread(line), frames: Vec::new() });
        }
    }
    stacks.extend(current);
    stacks
}

/// Parses `name 12/34 5.678: cpu-clock:`. Names may contain spaces.
fn thread(line: &str) -> &str {
    let is_ids = |word: &str| {
        word.split_once('/').is_some_and(|(pid, tid)| {
            [pid, tid].iter().all(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    let ids = line.split_whitespace().find(|word| is_ids(word));
    let end = ids.and_then(|ids| line.find(ids)).unwrap_or(line.len());
    line[..end].trim()
}

/// Parses `7f12 symbol+0x1d (object)`. Symbols and objects may contain spaces and parentheses.
fn frame(line: &str) -> Option<Frame<'_>> {
    let (address, rest) = line.trim().split_once(' ')?;
    if !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let rest = rest.trim().strip_suffix(')')?;
    let rest = rest.strip_suffix(" (deleted)").unwrap_or(rest);
    let begin = rest.rfind(" (/").max(rest.rfind(" ([")).or_else(|| rest.rfind(" ("))?;
    let (symbol, object) = (&rest[..begin], &rest[begin + 2..]);
    let name = match symbol.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    };
    Some(Frame { symbol: name.trim(), object })
}
