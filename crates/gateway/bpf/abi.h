/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The interface between the XDP program and user space: every constant, structure and map value.
 *
 * This file is the only definition. The Rust types are generated from it (bindgen, in build.rs),
 * and both compilers assert the sizes below. Any change here requires EQUIC_ABI_VERSION to be
 * raised by one.
 *
 * Byte order: addresses and ports are in network order, everything else in host order.
 *
 * Time: nanoseconds of CLOCK_MONOTONIC (bpf_ktime_get_ns), unless a comment names another unit.
 */
#ifndef EQUIC_ABI_H
#define EQUIC_ABI_H

#include <linux/types.h>

#define EQUIC_ABI_MAGIC	  0x43495551u /* "QUIC" in memory on a little-endian machine */
#define EQUIC_ABI_VERSION 14u

#define EQUIC_MAX_SERVICES   64u
#define EQUIC_MAX_OWNERS     16u /* maximum number of ledgers, one per server process */
#define EQUIC_CID_MAX	     20u /* RFC 9000 s.17.2 */
#define EQUIC_SLOTS	     8u	 /* slots in a ledger bucket */
#define EQUIC_REASONS_MAX    64u /* number of counters per service */
#define EQUIC_HANDSHAKE_CIDS 3u	 /* IDs: first, after Retry, of the server (RFC 9000 s.7.2) */
/* Maximum number of datagrams with an Initial in one attempt. More than one are needed for
 * retransmissions and large ClientHellos. */
#define EQUIC_HANDSHAKE_PACKETS 64u
/* Maximum number of datagrams with an Initial in one attempt from an address that is not validated,
 * if the service has adaptive Retry. */
#define EQUIC_HANDSHAKE_UNPROVED 16u
/* Number of bucket pairs that the unknown sources of a service share. A power of two. */
#define EQUIC_STRANGERS 256u
/* Number of fraction bits in equic_rate.cost_ns, which is a fixed-point number. */
#define EQUIC_RATE_SHIFT 20u
#define EQUIC_NO_SERVICE 0xffffu
#define EQUIC_ID_LEN	 12u /* length of the connection IDs of services with CHECK_IDS, in bytes */
#define EQUIC_ID_SERVER	 2u  /* bytes of the server ID in them (docs/retry.md s.4) */
#define EQUIC_BATCH	 128u /* maximum datagrams in a batch: UDP_MAX_SEGMENTS of Linux */
/* Number of buckets that a service has for stateless resets. A hash of the receiver selects the
 * bucket. A power of two. */
#define EQUIC_RESET_SHARES 64u

/* The reasons for verdicts: X(NAME, "name", does, "what it means"). `does` is the action for the
 * packet, a number of enum equic_does. The order is the wire order of counters and events, so new
 * reasons must be appended, never inserted. */
