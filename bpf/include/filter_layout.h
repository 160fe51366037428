/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Layout that the filter stage and user space share, mirrored in crates/xdp/src/filter and compared through
 * the object's BTF. bpf/README.md describes the classification.
 */
#ifndef FILTER_LAYOUT_H
#define FILTER_LAYOUT_H

#include <linux/types.h>

/* 1 in the objects for filters that have rules with cookies: services.bpf.c and services_dump.bpf.c. */
#ifndef PORT_SERVICES
#define PORT_SERVICES 0
#endif

/*
 * Maximum number of rules. A summary of one word shows which words of a row are not zero, so a row has 64
 * words of 64 rules.
 */
#define FILTER_RULES_MAX 4096
#define FILTER_PROBES_MAX 8
#define FILTER_LINE 64 /* bytes of a table's element: one cache line */
#define FILTER_SAMPLE_BYTES 128
#define FILTER_NAME 64
/* Shift to the time unit of buckets, a sixteenth of a nanosecond. 64 bits last for 36 years of uptime. */
#define FILTER_TICK_SHIFT 4
/* Number of binary fraction digits of the cost of one packet or byte, in ticks. */
#define FILTER_COST_SHIFT 16

/*
 * Fields that rules match. Each field has a table from the frame's value to a class, and a row of bits per
 * class: the rules that this value does not exclude.
 */
enum filter_field {
	FILTER_FIELD_KIND = 0, /* family, fragment state and protocol: see find_rows() */
	FILTER_FIELD_SOURCE_PORT = 1,
	FILTER_FIELD_DESTINATION_PORT = 2,
	FILTER_FIELD_LENGTH = 3,
	FILTER_FIELD_VLAN = 4,
	FILTER_FIELD_FLAGS = 5,
	FILTER_FIELD_LISTED = 6, /* no table: the class is the result of the block list */
	/* The following fields have tries instead of tables. */
	FILTER_FIELD_SOURCE = 7,
	FILTER_FIELD_DESTINATION = 8,
	FILTER_FIELDS = 9,
};

/* Values of fields that are not present in a frame. */
#define FILTER_NO_PORT 65536
#define FILTER_NO_VLAN 4096 /* no tag, or only tags with VID 0 */
#define FILTER_NO_FLAGS 256

enum filter_family {
	FILTER_OTHER = 0,
	FILTER_IPV4 = 1,
	FILTER_IPV6 = 2,
	FILTER_MALFORMED = 3, /* IP by the EtherType, but the fixed header cannot be read */
};

enum filter_fragment {
	FILTER_WHOLE = 0,
	FILTER_FIRST = 1,
	FILTER_LATER = 2,
	/* Any family: fields that rules match cannot be reached. The protocol is 0 unless known. */
	FILTER_UNREADABLE = 3,
};

/* Base of the offset of a probe. */
enum filter_base {
	FILTER_BASE_FRAME = 0,
	FILTER_BASE_NETWORK = 1,
	FILTER_BASE_TRANSPORT = 2,
	FILTER_BASE_PAYLOAD = 3,
};

struct filter_field_conf {
	__u32 present;
	__u32 rows;  /* number of the row of class 0 */
	__u32 table; /* line of filter_classes, or of filter_tries for the IPv4 root */
	__u32 table6; /* line of filter_tries for the IPv6 root */
};

/* A place of up to eight masked bytes at an offset. Each probe is a field of its own. */
struct filter_probe {
	__u64 mask;
	__u32 length; /* 0 if the probe is absent */
	enum filter_base base;
	__u32 offset;
	__u32 rows;
};

/* Features that at least one rule uses. */
enum filter_uses {
	FILTER_USES_EXPIRY = 1,
	FILTER_USES_SAMPLES = 2,
	FILTER_USES_RATES = 4,
	FILTER_USES_SOURCES = 8,
	FILTER_USES_COOKIES = 16,
	FILTER_USES_COOKIE_OPTIONS = 32, /* timestamps and window scale in answers */
};

