// SPDX-License-Identifier: Apache-2.0
// A minimal router in user space. The program has AF_PACKET sockets on d0 and d1, calls recvmsg and sendmsg for each
// packet, and has one next hop in each direction. The program routes IPv4 without a look-up. It measures the cost of
// system calls and is not a router for use.
// recvmsg OWN-0 NEXT-0 OWN-1 NEXT-1 (Ethernet addresses)
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int parse(const char *text, uint8_t *mac)
{
	return sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) == 6;
}

static int open_port(const char *name)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = if_nametoindex(name)};
	int one = 1, fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_IP));

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)))
		return -1;
	return fd;
}

int main(int argc, char **argv)
{
	struct pollfd ports[2] = {{.fd = open_port("d0"), .events = POLLIN}, {.fd = open_port("d1"), .events = POLLIN}};
	uint8_t own[2][6], next[2][6], frame[2048];

	if (argc != 5 || !parse(argv[1], own[0]) || !parse(argv[2], next[0]) || !parse(argv[3], own[1]) || !parse(argv[4], next[1]))
		return 2;
	if (ports[0].fd < 0 || ports[1].fd < 0)
		return 1;
	puts("forwarding");
	fflush(stdout);
	for (;;) {
		poll(ports, 2, -1);
		for (int in = 0; in < 2; in++) {
			struct iovec bytes = {frame, sizeof(frame)};
			struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
			ssize_t length;

			for (int n = 0; n < 64 && (length = recvmsg(ports[in].fd, &message, MSG_DONTWAIT)) > 0; n++) {
				uint32_t sum;

				if (length < 34 || memcmp(frame, own[in], 6) || frame[14] != 0x45 || frame[22] <= 1)
					continue;
				frame[22]--;
				sum = (frame[24] << 8 | frame[25]) + 0x100;
				sum += sum >= 0xffff;
				frame[24] = sum >> 8;
				frame[25] = sum;
				memcpy(frame, next[!in], 6);
				memcpy(frame + 6, own[!in], 6);
				bytes.iov_len = length;
				sendmsg(ports[!in].fd, &message, MSG_DONTWAIT);
				bytes.iov_len = sizeof(frame);
			}
		}
	}
}
