/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A core and ports for tests of src/drive. They have only the parts that src/drive uses: turns that
 * must not overlap, doorbells that must not be lost, ports that wake a sleeper only if armed,
 * deadlines.
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

/* Like shm: a sender writes to the descriptor only if the receiver has announced that it sleeps. */
struct fake_port {
	struct port base;
	int peer_fd; /* a copy of the sender's end of base.fd; stays open when base.fd closes */
	atomic_uint waiting, armed;
	atomic_uint arms, disarms, wakes, controls, forks, unreleased;
	atomic_uint late; /* packets that come while a thread arms the port, before it sleeps */
	/*
	 * As in shm: looks in vain until a peer that went to sleep during the last flush is sure to
	 * be woken. Arming takes their place.
	 */
	atomic_uint unsure;
};

struct fake_pu {
	atomic_uint inside; /* threads inside nic_poll */
	atomic_uint overlaps;
	atomic_uint packets, turns, fired, executed;
	_Atomic uint64_t deadline; /* ns; 0: none */
	atomic_uint leave;	   /* turns that still find work that no descriptor announces */
	atomic_uint answers;	   /* a turn with packets adds this much to `leave` */
	_Atomic uint64_t rto;	   /* ns; a doorbell's turn sets a deadline this far ahead */
	atomic_uint requests;	   /* result of nic_rx_totals */
	/*
	 * After a turn with packets, a request comes when the same thread has run this many turns
	 * in vain. 0: no request comes.
	 */
	atomic_uint answer;
	_Atomic uintptr_t last; /* the thread of the last turn that found work */
};

struct nic {
	struct nic_config cfg;
	atomic_uint ports;
	struct fake_pu pu[NIC_MAX_PUS];
	struct nic_qp qp[FAKE_QPS];
	void *event_ctx;     /* if not NULL, a packet makes a cq_event with it */
	atomic_bool for_qp1; /* each packet is a management datagram */
	atomic_uint gsi_sent;
};

struct fake_port *fake_port_of(struct drive *d, unsigned port, unsigned lane);
/* Delivers packets on a port. */
void fake_inject(struct fake_port *p, unsigned n);
/* Posts n WQEs as the program does, and rings the doorbell. */
void fake_post(struct drive *d, unsigned qp, unsigned n);

/* Delivers a management datagram of bytes `fill` to QP 1, in a turn of this thread. */
void fake_datagram(struct drive *d, uint8_t fill);

extern char fake_spec[16][600]; /* arguments of port_open; 127.0.0.66 is in use */
extern atomic_uint fake_opened, fake_closed;
extern atomic_bool fake_busy;	 /* result of nic_qp_busy */
extern atomic_bool fake_batches; /* result of nic_qp_batches */
extern atomic_uint fake_ctl_fd;	 /* 1: ports opened from now on have a ctl_fd */
extern atomic_bool fake_hold;	 /* port_open() waits */
extern atomic_bool fake_rests;	 /* control work cannot be done: the ctl_fd stays readable */

/* Waits until *what is at least n. Returns false after a long time: the test hangs. */
bool fake_reached(atomic_uint *what, unsigned n);

#endif
