//! Tests of complete simulation runs of small networks.

use std::time::Duration;

use super::*;
use crate::{
    CoDel, Datagram, Direction, Ecn, FqCoDel, Limit, OnOff, OnOffConfig, Period, Protocol, Queue,
    Red, ShortFlows, ShortFlowsConfig, Sink, SizeDistribution, Transmit, dumbbell, parking_lot,
    simple, two_path,
};

const MS: Duration = Duration::from_millis(1);

fn narrow() -> Direction {
    Direction::new(10_000_000, 10 * MS)
}

/// Attaches a source to one node and a sink to the other.
fn stream(
    run: &mut Simulation,
    from: NodeId,
    to: NodeId,
    config: OnOffConfig,
) -> (FlowId, AgentId) {
    let (from, to) = (run.address(from).unwrap(), run.address(to).unwrap());
    let flow = run.flow(from, to).unwrap();
    let source = OnOff::new(config, to, flow, run.agent_seed(from)).unwrap();
    run.attach(from, Box::new(source));
    (flow, run.attach(to, Box::new(Sink::default())))
}

fn steady(rate: u64) -> OnOffConfig {
    OnOffConfig { stop: Some(Time::from_secs(5)), ..OnOffConfig::steady(rate) }
}

#[test]
fn simulation_delivers_packets_over_all_links_in_time() {
    let named = dumbbell(3, narrow());
    let bottleneck = named.bottlenecks[0];
    let mut run = Simulation::new(named.topology, 1).unwrap();
    let flows: Vec<_> = (0..3)
        .map(|pair| stream(&mut run, named.clients[pair], named.servers[pair], steady(2_000_000)))
        .collect();
    assert_eq!(run.run(Time::from_secs(60)), Ok(End::Idle));
    for (flow, sink) in &flows {
        let stats = run.flow_stats(*flow);
        assert_eq!((stats.delivered, stats.dropped, stats.lost), (stats.sent, 0, 0));
        assert_eq!(stats.sent, 1_042);
        assert_eq!(run.goodput(*sink), 1_042 * 1_200);
        assert_eq!(run.agent::<Sink>(*sink).unwrap().datagrams(), 1_042);
        // Each packet has 28 bytes of headers.
        assert_eq!(stats.delivered_bytes, 1_042 * 1_228);
        // The time consists of 30 ms of propagation delay, two links at 1 Gb/s, one link at 10
        // Mb/s, and two packets ahead in the queue.
        let last = stats.last_delivered.unwrap().elapsed();
        assert!(last < Duration::from_secs(5) + 34 * MS && last > Duration::from_millis(5_026));
    }
    assert_eq!(run.port(bottleneck.there()).sent, 3 * 1_042);
    assert_eq!(run.port(bottleneck.back()).sent, 0);
}

#[test]
fn simulation_bottleneck_carries_its_rate_and_drops_the_rest() {
    let mut named = simple(narrow().queue(Queue::DropTail(Limit::Packets(20))));
    let bottleneck = named.bottlenecks[0];
    named.topology.direction_mut(bottleneck.there()).framing = crate::Framing::Ppp;
    let mut run = Simulation::new(named.topology, 1).unwrap();
    let (flow, sink) = stream(&mut run, named.clients[0], named.servers[0], steady(20_000_000));
    let recording =
        Recording { interval: 100 * MS, ports: vec![bottleneck.there()], agents: vec![sink] };
    run.record(recording).unwrap();
    assert_eq!(run.run(Time::from_secs(60)), Ok(End::Idle));
    let stats = run.flow_stats(flow);
    assert_eq!(stats.sent, stats.delivered + stats.dropped);
    // 10 Mb/s minus headers, which are 30 of 1,230 bytes.
    let goodput = run.goodput(sink) as f64 * 8.0 / 5.0;
    assert!((goodput - 1e7 * 1_200.0 / 1_230.0).abs() < 1e5, "{goodput}");
    let records = run.recorded();
    let at = &records[30];
    assert_eq!((at.at, at.ports[0].packets), (Time::from_millis(3_100), 20));
    assert!((106..=108).contains(&at.ports[0].dropped), "{at:?}");
    assert!((124_000..126_000).contains(&at.ports[0].sent_bytes), "{at:?}");
    assert!((9.6e6..9.9e6).contains(&at.goodput[0]), "{at:?}");
    let dropped: u64 = records.iter().map(|record| record.ports[0].dropped).sum();
    assert_eq!(dropped, stats.dropped);
}

