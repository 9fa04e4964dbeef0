/* A channel: one program, what it started, and the pipes between it and the supervisor. */
#ifndef SANDGATE_CHANNEL_H
#define SANDGATE_CHANNEL_H

#include <sys/ioctl.h>
#include <time.h>

#include "descriptors.h"
#include "keeper.h"
#include "process_tree.h"
#include "wire.h"

#define INPUT_QUEUE_BYTES (64 * 1024) /* the host's first credit for each input stream */
#define CREDIT_STEP_BYTES (16 * 1024)
#define SMALL_READ_BYTES 4096
#define COALESCE_NS 2000000LL /* after a small read a stream rests this long, so that a print loop makes few frames */
#define PROMPT_CONTROL_READS 4 /* small ones that rest not, each time the host has said something */
#define KILL_DEADLINE_NS 5000000000LL
#define NS_PER_MS 1000000LL

enum stream { STREAM_STDIN = 0, STREAM_STDOUT = 1, STREAM_STDERR = 2, STREAM_CONTROL = 3 };
enum signal_scope { SCOPE_PROCESS = 0, SCOPE_TREE = 1, SCOPE_SINCE_MARK = 2 };
/* FAILED: the program did not start, and its keeper is still to be reaped. */
enum channel_state { CHANNEL_FREE, CHANNEL_FAILED, CHANNEL_STARTING, CHANNEL_RUNNING, CHANNEL_EXITED };
enum kill_kind { KILL_NONE, KILL_NEWER, KILL_ALL };
#define SPAWN_WITH_CONTROL 1
#define SPAWN_MUTED 2
#define SPAWN_INPUT_RENEWED 4 /* with each unmute standard input begins anew, also after its end */
#define SPAWN_TEMPLATE 0x40   /* the program will be forked from: it gets a socket for that as its control pair */

struct inlet {
  int fd;
  bool close_when_empty;
  uint32_t head, length;
  uint32_t owed; /* credit to give back */
  uint8_t *queue;
};

struct outlet {
  int fd;
  uint32_t credit;
  uint32_t must_send; /* bytes that have to go before the next control message or the exit */
  long long rest_until;
  uint32_t small_reads; /* of the control stream, since the host said something */
};

struct channel {
  uint32_t id;
  uint32_t generation;
  enum channel_state state;
  pid_t keeper; /* 0 once it ended: then no descendant is left */
  pid_t pid;
  bool muted, gone_sent, release_wanted;
  bool is_held; /* until it is first unmuted, nothing is read of it: a shell looks itself whether it has written anything */
  enum kill_kind kill_wanted;
  struct inlet in[2];    /* stdin, control */
  struct outlet out[3];  /* stdout, stderr, control */
  int input_reader;      /* the program's end of its standard input, kept where the input is renewed */
  bool is_template;
  int template_fd; /* requests to fork go here */
  int life_fd;     /* of a fork: ends with its keeper */
  struct keeper_event exit;
  struct mark mark;
};

static struct channel channels[MAX_CHANNELS];
/* Apart from the channels: each round of the loop looks at all of those, and what it looks at is memory of the sandbox. */
static uint8_t input_queues[MAX_CHANNELS][2][INPUT_QUEUE_BYTES];
static pid_t marked_pids[MAX_CHANNELS][MAX_PROCESSES];
static struct program programs[MAX_CHANNELS];
static int event_pair[2];
static volatile sig_atomic_t child_ended;
static long long now_ns;

static void update_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  now_ns = now.tv_sec * 1000000000LL + now.tv_nsec;
}

static uint32_t bytes_in_pipe(int fd) {
  int count = 0;
  return fd >= 0 && ioctl(fd, FIONREAD, &count) == 0 && count > 0 ? (uint32_t)count : 0;
}

static struct channel *find_channel(uint32_t id) {
  for (int i = 0; i < MAX_CHANNELS; i++)
    if (channels[i].state > CHANNEL_FAILED && channels[i].id == id) return &channels[i];
  return NULL;
}

static void close_channel(struct channel *channel, enum channel_state state) {
  for (int i = 0; i < 2; i++) close_fd(&channel->in[i].fd);
  for (int i = 0; i < 3; i++) close_fd(&channel->out[i].fd);
  close_fd(&channel->input_reader);
  close_fd(&channel->template_fd);
  close_fd(&channel->life_fd);
  channel->state = state;
  channel->generation++;
}

#endif
