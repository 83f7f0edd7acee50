/* Carries IP packets between hosts, each packet late by the one-way delays of the two hosts that it goes between.

       carry FD:NUMBER:DELAY_US ...

   A host is the descriptor of a TUN device (without packet information, not blocking), the last two bytes of its IPv4
   address as a number, and its share of the way in microseconds. Runs until standard input ends, and then prints, as
   one object of JSON, how many packets it carried and dropped, and how late beyond their time they were. */

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS_MAX = 128, PACKET_MAX = 65535, WAITING_MAX = 1 << 17, BITE = 64, LATE_BINS = 10000, LATE_BIN_US = 10 };

struct host { int fd; unsigned number; int64_t delay_us; };
struct packet { int64_t due_us; uint64_t order; int fd, size; unsigned char bytes[]; };

static struct host hosts[HOSTS_MAX];
static int host_count;
static struct packet *waiting[WAITING_MAX];   /* a binary heap: the first that is due is at 0 */
static int waiting_count;
static uint64_t carried, dropped, late[LATE_BINS + 1];

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static int before(const struct packet *a, const struct packet *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->order < b->order;
}

static void swap(int a, int b)
{
    struct packet *kept = waiting[a];
    waiting[a] = waiting[b];
    waiting[b] = kept;
}

static void push(struct packet *packet)
{
    int at = waiting_count++;
    waiting[at] = packet;
    for (; at > 0 && before(waiting[at], waiting[(at - 1) / 2]); at = (at - 1) / 2)
        swap(at, (at - 1) / 2);
}

static struct packet *pop(void)
{
    struct packet *first = waiting[0];
    waiting[0] = waiting[--waiting_count];
    for (int at = 0;;) {
        int least = at, left = 2 * at + 1, right = left + 1;
        if (left < waiting_count && before(waiting[left], waiting[least])) least = left;
        if (right < waiting_count && before(waiting[right], waiting[least])) least = right;
        if (least == at) return first;
        swap(at, least);
        at = least;
    }
}

static void take(const struct host *from)
{
    static unsigned char bytes[PACKET_MAX];
    static uint64_t order;
    for (int bite = 0; bite < BITE; bite++) {
        ssize_t size = read(from->fd, bytes, sizeof bytes);
        if (size < 0) return;
        if (size < 20 || bytes[0] >> 4 != 4) continue;   /* the kernel also offers IPv6 neighbour discovery */
        unsigned number = bytes[18] << 8 | bytes[19];
        const struct host *to = NULL;
        for (int i = 0; i < host_count && !to; i++)
            if (hosts[i].number == number) to = &hosts[i];
        struct packet *packet = to && waiting_count < WAITING_MAX ? malloc(sizeof *packet + size) : NULL;
        if (!packet) {
            dropped++;
            continue;
        }
        packet->due_us = now_us() + from->delay_us + to->delay_us;
        packet->order = order++;
        packet->fd = to->fd;
        packet->size = (int)size;
        memcpy(packet->bytes, bytes, size);
        push(packet);
    }
}

static void give(int64_t now)
{
    while (waiting_count && waiting[0]->due_us <= now) {
        struct packet *packet = pop();
        int64_t bin = (now - packet->due_us) / LATE_BIN_US;
        if (write(packet->fd, packet->bytes, packet->size) == packet->size) carried++;
        else dropped++;
        late[bin < LATE_BINS ? bin : LATE_BINS]++;
        free(packet);
    }
}

static int64_t late_us(double share)
{
    uint64_t all = 0, seen = 0;
    for (int bin = 0; bin <= LATE_BINS; bin++) all += late[bin];
    for (int bin = 0; bin <= LATE_BINS; bin++)
        if (all && (seen += late[bin]) >= share * all) return (bin + 1) * INT64_C(1) * LATE_BIN_US;
    return 0;
}

int main(int count, char **words)
{
    int epoll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (epoll < 0 || timer < 0 || count - 1 > HOSTS_MAX) return 1;
    for (; host_count < count - 1; host_count++) {
        struct host *host = &hosts[host_count];
        long long delay_us;
        if (sscanf(words[host_count + 1], "%d:%u:%lld", &host->fd, &host->number, &delay_us) != 3) return 1;
        host->delay_us = delay_us;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = host};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, host->fd, &event)) return 1;
    }
    struct epoll_event end = {.events = EPOLLIN | EPOLLHUP, .data.ptr = NULL};
    struct epoll_event tick = {.events = EPOLLIN, .data.ptr = &timer};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &end) || epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &tick)) return 1;
    struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first);   /* the line must not wait for the hosts; without the right, it may */

    for (;;) {
        if (waiting_count) {
            struct itimerspec when = {.it_value = {waiting[0]->due_us / 1000000, waiting[0]->due_us % 1000000 * 1000}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
        }
        struct epoll_event events[HOSTS_MAX + 2];
        int ready = epoll_wait(epoll, events, HOSTS_MAX + 2, -1);
        if (ready < 0 && errno != EINTR) return 1;
        give(now_us());
        for (int i = 0; i < ready; i++) {
            uint64_t ticks;
            char word[64];
            if (events[i].data.ptr == &timer) {
                if (read(timer, &ticks, sizeof ticks) < 0) continue;
            } else if (events[i].data.ptr) {
                take(events[i].data.ptr);
            } else if (read(0, word, sizeof word) <= 0) {
                printf("{\"carried\": %llu, \"dropped\": %llu, \"late_us_p99\": %lld, \"late_us_max\": %lld}\n",
                       (unsigned long long)carried, (unsigned long long)dropped, (long long)late_us(0.99),
                       (long long)late_us(1));
                return 0;
            }
        }
    }
}