/* Constants of one port's filter, frozen before the program is loaded. */
struct filter_conf {
	__u32 rules; /* number of rules. With 0 there is no filter stage */
	__u32 words; /* number of words of 64 rules in a row */
	__u32 stride; /* words per row, including the summary that precedes several words */
	__u32 transport; /* 1 if rules examine fields after the IP header */
	__u32 uses; /* enum filter_uses */
	__u32 scratch; /* 1 for a test run that must not change anything */
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
	__u32 slot;     /* index of the rule's counters and bucket, kept through changes of the rules */
	/* Highest random number that is sampled. For cookies, the seconds that a client is remembered. */
	__u32 sample;
	__u64 expires;  /* CLOCK_MONOTONIC, nanoseconds */
	__u64 cost;     /* cost of a packet or byte, in ticks << FILTER_COST_SHIFT */
	__u64 burst;    /* number of ticks that a bucket may run ahead of the clock */
	__be32 source4; /* mask of the source bits that select a bucket */
	__u32 answer; /* for cookies: MSS, TTL << 16, window scale << 24 (above 14 for no options) */
	__be64 source6[2];
	char name[FILTER_NAME]; /* name of the rule, for a process that adopts the maps */
};

/* Counts per rule and CPU. */
struct filter_count {
	__u64 packets; /* packets that matched */
	__u64 bytes;
	__u64 acted;   /* packets dropped, passed, sampled or over the limit, including dry runs */
	__u64 acted_bytes;
};

/* Maximum number of rules with cookies in the old and the new rule set together. */
#define FILTER_SERVICES_MAX 128

/* State of a rule with cookies, by slot. Times are CLOCK_MONOTONIC in nanoseconds. */
struct filter_service {
	__u64 until; /* time until which SYNs are answered because of their rate */
	__u64 since; /* time at which the rule was added */
};

/* Counts per rule with cookies and CPU, in packets. */
struct filter_answer {
	__u64 answered; /* SYNs that were answered with a cookie */
	__u64 valid;    /* segments that returned a valid cookie */
	__u64 invalid;  /* segments without the cookie that was required */
	__u64 refused;  /* SYNs that could not be answered */
	__u64 through;  /* SYNs that were passed to the service, with segments that were turned into SYNs */
};

enum filter_client_kind {
	FILTER_CLIENT_SOURCE = 0,  /* value: time until which the source's SYNs pass */
	FILTER_CLIENT_FLOW = 1,    /* value: time at which the connection became known, with COOKIE_SEARCHED */
	FILTER_CLIENT_SERVICE = 2, /* value: time at which a SYN was passed to the service, or its namespace */
};

/* Key of a client entry. Fields that a kind does not use are 0. */
struct filter_client {
	__u32 slot;
	__u32 kind; /* enum filter_client_kind << 2 | enum filter_family */
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

/* Layout of the block list, in lines of eight words: filter_block.h. */
#define BLOCK_HEADER 0
#define BLOCK_LENGTHS 1 /* a line per length of IPv6 prefixes, the most frequent first */
#define BLOCK_LENGTHS_MAX 128
#define BLOCK_STATES 192 /* 65536 lines of 256 states of two bits, one state per /24 */
#define BLOCK_PROBES 8	 /* number of lines in which an entry may be */
#define BLOCK_USED (1ull << 47) /* flag of a used entry, without its 16 address bits */
#define BLOCK_SOME 2	 /* state "some". 0 is none, 1 is all */
#define BLOCK_RESERVED 0xfffffffffffffffeull

/* Words of the header, which describes the IPv4 table, and of a line that describes an IPv6 length. */
enum block_word {
	BLOCK_BASE = 0,	  /* first line */
	BLOCK_MASK = 1,	  /* number of lines, a power of two, less 1 */
	BLOCK_FACTOR = 2, /* header: a random odd number */
	BLOCK_SHIFT = 3,  /* header: shift of the product to a line number */
	BLOCK_ALL6 = 4,	  /* header: whether ::/0 is listed */
	BLOCK_HIGH = 4,	  /* length: mask of the address. 0 after the last length */
	BLOCK_LOW = 5,
	/* Length: secret factors, one for each 32 bits of an address. */
	BLOCK_FACTOR0 = 2,
	BLOCK_FACTOR1 = 3,
	BLOCK_FACTOR2 = 6,
	BLOCK_FACTOR3 = 7,
};

struct filter_sample {
	__u64 time; /* CLOCK_MONOTONIC, nanoseconds */
	__u32 slot;
	__u32 ifindex;
	__u32 length;   /* length of the frame in bytes */
	__u32 captured; /* number of bytes in head */
	__u8 head[FILTER_SAMPLE_BYTES];
};

#endif
