/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Client of the key-value store of a node (`roost node --kv SIZE`). The functions are in Roost's
 * librdmacm.so.1; link with `pkg-config --cflags --libs roost`. roost/node.h has
 * ROOST_NODE_SERVICE.
 *
 *	struct roost_kv *kv;
 *
 *	roost_kv_open("192.0.2.1", ROOST_NODE_SERVICE, NULL, &kv);
 *	roost_kv_put(kv, "key", 3, "value", 5, 0);
 *	roost_kv_get(kv, "key", 3, buf, sizeof(buf), &len);
 *
 * Operations travel in batches, many batches at once: roost_kv_submit() adds an operation to the
 * batch, roost_kv_poll() completes operations whose replies have arrived.
 *
 * Functions return 0 or a negative errno. One thread at a time may use a connection.
 */
#ifndef ROOST_KV_H
#define ROOST_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "roost/kv_types.h"
#include "roost/rpc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROOST_KV_OP	   10ull /* op-code of the kernel `kv` */
#define ROOST_KV_KEY_MAX   255u
#define ROOST_KV_VALUE_MAX (1u << 20)

/* ---- the node's side ---- */

/* Status of a call, besides those of roost/rpc.h: no memory for a long batch or reply; try again */
#define ROOST_KV_BUSY 128

#define ROOST_KV_INLINE_MAX  44u
#define ROOST_KV_INLINE_NONE UINT32_MAX

/* `self` with which the kernel `kv` is deployed. NULL: the defaults. Copied by start(). */
struct kv_store;
struct roost_kv_config {
	uint64_t size; /* bytes of the store, at least 1 MiB; 0: 64 MiB */
	/*
	 * The index has this number of buckets of 64 bytes from the start, in addition to `size`;
	 * 0: few, and it grows to one for each 128 bytes of `size`. `roost kv tune` prints the best
	 * number and the best inline_max for given sizes.
	 */
	uint64_t buckets;
	/*
	 * most bytes of a key and value that are in the index itself, up to ROOST_KV_INLINE_MAX;
	 * 0: 20; ROOST_KV_INLINE_NONE: no pair is
	 */
	uint32_t inline_max;
	bool evict; /* if memory is full, evict pairs that were not used lately */
	/*
	 * NULL for programs. `roost node` passes an open store; the fields above do not apply then
	 */
	struct kv_store *store;
};

/* The result of ROOST_KV_STAT. Later versions add members at the end. */
struct roost_kv_stat {
	uint64_t pairs, inline_pairs;
	uint64_t buckets, chained, slots; /* of the index: buckets, further buckets, slots in use */
	uint64_t used, limit;		  /* bytes of pairs and chained buckets */
	uint64_t evicted, expired;	  /* pairs */
	uint64_t operations, batches;	  /* executed; not counting those that did not decode */
	uint64_t accesses;		  /* accesses to memory, in both tiers */
	/* of a store with a far tier */
	uint64_t far_reads, far_writes; /* lines */
	uint64_t parked;		/* times that an operation waited for lines */
	uint64_t forwarded;		/* operations that ran right after one on the same key */
	uint64_t merged;		/* writes to a line that was to be written back already */
	uint64_t near_hits;		/* accesses for which no line was read */
	/* of a node that serves partitions; the hottest partition has the most operations */
	uint64_t table_version, partitions, hottest, hottest_operations;
	/*
	 * of a store with a far tier: reads and writes of lines that failed. All operations after
	 * the first failure end with -EIO.
	 */
	uint64_t far_errors;
	/* the node's clock, by which its pairs expire: seconds since 1970; 0: an older node */
	uint64_t now;
};

/* ---- operations ---- */

