//! Keys of the applications that a flow can have instead of a single transfer.

section! { REQUESTS, "`[flow.requests]`, with `application = \"requests\"`" {
    "count": "number from 1", "100", "number of requests of each connection";
    "request": "size", "500 B", "size of each request";
    "response": "size", "", "size of each response";
    "think": "time", "0 s", "time from the end of a response to the next request";
    "concurrent": "number from 1", "1", "maximum number of requests in progress at the same time";
}}

section! { STREAMS, "`[flow.streams]`, with `application = \"streams\"`" {
    "count": "number from 1", "", "number of streams of each connection; all of them start at the same time";
    "size": "size", "", "number of bytes that the client sends on each stream";
}}

section! { PAGE, "`[flow.page]`, with `application = \"page\"`" {
    "request": "size", "500 B", "size of each request";
    "object": "list of tables", "", "the objects that the client requests for the page";
}}

section! { OBJECT, "`[[flow.page.object]]`" {
    "name": "text", "", "name of the object; must be unique";
    "size": "size", "", "size of the object";
    "after": "list of texts", "none", "names of the objects that must arrive before the client requests this object";
}}

section! { VIDEO, "`[flow.video]`, with `application = \"video\"`" {
    "rate": "rate", "", "bit rate of the video";
    "length": "time", "", "playing time of the video, which is rounded up to whole segments";
    "segment": "time", "2 s", "playing time of each segment";
    "buffer": "time", "4 s", "playing time that must be in the buffer before the video starts, and before it continues after a stall";
    "ahead": "time", "30 s", "maximum playing time in the buffer";
    "request": "size", "500 B", "size of each request";
}}

section! { CALL, "`[flow.call]`, with `application = \"call\"`" {
    "length": "time", "", "duration of the call";
    "every": "time", "20 ms", "time between two successive messages";
    "message": "size", "160 B", "size of each message, at least 16 B";
    "deadline": "time", "150 ms", "time from sending after which a message counts as late";
}}
