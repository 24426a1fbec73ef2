/* SPDX-License-Identifier: MIT */
#include "comm/watch_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
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

struct link_address *link_own_addresses(int *n)
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
    struct sockaddr_storage to;
    socklen_t size;
};

static struct socket_address socket_address(const struct link_address *address, uint16_t port)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    struct socket_address result = { .size = 0 };

    memcpy(&four.sin_addr, address->bytes, sizeof(four.sin_addr));
    memcpy(&six.sin6_addr, address->bytes, sizeof(six.sin6_addr));
    result.size = address->family == AF_INET6 ? sizeof(six) : sizeof(four);
    memcpy(&result.to, address->family == AF_INET6 ? (const void *)&six : (const void *)&four,
           result.size);
    return result;
}

static int open_socket(const struct link_address *address)
{
    return socket(address->family == AF_INET6 ? AF_INET6 : AF_INET,
                  SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* At this address, and no other. */
static int listen_at(const struct link_address *address, uint16_t *port)
{
    struct socket_address at = socket_address(address, 0);
    int fd = open_socket(address);

    if (fd < 0)
        return -1;
    if (bind(fd, (const struct sockaddr *)&at.to, at.size) || listen(fd, SOMAXCONN) ||
        getsockname(fd, (struct sockaddr *)&at.to, &at.size)) {
        close(fd);
        return -1;
    }
    *port = ntohs(address->family == AF_INET6
                      ? ((const struct sockaddr_in6 *)(const void *)&at.to)->sin6_port
                      : ((const struct sockaddr_in *)(const void *)&at.to)->sin_port);
    return fd;
}

int link_listen(struct link_place *place, bool near, int listeners[LINK_ADDRESSES])
{
    static const struct link_address loopback = { AF_INET, { 127, 0, 0, 1 } };
    int n = 1;
    struct link_address *own = near ? NULL : link_own_addresses(&n);

    memset(place, 0, sizeof(*place));
    if (getrandom(place->token, sizeof(place->token), 0) != (ssize_t)sizeof(place->token))
        n = 0;
    for (int i = 0; i < n && place->n < LINK_ADDRESSES; i++) {
        const struct link_address *address = near ? &loopback : &own[i];

        listeners[place->n] = listen_at(address, &place->port[place->n]);
        if (listeners[place->n] >= 0)
            place->address[place->n++] = *address;
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

static bool is_one_of(const struct sockaddr *peer, int n, const struct link_address *from)
{
    struct link_address address;

    if (!take_address(peer, &address))
        return false;
    for (int i = 0; i < n; i++)
        if (memcmp(&address, &from[i], sizeof(address)) == 0)
            return true;
    return false;
}

int link_accept(struct link *link, int listener, int n, const struct link_address *from,
                double limit)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    int fd = accept4(listener, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return 0;
    if (n > 0 && !is_one_of((const struct sockaddr *)&peer, n, from)) {
        close(fd);
        return -1;
    }
    keep_alive(fd);
    *link = (struct link){ .state = LINK_NEW, .fd = fd, .rank = -1, .limit = limit };
    return 1;
}

static int start_connecting(const struct link_place *place, int i)
{
    struct socket_address at = socket_address(&place->address[i], place->port[i]);
    int fd = open_socket(&place->address[i]);

    if (fd < 0)
        return -1;
    keep_alive(fd);
    if (connect(fd, (const struct sockaddr *)&at.to, at.size) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

bool link_connect(struct link *link, const struct link_place *place)
{
    for (; link->address < place->n && link->address < LINK_ADDRESSES; link->address++) {
        int fd = start_connecting(place, link->address);

        if (fd < 0)
            continue;
        link->fd = fd;
        link->state = LINK_CONNECTING;
        link->n_in = 0;
        return true;
    }
    return false;
}

bool link_connected(const struct link *link)
{
    int error = 0;
    socklen_t size = sizeof(error);

    return getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
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
