//! Tests that the hosts of a lab reach each other with the right addresses, and that programs and
//! code can run inside.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::common;
use equic_netns::{Lab, LabError, pin_command};

fn bound(namespace: &equic_netns::Namespace, address: &str) -> UdpSocket {
    let socket = namespace.udp_socket(address.parse().unwrap()).unwrap();
    socket.set_read_timeout(Some(common::PATIENCE)).unwrap();
    socket
}

/// Sends a datagram to the server and back. The server must see the client's address.
fn ping(client: &UdpSocket, server: &UdpSocket) {
    client.send_to(b"ping", server.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 16];
    let (length, from) = server.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (&b"ping"[..], client.local_addr().unwrap()));
    server.send_to(b"pong", from).unwrap();
    let (length, from) = client.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (&b"pong"[..], server.local_addr().unwrap()));
}

#[test]
fn server_is_reachable_from_every_client() {
    let Some(lab) = common::lab("t-ping", 3) else { return };
    for any in [IpAddr::from([0u8; 4]), IpAddr::from([0u8; 16])] {
        let server = bound(lab.server(), &lab.server().socket_address(any, 0).to_string());
        for client in lab.clients() {
            ping(&bound(client, &client.socket_address(any, 0).to_string()), &server);
        }
    }
}

#[test]
fn client_can_send_from_many_addresses() {
    let probe = Lab::builder("t-many")
        .clients(2)
        .client_prefix(1, "198.18.7.0/24".parse::<ipnet::IpNet>().unwrap())
        .client_prefix(1, "2001:db8:7::/48".parse::<ipnet::IpNet>().unwrap())
        .build();
    if let Err(LabError::Privilege { .. }) = probe {
        // This prints that the test is skipped.
        assert!(common::lab("t-many", 2).is_none());
        return;
    }
    let lab = probe.unwrap();
    let server4 = bound(lab.server(), &format!("{}:0", lab.server().ipv4));
    let server6 = bound(lab.server(), &format!("[{}]:0", lab.server().ipv6));
    for source in ["10.77.2.7:0", "10.77.2.254:0", "198.18.7.1:0", "198.18.7.99:0"] {
        ping(&bound(lab.client(1), source), &server4);
    }
    for source in ["[fd65:7175:6963:2::dead]:0", "[2001:db8:7::1]:0", "[2001:db8:7:ffff::9]:0"] {
        ping(&bound(lab.client(1), source), &server6);
    }
    // The first address belongs to this client. The second one belongs to another client, so it
    // must be refused.
    ping(&bound(lab.client(0), "10.77.1.7:0"), &server4);
    let foreign: SocketAddr = "10.77.2.7:0".parse().unwrap();
    assert!(matches!(lab.client(0).udp_socket(foreign), Err(LabError::System { .. })));
    // Clients can reach each other, too.
    ping(&bound(lab.client(0), "10.77.1.9:0"), &bound(lab.client(1), "10.77.2.9:0"));
}

#[test]
fn links_have_the_requested_settings() {
    if common::lab("t-root", 1).is_none() {
        return;
    }
    let lab = Lab::builder("t-mtu").mtu(9000).txqueuelen(77).build().unwrap();
    for host in [lab.server(), lab.client(0)] {
        let out =
            host.command("ip").args(["-o", "link", "show", "dev", &host.ifname]).output().unwrap();
        let out = String::from_utf8(out.stdout).unwrap();
        assert!(out.contains(" mtu 9000 ") && out.contains(" qlen 77"), "{out}");
        let mac = host.mac.map(|byte| format!("{byte:02x}")).join(":");
        assert!(out.contains(&mac), "{out}");
    }
    let server = bound(lab.server(), &format!("{}:0", lab.server().ipv4));
    let client = bound(lab.client(0), &format!("{}:0", lab.client(0).ipv4));
    client.send_to(&[7; 8900], server.local_addr().unwrap()).unwrap();
    assert_eq!(server.recv(&mut [0; 9000]).unwrap(), 8900);
}

#[test]
fn programs_run_inside_and_see_the_callers_mounts() {
    let Some(lab) = common::lab("t-prog", 1) else { return };
    let mut command = lab.client(0).command("/bin/sh");
    command.args(["-c", "readlink /proc/self/ns/net; readlink /proc/self/ns/mnt; grep Cpus_allowed_list /proc/self/status"]);
    pin_command(&mut command, &[0]).unwrap();
    let out = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let inside =
        lab.client(0).run(|| std::fs::read_link("/proc/thread-self/ns/net")).unwrap().unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], inside.to_str().unwrap());
    assert_ne!(lines[0], std::fs::read_link("/proc/self/ns/net").unwrap().to_str().unwrap());
    assert_eq!(lines[1], std::fs::read_link("/proc/self/ns/mnt").unwrap().to_str().unwrap());
    assert!(lines[2].ends_with("\t0"), "{out}");
}

