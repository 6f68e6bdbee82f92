/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Maps and global data of the program. User space sets the sizes marked "config" before loading.
 * The numbers here are the defaults. docs/policy.md, "What a full table does", says which maps an
 * attacker can fill, and with what effect. */
#ifndef EQUIC_MAPS_H
#define EQUIC_MAPS_H

#include "common.h"
#include "proof.h"

/* For each port, the service at the wildcard addresses. A single lookup also shows that a packet is
 * for no service. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct equic_ports);
} ports SEC(".maps");

/* Maps an address and port to an index into `services`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct equic_listener);
	__type(value, __u32);
} listeners SEC(".maps");

/* Deny and allow lists. max_entries: config. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct equic_acl4_key);
	__type(value, struct equic_acl_entry);
} acl4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct equic_acl6_key);
	__type(value, struct equic_acl_entry);
} acl6 SEC(".maps");

/* Maps a source to an index into `overrides`. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, EQUIC_OVERRIDES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct equic_override4_key);
	__type(value, __u32);
} overrides4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, EQUIC_OVERRIDES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct equic_override6_key);
	__type(value, __u32);
} overrides6 SEC(".maps");

/* Buckets and statistics of each source. max_entries: config. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct equic_source);
	__type(value, struct equic_source_state);
} sources SEC(".maps");

/* Buckets that unknown sources share, one element per service. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EQUIC_MAX_SERVICES);
	__type(key, __u32);
	__type(value, struct equic_strangers);
} strangers SEC(".maps");

/* Buckets of the prefixes from which clients open connections. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct equic_prefix);
	__type(value, __u64);
} prefixes SEC(".maps");

/* Admitted connection attempts. max_entries: config. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct equic_handshake_key);
	__type(value, struct equic_handshake);
} handshakes SEC(".maps");

/* Addresses of this host, and the link-layer addresses of frames to it. local.h reads them. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct equic_local_key);
	__type(value, __u32);
} local_addrs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64); /* the MAC address in the lower six bytes */
	__type(value, __u32);
} local_macs SEC(".maps");

/* Flags that say how the program is attached, by interface index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} interfaces SEC(".maps");

struct fragment_key {
	__u64 src[2];
	__u64 dst[2];
	__u32 id;
	__u16 family; /* an IPv6 header can contain ::ffff:a.b.c.d, too */
	__u16 protocol;
};

struct fragment {
	__u16 service;
	__u16 dropped;
};

/* Verdicts on first fragments. The fragment policies `follow` and `drop` use them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* One ledger: the header, then the buckets. max_entries: config. */
struct ledger {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct equic_ledger_bucket));
};

/* The ledgers of the servers behind this gateway, by slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, EQUIC_MAX_OWNERS);
	__uint(key_size, sizeof(__u32));
	__array(values, struct ledger);
} ledgers SEC(".maps");

/* The packet that this CPU is judging. No other packet from the wire can interrupt its processing.
 * Before Linux 6.10, a packet can interrupt a run of BPF_PROG_TEST_RUN, whose verdict is then based
 * on wrong bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packet);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EQUIC_COUNTERS);
	__type(key, __u32);
	__type(value, struct equic_counter);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* Global data. Each section becomes an array map that user space maps into its memory, so that it
 * can change a limit with one store. The data is `volatile` because user space may store at any
 * time. */
const volatile struct equic_load load = {
	.v4_mask = 0xffffffff,
	.v6_mask = {~0ull, 0},
	.ledger_mask = 16383,
};

volatile struct equic_control control SEC(".data.control") = {
	.magic = EQUIC_ABI_MAGIC,
	.version = EQUIC_ABI_VERSION,
};

volatile struct equic_service services[EQUIC_MAX_SERVICES] SEC(".data.services");

volatile struct equic_override overrides[EQUIC_OVERRIDES] SEC(".data.own");

/* The program writes this data for every new connection, so it is separate from data that is only
 * read. */
struct equic_service_rates rates SEC(".data.rates");

/* The keys of tokens (docs/retry.md s.2). User space writes them. */
struct equic_proof_ring ring SEC(".data.ring");

/* The time of the kernel's current tick. */
#define CLOCK_TAG 0xffffull
struct coarse_clock {
	__u64 tick;
	__u64 now; /* the low bits (65 us) are those of `tick` */
};
volatile struct coarse_clock clock SEC(".data.clock");

struct equic_explain explain SEC(".data.explain");

#endif
