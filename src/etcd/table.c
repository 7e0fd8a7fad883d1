/* SPDX-License-Identifier: BSD-2-Clause */
#include "etcd/table.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/export.h"
#include "etcd/answer.h"
#include "etcd/http.h"
#include "etcd/lease.h"
#include "etcd/name.h"
#include "etcd/stream.h"
#include "kvwire/remote.h"

#define WHY	      300
#define PATH_OF_RANGE "/v3/kv/range"
#define NS_PER_MS     UINT64_C(1000000)
#define TRY_FOR_S     60
#define MOVE_LEASE_S  10u
#define MARK_OF_LAST  "/last-change" /* suffix of the key of the table */

/* A table in etcd, and a connection to it. */
struct etcd_table {
	const char *name;
	struct etcd_name etcd;
	char mark[ETCD_KEY_MAX + sizeof(MARK_OF_LAST)];
	struct http *http;
};

static int fail(char *why, size_t why_len, const char *name, int rc, const char *line)
{
	snprintf(why, why_len, "%.150s: %s", name, line);
	return rc;
}

static void leave(struct etcd_table *a)
{
	http_close(a->http);
	a->http = NULL;
}

static int reach(struct etcd_table *a, const char *name, char *why, size_t why_len)
{
	int rc;

	*a = (struct etcd_table){.name = name};
	rc = etcd_name_parse(&a->etcd, name, why, why_len);
	if (rc)
		return rc;
	snprintf(a->mark, sizeof(a->mark), "%s%s", a->etcd.key, MARK_OF_LAST);
	a->http = http_open(&a->etcd);
	return a->http ? 0 : fail(why, why_len, name, -ENOMEM, strerror(ENOMEM));
}

/* ---- reading ---- */

/* Reads the table. Tries once. `line` has space for WHY bytes. */
static int read_once(const struct etcd_table *a, struct kv_table *t, char *line)
{
	struct etcd_value v;
	const char *answer;
	size_t len;
	int rc = http_post(a->http, PATH_OF_RANGE, etcd_range_request(a->etcd.key), HTTP_REPEAT,
			   &answer, &len, line, WHY);

	if (!rc)
		rc = etcd_range_answer(answer, len, &v, line, WHY);
	if (rc)
		return rc;
	if (!v.revision) {
		snprintf(line, WHY, "etcd has no such key (roost kv table)");
		return -ENOENT;
	}
	rc = kv_table_parse(t, v.text, v.len, line, WHY);
	t->revision = v.revision;
	free(v.text);
	return rc;
}

static int read_table(struct kv_table *t, const char *name, char *why, size_t why_len)
{
	char line[WHY];
	struct etcd_table a;
	int rc = reach(&a, name, why, why_len);

	if (rc)
		return rc;
	rc = read_once(&a, t, line);
	leave(&a);
	return rc ? fail(why, why_len, name, rc, line) : 0;
}

/* ---- writing ---- */

static int txn(const struct etcd_table *a, char *body, bool *done, uint64_t *revision, char *line)
{
	const char *answer;
	size_t len;
	int rc = http_post(a->http, "/v3/kv/txn", body, HTTP_ONCE, &answer, &len, line, WHY);

	return rc ? rc : etcd_txn_answer(answer, len, done, revision, line, WHY);
}

/*
 * Writes the table. Tries once. An earlier try without an answer may have taken effect: then the
 * revision has changed, and the mark has the number of this program. Returns -EEXIST if another
 * program has changed the table.
 */
static int write_once(const struct etcd_table *a, const char *text, uint64_t mark, const char *gone,
		      bool unknown, uint64_t *revision, char *line)
{
	uint64_t next = 0;
	bool done = false;
	int rc = txn(
		a,
		etcd_put_request(a->etcd.key, *revision, text, strlen(text), a->mark, mark, gone),
		&done, &next, line);

	if (!rc && !done && unknown)
		rc = txn(a, etcd_check_request(a->etcd.key, a->mark, mark), &done, &next, line);
	if (rc)
		return rc;
	if (!done) {
		snprintf(
			line, WHY, "%s",
			gone ? "another program has changed the table, or the lost node has a lease again"
			: *revision ? "another program has changed the table"
				    : "there is a table already");
		return -EEXIST;
	}
	*revision = next;
	return 0;
}