enum roost_kv_code {
	ROOST_KV_GET,
	ROOST_KV_PUT,
	ROOST_KV_PUT_ABSENT,  /* -EEXIST if the key exists */
	ROOST_KV_PUT_PRESENT, /* -ENOENT if the key does not exist */
	/* -ECANCELED if the value is not `expect`: `out` gets the value */
	ROOST_KV_PUT_COMPARE,
	ROOST_KV_DELETE,
	ROOST_KV_TOUCH, /* sets `ttl` */
	/*
	 * The value is a vector of elements of `type`, in the byte order of the node. `function` is
	 * an enum roost_kv_fn, and `value` its operand.
	 *	UPDATE		the only element := function(element, operand)
	 *	UPDATE_EACH	each element, with one operand
	 *	UPDATE_VECTOR	each element, with the operand at the same index
	 *	REDUCE		`out` gets one element: from the initial value in `value`,
	 *			acc := function(acc, element) for each element in order
	 *	FILTER		`out` gets the elements for which function(element, operand) is true
	 * An update with `fetch` sets `out` to the value before the update. `param` is the
	 * parameter of a registered function.
	 */
	ROOST_KV_UPDATE,
	ROOST_KV_UPDATE_EACH,
	ROOST_KV_UPDATE_VECTOR,
	ROOST_KV_REDUCE,
	ROOST_KV_FILTER,
	/*
	 * Returns the next pairs from `cursor`, which starts at 0: up to 12 KiB, or one pair if it
	 * is longer. roost_kv_next_pair() reads them from `out`. `function` is
	 * ROOST_KV_SCAN_KEYS for pairs without their values.
	 */
	ROOST_KV_SCAN,
	ROOST_KV_STAT, /* `out` is a struct roost_kv_stat */
	/*
	 * `key` is the name of a function that the node has loaded (roost/kv_function.h); `out` is
	 * a struct roost_kv_function_info
	 */
	ROOST_KV_FIND_FUNCTION,
	/*
	 * `out` is the version of the table of partitions, and a number for each partition: the
	 * operations on its keys, or ROOST_KV_NOT_OWNED. A node without a table has version 0 and
	 * no partitions. The numbers have 8 bytes, low bytes first.
	 */
	ROOST_KV_PARTITIONS,
	/*
	 * Of `roost kv move`: a PUT into a partition that moves to the node, and a DELETE from one
	 * that the node does not own and that does not move away. Other partitions give -EREMCHG,
	 * and so does a node whose table has another version than `cursor`.
	 */
	ROOST_KV_MOVE_PUT,
	ROOST_KV_MOVE_DELETE,
	ROOST_KV_CODES,
};

/* Functions of SCAN. The last two are those of `roost kv move`. */
#define ROOST_KV_SCAN_KEYS 1
/*
 * the pairs of partitions that move away, each followed by the seconds until it expires (4 bytes;
 * 0: never)
 */
#define ROOST_KV_SCAN_LEAVING 2
/* the keys of pairs that the node has, but does not own and that do not move away */
#define ROOST_KV_SCAN_STRAY 3
#define ROOST_KV_NOT_OWNED  UINT64_MAX

/* ADD to MUL_SAT are for updates and REDUCE; SWAP for updates; EQ to GE for FILTER. */
enum roost_kv_fn {
	ROOST_KV_ADD, /* integers wrap */
	ROOST_KV_SUB,
	ROOST_KV_MUL,
	ROOST_KV_MIN, /* of floats: the operand, if one of both is not a number */
	ROOST_KV_MAX,
	ROOST_KV_AND, /* AND, OR, XOR: integers only */
	ROOST_KV_OR,
	ROOST_KV_XOR,
	ROOST_KV_ASSIGN,
	ROOST_KV_ADD_SAT, /* integers that stop at their limits */
	ROOST_KV_SUB_SAT,
	ROOST_KV_MUL_SAT,
	/* The operand replaces the elements that equal `expect`. UPDATE: -ECANCELED if none does */
	ROOST_KV_SWAP,
	ROOST_KV_EQ,
	ROOST_KV_NE,
	ROOST_KV_LT,
	ROOST_KV_LE,
	ROOST_KV_GT,
	ROOST_KV_GE,
	ROOST_KV_FUNCTIONS,
	ROOST_KV_REGISTERED = 256, /* from this number on: functions that the node has loaded */
};

/* The operations of a loaded function: UPDATE, UPDATE_EACH and UPDATE_VECTOR; REDUCE; FILTER. */
enum roost_kv_kind { ROOST_KV_KIND_UPDATE, ROOST_KV_KIND_REDUCE, ROOST_KV_KIND_FILTER };

