//! Tests the accounts of steps and memory in virtual time.

use super::*;

fn limits() -> Limits {
    Limits { address_steps_per_second: 400, process_steps_per_second: 600, ..Limits::default() }
}

fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn account_is_shared_by_an_address_and_limited_by_all_peers() {
    let accounts = Accounts::default();
    let of = |text| accounts.of(address(text), &limits(), 0);
    assert_eq!(of("192.0.2.1").take(60, 60, 0), 60);
    // This is the first address again, in the form that a dual-stack socket reports.
    assert_eq!(of("::ffff:192.0.2.1").take(60, 60, 0), 40);
    // All peers together have 150 steps.
    assert_eq!(of("2001:db8::1").take(100, 100, 0), 50);
    assert_eq!(of("192.0.2.2").take(1, 1, 0), 0);
    // After a second, the address again has all it can save up: the steps of a quarter of a second.
    assert_eq!(of("192.0.2.1").take(1_000, 1_000, 1_000_000_000), 100);
}

#[test]
fn account_counts_granted_and_refused_steps() {
    let account = Accounts::default().of(address("192.0.2.1"), &limits(), 0);
    assert_eq!(
        (account.take(60, 60, 0), account.pay(50, 0), account.take(60, 60, 0)),
        (60, false, 40)
    );
    account.owe(7);
    let usage = account.usage();
    assert_eq!((usage.steps, usage.refused), (107, 2));
}

#[test]
fn account_reserves_half_of_all_steps_for_offers() {
    let accounts = Accounts::default();
    let of = |text| accounts.of(address(text), &limits(), 0);
    // All peers have 150 steps together, of which offers get 75.
    assert!(of("192.0.2.1").pay(40, 0) && !of("192.0.2.2").pay(40, 0));
    assert!(of("192.0.2.2").pay(35, 0) && !of("192.0.2.3").pay(1, 0));
    assert_eq!(of("192.0.2.3").take(75, 75, 0), 75);
    // Running plugins take all steps that are left for them. Offers still have their half.
    let accounts = Accounts::default();
    let of = |text| accounts.of(address(text), &limits(), 0);
    assert_eq!(of("192.0.2.1").take(100, 100, 0) + of("192.0.2.2").take(100, 100, 0), 150);
    assert!(of("192.0.2.3").pay(40, 0));
    // The offers used steps that running plugins had already taken, so running plugins are in debt.
    assert_eq!(of("192.0.2.3").take(1, 1, 60_000_000), 0);
    assert_eq!(of("192.0.2.3").take(1, 1, 100_000_000), 1);
}

#[test]
fn account_bounds_the_memory_of_an_address() {
    let limits = Limits { address_memory: 100, ..limits() };
    let accounts = Accounts::default();
    let of = |text| accounts.of(address(text), &limits, 0);
    let first = of("192.0.2.1").hold(60, 0).unwrap();
    let second = of("192.0.2.1").hold(40, 0).unwrap();
    assert_eq!(of("192.0.2.1").hold(1, 0).unwrap_err(), 100);
    assert!(of("192.0.2.2").hold(100, 0).is_ok(), "another address");
    // The new plugin replaces the first one, whose memory is returned next.
    let third = of("192.0.2.1").hold(60, first.count()).unwrap();
    drop(first);
    assert_eq!(of("192.0.2.1").usage().bytes, 100);
    drop((second, third));
    assert_eq!(of("192.0.2.1").usage().bytes, 0);
    assert!(of("192.0.2.1").hold(usize::MAX, usize::MAX).is_err());
}

#[test]
fn account_of_ipv6_is_shared_by_the_network() {
    let accounts = Accounts::default();
    let of = |text| accounts.of(address(text), &limits(), 0);
    assert!(Arc::ptr_eq(&of("2001:db8::1"), &of("2001:db8::ffff:1")));
    assert!(!Arc::ptr_eq(&of("2001:db8::1"), &of("2001:db8:0:1::1")));
    assert!(!Arc::ptr_eq(&of("::1"), &of("0.0.0.1")));
}

#[test]
fn account_outlives_its_connections_until_it_is_full() {
    let accounts = Accounts::default();
    for one in 0..=MAX_ADDRESSES as u32 {
        let address = Some(IpAddr::from((one << 8).to_be_bytes()));
        assert!(accounts.of(address, &limits(), 0).pay(0, 0));
        accounts.of(address, &limits(), 0).owe(1);
    }
    // The limit on accounts is reached, so the last address has none of its own.
    assert_eq!(lock(&accounts.state).of_addresses.len(), MAX_ADDRESSES);
    let later = 3_600_000_000_000;
    accounts.of(address("192.0.2.1"), &limits(), later);
    assert_eq!(lock(&accounts.state).of_addresses.len(), 1);
}

/// Number of steps that an offer and the load of the largest object cost.
const LOAD: u64 = 7_000_000;

/// A simulation of greedy peers, which make offers as often as they can. The tests add other peers,
/// which make offers now and then.
struct Crowd {
    accounts: Accounts,
    greedy: Vec<IpAddr>,
    /// Number of accepted offers of each greedy address.
    accepted: Vec<u64>,
    now: u64,
}

