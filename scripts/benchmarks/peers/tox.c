/* One publisher and its members in Tox conferences on loopback, for the benchmark `group`.

       tox MEMBERS ...

   makes one Tox instance for the publisher and one for each member of the largest conference, each with a thread of
   its own that does what every client does: iterate, and sleep as long as the library asks for. They find each other
   over the publisher's DHT node, become friends, and invite each other to one conference for each size.
   Then it prints `ready`, and answers each line `MEMBERS BATCH TEXT` with `MS CAME`: milliseconds until the last
   member had the last message, and how many copies came. Ends when standard input does.

   Between bursts everybody iterates less often, so that others can be measured meanwhile. */

#include <stdatomic.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tox/tox.h>

enum { MEMBERS_MAX = 128, SIZES_MAX = 16, REST_MS = 200, START_S_MAX = 60, BURST_S_MAX = 120, SILENCE_S_MAX = 15,
       TEXT_MAX = 256 };
enum { PORT_MIN = 34000, CHILDREN_MAX = 8, INVITE_S = 3, BOOTSTRAPS = 8 };

struct node {
    Tox *tox;
    int number;
    int invited; /* to which conference this one has last invited others, and when it does so again */
    double invite_at;
    atomic_int online;  /* friends */
    atomic_int joined;  /* conferences; they have the same numbers at everybody, because all are filled in order */
    atomic_int seen;    /* of the conference that is being filled: how many its peer list has */
    atomic_int came;
    _Atomic double last;
};

static struct node nodes[MEMBERS_MAX + 1];
static int members, sizes[SIZES_MAX], sizes_count;
static atomic_bool busy = true, ending;
static atomic_int filling = -1;     /* index of the conference that the publisher fills, -1: none */
static atomic_int sending, to_send; /* index of the conference, messages still to hand over */
static char text[TEXT_MAX];

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void sleep_ms(uint32_t ms)
{
    struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000L};
    nanosleep(&pause, NULL);
}

static void fail(const char *why)
{
    fprintf(stderr, "tox: %s\n", why);
    exit(1);
}

static void on_friend(Tox *tox, uint32_t number, Tox_Connection status, void *data)
{
    struct node *node = data;
    (void)tox;
    (void)number;
    if (status != TOX_CONNECTION_NONE) {
        atomic_fetch_add(&node->online, 1);
    } else {
        atomic_fetch_sub(&node->online, 1);
    }
}

static void on_invite(Tox *tox, uint32_t number, Tox_Conference_Type type, const uint8_t *cookie, size_t length,
                      void *data)
{
    struct node *node = data;
    (void)type;
    if (tox_conference_join(tox, number, cookie, length, NULL) != UINT32_MAX) {
        atomic_fetch_add(&node->joined, 1);
    }
}

static void on_message(Tox *tox, uint32_t conference, uint32_t peer, Tox_Message_Type type, const uint8_t *message,
                       size_t length, void *data)
{
    struct node *node = data;
    (void)type;
    if (node->number == 0 || tox_conference_peer_number_is_ours(tox, conference, peer, NULL)) {
        return;
    }
    if (length == strlen(text) && memcmp(message, text, length) == 0) {
        atomic_store(&node->last, now_s());
        atomic_fetch_add(&node->came, 1);
    }
}

static int parent_of(int number)
{
    return (number - 1) / CHILDREN_MAX;
}

/* Invite those of our own friends who are still missing in the conference that is being filled; again now and then,
   because an invitation may be lost. */