/* The result of ROOST_KV_FIND_FUNCTION. */
struct roost_kv_function_info {
	uint16_t number; /* for the field `function` */
	uint8_t type;	 /* enum roost_kv_type */
	uint8_t kind;	 /* enum roost_kv_kind */
};

/* An operation and its result. */
struct roost_kv_op {
	uint8_t code; /* enum roost_kv_code */
	uint8_t type; /* below 128; this and the next two: ROOST_KV_UPDATE to SCAN */
	bool fetch;
	uint16_t function;
	uint32_t key_len; /* 1 to ROOST_KV_KEY_MAX; SCAN, STAT: 0 */
	uint32_t value_len, expect_len, param_len;
	uint32_t ttl; /* seconds until the pair expires; 0: never */
	uint32_t out_cap;
	uint64_t cursor; /* SCAN; MOVE_PUT, MOVE_DELETE: the version of the table */
	const void *key, *value, *expect, *param;
	void *out; /* see the codes; GET: the value; SCAN: pairs */

	/*
	 * 0, or an error:
	 *	-ENOENT, -EEXIST, -ECANCELED	see above
	 *	-EINVAL		invalid code, or a key length of 0; no such function for the type;
	 *			an operand of another length than its elements
	 *	-ERANGE		the value is not a vector of the type, or not as long as the operand
	 *	-E2BIG		a key or value exceeds its limit
	 *	-ENOSPC		memory is full; nothing was changed
	 *	-EMSGSIZE	`out` is too short: out_len is the length
	 *	-ERANGE, -EFAULT, -ETIME	not a vector of the type; the registered function
	 *			crashed; it did not return
	 *	-EOPNOTSUPP	the node does not know the operation, or has no store
	 *	-EPROTONOSUPPORT	the node has another version of the wire format; nothing
	 *			was done
	 *	-EREMCHG	another node owns the key; nothing was done
	 *	-EHOSTDOWN	roost_kv_open_table(): the partition of the key has no node, or its
	 *			node is lost; nothing was done
	 *	-EMFILE, -ENFILE, -ENOMEM, -ENOBUFS, -EAGAIN
	 *			roost_kv_open_table(): this process could not connect to the node
	 *			of the key, and may try again; nothing was done
	 *	-ENOTCONN, -ETIMEDOUT
	 *			the connection ended, or the node lost its lease meanwhile: the
	 *			operation may have been done
	 */
	int status;
	uint32_t out_len;
	bool done;
	/*
	 * If not NULL, called when the operation is done. It may submit operations. No other
	 * callback runs inside of it, unless it waits (roost_kv_wait() and functions that call it).
	 */
	void (*complete)(struct roost_kv_op *op);
	void *context; /* of the program */

	/* of the library */
	struct roost_kv_op *next;
	uint64_t since;
};

/* ---- the client's side ---- */

struct roost_kv;

struct roost_kv_attr {
	unsigned batches; /* the most batches in flight: 1 to 160; 0: 16 */
	unsigned ops;	  /* the most operations of a batch: 1 to 1024; 0: 64 */
	int timeout_ms;	  /* of the connection, and of each wait; 0: 5000 */
};

/*
 * Connects to the store of a node. `attr` may be NULL. Blocks. Returns 0 or the negated errors of
 * roost_node_connect() (roost/node.h).
 */
int roost_kv_open(const char *host, uint16_t service, const struct roost_kv_attr *attr,
		  struct roost_kv **out);
/*
 * Opens the stores of all nodes of a table of partitions, a file that `roost kv table` has written,
 * or a value in etcd, etcd:http://HOST:PORT[,http://HOST:PORT...]/KEY, which a thread reads until
 * roost_kv_close(). Each operation goes to the node that owns its key; the connection to a node
 * begins with the first one. If the node does not own the key any more, the library reads the table
 * again and repeats the operation, which was not done. It gives up after `timeout_ms`, with
 * -EREMCHG.
 *
 * Operations that are submitted before an earlier one is done have no order. When a connection
 * ends, its operations in flight get -ENOTCONN or -ETIMEDOUT, and later ones on partitions of that
 * node get -EHOSTDOWN, until the table has a new version; other partitions are served. A node that
 * was started again has the pairs of its last snapshot: later changes are lost. SCAN, STAT and
 * PARTITIONS are for the connection to one node: they get -EOPNOTSUPP. FIND_FUNCTION goes to the
 * first node that is not lost: all nodes must load the same functions.
 *
 * Returns 0, -EINVAL, -ENOMEM, or an error of the file or of etcd, with a line in `why`, which may
 * be NULL.
 */