/*
 * Reads whether an earlier try has taken effect, after the server has refused a later one. `line`
 * of the caller keeps the reason of the refusal.
 */
static int find_mark(const struct etcd_table *a, uint64_t mark, uint64_t *revision)
{
	uint64_t next = 0;
	bool done = false;
	char why[WHY];

	if (txn(a, etcd_check_request(a->etcd.key, a->mark, mark), &done, &next, why) || !done)
		return -EPERM;
	*revision = next;
	return 0;
}

static int write_text(const struct etcd_table *a, const char *text, const char *gone,
		      uint64_t *revision, char *line)
{
	struct timespec start, now;
	unsigned failures = 0;
	uint64_t mark;
	int rc;

	if (getrandom(&mark, sizeof(mark), 0) != (ssize_t)sizeof(mark)) {
		snprintf(line, WHY, "can't get random bytes");
		return -EIO;
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		unsigned ms;

		rc = write_once(a, text, mark, gone, failures > 0, revision, line);
		if (rc == -EPERM && failures)
			rc = find_mark(a, mark, revision);
		if (!rc || rc == -EEXIST || rc == -ENOMEM || rc == -EPERM)
			return rc;
		/* The first tries, one for each endpoint, have no pause. */
		ms = ++failures < a->etcd.endpoints ? 0 : etcd_pause_ms(failures, false);
		nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec < TRY_FOR_S);
	return rc;
}

/* Writes the key of a node. */
static void node_key(char *to, size_t len, const char *key, const struct kv_table_node *n)
{
	char nodes[ETCD_KEY_MAX + 8], one[KV_TABLE_ADDRESS + 8];

	lease_nodes(nodes, sizeof(nodes), key);
	lease_name(one, sizeof(one), n);
	snprintf(to, len, "%s/%s", nodes, one);
}

static int write_table(struct kv_table *t, const char *name, const struct kv_table_node *gone,
		       char *why, size_t why_len)
{
	size_t len = kv_table_format(t, NULL, 0);
	char *text = malloc(len + 1), line[WHY], key[2 * ETCD_KEY_MAX];
	struct etcd_table a;
	int rc = text ? reach(&a, name, why, why_len)
		      : fail(why, why_len, name, -ENOMEM, strerror(ENOMEM));

	if (!rc) {
		kv_table_format(t, text, len + 1);
		if (gone)
			node_key(key, sizeof(key), a.etcd.key, gone);
		rc = write_text(&a, text, gone ? key : NULL, &t->revision, line);
		leave(&a);
		if (rc)
			fail(why, why_len, name, rc, line);
	}
	free(text);
	return rc;
}

/* ---- following ---- */

struct kv_follow {
	struct etcd_table at;
	char *name;
	const char *program;
	struct kv_fence *fence; /* fence of a node; NULL: a client */
	int fd;
	pthread_t thread;
	atomic_bool stop;
	struct stream *stream;
	pthread_mutex_t lock;
	struct kv_table last; /* accessed with the lock */
	/* used by the thread only */
	const char *watched; /* the endpoint of the stream */
	struct kv_table read;
	struct lease lease;
	unsigned failures;
	bool fenced; /* the closed fence was reported */
};

static void report(struct kv_follow *f, const char *line)
{
	if (!f->failures++)
		fprintf(stderr, "%s: %s: %s; the last table that was read is in use\n", f->program,
			f->name, line);
}

static void take(struct kv_follow *f)
{
	pthread_mutex_lock(&f->lock);
	if (f->read.revision != f->last.revision) {
		f->last = f->read;
		eventfd_write(f->fd, 1);
	}
	pthread_mutex_unlock(&f->lock);
}

/* Writes one line when the node stops serving its partitions. */
static void report_fence(struct kv_follow *f)
{
	if (atomic_load(&f->fence->until_ns) > kv_fence_now()) {
		f->fenced = false;
	} else if (!f->fenced) {
		f->fenced = true;
		fprintf(stderr, "%s: %s: no lease; the node serves no keys until it has one\n",
			f->program, f->name);
	}
}

