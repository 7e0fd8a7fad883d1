/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost kv move`: moves a partition to another node. First the table says that the partition
 * moves, and no node serves it. Then its pairs are copied. Then the table gives it to the new
 * owner. An interrupted move is in the table, and the same command continues it from the start of
 * the copy. With --lost the former owner is lost, and the pairs come from a snapshot, if there is
 * one.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/kv/kv.h"

#define WHY	  400
#define NAP	  1000000   /* ns between two looks at the version of a node */
#define LEASE_NAP 100000000 /* ns between two looks at the lease of a node */
#define PUTS	  64u	    /* PUTs in one batch */
#define SPACE	  (2u * ROOST_KV_VALUE_MAX)

struct end {
	const struct kv_table_node *node;
	struct roost_kv *kv;
};

struct move {
	const struct opt_command *cmd;
	const char *file;
	const struct roost_kv_attr *attr;
	struct kv_table table;
	const struct kv_move *want;
	unsigned partition;
	struct end from, to;
	struct kv_table_lock *lock; /* the lock of a table in etcd; else NULL */
	uint8_t *scan;
};

static int failed(const struct move *m, const struct end *e, int rc)
{
	if (rc == -ENOLCK) /* run_all() has printed the reason */
		return CLI_FAILED;
	return opt_failed(m->cmd, "%s, service %u: %s", e->node->address, e->node->service,
			  rc == -EREMCHG      ? "another program has changed the table"
			  : rc == -EOPNOTSUPP ? "no store with partitions"
					      : kv_error(rc));
}

static int connect_to(const struct move *m, struct end *e, unsigned node)
{
	int rc;

	e->node = &m->table.node[node];
	rc = roost_kv_open(e->node->address, e->node->service, m->attr, &e->kv);
	if (rc)
		e->kv = NULL;
	return rc ? failed(m, e, rc) : CLI_OK;
}

static int run_one(const struct end *e, struct roost_kv_op *op)
{
	int rc = roost_kv_run(e->kv, op, 1);

	return rc ? rc : op->status;
}

/* ---- the table ---- */

static int read_stat(const struct end *e, struct roost_kv_stat *s)
{
	struct roost_kv_op op = {.code = ROOST_KV_STAT, .out = s, .out_cap = sizeof(*s)};

	*s = (struct roost_kv_stat){0};
	return run_one(e, &op);
}

/* Returns whether a node has a table; else *rc is the error, or 0. */
static bool has_table(const struct end *e, int *rc)
{
	struct roost_kv_stat s;

	*rc = read_stat(e, &s);
	return !*rc && s.table_version;
}

/*
 * Makes sure that a node has a table, before a version is written that gives it a partition. A node
 * without a table never reads that version, and accepts all keys.
 */
static int require_table(const struct move *m, const struct end *e)
{
	int rc;

	if (has_table(e, &rc))
		return CLI_OK;
	if (rc)
		return failed(m, e, rc);
	return opt_failed(m->cmd,
			  "%s, service %u: the node has no table: start it with "
			  "--kv-partitions %s",
			  e->node->address, e->node->service, m->file);
}

/* Waits until a node has the version of the table that was written. */
static int await_version(const struct move *m, const struct end *e)
{
	uint64_t limit = (uint64_t)m->attr->timeout_ms * 1000000;
	struct timespec start, now;
	struct roost_kv_stat s;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		int rc = read_stat(e, &s);

		if (rc)
			return failed(m, e, rc);
		if (le64toh(s.table_version) >= m->table.version)
			return CLI_OK;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((uint64_t)(now.tv_sec - start.tv_sec) * 1000000000 > limit)
			return opt_failed(m->cmd,
					  "%s, service %u: the node still has version %" PRIu64
					  " of the table, and not %" PRIu64 ": does it read %s?",
					  e->node->address, e->node->service,
					  le64toh(s.table_version), m->table.version, m->file);
		nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
	}
}

/*
 * Writes the next version of the table, if the node `gone` has no lease (NULL: no condition), and
 * waits until all connected nodes have this version.
 */
static int publish(struct move *m, unsigned owner, unsigned from, const struct kv_table_node *gone)
{
	const struct end *ends[] = {&m->from, &m->to};
	char why[WHY];

	m->table.owner[m->partition] = (uint16_t)owner;
	m->table.from[m->partition] = (uint16_t)from;
	m->table.version++;
	if (kv_table_replace(&m->table, m->file, gone, why, sizeof(why)))
		return opt_failed(m->cmd, "%s", why);
	for (unsigned i = 0; i < 2; i++) {
		int rc = ends[i]->kv ? await_version(m, ends[i]) : CLI_OK;

		if (rc)
			return rc;
	}
	return CLI_OK;
}

/* ---- pairs ---- */

static bool is_ours(const struct move *m, const struct roost_kv_pair *p)
{
	const struct kv_table *t = &m->table;

	return kv_table_partition(t->seed, t->partitions, p->key, p->key_len) == m->partition;
}

static int scan_next(const struct end *e, struct roost_kv_op *scan)
{
	scan->out_len = 0;
	return run_one(e, scan);
}

/*
 * Runs the collected operations while it holds the lock of the table. Returns 0, or the first
 * error.
 */
static int run_all(const struct move *m, const struct end *e, struct roost_kv_op *ops, unsigned n)
{
	char why[WHY];
	int rc = n && m->lock ? kv_table_remote->hold(m->lock, why, sizeof(why)) : 0;

	if (rc) {
		opt_failed(m->cmd, "%s", why);
		return -ENOLCK;
	}
	if (n)
		rc = roost_kv_run(e->kv, ops, n);

	for (unsigned i = 0; i < n && !rc; i++)
		rc = ops[i].status == -ENOENT ? 0 : ops[i].status;
	return rc;
}

/* Removes old pairs of a partition from a node that does not own the partition. */
static int clear(const struct move *m, const struct end *e)
{
	struct roost_kv_op scan = {.code = ROOST_KV_SCAN,
				   .function = ROOST_KV_SCAN_STRAY,
				   .out = m->scan,
				   .out_cap = SPACE};
	struct roost_kv_op ops[PUTS];
	struct roost_kv_pair p;
	int rc;

	do {
		uint32_t at = 0;
		unsigned n = 0;

		rc = scan_next(e, &scan);
		while (!rc && roost_kv_next_pair(&scan, &at, &p, &scan.cursor)) {
			if (!is_ours(m, &p))
				continue;
			ops[n++] = (struct roost_kv_op){.code = ROOST_KV_MOVE_DELETE,
							.key = p.key,
							.key_len = p.key_len,
							.cursor = m->table.version};
			if (n == PUTS) {
				rc = run_all(m, e, ops, n);
				n = 0;
			}
		}
		if (!rc)
			rc = run_all(m, e, ops, n);
	} while (!rc && scan.cursor);
	return rc ? failed(m, e, rc) : CLI_OK;
}

/* Takes the time to live behind a pair. Returns false if the reply is cut. */
static bool take_ttl(const struct roost_kv_op *scan, uint32_t *at, uint32_t *ttl)
{
	if (scan->out_len - *at < sizeof(*ttl))
		return false;
	memcpy(ttl, (const uint8_t *)scan->out + *at, sizeof(*ttl));
	*ttl = le32toh(*ttl);
	*at += sizeof(*ttl);
	return true;
}

static int copy_some(const struct move *m, struct roost_kv_op *scan)
{
	struct roost_kv_op ops[PUTS];
	uint32_t at = 0, ttl;
	struct roost_kv_pair p;
	unsigned n = 0;
	int rc = 0;

	while (!rc && roost_kv_next_pair(scan, &at, &p, &scan->cursor)) {
		if (!take_ttl(scan, &at, &ttl))
			return -EBADMSG;
		if (!is_ours(m, &p))
			continue;
		ops[n++] = (struct roost_kv_op){.code = ROOST_KV_MOVE_PUT,
						.key = p.key,
						.key_len = p.key_len,
						.value = p.value,
						.value_len = p.value_len,
						.cursor = m->table.version,
						.ttl = ttl};
		if (n == PUTS) {
			rc = run_all(m, &m->to, ops, n);
			n = 0;
		}
	}
	return rc ? rc : run_all(m, &m->to, ops, n);
}

static int copy(const struct move *m)
{
	struct roost_kv_op scan = {.code = ROOST_KV_SCAN,
				   .function = ROOST_KV_SCAN_LEAVING,
				   .out = m->scan,
				   .out_cap = SPACE};
	int rc;

	do {
		rc = scan_next(&m->from, &scan);
		if (rc)
			return failed(m, &m->from, rc);
		rc = copy_some(m, &scan);
		if (rc)
			return failed(m, &m->to, rc);
	} while (scan.cursor);
	return CLI_OK;
}

/* ---- the move ---- */

static int perform(struct move *m, unsigned from, unsigned to)
{
	int rc = connect_to(m, &m->from, from);

	if (!rc)
		rc = connect_to(m, &m->to, to);
	if (!rc)
		rc = require_table(m, &m->from);
	if (!rc)
		rc = require_table(m, &m->to);
	/*
	 * publish() also runs if the table has this state already: a node may not have that version
	 * yet.
	 */
	if (!rc)
		rc = publish(m, to, from, NULL);
	if (!rc)
		rc = clear(m, &m->to);
	if (!rc)
		rc = copy(m);
	if (!rc)
		rc = publish(m, to, KV_TABLE_NOBODY, NULL);
	return rc ? rc : clear(m, &m->from);
}

/* Gives the partition back to the former owner, which has all pairs. */
static int undo(struct move *m, unsigned from, unsigned to)
{
	int rc = connect_to(m, &m->from, from), to_rc;

	if (!rc)
		rc = require_table(m, &m->from);
	if (rc)
		return rc;
	m->to.node = &m->table.node[to];
	if (roost_kv_open(m->to.node->address, m->to.node->service, m->attr, &m->to.kv))
		m->to.kv = NULL; /* the node has ended, and its pairs are gone */
	/* A node that was started again without the table will not read the next version. */
	if (m->to.kv && !has_table(&m->to, &to_rc)) {
		roost_kv_close(m->to.kv);
		m->to.kv = NULL;
	}
	rc = publish(m, from, KV_TABLE_NOBODY, NULL);
	return rc || !m->to.kv ? rc : clear(m, &m->to);
}

/* Returns whether this process can reach a node. */
static bool answers(const struct move *m, const struct kv_table_node *n)
{
	struct roost_kv *kv;

	if (roost_kv_open(n->address, n->service, m->attr, &kv))
		return false;
	roost_kv_close(kv);
	return true;
}

/*
 * Waits until a node has no lease in etcd. A running node keeps renewing its lease, even if this
 * process cannot reach it.
 */
static int await_lease_end(const struct move *m, unsigned node)
{
	const struct kv_table_node *n = &m->table.node[node];
	unsigned lease_s[KV_TABLE_NODES];
	struct timespec start, now;
	char why[WHY];

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		if (kv_table_remote->hold(m->lock, why, sizeof(why)) ||
		    kv_table_remote->look_up(&m->table, m->file, lease_s, why, sizeof(why)))
			return opt_failed(m->cmd, "%s", why);
		if (!lease_s[node])
			return CLI_OK;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - start.tv_sec > (time_t)(2 * lease_s[node]))
			return opt_failed(
				m->cmd,
				"%s, service %u: the node renews its lease in etcd: it is not lost",
				n->address, n->service);
		nanosleep(&(struct timespec){.tv_nsec = LEASE_NAP}, NULL);
	}
}

/*
 * Makes sure that a node serves no partition any more. Without etcd, a node that does not answer
 * counts as dead. With etcd, a node without a lease serves no partition, even if it answers.
 */
static int await_node_end(const struct move *m, unsigned node)
{
	const struct kv_table_node *n = &m->table.node[node];
	bool etcd = kv_table_is_remote(m->file);
	unsigned lease_s[KV_TABLE_NODES] = {0};
	char why[WHY];

	if (etcd && kv_table_remote->look_up(&m->table, m->file, lease_s, why, sizeof(why)))
		return opt_failed(m->cmd, "%s", why);
	if ((!etcd || lease_s[node]) && answers(m, n))
		return opt_failed(m->cmd, "%s, service %u: the node answers%s: move without --lost",
				  n->address, n->service, etcd ? ", and has its lease" : "");
	return etcd ? await_lease_end(m, node) : CLI_OK;
}

/*
 * Gives the partition of a dead node to another node. In etcd the first version is written only if
 * the dead node has no lease at that moment. If the dead node comes back later, it reads that
 * version and does not serve the partition.
 */
static int replace(struct move *m, unsigned dead, unsigned to)
{
	char why[WHY];
	int rc;

	m->from.node = &m->table.node[dead];
	rc = await_node_end(m, dead);
	if (!rc)
		rc = connect_to(m, &m->to, to);
	if (!rc)
		rc = require_table(m, &m->to);
	m->table.lost[m->partition] = m->table.version + 1;
	if (!rc)
		rc = publish(m, to, dead, m->from.node);
	if (!rc)
		rc = clear(m, &m->to);
	if (!rc && m->want->snapshot) {
		rc = kv_restore_partition(m->to.kv, m->lock, &m->table, m->partition,
					  m->want->snapshot, m->scan, SPACE, why, sizeof(why));
		if (rc)
			return *why ? opt_failed(m->cmd, "%s", why) : failed(m, &m->to, rc);
	}
	return rc ? rc : publish(m, to, KV_TABLE_NOBODY, NULL);
}

/* Makes clients use the owner of the partition again, which was restarted. */
static int restart(struct move *m, unsigned owner)
{
	int rc;

	if (m->want->snapshot)
		return opt_usage(m->cmd,
				 "this node owns the partition: it loads a snapshot when it "
				 "starts (roost node --snapshot)");
	rc = connect_to(m, &m->to, owner);
	if (!rc)
		rc = require_table(m, &m->to);
	m->table.lost[m->partition] = m->table.version + 1;
	return rc ? rc : publish(m, owner, KV_TABLE_NOBODY, NULL);
}

static int begin_lost(struct move *m, unsigned owner, unsigned from, unsigned to)
{
	if (from == to)
		return undo(m, from, owner); /* no pair is lost: the owner has all pairs */
	if (from != KV_TABLE_NOBODY)
		return replace(m, from, to);
	return owner == to ? restart(m, owner) : replace(m, owner, to);
}

/*
 * Returns the index of the node, and adds the node if the table does not have it. Returns -1 if
 * there is no space.
 */
static int find_or_add(struct kv_table *t, const struct kv_table_node *n)
{
	int at = kv_table_find(t, n->address, n->service);

	if (at >= 0 || t->nodes == KV_TABLE_NODES)
		return at;
	t->node[t->nodes] = *n;
	return (int)t->nodes++;
}

static int begin(struct move *m)
{
	const char *partition = m->want->partition;
	char why[WHY], *end;
	unsigned long number = strtoul(partition, &end, 10);
	unsigned owner, from;
	int to;

	if (kv_table_read(&m->table, m->file, why, sizeof(why)))
		return opt_failed(m->cmd, "%s", why);
	if (*end || end == partition || number >= m->table.partitions)
		return opt_usage(m->cmd, "'%s': partitions are numbers below %u", partition,
				 m->table.partitions);
	m->partition = (unsigned)number;
	to = find_or_add(&m->table, &m->want->to);
	if (to < 0)
		return opt_failed(m->cmd, "a table has at most %u nodes", KV_TABLE_NODES);
	owner = m->table.owner[number];
	from = m->table.from[number];
	if (owner == KV_TABLE_NOBODY)
		return opt_failed(m->cmd, "partition %lu has no node, and no pairs to move",
				  number);
	if (m->want->lost)
		return begin_lost(m, owner, from, (unsigned)to);
	if (from == KV_TABLE_NOBODY)
		return owner == (unsigned)to ? CLI_OK : perform(m, owner, (unsigned)to);
	if (from == (unsigned)to)
		return undo(m, from, owner);
	if (owner != (unsigned)to)
		return opt_failed(m->cmd, "partition %lu moves to %s, service %u", number,
				  m->table.node[owner].address, m->table.node[owner].service);
	return perform(m, from, owner);
}

/*
 * Locks the table, which allows one move at a time. The lock is a file beside the table, or a key
 * in etcd.
 */
static int lock(const struct opt_command *cmd, const char *file, int *fd,
		struct kv_table_lock **etcd)
{
	char why[WHY];
	char *path;

	*fd = -1;
	if (kv_table_is_remote(file))
		return kv_table_has_remote(file, why, sizeof(why)) ||
				       kv_table_remote->lock(file, etcd, why, sizeof(why))
			       ? opt_failed(cmd, "%s", why)
			       : CLI_OK;
	if (asprintf(&path, "%s.lock", file) < 0)
		return opt_failed(cmd, "%s", strerror(ENOMEM));
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (*fd < 0 || flock(*fd, LOCK_EX | LOCK_NB)) {
		int rc = errno;

		opt_failed(cmd, "%s: %s", path,
			   rc == EWOULDBLOCK ? "another move is in progress" : strerror(rc));
		free(path);
		return CLI_FAILED;
	}
	free(path);
	return CLI_OK;
}

int kv_move(const struct opt_command *cmd, const char *file, const struct kv_move *move,
	    const struct roost_kv_attr *attr)
{
	static struct move m;
	struct kv_table_lock *etcd = NULL;
	int fd, rc = lock(cmd, file, &fd, &etcd);

	m = (struct move){.cmd = cmd,
			  .file = file,
			  .want = move,
			  .lock = etcd,
			  .attr = attr,
			  .scan = malloc(SPACE)};
	if (!rc)
		rc = m.scan ? begin(&m) : opt_failed(cmd, "no memory");
	if (m.from.kv)
		roost_kv_close(m.from.kv);
	if (m.to.kv)
		roost_kv_close(m.to.kv);
	free(m.scan);
	if (etcd)
		kv_table_remote->unlock(etcd);
	if (fd >= 0)
		close(fd);
	return rc;
}