#define EQUIC_REASONS(X)                                                                           \
	X(ALLOWED, "allowed", 0, "the source is on the allow list")                                \
	X(ESTABLISHED, "established", 0, "short header: a packet of an established connection")    \
	X(HANDSHAKE, "handshake", 0, "Handshake or 0-RTT packet, which cannot open a connection")  \
	X(UNDERWAY, "underway", 0, "Initial of a handshake that was already admitted")             \
	X(NEW, "new", 0, "Initial that opens a connection, within every limit")                    \
	X(NEW_VERSION, "new_version", 0,                                                           \
	  "long header of a version that is unknown to the program, within the service's limits")  \
	X(FRAGMENT, "fragment", 0, "later IP fragment of a datagram to the service")               \
	X(DENIED, "denied", 1, "the source is on the deny list")                                   \
	X(QUOTA_STRICT, "quota_strict", 1,                                                         \
	  "policy strict: the source holds more connections than its limit")                       \
	X(QUOTA, "quota", 1,                                                                       \
	  "opens a connection, but the source already has as many as its limit")                   \
	X(RATE_NEW_SOURCE, "rate_new_source", 1,                                                   \
	  "too many new connections a second from the source")                                     \
	X(RATE_NEW_SERVICE, "rate_new_service", 1,                                                 \
	  "too many new connections a second to the service")                                      \
	X(RATE_PACKETS, "rate_packets", 1, "too many packets a second from the source")            \
	X(RATE_BYTES, "rate_bytes", 1, "too many bytes a second from the source")                  \
	X(SMALL_INITIAL, "small_initial", 1,                                                       \
	  "Initial in a datagram under 1200 bytes (RFC 9000 s.14.1)")                              \
	X(SMALL_VERSION, "small_version", 1,                                                       \
	  "unknown version in a datagram under 1200 bytes (RFC 9000 s.5.2.2)")                     \
	X(SHORT_DCID, "short_dcid", 1,                                                             \
	  "opening Initial with a Destination Connection ID under 8 bytes (RFC 9000 s.7.2)")       \
	X(LONG_CID, "long_cid", 1,                                                                 \
	  "connection ID over 20 bytes in version 1 or 2 (RFC 9000 s.17.2)")                       \
	X(TRUNCATED, "truncated", 1, "the header runs past the end of the datagram")               \
	X(BAD_LENGTH, "bad_length", 1,                                                             \
	  "a Token Length or Length field runs past the datagram, or leaves no room for a packet") \
	X(TINY_SHORT, "tiny_short", 1, "short header packet under 21 bytes (RFC 9000 s.10.3)")     \
	X(EMPTY, "empty", 1, "UDP datagram without payload")                                       \
	X(VERSION_NEGOTIATION, "version_negotiation", 1,                                           \
	  "Version Negotiation packet, which a server never receives (RFC 9000 s.17.2.1)")         \
	X(RETRY, "retry", 1, "Retry packet, which a server never receives (RFC 9000 s.17.2.5)")    \
	X(FIXED_BIT, "fixed_bit", 1,                                                               \
	  "Fixed Bit is zero and the service requires it (RFC 9000 s.17.2)")                       \
	X(UNKNOWN_VERSION, "unknown_version", 1,                                                   \
	  "a version that the service does not accept and the gateway does not answer")            \
	X(LATER_FRAGMENT, "later_fragment", 1,                                                     \
	  "later IP fragment that the fragment policy refuses")                                    \
	X(BAD_UDP, "bad_udp", 1, "UDP length contradicts the IP length")                           \
	X(QUOTA_UNDERWAY, "quota_underway", 1,                                                     \
	  "policy underway: opens a connection, but open ones and handshakes reach the limit")     \
	X(BAD_SOURCE, "bad_source", 1,                                                             \
	  "no host can have the source address: IPv4-mapped, multicast, unspecified, or "          \
	  "loopback on a network")                                                                 \
	X(PROVED, "proved", 0,                                                                     \
	  "Initial that opens a connection, with a token that validates its address")              \
	X(RETRY_SENT, "retry_sent", 2,                                                             \
	  "Initial without a valid token, answered with a Retry packet (RFC 9000 s.8.1.2)")        \
	X(BAD_TOKEN, "bad_token", 1,                                                               \
	  "Initial with an invalid token of the gateway: forged, of another client, or too old")   \
	X(UNPROVED, "unproved", 1,                                                                 \
	  "Initial without a valid token, which the gateway cannot answer")                        \
	X(RATE_ANSWERS, "rate_answers", 1,                                                         \
	  "too many answers of one kind a second for the service")                                 \
	X(VERSION_NEGOTIATION_SENT, "version_negotiation_sent", 2,                                 \
	  "a version that the service does not accept, answered with the versions that it "        \
	  "accepts (RFC 9000 s.6.1)")                                                              \
	X(FORGED_ID, "forged_id", 1,                                                               \
	  "packet to a connection ID that no server of the service issued, or 0-RTT of a "         \
	  "client that is not opening a connection")                                               \
	X(RATE_PACKETS_SERVICE, "rate_packets_service", 1,                                         \
	  "too many packets a second to the service, from all sources together")                   \
	X(RATE_UNPROVEN, "rate_unproven", 1,                                                       \
	  "too many packets a second that open no connection, from all sources together "          \
	  "that have none")                                                                        \
	X(RATE_NEW_PREFIX, "rate_new_prefix", 1,                                                   \
	  "too many new connections a second from a prefix that contains the source")              \
	X(RESET_SENT, "reset_sent", 2,                                                             \
	  "packet of a connection whose server is dead, answered with a stateless reset "          \
	  "(RFC 9000 s.10.3)")                                                                     \
	X(FIRST_FRAGMENT, "first_fragment", 1,                                                     \
	  "first IP fragment of a long header packet, or of any packet under the fragment "        \
	  "policy drop (RFC 9000 s.14)")                                                           \
	X(COALESCED, "coalesced", 1,                                                               \
	  "long header packets in one datagram that no client coalesces (RFC 9000 s.12.2)")        \
	X(BATCH, "batch", 1,                                                                       \
	  "datagrams in one packet (GRO, GSO) that are too many or too different for one verdict")

enum equic_reason {
#define EQUIC_REASON_ENUM(name, text, does, meaning) EQUIC_REASON_##name,
	EQUIC_REASONS(EQUIC_REASON_ENUM)
#undef EQUIC_REASON_ENUM
		EQUIC_REASON_COUNT
};

enum equic_does { EQUIC_DOES_PASS = 0, EQUIC_DOES_DROP = 1, EQUIC_DOES_ANSWER = 2 };

/* The Initials of versions 1 and 2 that must carry a token that validates their source address. */
enum equic_retry {
	EQUIC_RETRY_NEVER = 0,
	EQUIC_RETRY_ALWAYS = 1,
	EQUIC_RETRY_ADAPTIVE = 2, /* only under load: docs/policy.md s.8, "Adaptive" */
};

/* Versions that a service accepts. All others are unknown versions. */
enum equic_versions {
	EQUIC_VERSIONS_1_AND_2 = 0,
	EQUIC_VERSIONS_1 = 1,
	EQUIC_VERSIONS_2 = 2,
};

