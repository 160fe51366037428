/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the filter stage and user space agree on; mirrored in crates/xdp/src/filter and compared
 * with it through the object's BTF. bpf/README.md explains the classification.
 */
#ifndef FILTER_LAYOUT_H
#define FILTER_LAYOUT_H

#include <linux/types.h>

/* 1 in the objects for filters that have rules with cookies: services.bpf.c and services_dump.bpf.c. */
#ifndef PORT_SERVICES
#define PORT_SERVICES 0
#endif

/* A summary of one word tells which words of a row are not zero: 64 of 64 rules. */
#define FILTER_RULES_MAX 4096
#define FILTER_PROBES_MAX 8
#define FILTER_LINE 64 /* bytes of a table's element: one cache line */
#define FILTER_SAMPLE_BYTES 128
#define FILTER_NAME 64
/* Buckets keep time in sixteenths of a nanosecond: 64 bits last for 36 years of uptime. */
#define FILTER_TICK_SHIFT 4
/* Cost of one packet or byte: ticks with a binary fraction. */
#define FILTER_COST_SHIFT 16

/*
 * The fields that rules look at. Each has a table from the frame's value to a class, and a row
 * of bits per class: the rules that this value does not rule out.
 */
enum filter_field {
	FILTER_FIELD_KIND = 0, /* family, fragment state and protocol: filter_kind() */
	FILTER_FIELD_SOURCE_PORT = 1,
	FILTER_FIELD_DESTINATION_PORT = 2,
	FILTER_FIELD_LENGTH = 3,
	FILTER_FIELD_VLAN = 4,
	FILTER_FIELD_FLAGS = 5,
	FILTER_FIELD_LISTED = 6, /* no table: the class is the answer of the block list */
	/* Tries instead of tables. */
	FILTER_FIELD_SOURCE = 7,
	FILTER_FIELD_DESTINATION = 8,
	FILTER_FIELDS = 9,
};

/* Values of fields that a frame does not have. */
#define FILTER_NO_PORT 65536
#define FILTER_NO_VLAN 4096 /* no tag, or none but with VID 0 */
#define FILTER_NO_FLAGS 256

enum filter_family {
	FILTER_OTHER = 0,
	FILTER_IPV4 = 1,
	FILTER_IPV6 = 2,
	FILTER_MALFORMED = 3, /* says to be IP, and its fixed header cannot be read */
};

enum filter_fragment {
	FILTER_WHOLE = 0,
	FILTER_FIRST = 1,
	FILTER_LATER = 2,
	FILTER_UNREADABLE = 3, /* of any family: what rules ask for cannot be reached; the protocol is 0 unless known */
};

/* Where the offset of a probe counts from. */
enum filter_base {
	FILTER_BASE_FRAME = 0,
	FILTER_BASE_NETWORK = 1,
	FILTER_BASE_TRANSPORT = 2,
	FILTER_BASE_PAYLOAD = 3,
};

struct filter_field_conf {
	__u32 present;
	__u32 rows;  /* the row of class 0 */
	__u32 table; /* line of filter_classes; of filter_tries: IPv4's root */
	__u32 table6; /* line of filter_tries: IPv6's root */
};

/* Up to eight bytes at an offset, masked, and looked up: a field of its own. */
struct filter_probe {
	__u64 mask;
	__u32 length; /* 0: absent */
	enum filter_base base;
	__u32 offset;
	__u32 rows;
};

/* What at least one rule asks for. */
enum filter_uses {
	FILTER_USES_EXPIRY = 1,
	FILTER_USES_SAMPLES = 2,
	FILTER_USES_RATES = 4,
	FILTER_USES_SOURCES = 8,
	FILTER_USES_COOKIES = 16,
	FILTER_USES_COOKIE_OPTIONS = 32, /* timestamps and window scale in answers */
};

/* The constants of one port's filter, frozen before the program is loaded. */
struct filter_conf {
	__u32 rules; /* 0: no filter stage */
	__u32 words; /* of 64 rules in a row */
	__u32 stride; /* words from row to row: a summary stands before the words when they are many */
	__u32 transport; /* 1: rules look beyond the IP header */
	__u32 uses; /* enum filter_uses */
	__u32 scratch; /* 1: a test run that is to change nothing */
	struct filter_field_conf field[FILTER_FIELDS];
	struct filter_probe probe[FILTER_PROBES_MAX];
};

enum filter_action {
	FILTER_DROP = 0,
	FILTER_PASS = 1,
	FILTER_COUNT = 2,
	FILTER_SAMPLE = 3,
	FILTER_LIMIT = 4,
	FILTER_COOKIE = 5,
};

