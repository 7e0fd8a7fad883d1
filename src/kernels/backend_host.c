/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Performs the requests of local calls. Accesses have the rights of the host or of a granted
 * region, and are done without a wait. Data is sent to the host's buffer; a kernel that changes
 * lengths sends it to its stream.
 */
#include "kernels/local_call_int.h"
#include "kernels/step.h"

/* ---- memory ---- */

/* The access follows at once and checks the rights; there is no time for a prefetch. */
static bool host_may(const struct invocation *i, nic_rpc_key key, uint64_t va, uint32_t n,
		     uint32_t access)
{
	return true;
}

static struct nic *nic_of(const struct invocation *i)
{
	return i->pu->rt->nic;
}

static int host_read(const struct invocation *i, nic_rpc_key key, uint64_t va, void *dst,
		     uint32_t n)
{
	return nic_host_read(nic_of(i), key, va, dst, n);
}

static int host_write(const struct invocation *i, nic_rpc_key key, uint64_t va, const void *src,
		      uint32_t n)
{
	return nic_host_write(nic_of(i), key, va, src, n);
}

static int host_copy(const struct invocation *i, nic_rpc_key dst_key, uint64_t dst,
		     nic_rpc_key src_key, uint64_t src, uint32_t n)
{
	return nic_host_copy(nic_of(i), dst_key, dst, src_key, src, n);
}

static int host_cmp_swap(const struct invocation *i, nic_rpc_key key, uint64_t va, uint64_t *old,
			 uint64_t swap)
{
	return nic_host_cmp_swap(nic_of(i), key, va, old, swap);
}

static int host_put(struct roost_call *c, uint64_t va, const void *buf, uint32_t len)
{
	struct invocation *i = invocation_of(c);
	int rc = nic_host_write(nic_of(i), i->key, va, buf, len);

	i->refused |= rc != 0;
	return rc;
}

/* The host owns the resources that its invocations take. */
static uint32_t host_take(struct invocation *i, struct ledger *l)
{
	return ledger_take(i->pu->rt, l, OWNER_HOST, NULL);
}

/* Posts a kernel work request. Returns false if the request has to wait. */
static bool host_post(struct invocation *i, const struct ask_rule *rule)
{
	struct local_call *p = local_call_of(i);
	struct roost_call *c = &i->c;
	uint32_t key = 0;

	/* The packet may be gone when the kernel continues, so its data is withdrawn always. */
	if (!p->by_host && !p->stream.produce)
		c->data = c->rewrite = NULL;
	/* Only p->pu may post; the step is repeated there. */
	if (unlikely(i->pu->index != p->pu))
		return false;
	if (!c->buf && rule->kind == ASK_WR)
		key = (uint32_t)invocation_region(i, c->va_in, rule->va);
	return kernel_wrs_post(&i->wrs, i->s->registered, i->pu, key);
}

/* ---- data, and ends ---- */

void local_call_finish(struct local_call *p, uint32_t status, uint32_t len)
{
	p->finished = true;
	p->result.status = status;
	p->result.len = len;
}

static uint32_t host_space(const struct invocation *i)
{
	return local_call_of(i)->producing ? UINT32_MAX : i->c.space - i->sent;
}

/*
 * Appends data to the host's buffer. Returns false if the data cannot be read. Other PUs may change
 * the kernel's own memory meanwhile (hll.c), as they may while a reply to a peer is sent.
 */
static bool append(struct local_call *p, bool from, nic_rpc_key key)
{
	struct roost_call *c = &p->i.c;
	uint8_t *to = p->reply + p->i.sent;

	if (!c->ask_len)
		return true;
	if (from ? nic_host_read(p->rt->nic, key, c->from, to, c->ask_len)
		 : nic_rpc_load(to, c->buf, c->ask_len))
		return false;
	p->i.sent += c->ask_len;
	return true;
}

static enum step_result host_send(struct invocation *i, bool from, nic_rpc_key key)
{
	struct local_call *p = local_call_of(i);

	if (p->producing) {
		/* The kernel must not run and change its memory before these bytes are taken. */
		p->ready = from ? NULL : i->c.buf;
		p->ready_key = key;
		p->ready_va = i->c.from;
		p->num_ready = i->c.ask_len;
		i->pending = false;
		return STEP_WAITS;
	}
	if (append(p, from, key))
		return STEP_ASKED;
	local_call_finish(p, ROOST_RPC_ACCESS, i->sent);
	return STEP_ENDED;
}

static void host_reply(struct invocation *i, uint32_t status, uint32_t len)
{
	struct local_call *p = local_call_of(i);
	bool from = i->c.ask == ROOST_ASK_REPLY_FROM;
	nic_rpc_key key = from ? invocation_region(i, i->c.from_in, NIC_ACCESS_REMOTE_READ) : 0;

	if (append(p, from, key))
		local_call_finish(p, status, len);
	else
		local_call_finish(p, ROOST_RPC_ACCESS, i->sent);
}

static void host_cut_off(struct invocation *i, uint32_t status, uint32_t len)
{
	local_call_finish(local_call_of(i), status, len);
}

static void host_before(struct invocation *i)
{
}

static void host_count(struct invocation *i)
{
	i->steps--;
	i->ctr->steps++;
	i->pu->ctr.steps++;
	i->pu->done += i->c.charged >> 10;
	i->c.charged &= 1023;
}

const struct ask_backend host_backend = {
	.may = host_may,
	.read = host_read,
	.write = host_write,
	.copy = host_copy,
	.cmp_swap = host_cmp_swap,
	.space = host_space,
	.send = host_send,
	.post = host_post,
	.reply = host_reply,
	.cut_off = host_cut_off,
	.before = host_before,
	.count = host_count,
	.take = host_take,
	.put = host_put,
};

enum step_result local_call_step(struct local_call *p)
{
	enum step_result r = invocation_step(&p->i, &host_backend);

	if (r != STEP_PAUSED)
		return r;
	/*
	 * A kernel that the host runs may pause without limit; a kernel on a stream is bounded by
	 * its steps.
	 */
	p->i.steps += p->by_host;
	return STEP_ASKED;
}
