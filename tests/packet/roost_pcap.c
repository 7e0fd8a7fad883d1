/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost pcap` and nothing else of the command: its test needs no other room. */
#include "cli/commands.h"

int main(int argc, char **argv)
{
	return cmd_pcap(argc, argv);
}