int roost_kv_open_table(const char *path, const struct roost_kv_attr *attr, struct roost_kv **out,
			char *why, size_t why_len);
/* Closes the connection. Operations in flight end with -ENOTCONN; they may have been done. */
void roost_kv_close(struct roost_kv *kv);

/*
 * Adds an operation to the current batch. The batch leaves when it is full, by roost_kv_flush(),
 * and by roost_kv_poll() if no batch is in flight. The operation, and the memory that it names,
 * belong to the library until `done` is set. Waits while `batches` batches are in flight. In a
 * callback it does not wait: the library keeps the operation, and the next polls send it. Long
 * operations, which do not fit into a packet, leave one after the other: the library keeps those
 * that come while another one is in flight.
 *
 * Operations of one batch take effect in order (on a node with --kv-far, only those on one key are
 * in order), except that an operation whose result does not fit into the reply takes effect later.
 * Operations of different batches in flight have no order: a program that needs an order waits for
 * the first operation.
 *
 * Returns 0, -EINVAL, -E2BIG, -ENOTCONN or -ETIMEDOUT, and with a table -EHOSTDOWN, or the reason
 * why this process could not connect to the node (see `status`); then the library does not keep the
 * operation.
 */
int roost_kv_submit(struct roost_kv *kv, struct roost_kv_op *op);
/*
 * Sends the current batch. Waits as roost_kv_submit(); in a callback the next polls send it.
 * Errors: -ENOTCONN, -ETIMEDOUT.
 */
int roost_kv_flush(struct roost_kv *kv);
/*
 * Drives the NIC, completes operations, and returns their number, which may be 0. Sends the current
 * batch if no batch is in flight; in a store of several nodes, to each node without a batch in
 * flight.
 */
int roost_kv_poll(struct roost_kv *kv);
/* Sends the current batch and waits until all operations are done. Errors as above. */
int roost_kv_wait(struct roost_kv *kv);
/*
 * Executes n operations in batches and waits until they are done. Their order is that of
 * roost_kv_submit(). Returns 0 if each has its own
 * status, or an error of the connection.
 */
int roost_kv_run(struct roost_kv *kv, struct roost_kv_op *ops, unsigned n);

/*
 * Looks up a function that the node has loaded. The number is valid as long as the node runs.
 * Returns 0, -ENOENT, or an error of the connection.
 */
int roost_kv_find_function(struct roost_kv *kv, const char *name,
			   struct roost_kv_function_info *info);

/* ---- single operations; they return the status of the operation ---- */

/* Reads a value: at most `cap` bytes of it into out. *len is its length. */
int roost_kv_get(struct roost_kv *kv, const void *key, size_t key_len, void *out, size_t cap,
		 size_t *len);
/* Stores a value. ttl: as in struct roost_kv_op. */
int roost_kv_put(struct roost_kv *kv, const void *key, size_t key_len, const void *value,
		 size_t len, uint32_t ttl);
/* Deletes a key. */
int roost_kv_delete(struct roost_kv *kv, const void *key, size_t key_len);

/* A pair that a scan returned. */
struct roost_kv_pair {
	const uint8_t *key, *value;
	uint32_t key_len, value_len;
};
/*
 * Reads the next pair of the result of a SCAN at *at, which starts at 0. Returns false at its end;
 * *next is then the cursor for the next SCAN, or 0 if all buckets were visited.
 */
bool roost_kv_next_pair(const struct roost_kv_op *scan, uint32_t *at, struct roost_kv_pair *pair,
			uint64_t *next);

#ifdef __cplusplus
}
#endif
#endif
