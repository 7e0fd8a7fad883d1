/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The counters of a NIC. They have the names of mlx5 or rxe where one of these has the counter,
 * because operators know these names. Each PU has a struct of its own, which only its owner writes.
 */
#ifndef ROOST_NIC_COUNTERS_H
#define ROOST_NIC_COUNTERS_H

#include <stdint.h>

#define NIC_COUNTERS(X)                                                                              \
	X(sent_pkts, "packets sent, retransmissions included")                                       \
	X(rcvd_pkts, "packets received, before any check")                                           \
	X(sent_bytes, "bytes sent, BTH to ICRC")                                                     \
	X(rcvd_bytes, "bytes received, BTH to ICRC")                                                 \
	X(completed_wqes, "send work requests completed successfully")                               \
	X(rdma_sends, "of these, SENDs")                                                             \
	X(rdma_recvs, "receives completed successfully")                                             \
	X(rx_write_requests, "WRITE request packets accepted")                                       \
	X(rx_read_requests, "READ requests accepted")                                                \
	X(rx_atomic_requests, "atomic requests executed")                                            \
	X(rx_send_requests, "SEND request packets accepted")                                         \
	X(rx_rpc_requests, "RPC and RPC WRITE request packets accepted")                             \
	X(rpc_replies, "WRITEs of kernels acknowledged by their callers")                            \
	X(kernel_requests,                                                                           \
	  "READs, WRITEs, SENDs and atomics of kernels on queue pairs that are bound to them, done") \
	X(duplicate_request, "request packets received again")                                       \
	X(out_of_sequence, "gaps in the sequence of request packets")                                \
	X(out_of_buffer,                                                                             \
	  "no receive, no slot for a call, or a paused hook: RNR NAKs, or dropped packets")          \
	X(send_rnr_err, "RNR NAKs sent")                                                             \
	X(rx_ud_dropped, "UD packets dropped: longer than the MTU or the receive, or no receive")    \
	X(tx_ud_dropped, "datagrams dropped: their receiver on this machine takes no packets")       \
	X(rx_bad_qkey, "dropped: Q_Key not the QP's")                                                \
	X(rx_multicast, "copies of multicast packets given to QPs")                                  \
	X(rx_bad_group, "dropped: to a multicast group without a QP attached to it")                 \
	X(rx_uc_dropped, "UC packets dropped: of a message that is damaged or was refused")          \
	X(packet_seq_err, "NAKs for a PSN sequence error received")                                  \
	X(implied_nak_seq_err,                                                                       \
	  "READ or atomic responses missing, seen from a later ACK or response")                     \
	X(rnr_nak_retry_err, "RNR NAKs received")                                                    \
	X(local_ack_timeout_err, "ACK time-outs expired")                                            \
	X(tail_loss_probe,                                                                           \
	  "single packets sent again after max(2 RTT, 1 ms) of silence, not ACK time-outs")          \
	X(retransmitted_pkts, "packets sent again, tail_loss_probe not counted")                     \
	X(retry_exceeded_err, "QPs ended by too many time-outs or sequence errors")                  \
	X(retry_rnr_exceeded_err, "QPs ended by too many RNR NAKs")                                  \
	X(req_remote_invalid_request, "NAKs received: invalid request")                              \
	X(req_remote_access_errors, "NAKs received: remote access error")                            \
	X(req_remote_op_errors, "NAKs received: remote operational error")                           \
	X(resp_remote_invalid_request, "NAKs sent: invalid request")                                 \
	X(resp_remote_access_errors, "NAKs sent: remote access error")                               \
	X(resp_remote_op_errors, "NAKs sent: remote operational error")                              \
	X(resp_local_length_error, "SENDs longer than the posted receive")                           \
	X(resp_local_protection_error, "receives whose memory was refused")                          \
	X(resp_cqe_error, "receives completed with an error, flushed ones included")                 \
	X(resp_cqe_flush_error, "receives flushed")                                                  \
	X(req_local_protection_error, "send work requests whose memory was refused")                 \
	X(req_local_qp_op_error, "send work requests that are malformed")                            \
	X(req_cqe_error, "send work requests completed with an error, flushed ones included")        \
	X(req_cqe_flush_error, "send work requests flushed")                                         \
	X(req_bad_response, "responses that fit no request")                                         \
	X(memory_faults, "accesses to memory that the program has unmapped")                         \
	X(cq_overrun, "completion queues that overran")                                              \
	X(rx_short, "dropped: shorter than its headers")                                             \
	X(rx_bad_opcode, "dropped: no such op-code")                                                 \
	X(rx_bad_version, "dropped: transport version not 0")                                        \
	X(rx_bad_pad, "dropped: padding or length does not fit")                                     \
	X(rx_icrc_encapsulated, "dropped: ICRC wrong")                                               \
	X(rx_bad_pkey, "dropped: P_Key not the NIC's")                                               \
	X(rx_bad_qpn, "dropped: no such QP, or it does not receive in its state")                    \
	X(rx_bad_source, "dropped: not from the QP's peer, or not from its port")                    \
	X(rx_bad_service, "dropped: op-code of another service")                                     \
	X(rx_unreachable,                                                                            \
	  "hints that a packet had no receiver: ICMP errors, rings without a reader")                \
	X(hints_unread, "such hints that were ignored: too many at a time")                          \
	X(alive_probe, "packets that ask whether a peer is alive")                                   \
	X(peer_gone, "peers found dead, whose connections were ended")                               \
	X(rx_management, "management datagrams received by QP 1")                                    \
	X(tx_management, "management datagrams sent by QP 1")                                        \
	X(tx_management_waits, "of these, datagrams that waited for space in the port, or wait")     \
	X(tx_management_dropped, "management datagrams dropped: too many waited for space")          \
	X(loopback_wqes, "work requests between QPs of this NIC, executed without packets")          \
	X(np_cnp_sent, "congestion notifications sent")                                              \
	X(rp_cnp_handled, "congestion notifications received")                                       \
	X(np_ecn_marked_roce_packets, "packets received with congestion experienced")                \
	X(wait_window, "waits of a queue pair: the window of the destination or of READs is full")   \
	X(wait_reads, "waits of a queue pair: max_rd_atomic, or a fence")                            \
	X(wait_psn, "waits of a queue pair: too many PSNs, or the window after an RNR NAK")          \
	X(wait_copies, "waits of a queue pair: no slot for another work request of its queue")       \
	X(wait_batch, "waits of a queue pair: a few small requests wait for more, or for an ACK")    \
	X(wait_order, "waits of a queue pair: a local operation waits for earlier ones")             \
	X(wait_hook,                                                                                 \
	  "waits of a queue pair: a stream hook is paused, or its bytes are not acknowledged")       \
	X(wait_chain, "waits of a queue pair: a WAIT of a chain")                                    \
	X(wait_rate, "waits of a queue pair: the rate limit of a managed queue")                     \
	X(wait_rnr, "waits of a queue pair: the time of an RNR NAK")                                 \
	X(doorbells, "doorbells taken")                                                              \
	X(turns, "turns of the PU with work")

struct nic_counters {
#define NIC_COUNTER_FIELD(name, help) uint64_t name;
	NIC_COUNTERS(NIC_COUNTER_FIELD)
#undef NIC_COUNTER_FIELD
};

#define NIC_COUNTER_COUNT (sizeof(struct nic_counters) / sizeof(uint64_t))

struct nic_counter_info {
	const char *name, *help;
};
/* In the order of struct nic_counters, which may be read as an array of uint64_t. */
extern const struct nic_counter_info nic_counter_info[NIC_COUNTER_COUNT];

#endif
