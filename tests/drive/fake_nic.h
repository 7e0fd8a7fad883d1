/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A core and ports with nothing in them but what src/drive sees: turns that must not overlap,
 * doorbells that must not be lost, ports that wake a sleeper only when armed, deadlines.
 */
#ifndef TESTS_DRIVE_FAKE_NIC_H
#define TESTS_DRIVE_FAKE_NIC_H

#include <pthread.h>
#include <stdatomic.h>

#include "drive/drive.h"

#define FAKE_QPS 16

struct nic_qp {
	atomic_uint active, queued, prod, cons;
	unsigned pu;
};

/* Like shm: a sender writes to the descriptor only when the receiver said that it sleeps. */
struct fake_port {
	struct port base;
	int peer_fd; /* the sender's end of base.fd: a copy that survives the receiver's close */
	atomic_uint waiting, armed;
	atomic_uint arms, disarms, wakes, controls, forks, unreleased;
};

struct fake_pu {
	atomic_uint inside; /* somebody is in nic_poll */
	atomic_uint overlaps;
	atomic_uint packets, turns, fired, executed;
	_Atomic uint64_t deadline; /* ns; 0: none */
	atomic_uint leave;	   /* turns that still find work no descriptor announces */
	_Atomic uint64_t rto;	   /* ns; a doorbell's turn sets a deadline so far ahead */
	atomic_uint requests;	   /* what nic_came says */
	/*
	 * So many turns in vain behind one with packets, by the same thread, until a request comes;
	 * 0: none does.
	 */
	atomic_uint answer;
	_Atomic uintptr_t last; /* the thread of the last working turn */
};

struct nic {
	struct nic_config cfg;
	atomic_uint ports;
	struct fake_pu pu[NIC_MAX_PUS];
	struct nic_qp qp[FAKE_QPS];
	void *event_ctx; /* not NULL: a packet makes a cq_event with it */
	atomic_uint gsi_sent;
};

struct fake_port *fake_port_of(struct drive *d, unsigned port, unsigned lane);
/* Packets come in on a port. */
void fake_inject(struct fake_port *p, unsigned n);
/* The program posts n WQEs and rings. */
void fake_post(struct drive *d, unsigned qp, unsigned n);

/* A management datagram whose bytes are all `fill` comes to QP 1, in a turn of this thread. */
void fake_datagram(struct drive *d, uint8_t fill);

extern char fake_spec[16][600]; /* what port_open was called with; 127.0.0.66 is in use */
extern atomic_uint fake_opened, fake_closed;
extern atomic_bool fake_busy;	/* what nic_qp_busy says */
extern atomic_uint fake_ctl_fd; /* 1: ports opened from now on have a ctl_fd */

/* Waits until *what is at least n. False after a long time: then something is stuck for good. */
bool fake_reached(atomic_uint *what, unsigned n);

#endif
