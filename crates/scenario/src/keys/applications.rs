//! Keys of what a flow carries, if that is not one transfer.

use super::{Section, key};

const REQUEST: super::Key = key("request", "size", "500 B", "bytes of each request");

pub(crate) const REQUESTS: Section = Section {
    name: "`[flow.requests]`, with `application = \"requests\"`",
    keys: &[
        key("count", "number from 1", "100", "requests of each connection"),
        REQUEST,
        key("response", "size", "", "bytes of each response"),
        key("think", "time", "0 s", "from the end of a response to the next request"),
        key("concurrent", "number from 1", "1", "requests that are under way at a time"),
    ],
};

pub(crate) const STREAMS: Section = Section {
    name: "`[flow.streams]`, with `application = \"streams\"`",
    keys: &[
        key("count", "number from 1", "", "streams of each connection, which begin together"),
        key("size", "size", "", "bytes that the client sends on each"),
    ],
};

pub(crate) const PAGE: Section = Section {
    name: "`[flow.page]`, with `application = \"page\"`",
    keys: &[REQUEST, key("object", "list of tables", "", "what the page consists of")],
};

pub(crate) const OBJECT: Section = Section {
    name: "`[[flow.page.object]]`",
    keys: &[
        key("name", "text", "", "name of the object; each once"),
        key("size", "size", "", "bytes of the object"),
        key("after", "list of texts", "none", "objects that are there before this is asked for"),
    ],
};

pub(crate) const VIDEO: Section = Section {
    name: "`[flow.video]`, with `application = \"video\"`",
    keys: &[
        key("rate", "rate", "", "bits of a second of playing time"),
        key("length", "time", "", "playing time; rounded up to whole segments"),
        key("segment", "time", "2 s", "playing time that is asked for at a time"),
        key(
            "buffer",
            "time",
            "4 s",
            "playing time in the buffer with which it begins, and goes on after a stall",
        ),
        key("ahead", "time", "30 s", "playing time that the buffer holds at most"),
        REQUEST,
    ],
};

pub(crate) const CALL: Section = Section {
    name: "`[flow.call]`, with `application = \"call\"`",
    keys: &[
        key("length", "time", "", "for how long messages are sent"),
        key("every", "time", "20 ms", "time from one message to the next"),
        key("message", "size", "160 B", "bytes of each message, 16 at least"),
        key("deadline", "time", "150 ms", "time after which a message is late"),
    ],
};
