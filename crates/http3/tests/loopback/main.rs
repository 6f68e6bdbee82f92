//! Server, client and load generator against each other on the loopback interface.
//!
//! `running` starts servers and watches their admission; `serving` asks for things, `hostile` for
//! things that do not exist or are no HTTP/3, `admission` counts who is in,
//! `foreign` does it over quinn, `early` asks in 0-RTT packets,
//! `relay` holds back what comes, `paths` has several paths. `rules` breaks those of HTTP/3 as a client, `lies` as a server; `greedy`
//! takes more than its share. `repeat` has servers that do not
//! process what they are asked, `malformed` servers whose responses are malformed. `qpack` has
//! large integers.
//! `ends` looks at how requests and connections end, `long_fields` at requests with too many header
//! fields, `trailers` at those of requests, `unread` at responses to requests that the server does not read
//! to their end.
//! Randomised tests print their seed; EQUIC_SEED replays one.

mod admission;
mod common;
mod early;
mod ends;
mod foreign;
mod greedy;
mod hostile;
mod lies;
mod long_fields;
mod malformed;
mod paths;
mod qpack;
mod relay;
mod repeat;
mod rules;
mod running;
mod serving;
mod trailers;
mod unread;
