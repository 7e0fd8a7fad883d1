/* SPDX-License-Identifier: BSD-2-Clause */
/* Creation, input and end of the state machine. */
#include "cm/core.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

#define MAX_CONNS      16384
#define MAX_HALF_OPEN  4096
#define MAX_LISTENERS  1024
#define MAX_CHALLENGES 16384
#define ACK_DELAY      15 /* the value that rxe uses */
#define LIMIT	       (1u << 24)

struct cm *cm_new(const struct cm_config *config, const struct cm_ops *ops, uint64_t now)
{
	struct cm *cm = calloc(1, sizeof(*cm));

	if (!cm)
		return NULL;
	cm->config = *config;
	cm->config.max_conns = config->max_conns ? config->max_conns : MAX_CONNS;
	cm->config.max_half_open = config->max_half_open ? config->max_half_open : MAX_HALF_OPEN;
	cm->config.max_listeners = config->max_listeners ? config->max_listeners : MAX_LISTENERS;
	cm->config.max_challenges = config->max_challenges
					    ? (uint32_t)pow2_ceil(config->max_challenges)
					    : MAX_CHALLENGES;
	cm->config.ack_delay = config->ack_delay ? config->ack_delay & 31 : ACK_DELAY;
	if (cm->config.max_conns > LIMIT || cm->config.max_listeners > LIMIT ||
	    config->max_challenges > LIMIT) {
		free(cm);
		errno = EINVAL;
		return NULL;
	}
	cm->ops = *ops;
	secret_seed(&cm->secret, config->seed);
	cm->hash_seed = secret_u64(&cm->secret);
	cm->tid_high = (uint32_t)secret_u64(&cm->secret);
	if (!cm->config.ids.next) {
		cm->config.ids = (struct sequence){
			.bits = CM_ID_BITS, .next = &cm->own_ids, .entered = &cm->own_entered};
		cm->config.ids.seed[0] = secret_u64(&cm->secret);
		cm->config.ids.seed[1] = secret_u64(&cm->secret);
	}
	wheel_init(&cm->wheel, now);
	if (cm_table_init(cm) < 0) {
		cm_free(cm);
		errno = ENOMEM;
		return NULL;
	}
	return cm;
}

void cm_free(struct cm *cm)
{
	if (!cm)
		return;
	cm_table_free(cm);
	free(cm);
}

void cm_expire(struct cm *cm, uint64_t now)
{
	wheel_expire(&cm->wheel, now, cm_timer, &now);
}

uint64_t cm_next(const struct cm *cm)
{
	return wheel_next(&cm->wheel);
}

const struct cm_counters *cm_counters(const struct cm *cm)
{
	return &cm->counters;
}

uint32_t cm_in_use(const struct cm *cm)
{
	return cm->in_use;
}

void cm_input(struct cm *cm, uint64_t now, const struct pkt_addr *src, const struct pkt_addr *dst,
	      const uint8_t *mad, size_t len)
{
	static void (*const handlers[CM_ATTRS])(struct cm *, const struct cm_rx *) = {
		[CM_REQ - CM_ATTR_FIRST] = cm_rx_req,
		[CM_MRA - CM_ATTR_FIRST] = cm_rx_mra,
		[CM_REJ - CM_ATTR_FIRST] = cm_rx_rej,
		[CM_REP - CM_ATTR_FIRST] = cm_rx_rep,
		[CM_RTU - CM_ATTR_FIRST] = cm_rx_rtu,
		[CM_DREQ - CM_ATTR_FIRST] = cm_rx_dreq,
		[CM_DREP - CM_ATTR_FIRST] = cm_rx_drep,
		[CM_SIDR_REQ - CM_ATTR_FIRST] = cm_rx_sidr_req,
		[CM_SIDR_REP - CM_ATTR_FIRST] = cm_rx_sidr_rep,
		[CM_LAP - CM_ATTR_FIRST] = cm_rx_lap,
		[CM_APR - CM_ATTR_FIRST] = cm_rx_apr,
	};
	struct cm_rx rx = {.now = now, .src = *src, .dst = *dst, .mad = mad};

	if (cm_parse(mad, len, &rx.m) != CM_OK) {
		cm->counters.malformed++;
		return;
	}
	cm->counters.received[rx.m.attr - CM_ATTR_FIRST]++;
	handlers[rx.m.attr - CM_ATTR_FIRST](cm, &rx);
}