static void invite(struct node *node)
{
    int which = atomic_load(&filling);
    if (which < 0 || node->number > sizes[which] || (node->invited == which && now_s() < node->invite_at)) {
        return;
    }
    if (node->number == 0 && atomic_load(&node->joined) == which) {
        tox_conference_new(node->tox, NULL);
        atomic_fetch_add(&node->joined, 1);
    }
    if (atomic_load(&node->joined) != which + 1) {
        return;
    }
    for (int child = 0; child < CHILDREN_MAX; child++) {
        int number = node->number * CHILDREN_MAX + 1 + child;
        if (number <= sizes[which] && atomic_load(&nodes[number].joined) == which) {
            tox_conference_invite(node->tox, (uint32_t)(child + (node->number > 0)), (uint32_t)which, NULL);
        }
    }
    node->invited = which;
    node->invite_at = now_s() + INVITE_S;
}

/* The publisher's own work: it alone touches its instance. */
static void publish(struct node *node)
{
    while (atomic_load(&to_send) > 0) {
        uint32_t conference = (uint32_t)atomic_load(&sending);
        if (!tox_conference_send_message(node->tox, conference, TOX_MESSAGE_TYPE_NORMAL, (const uint8_t *)text,
                                         strlen(text), NULL)) {
            break; /* its queue is full: again after the next iteration */
        }
        atomic_fetch_sub(&to_send, 1);
    }
}

static void *live(void *data)
{
    struct node *node = data;
    while (!atomic_load(&ending)) {
        if (node->number == 0) {
            publish(node);
        }
        invite(node);
        tox_iterate(node->tox, node);
        int which = atomic_load(&filling);
        if (which >= 0 && node->number <= sizes[which]) {
            uint32_t count = tox_conference_peer_count(node->tox, (uint32_t)which, NULL);
            atomic_store(&node->seen, count == UINT32_MAX ? 0 : (int)count);
        }
        uint32_t pause = tox_iteration_interval(node->tox);
        if (atomic_load(&busy)) {
            sleep_ms(pause);
        } else { /* in short pieces, to be awake when a burst begins */
            for (uint32_t slept = 0; slept < REST_MS && !atomic_load(&busy); slept += 5) {
                sleep_ms(5);
            }
        }
    }
    return NULL;
}

static void make(struct node *node, int number)
{
    struct Tox_Options *options = tox_options_new(NULL);
    tox_options_set_ipv6_enabled(options, false);
    tox_options_set_local_discovery_enabled(options, false); /* it would call out on every network there is */
    tox_options_set_start_port(options, PORT_MIN);
    tox_options_set_end_port(options, PORT_MIN + 999);
    node->number = number;
    node->invited = -1;
    node->tox = tox_new(options, NULL);
    tox_options_free(options);
    if (node->tox == NULL) {
        fail("no instance could be made");
    }
    tox_callback_friend_connection_status(node->tox, on_friend);
    tox_callback_conference_invite(node->tox, on_invite);
    tox_callback_conference_message(node->tox, on_message);
}

static void befriend(struct node *one, struct node *other, int friends)
{
    uint8_t key[TOX_PUBLIC_KEY_SIZE];
    tox_self_get_public_key(other->tox, key);
    if (tox_friend_add_norequest(one->tox, key, NULL) != (uint32_t)friends) {
        fail("the instances could not be introduced");
    }
}

static void bootstrap(struct node *one, const struct node *other)
{
    uint8_t dht[TOX_PUBLIC_KEY_SIZE];
    tox_self_get_dht_id(other->tox, dht);
    if (!tox_bootstrap(one->tox, "127.0.0.1", tox_self_get_udp_port(other->tox, NULL), dht, NULL)) {
        fail("the instances could not be introduced");
    }
}

/* A tree of friends: nobody needs more than a few. A member's first friend is the one above it. Everybody is told of
   some others' DHT nodes too, because friends are looked for by way of those. */
static void meet(void)
{
    for (int number = 1; number <= members; number++) {
        struct node *parent = &nodes[parent_of(number)];
        befriend(&nodes[number], parent, 0);
        befriend(parent, &nodes[number], (number - 1) % CHILDREN_MAX + (parent->number > 0));
    }
    for (int number = 0; number <= members; number++) {
        for (int step = 1; step <= BOOTSTRAPS; step++) {
            bootstrap(&nodes[number], &nodes[(number + step * step) % (members + 1)]);
        }
    }
}

