//! A client and a server on separate hosts, connected by the simulator's network in real time.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use equic_netns::Lab;
use equic_netns::emulation::{Emulation, Lateness, Live, Settings};
use equic_plugin::exchange::{
    Bytecode, ExchangeConfig, ExchangeHandle, ExchangeHook, Push, Update,
};
use equic_plugin_kit::paper::policy;
use equic_quic::operation::HookId;
use equic_quic::{Endpoint, EndpointConfig, NewConnection, TransportConfig, VarInt};
use equic_sim::{DEFAULT_MTU, Direction, Named, Simulation, simple, two_path};
use tokio::sync::watch;

use super::super::part::failed;
use super::session::{End, Session};
use crate::failure::{Failure, Result};
use crate::identity::{Identity, NAME};

/// Time that an endpoint gets to send CONNECTION_CLOSE before the hosts are removed.
const FAREWELL: Duration = Duration::from_millis(50);

/// The parameters of a link, for both directions.
pub(super) struct Both {
    pub(super) to_server: Direction,
    pub(super) to_client: Direction,
}

/// The hosts, the running network, and an endpoint on each host.
pub(super) struct LiveNetwork {
    pub(super) live: Live,
    client: Endpoint,
    server: Endpoint,
    /// Address of the server.
    to: SocketAddr,
    /// Address of the client on its second link, or `None` if there is only one link.
    second: Option<IpAddr>,
    identity: Identity,
    /// The lab must be the last field, so that it is dropped last.
    lab: Lab,
}

impl LiveNetwork {
    /// Sets up the network with one link, or with two links for multipath. Must be called inside a
    /// tokio runtime.
    pub(super) fn set(links: &[Both]) -> Result<LiveNetwork> {
        let network = network(links)?;
        let ends = [(network.clients[0], network.servers[0])];
        let lab = Lab::builder("plugins").build()?;
        let run = Simulation::new(network.topology, 1)?;
        let settings = Settings {
            mtu: DEFAULT_MTU,
            initial_window: None,
            min_rto: None,
            interfaces: links.len() as u16,
        };
        let emulation = Emulation::prepare(&lab, run, &ends, &settings)?;
        let ((client_host, from), (server_host, to)) = (emulation.client(0), emulation.server(0));
        let endpoint =
            |socket| Endpoint::new(EndpointConfig::with_default_provider()?, None, vec![socket]);
        let client = endpoint(client_host.udp_socket_nonblocking(from)?)?;
        let server = endpoint(server_host.udp_socket_nonblocking(to)?)?;
        let second = (links.len() > 1).then(|| emulation.client_address(0, 1));
        if let Some(address) = second {
            let runtime = tokio::runtime::Handle::current();
            let add = || {
                let _inside = runtime.enter();
                client.add_local_address(address).map(drop)
            };
            client_host.run(add)??;
        }
        let live = emulation.begin()?;
        let identity = Identity::new()?;
        Ok(LiveNetwork { live, client, server, to, second, identity, lab })
    }

    /// Connects over the first link, and opens a path over the second link if there is one. The
    /// server pushes the plugin `push`, if any. Client and server accept the plugins that the other
    /// offers.
    pub(super) async fn connect(
        &self,
        transport: TransportConfig,
        push: Option<&Arc<Push>>,
    ) -> Result<Session> {
        let paths = if self.second.is_some() { 2 } else { 1 };
        let transport = transport.with_max_paths(paths);
        let (ours, client_end) = exchange(Vec::new())?;
        let (theirs, server_end) = exchange(push.into_iter().cloned().collect())?;
        let with = |config: &ExchangeConfig| {
            let mut transport = transport.clone();
            transport.extra_parameters.push(config.parameter());
            Arc::new(transport)
        };
        let config = self.identity.client(with(&ours))?;
        let config = config.with_hooks(attach(ours, &client_end));
        let listening = self.identity.server(with(&theirs))?;
        self.server.set_server_config(Some(listening.with_hooks(attach(theirs, &server_end))));
        let connecting = async {
            let connecting = self.client.connect_with(&config, self.to, NAME)?;
            Ok::<_, Failure>(connecting.await?)
        };
        let accepting = async {
            let gone = || Failure::new("the server's endpoint is closed");
            let incoming = self.server.accept().await.ok_or_else(gone)?;
            Ok::<_, Failure>(incoming.await?)
        };
        let (client, server) = tokio::try_join!(connecting, accepting)?;
        let mut session = Session { client, server, client_end, server_end };
        if let Some(second) = self.second {
            session.client.open_path(second).await?;
        }
        if push.is_some() {
            session.settled().await?;
        }
        Ok(session)
    }

    /// Closes the connections and the network. Returns the lateness of packets.
    pub(super) async fn strike(self) -> Result<Lateness> {
        let LiveNetwork { lab, live, client, server, .. } = self;
        client.close(VarInt::from_u32(0), "");
        server.close(VarInt::from_u32(0), "");
        tokio::time::sleep(FAREWELL).await;
        let report = live.stop()?;
        drop((client, server));
        lab.close()?;
        Ok(report.lateness)
    }
}

fn network(links: &[Both]) -> Result<Named> {
    let mut named = match links {
        [one] => simple(one.to_server.clone()),
        [one, other] => two_path(one.to_server.clone(), other.to_server.clone()),
        _ => {
            return Err(Failure::new(
                "the network of this experiment must have one link or two links",
            ));
        }
    };
    for (link, both) in named.bottlenecks.iter().zip(links) {
        *named.topology.direction_mut(link.back()) = both.to_client.clone();
    }
    Ok(named)
}

/// Creates the plugin exchange of an endpoint that pushes these plugins and accepts all plugins of
/// the experiments.
fn exchange(push: Vec<Arc<Push>>) -> Result<(ExchangeConfig, End)> {
    let mut config = ExchangeConfig::new(Bytecode::default());
    let (tell, standings) = watch::channel(Vec::new());
    config.policy = Some(policy().map_err(failed)?);
    config.push = push;
    config.listener = Some(Arc::new(move |update: &Update| {
        tell.send_modify(|all: &mut Vec<Update>| note(all, update));
    }));
    Ok((config, End { standings, exchange: Arc::default() }))
}

/// Stores the latest state of each plugin.
fn note(all: &mut Vec<Update>, update: &Update) {
    match all.iter_mut().find(|one| one.hash == update.hash) {
        Some(known) => *known = Update { id: update.id.or(known.id), ..update.clone() },
        None => all.push(update.clone()),
    }
}

/// The plugin exchange of an endpoint. It is set once the endpoint is connected.
pub(super) type Exchange = Arc<Mutex<Option<(HookId, ExchangeHandle)>>>;

/// Attaches the plugin exchange to a new connection, and stores a handle of it.
fn attach(
    config: ExchangeConfig,
    end: &End,
) -> impl Fn(&mut NewConnection<'_>) + Send + Sync + use<> {
    let (config, kept) = (Arc::new(config), Arc::clone(&end.exchange));
    move |connection: &mut NewConnection<'_>| {
        let attach =
            |hook, points: &[_], frames: &[_]| connection.attach_with_frames(hook, points, frames);
        // No other hook is attached, so there can be no conflict. If attaching fails anyway, no
        // plugin ever runs, and the experiment detects this.
        let attached = ExchangeHook::attach(Arc::clone(&config), attach).ok();
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = attached;
    }
}