#[test]
fn simulation_is_not_changed_by_recording() {
    let play = |records: bool| {
        let named = dumbbell(2, narrow().loss_percent(5.0));
        let mut run = Simulation::new(named.topology, 7).unwrap();
        run.sum_up();
        for pair in 0..2 {
            stream(&mut run, named.clients[pair], named.servers[pair], steady(6_000_000));
        }
        if records {
            let ports = vec![named.bottlenecks[0].there()];
            run.record(Recording { interval: MS, ports, agents: Vec::new() }).unwrap();
        }
        run.run(Time::from_secs(10)).unwrap();
        run.digest()
    };
    assert_eq!(play(false), play(true));
}

#[test]
fn simulation_shares_each_link_of_a_parking_lot() {
    let fair = narrow().queue(Queue::FqCoDel(FqCoDel::default()));
    let named = parking_lot(&[fair.clone(), fair]);
    let mut run = Simulation::new(named.topology, 1).unwrap();
    let flows: Vec<_> = (0..3)
        .map(|pair| stream(&mut run, named.clients[pair], named.servers[pair], steady(8_000_000)))
        .collect();
    assert_eq!(run.run(Time::from_secs(5)), Ok(End::Limit));
    // Each flow gets half of a 10 Mb/s link for 5 s, whether it crosses one link or two.
    for (_, sink) in flows {
        let carried = run.goodput(sink);
        assert!((2_950_000..3_150_000).contains(&carried), "{carried}");
    }
    for link in named.bottlenecks {
        assert!(run.port(link.there()).dropped_early > 0);
    }
}

/// Sends one datagram through each interface. Answers a datagram through the interface on which it
/// arrived.
struct Both {
    to: Address,
    flow: FlowId,
    queue: Vec<u16>,
    came: Vec<(u16, Time)>,
    answers: bool,
}

impl Agent for Both {
    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        assert_eq!(datagram.payload, b"by chance");
        assert_eq!(datagram.padding, 100);
        self.came.push((datagram.interface, now));
        self.queue.extend(self.answers.then_some(datagram.interface));
    }

    fn on_timer(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let interface = self.queue.pop()?;
        buffer[..9].copy_from_slice(b"by chance");
        let transmit = Transmit::udp(self.to, self.flow, 9);
        Some(Transmit { padding: 100, interface: Some(interface), ..transmit })
    }

    fn next_timer(&mut self) -> Option<Time> {
        None
    }
}

#[test]
fn simulation_routes_two_paths_by_interface() {
    let slow = Direction::new(10_000_000, 100 * MS);
    let named = two_path(narrow(), slow);
    let mut run = Simulation::new(named.topology, 1).unwrap();
    let [client, server] = [named.clients[0], named.servers[0]];
    let (client, server) = (run.address(client).unwrap(), run.address(server).unwrap());
    let [there, back] = [run.flow(client, server).unwrap(), run.flow(server, client).unwrap()];
    let agent = |to, flow, queue, answers| Both { to, flow, queue, came: Vec::new(), answers };
    // The client has two interfaces, so the datagram for a third one must be dropped.
    let id = run.attach(client, Box::new(agent(server, there, vec![0, 1, 2], false)));
    run.attach(server, Box::new(agent(client, back, Vec::new(), true)));
    assert_eq!(run.run(Time::from_secs(1)), Ok(End::Idle));
    let came = &run.agent::<Both>(id).unwrap().came;
    let interfaces: Vec<u16> = came.iter().map(|(interface, _)| *interface).collect();
    assert_eq!(interfaces, [0, 1]);
    assert!(came[0].1 < Time::from_millis(21) && came[1].1 > Time::from_millis(200));
    assert_eq!(run.flow_stats(there).unreachable, 1);
    assert_eq!(run.port(named.bottlenecks[1].back()).sent, 1);
}

