/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The controller of all destinations: a window that a loss halves, at most once a round trip, and
 * that grows by a quarter of the acknowledged bytes. It protects the receive buffer of a socket,
 * which is small and has no flow control. It does not react to CNPs.
 */
#include "nic/cc.h"

static void init(struct cc *cc)
{
	cc->window = cc->max;
}

static void on_acked(struct cc *cc, uint32_t bytes, uint64_t now)
{
	(void)now;
	if (cc->window >= cc->max)
		return;
	cc->window += bytes / 4;
	if (cc->window > cc->max)
		cc->window = cc->max;
}

static void on_lost(struct cc *cc, uint64_t now, uint64_t srtt)
{
	if (!cc->window || now - cc->cut < srtt)
		return;
	cc->cut = now;
	cc->window /= 2;
	if (cc->window < cc->min)
		cc->window = cc->min;
}

const struct cc_ops cc_window = {
	.name = "window",
	.init = init,
	.on_acked = on_acked,
	.on_lost = on_lost,
};
