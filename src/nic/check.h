/* SPDX-License-Identifier: BSD-2-Clause */
/* The invariants of a NIC, for tests. */
#ifndef ROOST_NIC_CHECK_H
#define ROOST_NIC_CHECK_H

#include "nic/nic.h"

/*
 * Checks the destinations of a PU and their queue pairs between two turns: the order of the counts,
 * the sums of bytes in flight, the entries by origin, and the lists in which queue pairs wait.
 * Returns NULL, or the text of the first invariant that does not hold. *qpn: the queue pair, or 0.
 * The time grows with the number of entries, and with the square of the number of queue pairs. In a
 * NIC with more than NIC_CHECK_QPS queue pairs the function checks nothing. [owner]
 */
#define NIC_CHECK_QPS 64
const char *nic_check(const struct nic *nic, unsigned pu, uint32_t *qpn);

#endif
