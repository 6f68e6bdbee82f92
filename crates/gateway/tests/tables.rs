//! Packet tables.
mod packets;
use equic_gateway::model::Model;
use equic_gateway::reason::Reason;
use packets::frame::*;
use packets::quic::*;
use packets::script::*;
use packets::subject::Subject;

#[test]
fn smoke() {
    let s = case("an Initial")
        .packet(udp("192.0.2.1:1000", "10.0.0.1:443", initial().fill(1200).build()), Reason::New);
    let mut m = Model::default();
    assert_eq!(s.check("model", &mut m), Vec::<String>::new());
    let mut p = packets::program::Program::default();
    let t = std::time::Instant::now();
    p.reset(&s.config);
    eprintln!("load {:?}", t.elapsed());
    let t = std::time::Instant::now();
    assert_eq!(s.check("program", &mut p), Vec::<String>::new());
    eprintln!("case {:?}", t.elapsed());
    assert_eq!(m.report(), p.report());
}