static void look(struct kv_follow *f)
{
	char line[WHY];
	int kept = f->fence ? lease_keep(&f->lease, f->at.http, line, WHY) : 0, rc = kept;

	/* A node without a lease, or whose key others set, follows the table, too. */
	if (!kept || kept == -EPROTO || kept == -EPERM || kept == -EBUSY)
		rc = read_once(&f->at, &f->read, line);
	if (!rc) {
		take(f);
		tenure_read(&f->lease.tenure, f->read.version);
	}
	if (f->fence)
		report_fence(f);
	if (rc || kept)
		report(f, line);
	else
		f->failures = 0;
}

/*
 * Watches the key at the endpoint that answers. A read after the start of the watch misses no
 * change.
 */
static void watch(struct kv_follow *f)
{
	const char *endpoint = http_endpoint(f->at.http);
	char url[ETCD_ENDPOINT_MAX + 16];

	if (f->failures || (stream_runs(f->stream) && f->watched == endpoint))
		return;
	f->watched = endpoint;
	snprintf(url, sizeof(url), "%s/v3/watch", endpoint);
	stream_start(f->stream, url, etcd_watch_request(f->at.etcd.key));
}

/* Waits until it is time to look at the table, or to renew the lease. */
static void wait_until_due(struct kv_follow *f)
{
	uint64_t start = kv_fence_now(), now = start, until;
	bool changed = false;

	do {
		until = start + etcd_pause_ms(f->failures, stream_runs(f->stream)) * NS_PER_MS;
		if (f->fence && !f->failures && f->lease.tenure.due_ns < until)
			until = f->lease.tenure.due_ns;
		if (now < until)
			changed = stream_wait(f->stream, (unsigned)((until - now) / NS_PER_MS) + 1);
		now = kv_fence_now();
	} while (!changed && now < until && !atomic_load(&f->stop));
}

static void *follow_loop(void *arg)
{
	struct kv_follow *f = arg;

	do {
		look(f);
		watch(f);
		wait_until_due(f);
	} while (!atomic_load(&f->stop));
	if (f->failures)
		tenure_lost(&f->lease.tenure);
	lease_end(&f->lease, f->at.http);
	return NULL;
}

/* Starts the thread, which takes no signals of the program. Returns 0 or a negative errno. */
static int start_thread(struct kv_follow *f)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = -pthread_create(&f->thread, NULL, follow_loop, f);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static void free_follow(struct kv_follow *f)
{
	leave(&f->at);
	stream_close(f->stream);
	if (f->fd >= 0)
		close(f->fd);
	free(f->name);
	free(f);
}

static int begin_lease(struct kv_follow *f, const struct kv_table_self *self, char *line)
{
	f->fence = self->fence;
	lease_nodes(f->lease.key, sizeof(f->lease.key), f->at.etcd.key);
	lease_name(f->lease.name, sizeof(f->lease.name), &self->node);
	tenure_init(&f->lease.tenure, self->lease_s, self->fence);
	return lease_keep(&f->lease, f->at.http, line, WHY);
}

static int follow(struct kv_table *t, const char *name, const struct kv_table_self *self,
		  const char *program, struct kv_follow **out, char *why, size_t why_len)
{
	struct kv_follow *f = calloc(1, sizeof(*f));
	char line[WHY];
	int rc;

	if (!f)
		return fail(why, why_len, name, -ENOMEM, strerror(ENOMEM));
	f->program = program;
	f->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f->name = strdup(name);
	f->stream = stream_open();
	rc = f->fd < 0 || !f->name || !f->stream
		     ? fail(why, why_len, name, -ENOMEM, strerror(ENOMEM))
		     : reach(&f->at, f->name, why, why_len);
	if (!rc) {
		rc = self ? begin_lease(f, self, line) : 0;
		if (!rc)
			rc = read_once(&f->at, &f->last, line);
		if (!rc)
			tenure_read(&f->lease.tenure, f->last.version);
		if (!rc) {
			*t = f->last; /* before the thread changes it */
			pthread_mutex_init(&f->lock, NULL);
			rc = start_thread(f);
			if (rc)
				snprintf(line, sizeof(line), "no thread: %s", strerror(-rc));
		}
		if (rc)
			fail(why, why_len, name, rc, line);
		if (rc && self)
			lease_end(&f->lease, f->at.http);
	}
	if (rc)
		free_follow(f);
	else
		*out = f;
	return rc;
}