enum equic_policy {
	EQUIC_POLICY_NEW = 0,	   /* at the limit, drop packets that open a connection */
	EQUIC_POLICY_STRICT = 1,   /* over the limit, drop every packet (docs/policy.md s.2) */
	EQUIC_POLICY_UNDERWAY = 2, /* like NEW, but handshakes in progress count, too */
};

/* Treatment of fragmented datagrams to a protected service. */
enum equic_fragments {
	EQUIC_FRAGMENTS_PASS = 0,   /* the first fragment is judged, later ones pass */
	EQUIC_FRAGMENTS_FOLLOW = 1, /* later fragments get the first one's verdict */
	EQUIC_FRAGMENTS_DROP = 2,   /* all fragments are dropped */
};

enum equic_service_flags {
	EQUIC_SERVICE_ENABLED = 1u << 0,
	EQUIC_SERVICE_DRY_RUN = 1u << 1,
	EQUIC_SERVICE_REQUIRE_FIXED_BIT = 1u << 2,
	EQUIC_SERVICE_REFUSE_UNKNOWN_VERSIONS = 1u << 3,
	/* The port also opens connections as a client, so it legitimately receives Retry and
	 * Version Negotiation packets. */
	EQUIC_SERVICE_ALSO_CLIENT = 1u << 4,
	/* The gateway answers unknown versions with Version Negotiation: docs/policy.md s.9. */
	EQUIC_SERVICE_VERSION_NEGOTIATION = 1u << 5,
	EQUIC_SERVICE_CHECK_IDS = 1u << 6,	 /* the gateway verifies connection IDs */
	EQUIC_SERVICE_STATELESS_RESET = 1u << 7, /* resets for dead servers: docs/policy.md s.14 */
};

/* Prefixes to which new connections are charged. Each prefix has its own bucket (docs/policy.md
 * s.12). In each family, the order is from the longest prefix to the shortest. */
enum equic_prefix_level {
	EQUIC_PREFIX_V4_32,
	EQUIC_PREFIX_V4_24,
	EQUIC_PREFIX_V6_64,
	EQUIC_PREFIX_V6_56,
	EQUIC_PREFIX_V6_48,
	EQUIC_PREFIX_V6_32,
	EQUIC_PREFIX_LEVELS
};

/* Parameters of a token bucket, which the generic cell rate algorithm stores in one word. If
 * cost_ns is 0, the limit is disabled. */
struct equic_rate {
	__u64 cost_ns;	/* cost of one unit in ns, fixed point (EQUIC_RATE_SHIFT) */
	__u64 burst_ns; /* maximum time that the theoretical arrival time may be ahead */
};

/* Settings of one protected service, an element of the map .data.services. `equic gateway set`
 * changes them while the program runs. */
struct equic_service {
	__u32 flags;	       /* enum equic_service_flags */
	__u32 group;	       /* quota group, whose services count a source together */
	__u32 max_connections; /* maximum per source; 0: no quota */
	__u8 policy;	       /* enum equic_policy */
	__u8 fragments;	       /* enum equic_fragments */
	__u8 retry;	       /* enum equic_retry */
	__u8 versions;	       /* enum equic_versions */
	struct equic_rate new_per_source;
	struct equic_rate new_per_service;
	struct equic_rate packets_per_source;
	struct equic_rate bytes_per_source; /* UDP payload bytes */
	struct equic_rate answers_per_service;
	struct equic_rate retry_above; /* EQUIC_RETRY_ADAPTIVE: limit of attempts without a token */
	__u64 retry_hold_ns; /* time for which Retry stays on after retry_above was exceeded */
	__u64 handshake_ns;  /* maximum duration of an admitted handshake */
	struct equic_rate packets_per_service;	/* all packets that pass: docs/policy.md s.11 */
	struct equic_rate unproven_per_service; /* packets of unknown sources, except attempts */
	struct equic_rate new_per_prefix[EQUIC_PREFIX_LEVELS]; /* index: enum equic_prefix_level */
	/* Bit i is set if new_per_prefix[i] is enabled. */
	__u32 prefix_levels;
	__u32 overrides; /* bit 0: has overrides for IPv4 prefixes; bit 1: for IPv6 */
	char name[32];	 /* NUL-terminated */
};

/* Limits of a service for the sources in one prefix (docs/policy.md s.13), an element of the map
 * .data.own. Element 0 is not used. */
#define EQUIC_OVERRIDES 256u
struct equic_override {
	__u8 addr[16]; /* zero after the prefix; IPv4 as ::ffff:a.b.c.d */
	__u32 service;
	__u8 length; /* prefix length of 128 bits: for IPv4, the usual length + 96 */
	__u8 sets;   /* enum equic_override_sets; 0: the element is free */
	__u16 reserved;
	__u32 max_connections;
	__u32 reserved2;
	struct equic_rate new_per_source;
	struct equic_rate packets_per_source;
	struct equic_rate bytes_per_source;
};

/* Limits that an override sets. For the other limits, the service's values apply. */
enum equic_override_sets {
	EQUIC_OVERRIDE_MAX_CONNECTIONS = 1u << 0,
	EQUIC_OVERRIDE_NEW = 1u << 1,
	EQUIC_OVERRIDE_PACKETS = 1u << 2,
	EQUIC_OVERRIDE_BYTES = 1u << 3,
};

