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
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096    /* bytes: less than any socket holds */
#define IDLE 2          /* seconds without a word, then the kernel asks … */
#define ASK_EVERY 4     /* … so often … */
#define ASK_TIMES 127   /* … before it gives up: Linux's most, link_silence() is sooner */

/* Addresses ---------------------------------------------------------------------------- */

static void add_address(struct link_place *place, const struct sockaddr *address)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)address;
    int n = place->n;

    if (n == LINK_ADDRESSES)
        return;
    place->address[n].family = (uint8_t)address->sa_family;
    if (address->sa_family == AF_INET)
        memcpy(place->address[n].bytes, &four->sin_addr, sizeof(four->sin_addr));
    else if (address->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
        memcpy(place->address[n].bytes, &six->sin6_addr, sizeof(six->sin6_addr));
    else
        return;
    place->n++;
}

/* Loopback last: it serves where there is no network at all. */
static void add_addresses(struct link_place *place)
{
    struct ifaddrs *list;

    if (getifaddrs(&list))
        return;
    for (int loopback = 0; loopback < 2; loopback++)
        for (const struct ifaddrs *i = list; i; i = i->ifa_next)
            if (i->ifa_addr && (i->ifa_flags & IFF_UP) &&
                !(i->ifa_flags & IFF_LOOPBACK) == !loopback)
                add_address(place, i->ifa_addr);
    freeifaddrs(list);
}

/* For both families where the kernel has both. */
static int bind_any(void)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = in6addr_any };
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_ANY) } };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), no = 0;

    if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) == 0 &&
        bind(fd, (const struct sockaddr *)&six, sizeof(six)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&four, sizeof(four)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int bind_loopback(void)
{
    struct sockaddr_in four = { .sin_family = AF_INET,
                                .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && bind(fd, (const struct sockaddr *)&four, sizeof(four)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int link_listen(struct link_place *place, bool near)
{
    struct sockaddr_storage bound;
    socklen_t size = sizeof(bound);
    int fd = near ? bind_loopback() : bind_any();

    memset(place, 0, sizeof(*place));
    if (fd < 0)
        return -1;
    if (listen(fd, SOMAXCONN) || getsockname(fd, (struct sockaddr *)&bound, &size) ||
        getrandom(place->token, sizeof(place->token), 0) != (ssize_t)sizeof(place->token)) {
        close(fd);
        return -1;
    }
    place->port = bound.ss_family == AF_INET6
                      ? ntohs(((const struct sockaddr_in6 *)(const void *)&bound)->sin6_port)
                      : ntohs(((const struct sockaddr_in *)(const void *)&bound)->sin_port);
    if (near)
        add_address(place, (const struct sockaddr *)&bound);
    else
        add_addresses(place);
    return fd;
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

bool link_accept(struct link *link, int listener, double limit)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return false;
    keep_alive(fd);
    *link = (struct link){ .state = LINK_NEW, .fd = fd, .rank = -1, .limit = limit };
    return true;
}

static int start_connecting(const struct link_place *place, int i)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(place->port) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(place->port) };
    bool is_six = place->address[i].family == AF_INET6;
    int fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    memcpy(&four.sin_addr, place->address[i].bytes, sizeof(four.sin_addr));
    memcpy(&six.sin6_addr, place->address[i].bytes, sizeof(six.sin6_addr));
    keep_alive(fd);
    if (connect(fd, is_six ? (const struct sockaddr *)&six : (const struct sockaddr *)&four,
                is_six ? sizeof(six) : sizeof(four)) == 0 || errno == EINPROGRESS)
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
