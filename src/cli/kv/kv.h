/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv`: declarations that its files share. */
#ifndef ROOST_CLI_KV_H
#define ROOST_CLI_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/options.h"
#include "cli/watch.h"
#include "kvwire/remote.h"
#include "kvwire/table.h"
#include "roost/kv.h"

/* Options of `roost kv bench`. */
struct kv_bench {
	uint64_t keys, value, put_percent, batch, depth;
	uint64_t duration_ns;
	double zipf;  /* skew; 0: uniform */
	int workload; /* index into kv_workloads; -1: none */
	bool json;
};

extern const char *const kv_workloads[]; /* names of YCSB's */

/* Connections to one node, or to each node of a table. */
struct kv_view {
	struct kv_table table; /* if `partitions` is 0, there is no table, and one node */
	unsigned nodes;
	struct roost_kv *kv[KV_TABLE_NODES]; /* NULL: the node is lost */
	unsigned partitions;
	uint64_t operations[KV_TABLE_PARTITIONS]; /* counts of the last kv_view_read() */
};

/* Connects to the nodes of the table in `file`. Returns an exit status. */
int kv_view_open(const struct opt_command *cmd, struct kv_view *v, const char *file,
		 const struct roost_kv_attr *attr);
void kv_view_close(struct kv_view *v);
/*
 * Reads the statistics of all nodes together, with the hottest of all partitions. Returns 0 or a
 * negative errno; with a table, a node that does not answer counts as lost instead.
 */
int kv_view_read(struct kv_view *v, struct roost_kv_stat *sum);
/* Returns the partition with the most operations since `before`; *most is their number. */
unsigned kv_view_hottest(const struct kv_view *v, const uint64_t *before, uint64_t *most);
/* Returns the number of partitions whose node did not answer, or 0 without a table. */
unsigned kv_view_lost(const struct kv_view *v);

/*
 * Runs the measurement on a connection with these batches, and prints it with the statistics of
 * `view` during the measurement. Returns an exit status.
 */
int kv_bench_run(const struct opt_command *cmd, struct roost_kv *kv, struct kv_view *view,
		 const struct kv_bench *b);

/* Writes a table of `count` partitions for these nodes. Returns an exit status. */
int kv_create_table(const struct opt_command *cmd, const char *file, const char *count,
		    char **nodes, int num_nodes, uint16_t service);

/* Reads ADDRESS, ADDRESS:SERVICE or [ADDRESS]:SERVICE. Returns false if it is none of these. */
bool kv_parse_node(const char *text, uint16_t service, struct kv_table_node *n);
/* A move of a partition. */
struct kv_move {
	const char *partition;
	struct kv_table_node to;
	bool lost;	      /* the former owner is lost, with its pairs */
	const char *snapshot; /* if `lost`: the file with the first pairs, or NULL */
};

/* Moves a partition of the table in `file`. Returns an exit status. */
int kv_move(const struct opt_command *cmd, const char *file, const struct kv_move *move,
	    const struct roost_kv_attr *attr);

/*
 * Prints the table in `file`, and for a table in etcd also the nodes without a lease. Returns an
 * exit status.
 */
int kv_show_table(const struct opt_command *cmd, const char *file);

/*
 * Stores the pairs of a partition that are in a snapshot, at its new owner. `buf` has space for a
 * pair. The caller holds `lock`, which may be NULL. Returns 0 or -errno. `why` then has a line if
 * the file or the lock is the reason, and is empty otherwise.
 */
int kv_restore_partition(struct roost_kv *to, struct kv_table_lock *lock, const struct kv_table *t,
			 unsigned partition, const char *snapshot, void *buf, size_t len, char *why,
			 size_t why_len);

/* Shows rates of the stores until it is interrupted. Returns an exit status. */
int kv_top(const struct opt_command *cmd, struct kv_view *v, const struct watch *w, bool json);

/*
 * Asks the node with this process id, address or name, on this machine, for a snapshot, and waits
 * for its end. Returns an exit status.
 */
int kv_snapshot(const struct opt_command *cmd, const char *node);

/*
 * Prints the index ratio and the inline threshold for this memory, a list of sizes of key and value
 * with weights, and a utilization. Returns an exit status.
 */
int kv_tune_command(const struct opt_command *cmd, const char *memory, const char *sizes,
		    double utilization, bool json);

/* The store, and the options of an operation on one pair. */
struct pair_call {
	const struct opt_command *cmd;
	struct roost_kv *kv;
	const char *param; /* NULL, or the parameter of a function: numbers, as text */
	int type;	   /* enum roost_kv_type; -1: text */
	uint32_t ttl;	   /* seconds; 0: the pair does not expire */
	bool fetch;	   /* update: print the previous value */
};

/* Each performs one operation, and prints its result. Returns an exit status. */
int pair_get(const struct pair_call *c, const char *key);
/*
 * Writes the value to a file, or to standard output if `file` is "-". The file is replaced at once,
 * after the whole value was written.
 */
int pair_get_file(const struct pair_call *c, const char *key, const char *file);
int pair_put(const struct pair_call *c, const char *key, const char *text);
int pair_put_file(const struct pair_call *c, const char *key, const char *file);
int pair_delete(const struct pair_call *c, const char *key);
/* Adds `by`, or 1 if it is NULL, to a decimal number. */
int pair_incr(const struct pair_call *c, const char *key, const char *by);
/* Update, reduce or filter (enum roost_kv_kind) with key, function and value in `args`. */
int pair_elements(const struct pair_call *c, unsigned kind, char **args);

/*
 * Prints a key or a value. Other programs have chosen it, so a terminal gets '?' in the place of
 * control characters other than line breaks and tabs; anything else gets the bytes as they are.
 */
void kv_print(const void *bytes, size_t len);
/* Prints the pairs of each node that answers. Returns an exit status. */
int kv_show_pairs(const struct opt_command *cmd, struct kv_view *view, bool keys_only);
/* Prints the statistics of all nodes together. Returns an exit status. */
int kv_show_stat(const struct opt_command *cmd, struct kv_view *view, bool json);

/* Returns the name of an error of the store, for a user. */
const char *kv_error(int err);

#endif
