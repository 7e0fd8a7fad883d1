/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of the memcached protocols, text and meta (memcached's doc/protocol.txt). The parser is
 * a pure function on bytes that a client sent.
 */
#ifndef ROOST_MEMCACHED_REQUEST_H
#define ROOST_MEMCACHED_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MC_LINE_MAX  32768u	/* bytes of a line with its end */
#define MC_GET_MAX   (1u << 20) /* bytes of a line of get and gets, which clients do not limit */
#define MC_KEY_MAX   250u
#define MC_FLAGS_MAX 24u /* flags of a meta command */

enum mc_command {
	MC_INVALID, /* invalid request; .error is the reply */
	MC_GET,	    /* get, gets, gat, gats */
	MC_SET,	    /* set, add, replace, append, prepend, cas: .mode */
	MC_DELETE,
	MC_ARITHMETIC, /* incr, decr */
	MC_TOUCH,
	MC_STATS,
	MC_FLUSH_ALL,
	MC_VERSION,
	MC_VERBOSITY,
	MC_QUIT,
	MC_META_GET,
	MC_META_SET,
	MC_META_DELETE,
	MC_META_ARITHMETIC,
	MC_META_NOOP,
	MC_META_DEBUG,
	MC_BINARY, /* the binary protocol */
};

enum mc_mode {
	MC_MODE_SET,
	MC_MODE_ADD,
	MC_MODE_REPLACE,
	MC_MODE_APPEND,
	MC_MODE_PREPEND,
	MC_MODE_CAS
};

struct mc_word {
	const char *p;
	uint32_t len;
};

struct mc_flag {
	char name;
	struct mc_word arg;
};

struct mc_request {
	enum mc_command command;
	enum mc_mode mode;
	const char *error; /* MC_INVALID: a line without its end */
	uint32_t line_len; /* with its end */
	bool has_data;	   /* data_len bytes and "\r\n" follow the line */
	bool noreply;
	bool with_cas, touches; /* gets, gats; gat, gats */
	bool decr;
	uint32_t flags;
	uint64_t data_len, cas, delta;
	int64_t exptime;
	struct mc_word key;  /* key of commands with one key, as the client wrote it */
	struct mc_word keys; /* MC_GET: the rest of the line */
	struct mc_word word; /* MC_STATS: its argument */
	/* meta commands: the key as stored, perhaps decoded from base64 */
	uint8_t meta_key[MC_KEY_MAX];
	uint32_t meta_key_len;
	unsigned num_flags;
	struct mc_flag flag[MC_FLAGS_MAX];
};

/*
 * Parses the first line of `len` bytes. Returns false if the line is not complete, as far as
 * MC_LINE_MAX or MC_GET_MAX allow more of it. The pointers of `r` point into the bytes. A line with
 * an error gives an MC_INVALID request; data may follow it.
 */
bool mc_parse(const char *bytes, size_t len, struct mc_request *r);

/* Takes the next key of MC_GET from r->keys. Returns false at the end. */
bool mc_next_key(struct mc_word *keys, struct mc_word *key);

/* Returns whether the request replaces an item whatever its value is: set, and ms in its mode S. */
bool mc_replaces(const struct mc_request *r);

/* Returns a flag of a meta command, or NULL. */
const struct mc_flag *mc_flag(const struct mc_request *r, char name);

/* Read the whole word as a number. Return false if the word is no number, or is out of range. */
bool mc_number(struct mc_word w, uint64_t *v);
bool mc_signed(struct mc_word w, int64_t *v);

#endif