#[test]
fn simulation_rejects_invalid_topologies_and_flows() {
    let mut topology = Topology::new();
    let [one, two] = [topology.host("one"), topology.host("two")];
    let middle = topology.host("middle");
    topology.link(one, middle, narrow());
    topology.link(middle, two, narrow());
    let mut run = Simulation::new(topology.clone(), 1).unwrap();
    let (from, to) = (run.address(one).unwrap(), run.address(two).unwrap());
    let (from_name, to_name) = ("one".to_owned(), "two".to_owned());
    let nowhere = TopologyError::NoRoute { from: from_name, to: to_name };
    assert_eq!(run.flow(from, to), Err(nowhere));
    let record = |run: &mut Simulation, interval, ports| {
        run.record(Recording { interval, ports, agents: Vec::new() })
    };
    assert_eq!(record(&mut run, Duration::ZERO, Vec::new()), Err(RecordError::Interval));
    assert_eq!(record(&mut run, MS, vec![PortId(4)]), Err(RecordError::Unknown));
    topology.link(one, two, narrow().queue(Queue::DropTail(Limit::Bytes(100))));
    assert!(matches!(Simulation::new(topology, 1), Err(TopologyError::Direction { .. })));

    let named = simple(narrow());
    let mut run = Simulation::new(named.topology, 1).unwrap();
    for _ in 0..65_535 {
        run.address(named.clients[0]).unwrap();
    }
    let full = TopologyError::TooManyAgents("client".to_owned());
    assert_eq!(run.address(named.clients[0]), Err(full));
}

/// An agent whose timer is always due.
struct Restless;

