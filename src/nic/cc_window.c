/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The controller of all destinations. A loss halves the window, at most once per round trip, and an
 * acknowledgement adds a quarter of its bytes to the window. The window protects the receive buffer
 * of a socket, which is small and has no flow control. The controller does not react to CNPs.
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
