/* SPDX-License-Identifier: MIT */
#include "comm/watch_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

#define BACKLOG 4096    /* bytes: less than any socket holds */
#define IDLE 2          /* seconds without a word, then the kernel asks … */
#define ASK_EVERY 4     /* … so often … */
#define ASK_TIMES 127   /* … before it gives up: Linux's most, link_silence() is sooner */
#define FLAGS_AT 13     /* of a TCP segment (RFC 9293, 3.1) */
#define FLAG_RESET 0x04
#define SYN_TRIES 6     /* in 127 s, whatever the system's setting is */

/* Addresses ---------------------------------------------------------------------------- */

/* False: none that others could use. */
static bool take_address(const struct sockaddr *from, struct link_address *address)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)from;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)from;

    *address = (struct link_address){ .family = (uint8_t)from->sa_family };
    if (from->sa_family == AF_INET)
        memcpy(address->bytes, &four->sin_addr, sizeof(four->sin_addr));
    else if (from->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
        memcpy(address->bytes, &six->sin6_addr, sizeof(six->sin6_addr));
    else
        return false;
    return true;
}

/* Without loopback where there are others; to be freed. */
static struct link_address *own_addresses(int *n)
{
    struct link_address *addresses = NULL, one;
    struct ifaddrs *list;

    *n = 0;
    if (getifaddrs(&list))
        return NULL;
    for (int loopback = 0; loopback < 2 && *n == 0; loopback++)
        for (const struct ifaddrs *i = list; i; i = i->ifa_next)
            if (i->ifa_addr && (i->ifa_flags & IFF_UP) &&
                !(i->ifa_flags & IFF_LOOPBACK) == !loopback && take_address(i->ifa_addr, &one))
                *(struct link_address *)mem_push((void **)&addresses, n, sizeof(one)) = one;
    freeifaddrs(list);
    return addresses;
}

struct socket_address {
    struct sockaddr_storage at;
    socklen_t size;
};

static struct socket_address socket_address(const struct link_end *end)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(end->port) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(end->port) };
    bool is_six = end->address.family == AF_INET6;
    struct socket_address result = { .size = is_six ? sizeof(six) : sizeof(four) };

    memcpy(&four.sin_addr, end->address.bytes, sizeof(four.sin_addr));
    memcpy(&six.sin6_addr, end->address.bytes, sizeof(six.sin6_addr));
    memcpy(&result.at, is_six ? (const void *)&six : (const void *)&four, result.size);
    return result;
}

/* Where a socket is. */
static bool end_of(int fd, struct link_end *end)
{
    struct socket_address own = { .size = sizeof(own.at) };

    *end = (struct link_end){ .port = 0 };
    if (getsockname(fd, (struct sockaddr *)&own.at, &own.size) ||
        !take_address((const struct sockaddr *)&own.at, &end->address))
        return false;
    end->port = ntohs(own.at.ss_family == AF_INET6
                          ? ((const struct sockaddr_in6 *)(const void *)&own.at)->sin6_port
                          : ((const struct sockaddr_in *)(const void *)&own.at)->sin_port);
    return true;
}

static int open_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static bool share_port(int fd)
{
    int yes = 1;

    return setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes)) == 0;
}

/* At this end: at a port that is held already, or at one of its own (port 0), which is shared later. */
static int open_at(const struct link_end *end)
{
    struct socket_address own = socket_address(end);
    int fd = open_socket(end->address.family);

    if (fd < 0)
        return -1;
    if ((end->port == 0 || share_port(fd)) &&
        bind(fd, (const struct sockaddr *)&own.at, own.size) == 0 &&
        (end->port != 0 || share_port(fd)))
        return fd;
    close(fd);
    return -1;
}

int link_hold(struct link_place *place, bool near, int holders[LINK_ADDRESSES])
{
    static const struct link_address loopback = { AF_INET, { 127, 0, 0, 1 } };
    int n = 1;
    struct link_address *own = near ? NULL : own_addresses(&n);

    memset(place, 0, sizeof(*place));
    if (getrandom(place->token, sizeof(place->token), 0) != (ssize_t)sizeof(place->token))
        n = 0;
    for (int i = 0; i < n && place->n < LINK_ADDRESSES; i++) {
        struct link_end end = { .address = near ? loopback : own[i] };
        int fd = open_at(&end);

        if (fd >= 0 && end_of(fd, &place->end[place->n]))
            holders[place->n++] = fd;
        else if (fd >= 0)
            close(fd);
    }
    free(own);
    return place->n;
}

