//! The ways to send and receive that are compared.

use std::io;
use std::net::UdpSocket;
use std::process::Command;

use crate::calls::{ReceiveMessages, ReceiveOne, SendMessages, SendOne, SendTimed, SendZeroCopy};
use crate::message::Messages;
use crate::place::{Kind, Place};
use crate::ring::{How, RingReceiver, RingSender};
use crate::xdp::{XdpReceiver, XdpSender};
use crate::{GSO, Receiver, Sender, ring};

/// Maximum number of messages per receive call with GRO, as in `udp.rs` of the socket layer.
const BATCH: usize = 8;
/// Name of the way that the socket layer uses.
pub(crate) const IN_USE: &str = "sendmsg, GSO of 44 / recvmmsg of 8, GRO";

pub(crate) struct Way {
    pub sender: Box<dyn Sender>,
    pub receiver: Box<dyn Receiver>,
    /// Separate interfaces, or `None` if the way uses those of the other ways.
    _place: Option<Place>,
}

type Made = io::Result<Way>;
type Ends = [UdpSocket; 2];

fn way(sender: impl Sender + 'static, receiver: impl Receiver + 'static) -> Way {
    Way { sender: Box::new(sender), receiver: Box::new(receiver), _place: None }
}

/// Returns a receiver that receives as the socket layer does.
fn usual(receiver: UdpSocket) -> io::Result<ReceiveMessages> {
    ReceiveMessages::new(receiver, BATCH, true)
}

/// Returns a sender that sends as the socket layer does.
fn batches(sender: UdpSocket) -> SendMessages {
    SendMessages { socket: sender, messages: Messages::to_send(1, GSO) }
}

fn messages([sender, receiver]: Ends, messages: usize, segments: usize) -> Made {
    let messages = Messages::to_send(messages, segments);
    Ok(way(SendMessages { socket: sender, messages }, usual(receiver)?))
}

fn by_ring([sender, receiver]: Ends, how: How) -> Made {
    Ok(way(RingSender::new(sender, GSO, how)?, usual(receiver)?))
}

/// Returns a way with separate interfaces, because an AF_XDP socket takes packets away from all
/// other sockets of its interface. Fails on loopback.
fn past_the_stack(kind: Kind, make: impl FnOnce(&Place, Ends) -> Made) -> Made {
    if kind == Kind::Loopback {
        return Err(io::Error::other("not on loopback"));
    }
    let place = Place::new(kind)?;
    let made = make(&place, place.sockets()?)?;
    Ok(Way { _place: Some(place), ..made })
}

/// Returns all ways. For a way that the kernel does not offer, returns the error.
pub(crate) fn all(place: &Place, kind: Kind) -> Vec<(&'static str, Made)> {
    let on = |make: &dyn Fn(Ends) -> Made| place.sockets().and_then(make);
    vec![
        (IN_USE, on(&|ends| messages(ends, 1, GSO))),
        // Other ways of sending. Receiving is as in the socket layer.
        (
            "send, one datagram a call",
            on(&|[sender, receiver]| Ok(way(SendOne { socket: sender }, usual(receiver)?))),
        ),
        ("sendmmsg of 44 datagrams", on(&|ends| messages(ends, GSO, 1))),
        ("sendmsg, GSO of 10", on(&|ends| messages(ends, 1, 10))),
        ("sendmmsg of 4 GSO of 44", on(&|ends| messages(ends, 4, GSO))),
        ("sendmmsg of 4 GSO of 10", on(&|ends| messages(ends, 4, 10))),
        (
            "sendmsg, GSO of 44, MSG_ZEROCOPY",
            on(&|[sender, receiver]| Ok(way(SendZeroCopy::new(sender, GSO)?, usual(receiver)?))),
        ),
        (
            "sendmsg, GSO of 44, SO_TXTIME",
            on(&|[sender, receiver]| Ok(way(SendTimed::new(sender, GSO)?, usual(receiver)?))),
        ),
        ("io_uring SENDMSG, GSO of 44", on(&|ends| by_ring(ends, How::Copy(1)))),
        ("io_uring 4 SENDMSG at once, GSO of 44", on(&|ends| by_ring(ends, How::Copy(4)))),
        ("io_uring SENDMSG_ZC, GSO of 44", on(&|ends| by_ring(ends, How::ZeroCopy))),
        ("io_uring SENDMSG_ZC, registered, GSO of 44", on(&|ends| by_ring(ends, How::Registered))),
        ("io_uring SEND bundle of 44 buffers, GSO", on(&|ends| by_ring(ends, How::Bundle))),
        // Other ways of receiving. Sending is as in the socket layer.
        (
            "recv, one datagram a call",
            on(&|[sender, receiver]| Ok(way(batches(sender), ReceiveOne { socket: receiver }))),
        ),
        (
            "recvmmsg of 44 datagrams",
            on(&|[sender, receiver]| {
                Ok(way(batches(sender), ReceiveMessages::new(receiver, GSO, false)?))
            }),
        ),
        (
            "recvmsg, GRO",
            on(&|[sender, receiver]| {
                Ok(way(batches(sender), ReceiveMessages::new(receiver, 1, true)?))
            }),
        ),
        (
            "io_uring RECVMSG multishot, 8 buffers, GRO",
            on(&|[sender, receiver]| {
                Ok(way(batches(sender), RingReceiver::new(receiver, BATCH as u16)?))
            }),
        ),
        // Ways that bypass the network stack.
        (
            "AF_XDP of 44 / recvmmsg of 8",
            past_the_stack(kind, |place, ends| {
                let sender = XdpSender::new(place, &ends, GSO)?;
                let [_, receiver] = ends;
                Ok(way(sender, usual(receiver)?))
            }),
        ),
        (
            "sendmsg, GSO of 44 / AF_XDP",
            past_the_stack(kind, |place, [sender, receiver]| {
                Ok(way(batches(sender), XdpReceiver::new(place, &receiver)?))
            }),
        ),
        (
            "AF_XDP of 44 / AF_XDP",
            past_the_stack(kind, |place, ends| {
                let sender = XdpSender::new(place, &ends, GSO)?;
                Ok(way(sender, XdpReceiver::new(place, &ends[1])?))
            }),
        ),
    ]
}

/// Prints whether the kernel offers the features that are not measured.
pub(crate) fn probe(place: &Place) -> io::Result<()> {
    let [_, receiver] = place.sockets()?;
    let bundled = ring::bundled_messages(&receiver).unwrap_or_else(Some);
    match bundled {
        Some(error) => println!("io_uring RECVMSG in bundles: not offered ({error})"),
        None => println!("io_uring RECVMSG in bundles: taken"),
    }
    // Tries the queues on the loopback interface of a separate namespace.
    let spare = Place::new(Kind::Veth);
    for queue in ["fq", "etf clockid CLOCK_TAI"] {
        let kind = queue.split(' ').next().unwrap_or_default();
        let added = spare.as_ref().map(|spare| {
            spare.within(0, || {
                let words = format!("qdisc add dev lo root {queue}");
                Command::new("tc").args(words.split(' ')).output()
            })
        });
        match added {
            Ok(Ok(output)) if output.status.success() => println!("qdisc {kind}: offered"),
            Ok(Ok(output)) => {
                let said = String::from_utf8_lossy(&output.stderr);
                println!("qdisc {kind}, for SO_TXTIME: not offered ({})", said.trim());
            }
            Ok(Err(error)) => println!("qdisc {kind}: unknown ({error})"),
            Err(error) => println!("qdisc {kind}: unknown ({error})"),
        }
    }
    Ok(())
}