/* Keys of the LPM tries `overrides4` and `overrides6`. The value is an index into .data.own. */
struct equic_override4_key {
	__u32 prefixlen; /* 32 bits of the service, plus the prefix length */
	__u32 service;
	__u8 addr[4];
};
struct equic_override6_key {
	__u32 prefixlen;
	__u32 service;
	__u8 addr[16];
};

/* Value of the only element of the array `ports`. For each port and family, it says which service
 * listens at the wildcard address. The low 7 bits are the index of the service + 1, or 0 if there
 * is no such service. If EQUIC_PORT_EXACT is set, `listeners` must be searched first. */
#define EQUIC_PORT_EXACT 0x80u
struct equic_ports {
	__u8 any4[65536]; /* index: port in host order */
	__u8 any6[65536];
};

/* Key of the map `listeners`, whose value is the service at one address and port. */
struct equic_listener {
	__u8 addr[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u16 port;    /* network order */
	__u8 family;   /* 4 or 6 */
	__u8 reserved;
};

/* Key of the LRU map `sources`: the prefix of a source address, and a service. IPv4 addresses are
 * stored as ::ffff:a.b.c.d. The key consists of three aligned words, because the kernel compares
 * keys of other sizes byte by byte. */
struct equic_source {
	__u8 addr[16];
	__u32 service;
	__u32 reserved;
} __attribute__((aligned(8)));

/* Number of packets and their bytes. Both are counted with one locked instruction, because locked
 * instructions are expensive. The low EQUIC_SEEN_BITS bits of `recent` count packets, and the bits
 * above count bytes. When the packets overflow, they carry one into the bytes.
 *
 * `halves` counts how often EQUIC_SEEN_HALF packets were added. It is incremented a moment after
 * the packet that fills a half. From the upper bit of the packets, a reader can tell whether that
 * increment is still missing. */
#define EQUIC_SEEN_BITS 14u
#define EQUIC_SEEN_HALF (1u << (EQUIC_SEEN_BITS - 1))
struct equic_seen {
	__u64 recent;
	__u64 halves;
};

/* Value of the LRU map `sources`: buckets and statistics of one source in one service. */
struct equic_source_state {
	__u64 new_tat; /* theoretical arrival times of the source's buckets */
	__u64 packets_tat;
	__u64 bytes_tat;
	/* Number of packets and their UDP payload bytes, by the action of their reason. In a dry
	 * run, packets whose reason is a drop count as dropped. */
	struct equic_seen passed; /* includes answered packets */
	struct equic_seen dropped;
	__u64 first_ns;
	__u64 last_ns;
	__u64 let_in_ns; /* latest time at which an attempt of the source can have been admitted */
	__u32 last_reason;
	__u32 refused; /* packets with one of load.counted_reasons; wraps */
	/* Attempts in progress (docs/policy.md s.7): number of the current period (16 bits),
	 * attempts admitted in the previous period (24 bits), and in the current one (24 bits). */
	__u64 attempts;
	__u32 opened_seen; /* last known sum of the source's `opened` in all ledgers */
	__u32 let_in; /* 1: an attempt was admitted at let_in_ns; 0: the entry was created then */
};

/* Key of the LRU map `prefixes`. The value is the theoretical arrival time of the prefix's bucket.
 */
struct equic_prefix {
	__u8 addr[16]; /* zero after the prefix; IPv4 as ::ffff:a.b.c.d */
	__u16 service;
	__u8 length; /* prefix length of 128 bits: for IPv4, the usual length + 96 */
	__u8 reserved;
};

/* A connection ID. All bytes after its length are zero, so that two IDs can be compared as three
 * words. */
struct equic_cid {
	__u8 bytes[EQUIC_CID_MAX];
	__u8 len;
	__u8 reserved[3];
} __attribute__((aligned(8)));

/* Key of the LRU map `handshakes`: one client's attempt to connect to one address and port. A
 * client keeps its Source Connection ID from the first Initial to the end of the handshake (RFC
 * 9000 s.7.2, s.17.2.5.2), and a server keeps its address (RFC 9000 s.9). */
struct equic_handshake_key {
	__u8 addr[16]; /* full address, not the prefix */
	__u8 dst[16];
	struct equic_cid scid;
	__u16 port; /* network order */
	__u16 dport;
	__u16 service;
	__u16 family; /* 4 or 6: an IPv6 header can contain ::ffff:a.b.c.d, too */
};

struct equic_handshake {
	__u64 started_ns;
	__u16 count;   /* number of known IDs in `dcid` */
	__u16 packets; /* number of datagrams with an Initial that passed */
	__u16 early;   /* number of 0-RTT datagrams that passed, if CHECK_IDS is set */
	__u8 proved;   /* 1: admitted because its token was valid */
	__u8 reserved;
	struct equic_cid dcid[EQUIC_HANDSHAKE_CIDS];
};

/* Theoretical arrival times of the buckets that unknown sources share (docs/policy.md s.11). */
struct equic_stranger {
	__u64 packets_tat;  /* bucket with the rate packets_per_source */
	__u64 bytes_tat;    /* bucket with the rate bytes_per_source */
	__u64 versions_tat; /* unknown versions: bucket with the rate new_per_source */
	__u64 reserved;
};

/* Element of the array `strangers`: the buckets that unknown sources share in one service. */
struct equic_strangers {
	struct equic_stranger of[EQUIC_STRANGERS];
};

/* Key of the LPM tries `acl4` and `acl6`. */
struct equic_acl4_key {
	__u32 prefixlen;
	__u8 addr[4];
};
struct equic_acl6_key {
	__u32 prefixlen;
	__u8 addr[16];
};

enum equic_acl_action { EQUIC_ACL_DENY = 1, EQUIC_ACL_ALLOW = 2 };

/* Origin of a list entry. Only user space uses it. */
enum equic_acl_origin {
	EQUIC_ACL_BY_COMMAND = 0, /* an operator entered this prefix */
	EQUIC_ACL_BY_CONFIG = 1,  /* from the configuration or its list files */
	EQUIC_ACL_BY_FILE = 2,	  /* from a list file that an operator loaded */
	EQUIC_ACL_BY_BAN = 3,	  /* the gateway banned the prefix */
};

struct equic_acl_entry {
	__u64 expires_ns; /* time of expiry; 0: never */
	__u8 action;	  /* enum equic_acl_action */
	__u8 origin;	  /* enum equic_acl_origin */
	__u16 count;	  /* for a ban: number of bans that the prefix has had */
	__u32 prefixlen;  /* length of this entry's prefix, to search for a shorter one */
};

/* The ledger: the connection counts of one server process. It is an array map of buckets that the
 * process maps into its memory. Element 0 is the header, and elements 1..=buckets hold slots. A
 * source is in one of two buckets. docs/policy.md, "The ledger", defines the hash and the order of
 * stores. */
struct equic_ledger_slot {
	__u8 addr[16];
	__u32 group;
	__u32 opened; /* a counter that is not part of the slot: docs/policy.md s.7. Wraps */
};

/* `meta` is one cache line, and usually the only one that a search reads. */
struct equic_ledger_bucket {
	/* For each slot, tag << 32 | number of connections. 0 means that the slot is free. A tag
	 * with 0 connections means that the server is about to use the slot. */
	__u64 meta[EQUIC_SLOTS];
	struct equic_ledger_slot slot[EQUIC_SLOTS];
};

struct equic_ledger_header {
	__u32 magic;
	__u32 version;
	__u32 pid;
	__u32 buckets;	    /* a power of two */
	__u64 heartbeat_ns; /* written by the owner; if it is older than the lease, the ledger is
			       ignored */
	__u64 start_ticks;  /* field 22 of /proc/PID/stat: identifies the process if its pid is
			       reused */
	char name[32];
	/* The XDP program does not read this and the following cache lines, because they change
	 * with every connection. */
	__u64 opened;	/* connections opened since the start, of all sources */
	__u64 closed;	/* number of these connections that are closed */
	__u64 overflow; /* connections that no slot counts: both buckets were full */
	__u8 reserved[168];
};

enum equic_load_flags {
	/* With `explain`: the program treats packets as if they had arrived on the loopback
	 * interface. */
	EQUIC_LOAD_LOOPBACK = 1u << 0,
	/* BPF programs may read kernel memory, because the kernel is not locked down. */
	EQUIC_LOAD_READS_KERNEL = 1u << 1,
};

/* Options that user space sets in .rodata once before loading, so that the verifier prunes disabled
 * features. */
struct equic_load {
	__u64 seed;		/* key of the ledger's hash */
	__u64 v6_mask[2];	/* mask that cuts IPv6 addresses to sources */
	__u32 v4_mask;		/* mask that cuts IPv4 addresses to sources */
	__u32 ledger_mask;	/* number of ledger buckets - 1 */
	__u8 test_clock;	/* use control.clock_ns as the time */
	__u8 explain;		/* write struct equic_explain */
	__u8 drop_deep_headers; /* drop packets counted by EQUIC_TALLY_DEEP_HEADERS instead of
				   passing them */
	__u8 flags;		/* enum equic_load_flags */
	__u32 counted_reasons;	/* bit mask of the first 32 reasons: those that
				   equic_source_state.refused counts */
};

enum equic_member_flags {
	EQUIC_MEMBER_SOCKET = 1u << 0, /* the server joined at the gateway's socket */
	EQUIC_MEMBER_KEYS = 1u << 1,   /* the server checks the gateway's Retry tokens */
	EQUIC_MEMBER_IDS = 1u << 2,    /* the gateway can verify the server's connection IDs */
};

/* Description of the server whose ledger is in a slot of `ledgers`, written by the process that put
 * the ledger there. The ledger's header contains the same facts, but the server could change them.
 */
struct equic_member {
	__u32 pid;
	__u32 uid;
	__u64 start_ticks; /* field 22 of /proc/PID/stat */
	__u64 barred;	   /* bit i: the server's counts for quota group i are ignored */
	__u32 ledger;	   /* ID of the ledger's map; if the slot has another one, this is stale */
	__u32 flags;	   /* enum equic_member_flags */
	char name[32];	   /* name when the server joined: printable ASCII, NUL-terminated */
	__u64 pid_namespace; /* inode of the pid namespace of `pid`; 0: unknown */
};

/* State of the whole gateway, in the map .data.control. It changes while the program runs. */
struct equic_control {
	__u32 magic;
	__u32 version;
	__u32 owner_pid;  /* the process that loaded the program */
	__u32 owner_mask; /* bit i: slot i of `ledgers` may have a ledger */
	__u64 lease_ns;	  /* a ledger whose heartbeat is older is ignored */
	__u64 clock_ns;	  /* the time, if load.test_clock is set */
	__u64 created_ns;
	struct equic_rate events; /* rate of drop events per CPU; cost_ns 0: no events */
	__u32 acl_used;		  /* bit 0: acl4 has or had entries; bit 1: acl6 */
	__u32 dry_run;		  /* 1: dry run of all services */
	__u64 owner_start_ticks;
	char name[32];
	char pin[128]; /* directory in bpffs with the pins of links, program and maps; empty: not
			  pinned */
	/* Until this time, a connection ID may belong to a connection that is older than the key
	 * ring, if the ring has no key for the ID's rotation (docs/policy.md s.10). */
	__u64 older_ids_until_ns;
	/* Bit i is set if quota group i has a dead server, so that bit i is set in at least one
	 * element of `dead`. */
	__u64 gone;
	/* Bit i is set if a server of quota group i was removed from its slot but may still be
	 * alive. While the bit is set, user space does not set bit i of `gone`. */
	__u64 unsure;
	/* Cookie (SO_NETNS_COOKIE) of the network namespace in which a process loaded or last took
	 * over the gateway. 0: unknown. Only user space uses it. */
	__u64 network;
	struct equic_member members[EQUIC_MAX_OWNERS];
	/* One bit mask for each slot. Bit i is set if the slot belonged to a server of quota group
	 * i, and every server that ever had the slot is known to be dead (docs/policy.md s.14). */
	__u64 dead[EQUIC_MAX_OWNERS];
	/* `local_addrs` and `local_macs` are valid until this time. */
	__u64 local_until_ns;
	/* 1 if this host forwards packets to other hosts, as a router or a bridge; otherwise 0. */
	__u32 transit;
	__u32 flagged; /* 1: `interfaces` has or had flags that are not 0 */
};

/* Kind of an address in the map `local_addrs`. */
enum equic_local_kind {
	EQUIC_LOCAL_HOST = 1,
	EQUIC_LOCAL_BROADCAST = 2,
};

/* Key of the LPM trie `local_addrs`. The value is an enum equic_local_kind. */
struct equic_local_key {
	__u32 prefixlen; /* 32 bits of the family, plus the prefix length of 128 bits */
	__u32 family;	 /* 4 or 6 */
	__u8 addr[16];	 /* IPv4 as ::ffff:a.b.c.d */
};

/* Flags of an interface: the value of the map `interfaces`, whose key is the interface index. */
enum equic_interface_flags {
	EQUIC_INTERFACE_GENERIC = 1u << 0,     /* generic mode: the program runs after the driver */
	EQUIC_INTERFACE_NO_ETHERNET = 1u << 1, /* packets begin with an IP header */
	EQUIC_INTERFACE_NO_ANSWERS = 1u << 2,  /* answers on this interface would get lost */
};

/* State of adaptive Retry of a service with EQUIC_RETRY_ADAPTIVE, which requires tokens only while
 * connections are opened too fast. */
struct equic_adaptive {
	__u64 tat;	/* theoretical arrival time of the bucket retry_above */
	__u64 until_ns; /* the service requires tokens until this time */
	__u64 since_ns; /* time at which it last began to require them */
	__u64 began;	/* number of times that it began to ask */
};

/* State that the program keeps for each service, in the map .data.rates. It consists of the state
 * of adaptive Retry and of theoretical arrival times of buckets:
 *
 * * the buckets new_per_service, packets_per_service and unproven_per_service,
 * * three buckets with the rate answers_per_service, one for each kind of answer,
 * * the bucket of unknown versions. */
struct equic_service_rates {
	__u64 new_tat[EQUIC_MAX_SERVICES];
	__u64 retries_tat[EQUIC_MAX_SERVICES]; /* rate: answers_per_service */
	struct equic_adaptive adaptive[EQUIC_MAX_SERVICES];
	__u64 packets_tat[EQUIC_MAX_SERVICES];
	__u64 unproven_tat[EQUIC_MAX_SERVICES];
	__u64 negotiations_tat[EQUIC_MAX_SERVICES]; /* rate: answers_per_service */
	__u64 resets_tat[EQUIC_MAX_SERVICES];	    /* rate: answers_per_service */
	/* Buckets for stateless resets, selected by a hash of the receiver's source. Each has an
	 * eighth of answers_per_service. */
	__u64 reset_shares_tat[EQUIC_MAX_SERVICES][EQUIC_RESET_SHARES];
	__u64 versions_tat[EQUIC_MAX_SERVICES]; /* unknown versions; rate: new_per_service */
};

/* The key ring, in the map .data.ring (docs/retry.md s.2). User space writes it. Its content is
 * secret. */
struct equic_ring {
	__u64 words[16];
};

/* Counts of events that are not verdicts. They are elements EQUIC_TALLY_BASE + tally of `counters`.
 * The number of entries ever added to an LRU map, minus the present and the deleted ones, is the
 * number of evictions. */
enum equic_tally {
	EQUIC_TALLY_SOURCES_CREATED,	/* entries ever added to `sources` */
	EQUIC_TALLY_HANDSHAKES_CREATED, /* entries ever added to `handshakes` */
	EQUIC_TALLY_DEEP_HEADERS, /* packets with headers that the host may parse, but the program
				     cannot */
	EQUIC_TALLY_EVENTS_LOST,  /* drop events lost because the ring was full */
	EQUIC_TALLY_STALE_LEDGER, /* lookups that ignored a ledger because its lease had expired */
	EQUIC_TALLY_CONTENDED, /* packets refused because other CPUs changed one word too often */
	EQUIC_TALLY_PREFIXES_CREATED, /* entries ever added to `prefixes` */
	EQUIC_TALLY_COUNT
};
#define EQUIC_TALLY_BASE (EQUIC_MAX_SERVICES * EQUIC_REASONS_MAX)
#define EQUIC_COUNTERS	 (EQUIC_TALLY_BASE + 8u)

/* Value of the per-CPU array `counters`, at index service * EQUIC_REASONS_MAX + reason. */
struct equic_counter {
	__u64 packets;
	__u64 bytes;   /* UDP payload bytes */
	__u64 dropped; /* packets that were dropped; less than `packets` in a dry run */
};

/* One sampled drop event, in the form of the ring buffer `events`. */
struct equic_event {
	__u64 time_ns;
	__u32 ifindex;
	__u32 version; /* QUIC version, host order; 0 for short headers */
	__u8 src[16];
	__u8 dst[16];
	__u16 sport;
	__u16 dport;
	__u16 service;
	__u16 length; /* UDP payload bytes */
	__u8 family;
	__u8 reason;
	__u8 dropped; /* 1: the packet was dropped; 0 in a dry run */
	__u8 first_byte;
	__u8 reserved[4];
	struct equic_cid dcid;
};

/* Selects the dropped packets that the program copies for a capturing process, in the map
 * .data.capture. The process extends `until_ns` regularly, so that copying stops soon after the
 * process has ended. */
#define EQUIC_CAPTURE_MAX 2048u /* maximum bytes of a packet; a power of two */
struct equic_capture {
	__u64 until_ns; /* packets are copied until this time; 0: no capture */
	__u64 holder;	/* capturing process: pid << 32 | a number that it chooses; 0: none */
	__u64 reasons;	/* bit i: packets with reason i */
	__u64 addr[2];	/* copies packets with (source ^ addr) & mask == 0; IPv4 is mapped */
	__u64 mask[2];
	struct equic_rate rate; /* rate of copied packets per CPU; cost_ns 0: no packet is copied */
	__u64 lost; /* packets lost because the ring was full; the program counts them */
	__u32 snap; /* maximum bytes to copy of each packet: 1 to EQUIC_CAPTURE_MAX */
	__u32 reserved;
};

/* A dropped packet in the ring buffer `captured`. `bytes_len` is the number of valid `bytes`. */
struct equic_captured {
	struct equic_event event;
	__u32 frame_len; /* length of the whole frame, with its Ethernet header */
	__u32 bytes_len;
	__u8 bytes[EQUIC_CAPTURE_MAX];
};

/* Report of the process that manages the gateway, as JSON. It is the only element of the map
 * `equic_report`. The map is bound to the program, so that other processes can find it through the
 * program. The program does not use it. `sequence` is odd while the text is being written. */
struct equic_report {
	__u64 sequence;
	__u64 length;
	__u8 text[65520];
};

/* A change of the deny and allow lists, for processes that report changes. */
struct equic_list_change {
	__u64 stamp; /* number of the change, from 1; 0 while it is being written */
	__u8 addr[16];
	__u8 v4;
	__u8 prefixlen;
	__u8 what; /* index into equic_notes.told */
	__u8 reserved;
	__u32 pid; /* process that made the change, in its pid namespace */
};

/* Notes that the processes which manage or change a gateway leave for each other. This is the only
 * element of the map `equic_notes`, which is bound to the program like `equic_report`. The program
 * does not use it. The notes hold:
 *
 * * the numbers of entries of the tries acl4 and acl6 and their last changes, so that no process
 *   has to walk a trie,
 * * the requested changes of the key ring, and their results. */
#define EQUIC_LIST_CHANGES 64u
struct equic_notes {
	__u64 begun;	   /* number of changes of the tries that have begun */
	__u64 ended;	   /* number of changes of the tries that have ended */
	__u64 soonest;	   /* inverted time of the first expiry; 0: no entry expires */
	__u64 changes;	   /* number of reported changes */
	__u64 told[4];	   /* numbers by kind: denied, allowed, expired, forgotten */
	__u32 entries[4];  /* entries: denied IPv4, allowed IPv4, denied IPv6, allowed IPv6 */
	__u32 bans;	   /* number of these entries that are bans */
	__u32 suspect;	   /* 1: changes overlapped, so the numbers may be wrong */
	__u64 keys_at;	   /* time at which the key ring last changed; 0: unknown */
	__u64 keys_wanted; /* number of the last requested change of the key ring */
	__u64 keys_done;   /* number of the last request that was answered */
	__u64 keys_failed; /* number of the last request that failed */
	__u32 keys_how[2]; /* 1: requested; [0]: rotate the ring, [1]: renew it */
	struct equic_list_change last[EQUIC_LIST_CHANGES];
};

#define EQUIC_AUDIT_ENTRIES 127u

/* One change of the gateway by a process other than the one that manages it. */
struct equic_audit_entry {
	__u64 sequence; /* number of the change + 1; another value while it is being written */
	__u64 time_ms;	/* Unix time */
	__u32 pid;
	__u32 uid;
	__u32 login; /* /proc/PID/loginuid */
	__u32 length;
	char process[16];
	__u8 text[208];
};

/* The last changes by other processes. This is the only element of the map `equic_audit`, which is
 * bound to the program like `equic_report`. The program does not use it. */
struct equic_audit {
	__u64 next; /* number of the next entry; it is stored at this number modulo
		       EQUIC_AUDIT_ENTRIES */
	__u64 reserved[31];
	struct equic_audit_entry entry[EQUIC_AUDIT_ENTRIES];
};

/* The program's verdict on the last packet, in the map .data.explain. The program writes it only if
 * load.explain is set. */
struct equic_explain {
	__u32 packets; /* number of judged packets; changes only for a packet to a service */
	__u32 reason;
	__u32 service;
	__u32 count; /* connections of the source */
	__u32 dropped;
	__u32 version;
	struct equic_source source;
	__u32 under_way; /* attempts of the source in progress, if the policy counts them */
	/* Inputs for the next packet: enum equic_interface_flags, and the length of each datagram
	 * in a batch. */
	__u16 interface;
	__u16 segment;
	struct equic_cid dcid;
	struct equic_cid scid;
};

#define EQUIC_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
EQUIC_ASSERT_SIZE(equic_rate, 16);
EQUIC_ASSERT_SIZE(equic_service, 296);
EQUIC_ASSERT_SIZE(equic_adaptive, 32);
EQUIC_ASSERT_SIZE(equic_override, 80);
EQUIC_ASSERT_SIZE(equic_override4_key, 12);
EQUIC_ASSERT_SIZE(equic_override6_key, 24);
EQUIC_ASSERT_SIZE(equic_listener, 20);
EQUIC_ASSERT_SIZE(equic_ports, 131072);
EQUIC_ASSERT_SIZE(equic_source, 24);
EQUIC_ASSERT_SIZE(equic_seen, 16);
EQUIC_ASSERT_SIZE(equic_source_state, 104);
EQUIC_ASSERT_SIZE(equic_prefix, 20);
EQUIC_ASSERT_SIZE(equic_handshake_key, 64);
EQUIC_ASSERT_SIZE(equic_cid, 24);
EQUIC_ASSERT_SIZE(equic_handshake, 88);
EQUIC_ASSERT_SIZE(equic_stranger, 32);
EQUIC_ASSERT_SIZE(equic_strangers, 8192);
EQUIC_ASSERT_SIZE(equic_acl4_key, 8);
EQUIC_ASSERT_SIZE(equic_acl6_key, 20);
EQUIC_ASSERT_SIZE(equic_acl_entry, 16);
EQUIC_ASSERT_SIZE(equic_ledger_slot, 24);
EQUIC_ASSERT_SIZE(equic_ledger_bucket, 256);
EQUIC_ASSERT_SIZE(equic_ledger_header, 256);
EQUIC_ASSERT_SIZE(equic_load, 40);
EQUIC_ASSERT_SIZE(equic_member, 72);
EQUIC_ASSERT_SIZE(equic_control, 1560);
EQUIC_ASSERT_SIZE(equic_local_key, 24);
EQUIC_ASSERT_SIZE(equic_counter, 24);
EQUIC_ASSERT_SIZE(equic_event, 88);
EQUIC_ASSERT_SIZE(equic_capture, 88);
EQUIC_ASSERT_SIZE(equic_captured, 2144);
EQUIC_ASSERT_SIZE(equic_report, 65536);
EQUIC_ASSERT_SIZE(equic_list_change, 32);
EQUIC_ASSERT_SIZE(equic_notes, 2176);
EQUIC_ASSERT_SIZE(equic_audit_entry, 256);
EQUIC_ASSERT_SIZE(equic_audit, 32768);
EQUIC_ASSERT_SIZE(equic_explain, 104);

#endif