impl Crowd {
    fn new(greedy: impl Iterator<Item = IpAddr>) -> Crowd {
        let greedy: Vec<IpAddr> = greedy.collect();
        let accepted = vec![0; greedy.len()];
        Crowd { accounts: Accounts::default(), greedy, accepted, now: 0 }
    }

    fn pay(&self, address: IpAddr) -> bool {
        self.accounts.of(Some(address), &Limits::default(), self.now).pay(LOAD, self.now)
    }

    /// Advances the time by this many milliseconds. Every two milliseconds, each greedy address
    /// makes an offer.
    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 2 {
            self.now += 2_000_000;
            for at in 0..self.greedy.len() {
                self.accepted[at] += u64::from(self.pay(self.greedy[at]));
            }
        }
    }

    /// Makes offers of newcomers, four per second for a minute, each from another network. Returns
    /// how many are refused.
    fn refused_newcomers(&mut self) -> u64 {
        let mut refused = 0;
        for number in 0..240_u32 {
            self.pass(250);
            let address = IpAddr::from((0xcb00_0000 + (number << 8) + 1).to_be_bytes());
            refused += u64::from(!self.pay(address));
        }
        refused
    }
}

fn v4(number: u32) -> IpAddr {
    IpAddr::from((0xc000_0200 + number).to_be_bytes())
}

#[test]
fn account_serves_newcomers_next_to_five_greedy_addresses() {
    let mut crowd = Crowd::new((0..5).map(|number| v4(number << 8)));
    assert_eq!(crowd.refused_newcomers(), 0);
    // The five addresses must share all remaining steps in equal parts.
    let (least, most) =
        (crowd.accepted.iter().min().unwrap(), crowd.accepted.iter().max().unwrap());
    assert!(most * 4 <= least * 5, "{:?}", crowd.accepted);
    let all = crowd.accepted.iter().sum::<u64>() * LOAD;
    let rate = Limits::default().process_steps_per_second / 2;
    assert!(all > rate * 60 * 8 / 10, "{all} steps in a minute");
}

#[test]
fn account_serves_newcomers_next_to_a_network_of_many_addresses() {
    let address =
        |number: u128| IpAddr::from((0x2001_0db8_u128 << 96 | number << 64 | 1).to_be_bytes());
    let mut crowd = Crowd::new((0..140).map(address));
    assert_eq!(crowd.refused_newcomers(), 0);
    assert!(crowd.accepted.iter().sum::<u64>() > 0);
    let state = lock(&crowd.accounts.state);
    assert!(state.of_addresses.len() <= MAX_OF_NETWORK + 240, "{}", state.of_addresses.len());
    assert!(state.shared.len() == 1, "the rest of the network shares one account");
}

#[test]
fn account_serves_newcomers_next_to_forty_networks() {
    let mut crowd = Crowd::new((0..40).map(|number| v4(number << 8)));
    crowd.pass(20_000);
    assert_eq!(crowd.refused_newcomers(), 0);
}

/// A peer that makes one offer per second must be served, because it needs less than an equal
/// share.
#[test]
fn account_serves_moderate_peers_next_to_greedy_peers() {
    let mut crowd = Crowd::new((0..5).map(|number| v4(number << 8)));
    crowd.pass(30_000);
    let moderate = v4(77 << 8);
    let mut refused = 0;
    for _ in 0..60 {
        crowd.pass(1_000);
        refused += u64::from(!crowd.pay(moderate));
    }
    assert_eq!(refused, 0);
}

#[test]
fn account_number_is_limited_and_further_networks_share() {
    let accounts = Accounts::default();
    let mut held = Vec::new();
    for number in 0..2 * MAX_ADDRESSES as u32 {
        let address = Some(IpAddr::from((number << 8).to_be_bytes()));
        held.push(accounts.of(address, &limits(), 0));
    }
    let state = lock(&accounts.state);
    assert_eq!((state.of_addresses.len(), state.networks.len()), (MAX_ADDRESSES, MAX_ADDRESSES));
    assert!((2..=SHARED as usize).contains(&state.shared.len()), "{}", state.shared.len());
}

#[test]
fn account_gives_the_last_places_to_addresses_with_few_plugins() {
    let accounts = Accounts::default();
    let limits = Limits { address_memory: usize::MAX, ..limits() };
    let of = |text| accounts.of(address(text), &limits, 0);
    let hold =
        |text, count: usize| (0..count).map(|_| of(text).hold(1, 0).unwrap()).collect::<Vec<_>>();
    let many = hold("192.0.2.1", FEW + 1);
    assert!(of("192.0.2.1").has_place(), "many places are left");
    let most = places::Held::count(places::MAX_BYTES_OF_PEERS / 4 * 3);
    assert!(!of("192.0.2.1").has_place());
    assert!(of("192.0.2.2").has_place());
    // In a network with many plugins, an address must get no place, even if the address itself has
    // few plugins.
    let others = hold("192.0.2.3", FEW_OF_NETWORK);
    assert!(!of("192.0.2.2").has_place());
    assert!(of("198.51.100.1").has_place());
    drop(others);
    assert!(of("192.0.2.2").has_place());
    drop((many, most));
    assert_eq!(of("192.0.2.1").usage().plugins, 0);
}