static int friends_online(void)
{
    int online = 0;
    for (int number = 0; number <= members; number++) {
        online += atomic_load(&nodes[number].online);
    }
    return online; /* each friendship at both ends */
}

static void await_friends(double deadline)
{
    while (friends_online() < 2 * members) {
        if (now_s() > deadline) {
            fprintf(stderr, "tox: %d of %d friends\n", friends_online(), 2 * members);
            exit(1);
        }
        sleep_ms(20);
    }
}

static void fill(int which, double deadline)
{
    atomic_store(&filling, which);
    for (int there = 0; there <= sizes[which];) {
        there = 0;
        for (int number = 0; number <= sizes[which]; number++) {
            bool joined = number == 0 || atomic_load(&nodes[number].joined) == which + 1;
            there += joined && atomic_load(&nodes[number].seen) == sizes[which] + 1;
        }
        if (now_s() > deadline) {
            fprintf(stderr, "tox: %d of %d see the whole conference\n", there, sizes[which] + 1);
            exit(1);
        }
        sleep_ms(20);
    }
    atomic_store(&filling, -1);
    sleep_ms(500); /* whoever still looks at its peer list has seen that by then */
    for (int number = 0; number <= members; number++) {
        atomic_store(&nodes[number].seen, 0);
    }
}

static void burst(int which, int batch)
{
    int wanted = batch * sizes[which], came = 0;
    for (int member = 1; member <= members; member++) {
        atomic_store(&nodes[member].came, 0);
        atomic_store(&nodes[member].last, 0.0);
    }
    double begun = now_s(), last = begun, changed = begun;
    atomic_store(&sending, which);
    atomic_store(&to_send, batch);
    atomic_store(&busy, true);
    while (came < wanted && now_s() < begun + BURST_S_MAX && now_s() < changed + SILENCE_S_MAX) {
        sleep_ms(1);
        int had = came;
        came = 0;
        for (int member = 1; member <= sizes[which]; member++) {
            came += atomic_load(&nodes[member].came);
        }
        changed = came > had ? now_s() : changed;
    }
    for (int member = 1; member <= sizes[which]; member++) {
        double when = atomic_load(&nodes[member].last);
        last = when > last ? when : last;
    }
    atomic_store(&to_send, 0);
    atomic_store(&busy, false);
    printf("%.3f %d\n", (last - begun) * 1000.0, came);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    pthread_t threads[MEMBERS_MAX + 1];
    for (int index = 1; index < argc && sizes_count < SIZES_MAX; index++) {
        sizes[sizes_count++] = atoi(argv[index]); /* the largest first: who is in none of the smaller ones is last */
        members = sizes[sizes_count - 1] > members ? sizes[sizes_count - 1] : members;
    }
    if (members < 1 || members > MEMBERS_MAX) {
        fail("how many members?");
    }
    for (int number = 0; number <= members; number++) {
        make(&nodes[number], number);
    }
    meet();
    for (int number = 0; number <= members; number++) {
        if (pthread_create(&threads[number], NULL, live, &nodes[number]) != 0) {
            fail("no thread could be made");
        }
    }
    double deadline = now_s() + START_S_MAX;
    await_friends(deadline);
    for (int which = 0; which < sizes_count; which++) {
        fill(which, deadline + START_S_MAX);
    }
    atomic_store(&busy, false);
    printf("ready\n");
    fflush(stdout);
    char line[TEXT_MAX + 64];
    int size = 0, batch = 0;
    while (fgets(line, sizeof line, stdin) != NULL && sscanf(line, "%d %d %255s", &size, &batch, text) == 3) {
        for (int which = 0; which < sizes_count; which++) {
            if (sizes[which] == size) {
                burst(which, batch);
            }
        }
    }
    exit(0); /* the system takes the threads and their sockets with the process */
}