static bool next_table(struct kv_follow *f, const struct kv_table *t, struct kv_table *next)
{
	bool later = false;
	eventfd_t n;

	eventfd_read(f->fd, &n);
	/* The thread holds the lock only for a copy. */
	pthread_mutex_lock(&f->lock);
	if (f->last.revision != t->revision) {
		*next = f->last;
		later = true;
	}
	pthread_mutex_unlock(&f->lock);
	return later;
}

static int follow_fd(const struct kv_follow *f)
{
	return f->fd;
}

static void end_follow(struct kv_follow *f)
{
	atomic_store(&f->stop, true);
	stream_wake(f->stream);
	pthread_join(f->thread, NULL);
	pthread_mutex_destroy(&f->lock);
	free_follow(f);
}

/* ---- the lock of a move ---- */

struct kv_table_lock {
	struct etcd_table at;
	struct lease lease;
};

static int hold(struct kv_table_lock *l, char *why, size_t why_len)
{
	char line[WHY];
	int rc = lease_keep(&l->lease, l->at.http, line, WHY);

	return rc ? fail(why, why_len, l->at.name, rc, line) : 0;
}

static void unlock(struct kv_table_lock *l)
{
	lease_end(&l->lease, l->at.http);
	leave(&l->at);
	free(l);
}

static int lock(const char *name, struct kv_table_lock **out, char *why, size_t why_len)
{
	struct kv_table_lock *l = calloc(1, sizeof(*l));
	int rc = l ? reach(&l->at, name, why, why_len)
		   : fail(why, why_len, name, -ENOMEM, strerror(ENOMEM));

	if (!rc) {
		l->lease.alone = true;
		tenure_init(&l->lease.tenure, MOVE_LEASE_S, NULL);
		snprintf(l->lease.key, sizeof(l->lease.key), "%s", l->at.etcd.key);
		snprintf(l->lease.name, sizeof(l->lease.name), "move");
		rc = hold(l, why, why_len);
		if (rc) {
			lease_end(&l->lease, l->at.http);
			leave(&l->at);
		}
	}
	if (rc)
		free(l);
	else
		*out = l;
	return rc;
}

/* ---- nodes that run ---- */

struct look_up {
	const struct kv_table *t;
	unsigned *lease_s;
};

static void take_node(void *ctx, const char *name, unsigned seconds)
{
	const struct look_up *l = ctx;
	char one[KV_TABLE_ADDRESS + 8];

	for (unsigned i = 0; i < l->t->nodes; i++) {
		lease_name(one, sizeof(one), &l->t->node[i]);
		if (!strcmp(one, name))
			l->lease_s[i] = seconds ? seconds : KV_TABLE_LEASE_S;
	}
}

static int look_up(const struct kv_table *t, const char *name, unsigned lease_s[KV_TABLE_NODES],
		   char *why, size_t why_len)
{
	struct look_up l = {t, lease_s};
	char nodes[ETCD_KEY_MAX + 8], line[WHY];
	const char *answer;
	struct etcd_table a;
	size_t len;
	int rc = reach(&a, name, why, why_len);

	memset(lease_s, 0, KV_TABLE_NODES * sizeof(*lease_s));
	if (rc)
		return rc;
	lease_nodes(nodes, sizeof(nodes), a.etcd.key);
	rc = http_post(a.http, PATH_OF_RANGE, etcd_below_request(nodes), HTTP_REPEAT, &answer, &len,
		       line, WHY);
	if (!rc)
		rc = etcd_below_answer(answer, len, nodes, take_node, &l, line, WHY);
	leave(&a);
	return rc ? fail(why, why_len, name, rc, line) : 0;
}

ROOST_EXPORT const struct kv_table_remote *roost_etcd_tables(void)
{
	static const struct kv_table_remote remote = {.read = read_table,
						      .write = write_table,
						      .follow = follow,
						      .next = next_table,
						      .fd = follow_fd,
						      .end = end_follow,
						      .lock = lock,
						      .hold = hold,
						      .unlock = unlock,
						      .look_up = look_up};

	return &remote;
}
