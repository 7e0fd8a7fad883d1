/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A model of a small machine in virtual time: cores with run queues, programs, their service
 * threads, packets between them. src/drive/policy.c makes every decision to spin, sleep, yield,
 * mask or wake. The model calls it as pu.c, service_poller.c and service.c do, and follows its
 * answers. A step of a task is atomic. A task may lose its core between two steps.
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
	unsigned core;	/* core where it runs, or ran last */
	uint64_t until; /* asleep: time when its timer wakes it */
	uint64_t ready; /* woken: time when it can run */
	uint64_t wakes; /* duration of its wake-ups */
	int64_t vruntime;
	uint64_t slept; /* time when it fell asleep */
	bool woken;	/* woken while it was falling asleep */
	/* set by a step */
	uint64_t cost;
	bool yields, sleeps;
	/* counters */
	uint64_t ran, steps, wakeups;
	long forced; /* involuntary context switches */
	/* Of a task that only uses the core: it runs for `burst` of each `period`; 0: always. */
	uint64_t period;
	uint64_t burst, begun;
};

struct core {
	struct task *task;
	uint64_t until;	    /* end of the step */
	uint64_t slice_end; /* time after which another task may get the core */
};

/* ---- two ends of a connection, their drives and programs: model_drive.c, model_program.c ---- */

#define CALL_NS 50  /* a call of the library */
#define SYS_NS	500 /* a system call */

struct packet {
	uint64_t at;
	bool request;	/* false: it ends a request (an ACK, or a READ response) */
	bool completes; /* the receiver gets a completion */
	bool no_ack;	/* a request of UC */
};

/* The activity of a program between its calls. */
enum habit {
	POLLS,	   /* polls its completion queue */
	SPINS,	   /* on memory, and polls for its own completions behind a post */
	SLEEPS_IN, /* a completion channel, after polls in vain */
	PASSIVE,   /* sleeps; the service thread alone serves its peer */
};

enum verb { V_READ, V_WRITE, V_SEND, V_UC_WRITE };

/* A fixed strategy of the service thread, for comparison with the policy. */
enum strategy { BY_POLICY, SPIN_ALWAYS, SPIN_NEVER };

struct script {
	enum habit habit;
	enum verb verb;
	bool starts; /* posts first; otherwise it answers */
	/*
	 * ns; before each post the program computes for this time, or sleeps if it is a program
	 * that sleeps.
	 */
	uint64_t think;
	uint64_t late;	    /* ns; the program computes for this time before its first call */
	uint64_t slow_from; /* the program does not compute before this time */
	/* before its post with this number, from 1, a page fault takes `fault` ns; 0: none does */
	unsigned fault_at;
	uint64_t fault;
	unsigned vain_polls; /* number of polls before it arms */
	bool last_poll;	     /* polls once more after arming */
	uint64_t stop;	     /* makes no call after this time; 0: never stops */
};

enum doing {
	D_BEGIN, /* computes before its first call */
	D_THINK,
	D_POST,
	D_WAIT,	     /* waits for the answer, or for the request */
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
	/* Sockets wake every listener. A bell of shm is rung once for each arming. */
	bool udp;
	/* the port and the NIC */
	struct packet flight[MODEL_FLIGHT];
	unsigned sent, came, taken; /* indices into flight[]: sent, at the port, received */
	bool armed;
	/* Packets received. `memory`: requests that the program can see. */
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
	/* the program's state */
	enum doing doing, after;
	unsigned vain, posts;
	uint64_t memory_seen, posted_at, until, busy_poll_requests, yielded_at;
	/* measured values */
	uint64_t lat[MODEL_SAMPLES];
	unsigned samples, late_packets;
	uint64_t worst_wait; /* of a packet at the port */
	/* Time in which the service thread found nothing and did not sleep. */
	uint64_t busy_polled_ns;
};

struct model {
	uint64_t now;
	uint64_t wire;	  /* ns */
	uint64_t wake;	  /* ns; duration of a wake-up */
	uint64_t late_at; /* packets that wait for longer are counted */
	unsigned num_cores, num_tasks, num_ends;
	unsigned num_ready; /* tasks that wait for a core */
	/*
	 * The time of the next packet or wake-up. Most steps change neither, so it is computed
	 * again only if `stale`: after a change of a task's state, a wake-up or a packet.
	 */
	uint64_t due;
	bool stale;
	struct core core[MODEL_CORES];
	struct task task[MODEL_TASKS];
	struct end end[MODEL_ENDS];
};

/* Returns the time within a step. */
static inline uint64_t clk(const struct task *t)
{
	return t->m->now + t->cost;
}

void model_init(struct model *m, unsigned cores, uint64_t wake);
/* Adds a task that may run on `cores` (a mask). It is ready at once. */
struct task *model_task(struct model *m, void (*step)(struct task *t), unsigned cores);
/* Adds a task that makes no calls. It runs for `burst` of each `period`; 0: always. */
struct task *model_hog(struct model *m, unsigned cores, uint64_t period, uint64_t burst);
void model_wake(struct task *t);
bool model_one_core(const struct task *t);
void model_run(struct model *m, uint64_t ns);

/* The library's functions, as the program calls them. */
unsigned drive_progress(struct end *e, struct task *t);
/* Returns true if the program's core is yielded. drive_yield_back() comes next then. */
bool drive_doorbell(struct end *e, struct task *t);
/* Runs after the yield that began at yielded_at, or at once if there are several cores. */
void drive_yield_back(struct end *e, struct task *t, bool one);
void drive_cq_armed(struct end *e, struct task *t);
/* Returns true if the drive polls on for the program, one step of drive_busy_poll() at a time. */
bool drive_cqes_taken(struct end *e, struct task *t);
void drive_busy_poll(struct end *e, struct task *t);
/* Runs in state D_BUSY_POLL_BACK. */
void drive_busy_poll_back(struct end *e, struct task *t);

void program_step(struct task *t);

/*
 * Creates two ends, each with a program and a service thread that may run on the cores of the mask.
 */
void model_connect(struct model *m, const struct script *client, const struct script *server,
		   unsigned client_cores, unsigned server_cores, bool udp);
void end_packet_came(struct end *e);
/* Returns when the next packet comes; NEVER: none is under way. */
uint64_t end_next_packet(const struct end *e);
/* Clears the measured values. */
void end_measure(struct end *e);
/* Returns the value below which `percent` of the measured latencies are. */
uint64_t end_latency(struct end *e, unsigned percent);

#endif
