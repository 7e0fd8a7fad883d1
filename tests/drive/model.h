/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A model of a small machine in virtual time: cores with run queues, programs, their service
 * threads, packets between them. Every decision to spin, sleep, yield, mask or wake comes from
 * src/drive/policy.c; the model calls it as pu.c, service_poller.c and service.c do, and does what
 * it answers. A step of a task is atomic; between two steps it may lose its core.
 */
#ifndef TESTS_DRIVE_MODEL_H
#define TESTS_DRIVE_MODEL_H

#include "drive/policy.h"

#define MODEL_CORES   4
#define MODEL_TASKS   8
#define MODEL_ENDS    4
#define MODEL_SAMPLES 20000
#define MODEL_FLIGHT  256 /* packets under way to one end, a power of two */
#define NEVER	      UINT64_MAX

struct model;
struct task;
struct end;

/* ---- the machine: model.c ---- */

enum task_state { TASK_ASLEEP, TASK_READY, TASK_RUNS };

struct task {
	struct model *m;
	void (*step)(struct task *t);
	struct end *end;
	unsigned cores; /* mask */
	enum task_state state;
	unsigned core;	/* where it runs, or ran last */
	uint64_t until; /* asleep: when its timer wakes it */
	uint64_t ready; /* asleep, and woken: when it can run */
	uint64_t wakes; /* its wake-up takes so long */
	int64_t vruntime;
	uint64_t slept; /* since when */
	bool woken;	/* while it was on its way to sleep */
	/* said by a step */
	uint64_t cost;
	bool yields, sleeps;
	/* counted */
	uint64_t ran, steps, wakeups;
	long forced; /* switches away from it that it did not ask for */
	/* of a task that only wants the core: it runs `burst` in each; 0: always */
	uint64_t period;
	uint64_t burst, begun;
};

struct core {
	struct task *task;
	uint64_t until;	    /* end of the step */
	uint64_t slice_end; /* after this another may have it */
};

/* ---- two ends of a connection, their drives and programs: model_drive.c, model_program.c ---- */

#define CALL_NS 50  /* of the program into the library */
#define SYS_NS	500 /* a system call */

struct packet {
	uint64_t at;
	bool request;	/* else it ends a request: an ACK, or the response to a READ */
	bool completes; /* a completion where it is received */
	bool no_ack;	/* a request of UC */
};

/* What a program does between its calls. */
enum habit {
	POLLS,	   /* its completion queue */
	SPINS,	   /* on memory, and polls for its own completions behind a post */
	SLEEPS_IN, /* a completion channel, after polls in vain */
	PASSIVE,   /* sleeps; the service thread alone serves its peer */
};

enum verb { V_READ, V_WRITE, V_SEND, V_UC_WRITE };

/* A fixed strategy of the service thread in place of the policy's, to compare with. */
enum strategy { BY_POLICY, SPIN_ALWAYS, SPIN_NEVER };

struct script {
	enum habit habit;
	enum verb verb;
	bool starts; /* it posts first, else it answers */
	/* ns; so long before each post it computes, or sleeps if it is one of those that sleep */
	uint64_t think;
	uint64_t slow_from;  /* before this it does not think */
	unsigned vain_polls; /* before it arms */
	bool last_poll;	     /* once more after arming */
	uint64_t stop;	     /* makes no call after this; 0: never */
};

enum doing {
	D_THINK,
	D_POST,
	D_WAIT,	     /* for the answer, or for the request */
	D_COMPLETE,  /* polls for the completion of its own post */
	D_LAST_POLL, /* armed */
	D_SLEEP,
	D_BUSY_POLL,
	D_BUSY_POLL_BACK, /* has its core back after a yield in a busy poll */
	D_YIELD,	  /* has its core back after yielding it */
};

struct end {
	struct model *m;
	struct end *peer;
	struct script script;
	struct task *program, *service;
	enum strategy strategy;
	/* sockets wake whoever listens on them; a bell of shm is rung once for each arming */
	bool udp;
	/* the port and the NIC */
	struct packet flight[MODEL_FLIGHT];
	unsigned sent, came, taken; /* indices in flight[]: under way, at the port, received */
	bool armed;
	/* received; `memory`: requests that the program can see */
	uint64_t requests, packets, memory;
	unsigned posted, outstanding, cqes;
	/* completion queue with a channel */
	bool cq_armed, event;
	unsigned events;
	/* struct drive_pu */
	bool owned, kicked, had_sleeper, sleeper, masked;
	uint64_t lease_end, rang, next_visit;
	struct caller caller;
	/* struct service_poller and struct service */
	bool on_port, ready, slept, was_asleep, bell, wake_flag, wake_fd;
	uint64_t lease, nap, last_work, wake, kicked_at, looked, look_began;
	long switches;
	enum spin_action spin;
	struct spinner spinner;
	struct wake_cost wake_cost;
	/* the program's */
	enum doing doing, after;
	unsigned vain;
	uint64_t memory_seen, posted_at, until, busy_poll_requests, yielded_at;
	/* measured */
	uint64_t lat[MODEL_SAMPLES];
	unsigned samples, late_packets;
	uint64_t worst_wait; /* of a packet at the port */
	/* time of the service thread that found nothing, and did not sleep */
	uint64_t busy_polled_ns;
};

struct model {
	uint64_t now;
	uint64_t wire;	  /* ns */
	uint64_t wake;	  /* ns; a wake-up takes so long */
	uint64_t late_at; /* packets that wait for longer are counted */
	unsigned num_cores, num_tasks, num_ends;
	struct core core[MODEL_CORES];
	struct task task[MODEL_TASKS];
	struct end end[MODEL_ENDS];
};

/* Now, within a step. */
static inline uint64_t clk(const struct task *t)
{
	return t->m->now + t->cost;
}

void model_init(struct model *m, unsigned cores, uint64_t wake);
/* A task that may run on `cores` (mask); ready at once. */
struct task *model_task(struct model *m, void (*step)(struct task *t), unsigned cores);
/* Somebody else's, without calls: it runs for `burst` of each `period`; 0: always. */
struct task *model_hog(struct model *m, unsigned cores, uint64_t period, uint64_t burst);
void model_wake(struct task *t);
bool model_one_core(const struct task *t);
void model_run(struct model *m, uint64_t ns);

/* The library, as the program calls it. */
unsigned drive_progress(struct end *e, struct task *t);
/* True: the program's core is yielded, and drive_yield_back() comes next. */
bool drive_doorbell(struct end *e, struct task *t);
/* After the yield that began at yielded_at, or at once where there are several cores. */
void drive_yield_back(struct end *e, struct task *t, bool one);
void drive_cq_armed(struct end *e, struct task *t);
/* True: the drive polls on in the program's place, a step of drive_busy_poll() at a time. */
bool drive_taken(struct end *e, struct task *t);
void drive_busy_poll(struct end *e, struct task *t);
/* In D_BUSY_POLL_BACK. */
void drive_busy_poll_back(struct end *e, struct task *t);

void program_step(struct task *t);

/* Two ends, each with a program and a service thread, which may run on the cores of the mask. */
void model_connect(struct model *m, const struct script *client, const struct script *server,
		   unsigned client_cores, unsigned server_cores, bool udp);
void end_packet_came(struct end *e);
/* When the next packet comes; NEVER: none. */
uint64_t end_next_packet(const struct end *e);
/* Forgets what was measured. */
void end_measure(struct end *e);
/* Of the latencies measured: the value below which `percent` of them are. */
uint64_t end_latency(struct end *e, unsigned percent);

#endif
