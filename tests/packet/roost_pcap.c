/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost pcap` alone, so that its test needs no other room. */
#include "cli/commands.h"

int main(int argc, char **argv)
{
	return cmd_pcap(argc, argv);
}