/* Connections -------------------------------------------------------------------------- */

/* Not TCP_USER_TIMEOUT, which ends those to a process that is stopped once its window is full. */
static void keep_alive(int fd)
{
    int yes = 1, idle = IDLE, interval = ASK_EVERY, times = ASK_TIMES;

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
}

double link_silence(const struct link *link)
{
    struct tcp_info info = { 0 };
    socklen_t size = sizeof(info);
    uint32_t least;

    if (getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &size))
        return 0;
    least = info.tcpi_last_ack_recv < info.tcpi_last_data_recv ? info.tcpi_last_ack_recv
                                                                : info.tcpi_last_data_recv;
    return 1e-3 * least;
}

static bool filter(int fd, struct sock_filter *look, size_t n)
{
    struct sock_fprog program = { .len = (unsigned short)n, .filter = look };

    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
}

/* What the kernel of the other end says as long as nobody has called connect() there. */
static bool drop_resets(int fd)
{
    struct sock_filter look[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, FLAGS_AT),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FLAG_RESET, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
    };

    return filter(fd, look, sizeof(look) / sizeof(look[0]));
}

/* In its place; to take it off is more than qemu-user knows. */
static bool take_all(int fd)
{
    struct sock_filter look[] = { BPF_STMT(BPF_RET | BPF_K, UINT32_MAX) };

    return filter(fd, look, 1);
}

static bool start_connecting(struct link *link, int fd, const struct link_end *to)
{
    struct socket_address at = socket_address(to);
    int tries = SYN_TRIES;

    if (fd < 0)
        return false;
    if (setsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &tries, sizeof(tries)) ||
        (connect(fd, (const struct sockaddr *)&at.at, at.size) && errno != EINPROGRESS)) {
        close(fd);
        return false;
    }
    link->fd = fd;
    link->state = LINK_CONNECTING;
    link->n_in = 0;
    return true;
}

bool link_approach(struct link *link, const struct link_end *to, struct link_end *from)
{
    int fd = open_socket(to->address.family);

    *from = (struct link_end){ .port = 0 };
    if (fd >= 0 && !drop_resets(fd)) {
        close(fd);
        return false;
    }
    if (!start_connecting(link, fd, to))
        return false;
    if (end_of(link->fd, from))
        return true;
    link_close(link);
    return false;
}

bool link_meet(struct link *link, const struct link_end *held, const struct link_end *from)
{
    return from->port != 0 && from->address.family == held->address.family &&
           start_connecting(link, open_at(held), from);
}

bool link_connected(const struct link *link)
{
    int error = 0;
    socklen_t size = sizeof(error);

    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size) || error)
        return false;
    keep_alive(link->fd);       /* not before: Linux would not begin where this end was the first */
    return take_all(link->fd);
}

/* Linux lets a socket send any signal; that one is ignored by who runs. */
void link_wakes(const struct link *link)
{
    if (fcntl(link->fd, F_SETOWN, getpid()) == 0 && fcntl(link->fd, F_SETSIG, SIGCONT) == 0)
        (void)fcntl(link->fd, F_SETFL, O_NONBLOCK | O_ASYNC);
}

/* So few bytes always fit; where the other end is gone, reading will tell. */
void link_send(const struct link *link, const struct note *note)
{
    (void)!send(link->fd, note, sizeof(*note), MSG_NOSIGNAL);
}

void link_offer(const struct link *link, const struct note *note)
{
    int waiting = 0;

    if (ioctl(link->fd, SIOCOUTQ, &waiting) == 0 && waiting < BACKLOG)
        link_send(link, note);
}

int link_read(struct link *link, struct note *note)
{
    ssize_t n = recv(link->fd, link->in + link->n_in, sizeof(link->in) - link->n_in, 0);

    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return -1;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -2;
    link->n_in += (size_t)n;
    if (link->n_in < sizeof(link->in))
        return 0;
    memcpy(note, link->in, sizeof(*note));
    link->n_in = 0;
    return 1;
}

void link_close(struct link *link)
{
    if (link->state != LINK_FREE)
        close(link->fd);
    link->state = LINK_FREE;
}
