//! Keys of the applications that a flow can have instead of a single transfer.

use equic_sim::MAX_UNITS;

use super::values::Values::*;
use super::values::from_1;

section! { REQUESTS, "requests", "`[flow.requests]`, with `application = \"requests\"`" {
    "count": from_1(MAX_UNITS), "100", "number of requests of each connection";
    "request": Size, "500 B", "size of each request";
    "response": Size, "", "size of each response";
    "think": Time, "0 s", "time from the end of a response to the next request";
    "concurrent": from_1(100_000), "1", "maximum number of requests in progress at the same time";
}}

section! { STREAMS, "streams", "`[flow.streams]`, with `application = \"streams\"`" {
    "count": from_1(100_000), "", "number of streams of each connection; all of them start at the same time";
    "size": Size, "", "number of bytes that the client sends on each stream";
}}

section! { PAGE, "page", "`[flow.page]`, with `application = \"page\"`" {
    "request": Size, "500 B", "size of each request";
    "object": Tables("object"), "", "the objects that the client requests for the page";
}}

section! { OBJECT, "object", "`[[flow.page.object]]`" {
    "name": Name, "", "name of the object; must be unique";
    "size": Size, "", "size of the object";
    "after": Names, "none", "names of the objects that must arrive before the client requests this object";
}}

section! { VIDEO, "video", "`[flow.video]`, with `application = \"video\"`" {
    "rate": Rate, "", "bit rate of the video";
    "length": Time, "", "playing time of the video, rounded up to whole segments";
    "segment": Time, "2 s", "playing time of each segment";
    "buffer": Time, "4 s", "playing time that must be in the buffer before the video starts, and before it continues after a stall";
    "ahead": Time, "30 s", "maximum playing time in the buffer";
    "request": Size, "500 B", "size of each request";
}}

section! { CALL, "call", "`[flow.call]`, with `application = \"call\"`" {
    "length": Time, "", "duration of the call";
    "every": Time, "20 ms", "time between two successive messages";
    "message": Size, "160 B", "size of each message, at least 16 B";
    "deadline": Time, "150 ms", "time from sending after which a message counts as late";
}}