#[test]
fn run_returns_borrowed_values_and_restores_the_namespace() {
    let Some(lab) = common::lab("t-run", 1) else { return };
    let before = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let words = ["a".to_owned(), "b".to_owned()];
    assert_eq!(lab.server().run(|| words.join("-")).unwrap(), "a-b");
    assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), before);
    let panicked = std::panic::catch_unwind(|| lab.server().run(|| panic!("expected")));
    assert!(panicked.is_err());
    lab.server().set_sysctl("net/ipv4/ip_default_ttl", "33").unwrap();
    let ttl =
        lab.server().run(|| std::fs::read_to_string("/proc/sys/net/ipv4/ip_default_ttl")).unwrap();
    assert_eq!(ttl.unwrap().trim(), "33");
    assert!(lab.server().set_sysctl("net/ipv4/no_such_thing", "1").is_err());
}

#[test]
fn labs_do_not_see_each_other() {
    let Some(first) = common::lab("t-twin", 1) else { return };
    let second = common::lab("t-twin", 1).unwrap();
    assert_ne!(first.id(), second.id());
    let address = format!("{}:7000", first.server().ipv4);
    let (one, two) = (bound(first.server(), &address), bound(second.server(), &address));
    let sender = bound(first.client(0), &format!("{}:0", first.client(0).ipv4));
    sender.send_to(b"x", one.local_addr().unwrap()).unwrap();
    assert_eq!(one.recv(&mut [0; 4]).unwrap(), 1);
    two.set_nonblocking(true).unwrap();
    assert_eq!(two.recv(&mut [0; 4]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let listed: Vec<String> = Lab::list().unwrap().into_iter().map(|record| record.id).collect();
    assert!(listed.iter().any(|id| id == first.id()) && listed.iter().any(|id| id == second.id()));
}

#[test]
fn labs_can_be_created_at_the_same_time() {
    if common::lab("t-root", 1).is_none() {
        return;
    }
    std::thread::scope(|scope| {
        let started: Vec<_> =
            (0..6).map(|_| scope.spawn(|| common::lab("t-conc", 2).unwrap())).collect();
        let labs: Vec<Lab> = started.into_iter().map(|thread| thread.join().unwrap()).collect();
        for lab in &labs {
            assert_eq!(common::namespaces_of(lab.id()).len(), 4);
        }
        let ids: Vec<String> = labs.iter().map(|lab| lab.id().to_owned()).collect();
        drop(labs);
        ids.iter().for_each(|id| common::assert_gone(id));
    });
}

/// The server has a route for all other addresses, so it must be able to answer any address without
/// an error.
#[test]
fn answers_to_unknown_addresses_are_discarded() {
    let Some(lab) = common::lab("t-sink", 1) else { return };
    let server4 = bound(lab.server(), &format!("{}:0", lab.server().ipv4));
    let server6 = bound(lab.server(), &format!("[{}]:0", lab.server().ipv6));
    for _ in 0..50 {
        server4.send_to(b"x", "203.0.113.9:443").unwrap();
        server6.send_to(b"x", "[2001:db8::9]:443").unwrap();
    }
}

#[test]
fn lab_of_another_process_opens_by_its_record() {
    let Some(lab) = common::lab("t-open", 1) else { return };
    let record = Lab::list().unwrap().into_iter().find(|record| record.id == lab.id()).unwrap();
    assert!(record.owner_alive());
    let server = record.hosts[0].open().unwrap();
    assert_eq!(server.ipv4, lab.server().ipv4);
    lab.close().unwrap();
    assert!(record.hosts[0].open().is_err());
}

#[test]
fn offloads_are_switched() {
    let Some(lab) = common::lab("t-offload", 1) else { return };
    // Measures the mean size in bytes of the packets that TCP passed to the client's interface.
    let mean = || {
        let listener = lab
            .server()
            .run(|| std::net::TcpListener::bind((lab.server().ipv4, 0)).unwrap())
            .unwrap();
        let address = listener.local_addr().unwrap();
        let reader = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
        });
        let counters = || equic_netns::measure::NetCounters::of(lab.client(0)).unwrap();
        let before = counters().interfaces["eth0"];
        lab.client(0)
            .run(|| {
                use std::io::Write as _;
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                stream.write_all(&vec![0; 4 << 20]).unwrap();
            })
            .unwrap();
        assert_eq!(reader.join().unwrap(), 4 << 20);
        let after = counters().interfaces["eth0"];
        (after.tx_bytes - before.tx_bytes) / (after.tx_packets - before.tx_packets)
    };
    assert!(mean() > 1514, "a veth interface has segmentation offload");
    lab.client(0).set_offloads(false).unwrap();
    assert!(mean() <= 1514);
    lab.client(0).set_offloads(true).unwrap();
    assert!(mean() > 1514);
}