enum filter_flag {
	FILTER_DRY_RUN = 1,
	FILTER_EXPIRES = 2,
	FILTER_PER_SOURCE = 4,
	FILTER_BYTES = 8, /* the rate counts bytes, not packets */
	FILTER_COOKIE_ALWAYS = 16, /* SYNs are answered at any rate */
	FILTER_COOKIE_RETRY = 32, /* the scheme "retry" */
};

struct filter_rule {
	enum filter_action action;
	__u32 flags;
	__u32 slot;     /* of its counters and its bucket: stays through changes of the rules */
	__u32 sample;   /* sampled when a random number is at most this; of cookies: seconds of memory */
	__u64 expires;  /* CLOCK_MONOTONIC, nanoseconds */
	__u64 cost;     /* of a packet or byte, in ticks << FILTER_COST_SHIFT */
	__u64 burst;    /* ticks that a bucket may run ahead of the clock */
	__be32 source4; /* bits of a source that tell buckets apart */
	__u32 answer; /* of cookies: MSS, TTL << 16, window scale << 24 (above 14: no options) */
	__be64 source6[2];
	char name[FILTER_NAME]; /* for a process that adopts the maps */
};

/* Per rule and CPU. */
struct filter_count {
	__u64 packets; /* that matched */
	__u64 bytes;
	__u64 acted;   /* packets dropped, passed, sampled or over the limit, dry runs included */
	__u64 acted_bytes;
};

/* Rules with cookies, of two sets. */
#define FILTER_SERVICES_MAX 128

/* By the slot of a rule with cookies. Times are those of CLOCK_MONOTONIC in nanoseconds. */
struct filter_service {
	__u64 until; /* SYNs are answered because of their rate */
	__u64 since; /* when the rule came */
};

/* Per rule with cookies and CPU, in packets. */
struct filter_answer {
	__u64 answered; /* SYNs that were answered with a cookie */
	__u64 valid;    /* segments that brought one back */
	__u64 invalid;  /* that should have and did not */
	__u64 refused;  /* SYNs that could not be answered */
	__u64 through;  /* SYNs that went on to the service */
};

enum filter_client_kind {
	FILTER_CLIENT_SOURCE = 0,  /* the value: until when its SYNs go on */
	FILTER_CLIENT_FLOW = 1,    /* the value: when it became known */
	FILTER_CLIENT_SERVICE = 2, /* the value: when a SYN went on to it */
};

/* What is remembered of clients; the fields that a kind does not tell apart are 0. */
struct filter_client {
	__u32 slot;
	__u32 kind; /* << 2 | enum filter_family */
	__u16 source_port;
	__u16 destination_port;
	__u8 source[16];
	__u8 destination[16];
};

struct filter_source {
	__u32 slot;
	enum filter_family family;
	__u8 address[16];
};

struct filter_probe_key {
	__u64 value;
	__u32 probe;
	__u32 reserved;
};

/* The block list, in lines of eight words: filter_block.h. */
#define BLOCK_HEADER 0
#define BLOCK_LENGTHS 1 /* a line per length of IPv6 prefixes, the most frequent first */
#define BLOCK_LENGTHS_MAX 128
#define BLOCK_STATES 192 /* 65536 lines of 256 states of two bits, one per /24 */
#define BLOCK_PROBES 8	 /* lines in which an entry may lie */
#define BLOCK_USED (1ull << 47) /* of an entry without its 16 bits of addresses */
#define BLOCK_SOME 2	 /* state; 0 none, 1 all */
#define BLOCK_RESERVED 0xfffffffffffffffeull

/* Words of the header, which describes IPv4's table, and of a length. */
enum block_word {
	BLOCK_BASE = 0,	  /* first line */
	BLOCK_MASK = 1,	  /* lines, a power of two, less 1 */
	BLOCK_FACTOR = 2, /* header: a random odd number */
	BLOCK_SHIFT = 3,  /* header: bits of a product that do not number a line */
	BLOCK_ALL6 = 4,	  /* header: ::/0 is listed */
	BLOCK_HIGH = 4,	  /* length: bits of an address that count; 0 after the last length */
	BLOCK_LOW = 5,
	/* length: secret factors, one for each 32 bits of an address */
	BLOCK_FACTOR0 = 2,
	BLOCK_FACTOR1 = 3,
	BLOCK_FACTOR2 = 6,
	BLOCK_FACTOR3 = 7,
};

struct filter_sample {
	__u64 time; /* CLOCK_MONOTONIC, nanoseconds */
	__u32 slot;
	__u32 ifindex;
	__u32 length;   /* of the frame */
	__u32 captured; /* bytes of head */
	__u8 head[FILTER_SAMPLE_BYTES];
};

#endif
