//! Keys of the applications that a flow can have instead of a single transfer.

section! { REQUESTS, "`[flow.requests]`, with `application = \"requests\"`" {
    "count": "number from 1", "100", "requests of each connection";
    "request": "size", "500 B", "bytes of each request";
    "response": "size", "", "bytes of each response";
    "think": "time", "0 s", "from the end of a response to the next request";
    "concurrent": "number from 1", "1", "requests in progress at the same time";
}}

section! { STREAMS, "`[flow.streams]`, with `application = \"streams\"`" {
    "count": "number from 1", "", "streams of each connection, which start together";
    "size": "size", "", "bytes that the client sends on each";
}}

section! { PAGE, "`[flow.page]`, with `application = \"page\"`" {
    "request": "size", "500 B", "bytes of each request";
    "object": "list of tables", "", "objects of the page";
}}

section! { OBJECT, "`[[flow.page.object]]`" {
    "name": "text", "", "name of the object; must be unique";
    "size": "size", "", "bytes of the object";
    "after": "list of texts", "none", "objects that must arrive before this one is requested";
}}

section! { VIDEO, "`[flow.video]`, with `application = \"video\"`" {
    "rate": "rate", "", "bits for each second of playing time";
    "length": "time", "", "playing time; rounded up to whole segments";
    "segment": "time", "2 s", "playing time of each segment";
    "buffer": "time", "4 s", "playing time in the buffer before the video starts, and before it continues after a stall";
    "ahead": "time", "30 s", "largest playing time in the buffer";
    "request": "size", "500 B", "bytes of each request";
}}

section! { CALL, "`[flow.call]`, with `application = \"call\"`" {
    "length": "time", "", "duration of the call";
    "every": "time", "20 ms", "time from one message to the next";
    "message": "size", "160 B", "bytes of each message, at least 16";
    "deadline": "time", "150 ms", "time after which a message is late";
}}
