/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Congestion control of a destination. A controller sets the window: the bytes in flight that
 * dest_admit() allows. The NIC reports to the controller through five functions. Their table is
 * modelled after quicly's cc_type. A pacer would add a rate here, and a timer on the PU's wheel in
 * dest.c.
 */
#ifndef ROOST_NIC_CC_H
#define ROOST_NIC_CC_H

#include <stdint.h>

struct cc_ops;

/* The state of a controller. The owner of the destination's PU accesses it. */
struct cc {
	const struct cc_ops *ops;
	uint32_t window;   /* the most bytes in flight; 0: the port has flow control */
	uint32_t min, max; /* limits of the window, in bytes */
	uint64_t cut;	   /* time of the last reduction, in ns */
};

/* `now` and `srtt` are in ns. The owner of the PU calls all functions. They do not fail. */
struct cc_ops {
	const char *name;
	/* Sets the window of a new destination. min and max are set. */
	void (*init)(struct cc *cc);
	/*
	 * Packets of `bytes` were sent. NULL: the controller does not need it. This function and
	 * on_acked() are called only if there is a window.
	 */
	void (*on_sent)(struct cc *cc, uint32_t bytes, uint64_t now);
	/* `bytes` of sent packets were acknowledged. */
	void (*on_acked)(struct cc *cc, uint32_t bytes, uint64_t now);
	/* A packet was lost: a sequence NAK, a missing response, or a time-out. */
	void (*on_lost)(struct cc *cc, uint64_t now, uint64_t srtt);
	/* A CNP came: the path marked a packet "congestion experienced". NULL: ignored. */
	void (*on_cnp)(struct cc *cc, uint64_t now, uint64_t srtt);
	/* A sample of the round trip. NULL: the controller does not need it. */
	void (*on_rtt)(struct cc *cc, uint64_t rtt, uint64_t now);
};

/* cc_window.c: halves the window after a loss, and grows it by a quarter per round trip. */
extern const struct cc_ops cc_window;

#endif