impl Agent for Restless {
    fn on_datagram(&mut self, _: Time, _: Datagram<'_>) {}
    fn on_timer(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Transmit> {
        None
    }
    fn next_timer(&mut self) -> Option<Time> {
        Some(Time::START)
    }
}

/// An agent that always has another datagram to send.
struct Endless(Address, FlowId);

impl Agent for Endless {
    fn on_datagram(&mut self, _: Time, _: Datagram<'_>) {}
    fn on_timer(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Transmit> {
        Some(Transmit::udp(self.0, self.1, 0))
    }
    fn next_timer(&mut self) -> Option<Time> {
        None
    }
}

#[test]
fn simulation_reports_an_agent_that_stops_time() {
    let stuck = |agent: fn(Address, FlowId) -> Box<dyn Agent>| {
        let named = simple(narrow());
        let mut run = Simulation::new(named.topology, 1).unwrap();
        let from = run.address(named.clients[0]).unwrap();
        let to = run.address(named.servers[0]).unwrap();
        let flow = run.flow(from, to).unwrap();
        run.attach(from, agent(to, flow));
        run.run(Time::from_secs(1)).unwrap_err()
    };
    assert_eq!(stuck(|_, _| Box::new(Restless)), Stuck { at: Time::START });
    assert_eq!(stuck(|to, flow| Box::new(Endless(to, flow))), Stuck { at: Time::START });
}

#[test]
fn simulation_can_be_continued_after_its_limit() {
    let play = |stops: &[u64]| {
        let named = simple(narrow().loss_percent(10.0));
        let mut run = Simulation::new(named.topology, 3).unwrap();
        run.sum_up();
        stream(&mut run, named.clients[0], named.servers[0], steady(1_000_000));
        for stop in stops {
            assert_eq!(run.run(Time::from_millis(*stop)), Ok(End::Limit));
            assert_eq!(run.now(), Time::from_millis(*stop));
        }
        assert_eq!(run.run(Time::from_secs(60)), Ok(End::Idle));
        (run.digest(), run.events())
    };
    assert_eq!(play(&[]), play(&[1, 2, 500, 4_000]));
}

/// A replaced agent must not be called again, and the run must not wait for it.
#[test]
fn simulation_agent_can_be_replaced() {
    struct Working;
    impl Agent for Working {
        fn on_datagram(&mut self, _: Time, _: Datagram<'_>) {}
        fn on_timer(&mut self, _: Time) {
            panic!("it is gone");
        }
        fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Transmit> {
            None
        }
        fn next_timer(&mut self) -> Option<Time> {
            Some(Time::from_secs(1))
        }
        fn status(&self) -> Status {
            Status::Working
        }
    }
    let named = simple(narrow());
    let mut run = Simulation::new(named.topology, 1).unwrap();
    let (flow, _) = stream(&mut run, named.clients[0], named.servers[0], steady(1_000_000));
    let other = run.address(named.clients[0]).unwrap();
    run.attach(other, Box::new(Working));
    assert_eq!(run.run(Time::from_millis(10)), Ok(End::Limit));
    let sink = run.attach(other, Box::new(Sink::default()));
    assert_eq!(run.run(Time::from_secs(60)), Ok(End::Idle));
    assert_eq!((run.goodput(sink), run.flow_stats(flow).delivered), (0, 521));
}

/// Sends one TCP segment. The segment's size on the wire must include the TCP header once: its
/// length is added, and the header fields in the buffer are not counted.
struct Segment(Option<Transmit>);

impl Agent for Segment {
    fn on_datagram(&mut self, _: Time, _: Datagram<'_>) {}
    fn on_timer(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Transmit> {
        self.0.take()
    }
    fn next_timer(&mut self) -> Option<Time> {
        None
    }
}

#[test]
fn simulation_counts_headers_of_tcp_segments() {
    let mut named = simple(narrow());
    named.topology.ip = crate::IpVersion::V6;
    let mut run = Simulation::new(named.topology, 1).unwrap();
    let from = run.address(named.clients[0]).unwrap();
    let to = run.address(named.servers[0]).unwrap();
    let flow = run.flow(from, to).unwrap();
    let transmit = Transmit {
        header_fields: 30,
        padding: 1_400,
        protocol: Protocol::Tcp { options: 12 },
        ..Transmit::udp(to, flow, 40)
    };
    run.attach(from, Box::new(Segment(Some(transmit))));
    let sink = run.attach(to, Box::new(Sink::default()));
    run.run(Time::from_secs(1)).unwrap();
    assert_eq!(run.flow_stats(flow).delivered_bytes, 40 + 20 + 12 + 10 + 1_400);
    assert_eq!(run.goodput(sink), 40 + 1_400);
}

/// Creates a run with all kinds of agents, and lets it run for some time.
fn busy(seed: u64, queue: Queue) -> Simulation {
    let mut narrow = narrow().queue(queue).loss_percent(1.0);
    narrow.wire.jitter = MS;
    let named = dumbbell(4, narrow);
    let mut run = Simulation::new(named.topology, seed).unwrap();
    run.sum_up();
    let by_chance = OnOffConfig {
        on: Period::Exponential(50 * MS),
        off: Period::Exponential(50 * MS),
        ecn: Ecn::Ect0,
        ..steady(8_000_000)
    };
    for pair in 0..3 {
        stream(&mut run, named.clients[pair], named.servers[pair], by_chance);
    }
    let (from, to) =
        (run.address(named.clients[3]).unwrap(), run.address(named.servers[3]).unwrap());
    let flow = run.flow(from, to).unwrap();
    let config = ShortFlowsConfig {
        per_second: 100.0,
        sizes: SizeDistribution::Exponential { mean: 10_000 },
        rate: 5_000_000,
        datagram: 1_000,
        most: 100,
        start: Time::START,
        stop: Some(Time::from_secs(5)),
    };
    let flows = ShortFlows::new(config, to, flow, run.agent_seed(from)).unwrap();
    run.attach(from, Box::new(flows));
    run.attach(to, Box::new(Sink::default()));
    run.run(Time::from_secs(60)).unwrap();
    let stats = run.port(named.bottlenecks[0].there());
    // Every packet that did not arrive must be counted as dropped or lost.
    let gone = stats.dropped_full + stats.dropped_early;
    assert_eq!(stats.offered, stats.sent + gone, "{stats:?}");
    assert!(gone + stats.marked > 0, "{stats:?}");
    run
}

/// The digests must stay the same in future versions, so that old runs can be replayed from their
/// seeds.
#[test]
fn simulation_digest_depends_on_the_seed_under_every_queue() {
    for (queue, expected) in [
        (Queue::DropTail(Limit::Bytes(30_000)), 0xf075_a63d_af99_0c8d),
        (Queue::Red(Red { ecn: true, weight: 0.02, ..Red::default() }), 0xe268_134e_c049_def1),
        (Queue::CoDel(CoDel::default()), 0xdce1_934b_f028_002c),
        (Queue::FqCoDel(FqCoDel::default()), 0x78a4_2bef_c773_f151),
    ] {
        let digest = busy(1, queue).digest();
        assert_eq!(digest, Some(expected), "{queue:?}: {digest:x?}");
        assert_ne!(digest, busy(2, queue).digest(), "{queue:?}");
    }
}
