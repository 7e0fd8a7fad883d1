/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost node`: its kernels, and the requests of `roost kernel`. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "builtin/builtin.h"
#include "cli/node/node.h"
#include "cli/node/request.h"
#include "kernels/runtime.h"
#include "roost/verbs.h"

static int deploy(struct node *n, const char *name, void *self)
{
	const struct roost_kernel *k = roost_kernel_builtin(name);
	int rc;

	if (!k)
		return node_fail(n, -ENOENT, "there is no built-in kernel '%s'", name);
	rc = roost_kernel_deploy(n->ctx, k, self);
	return rc ? node_fail(n, -rc, "can't deploy the kernel %s: %s", name, strerror(rc)) : 0;
}

static int deploy_all(struct node *n)
{
	const struct roost_kernel *k;
	int rc = 0;

	for (unsigned i = 0; rc == 0 && (k = kernels_builtin_at(i)) != NULL; i++) {
		if (k->op != ROOST_KV_OP)
			rc = deploy(n, k->name, NULL);
	}
	return rc;
}

int node_deploy(struct node *n, const char *names)
{
	char name[NODE_NAME_MAX];
	int rc = 0;

	if (n->kv.config.size) {
		rc = node_store_open(&n->kv, n->err, sizeof(n->err));
		if (!rc)
			rc = deploy(n, "kv", &n->kv.config);
	}
	if (rc)
		return rc;
	if (strcmp(names, "all") == 0)
		return deploy_all(n);
	if (strcmp(names, "none") == 0)
		return 0;
	while (rc == 0 && *names) {
		size_t len = strcspn(names, ",");

		snprintf(name, sizeof(name), "%.*s", (int)len, names);
		rc = strcmp(name, "kv") == 0
			     ? node_fail(n, -EINVAL, "the kernel kv needs a size: --kv SIZE")
			     : deploy(n, name, NULL);
		names += len + (names[len] == ',');
	}
	return rc;
}

/* ---- requests ---- */

#define KERNELS_MAX 256 /* active versions, and older ones with calls in progress */

static const char *state_name(uint32_t state)
{
	return state == ROOST_KERNEL_ACTIVE    ? "active"
	       : state == ROOST_KERNEL_LEAVING ? "leaving"
					       : "disabled";
}

static json_t *describe_kernel(const struct roost_kernel_info *k)
{
	json_t *o = json_pack("{s:s,s:I,s:I,s:s,s:b,s:I}", "name", k->name, "op", (json_int_t)k->op,
			      "version", (json_int_t)k->version, "state", state_name(k->state),
			      "loaded", (k->flags & ROOST_KERNEL_LOADED) != 0, "in_flight",
			      (json_int_t)k->in_flight);

	const struct {
		const char *name;
		uint64_t value;
	} counter[] = {
		{"calls", k->calls},
		{"steps", k->steps},
		{"payload_bytes", k->payload_bytes},
		{"ended_ok", k->ended_ok},
		{"ended_other", k->ended_other},
		{"bad_params", k->bad_params},
		{"access", k->access},
		{"too_long", k->too_long},
		{"bound", k->bound},
		{"faults", k->faults},
		{"stuck", k->stuck},
		{"disabled", k->disabled},
		{"dropped", k->dropped},
		{"resources", k->resources},
		{"resources_max", k->resources_max},
	};

	for (size_t i = 0; i < ARRAY_SIZE(counter); i++)
		json_object_set_new(o, counter[i].name, json_integer((json_int_t)counter[i].value));
	if (k->timed)
		json_object_set_new(o, "latency_us",
				    json_pack("{s:I,s:f,s:f,s:f}", "count", (json_int_t)k->timed,
					      "p50", (double)k->p50_ns / 1e3, "p99",
					      (double)k->p99_ns / 1e3, "max",
					      (double)k->max_ns / 1e3));
	return o;
}

static unsigned list(const struct node *n, struct roost_kernel_info info[KERNELS_MAX])
{
	unsigned count = roost_kernel_list(n->ctx, info, KERNELS_MAX);

	return count < KERNELS_MAX ? count : KERNELS_MAX;
}

bool node_reap(const struct node *n)
{
	struct roost_kernel_info info[KERNELS_MAX];
	unsigned count = list(n, info); /* list() also frees versions that have ended */
	bool leaving = false;

	for (unsigned i = 0; i < count; i++)
		leaving |= info[i].state == ROOST_KERNEL_LEAVING;
	return leaving;
}

static json_t *describe(struct node *n)
{
	const struct node_region *r = &n->region;
	struct roost_kernel_info info[KERNELS_MAX];
	unsigned count = list(n, info);
	json_t *kernels = json_array();
	json_t *o = json_pack("{s:i,s:s*,s:s,s:i,s:I,s:I,s:I,s:I,s:I}", "pid", (int)getpid(),
			      "name", n->name, "address", n->address, "service", (int)n->service,
			      "memory", (json_int_t)r->size, "used", (json_int_t)r->used, "keys",
			      (json_int_t)r->keys, "connections", (json_int_t)n->num_conns,
			      "connected", (json_int_t)n->connected);

	for (unsigned i = 0; i < count; i++)
		json_array_append_new(kernels, describe_kernel(&info[i]));
	json_object_set_new(o, "kernels", kernels);
	if (n->kv.store)
		json_object_set_new(o, "kv", node_store_describe(&n->kv));
	return o;
}

static json_t *refuse(const char *why)
{
	return json_pack("{s:s}", "error", why);
}

static json_t *load(const struct node *n, const struct node_request *r)
{
	char why[NODE_ERR_LEN] = "";
	int rc = r->what == NODE_LOAD ? roost_kernel_load(n->ctx, r->file, why, sizeof(why))
				      : roost_kernel_replace(n->ctx, r->file, why, sizeof(why));

	if (rc)
		return refuse(*why ? why : strerror(rc));
	return json_pack("{s:b}", "done", 1);
}

static json_t *unload(const struct node *n, const struct node_request *r)
{
	struct roost_kernel_info info[KERNELS_MAX];
	unsigned count = list(n, info);
	uint64_t op = r->op;
	bool found = !*r->kernel;
	int rc;

	for (unsigned i = 0; !found && i < count; i++) {
		found = info[i].state != ROOST_KERNEL_LEAVING &&
			strcmp(info[i].name, r->kernel) == 0;
		op = info[i].op;
	}
	rc = found ? roost_kernel_unload(n->ctx, op) : ENOENT;
	if (rc)
		return refuse(
			rc == ENOENT
				? "no such kernel is registered there; roost kernel list shows them"
				: strerror(rc));
	return json_pack("{s:b}", "done", 1);
}

static json_t *snapshot(struct node *n)
{
	int rc = node_store_snapshot(&n->kv);

	if (rc)
		return refuse(rc == -ENOENT  ? "the node has no file for snapshots: start it with "
					       "--kv SIZE --snapshot FILE"
			      : rc == -EBUSY ? "a snapshot is in progress"
					     : strerror(-rc));
	return json_pack("{s:b,s:I}", "done", 1, "begun", (json_int_t)n->kv.begun);
}

json_t *node_answer(void *ctx, const struct node_request *r)
{
	struct node *n = ctx;

	switch (r->what) {
	case NODE_STAT:
		return describe(n);
	case NODE_LOAD:
	case NODE_REPLACE:
		return load(n, r);
	case NODE_UNLOAD:
		return unload(n, r);
	case NODE_SNAPSHOT:
		return snapshot(n);
	}
	return refuse("what is to be done?");
}
