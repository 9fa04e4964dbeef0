/*
 * PID 1 of a sandbox: starts programs for the host, carries their bytes under credit, and kills whole process trees.
 * One poll loop, fixed memory: a program blocks when the host grants no credit, never the supervisor.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "keeper.h"
#include "process_tree.h"
#include "wire.h"

#define MAX_CHANNELS 64
#define INPUT_QUEUE_BYTES (64 * 1024) /* the host's first credit for each input stream */
#define CREDIT_STEP_BYTES (16 * 1024)
#define SMALL_READ_BYTES 4096
#define COALESCE_NS 2000000LL /* after a small read a stream rests this long, so that a print loop makes few frames */
#define KILL_DEADLINE_NS 5000000000LL
#define NS_PER_MS 1000000LL

enum stream { STREAM_STDIN = 0, STREAM_STDOUT = 1, STREAM_STDERR = 2, STREAM_CONTROL = 3 };
enum signal_scope { SCOPE_PROCESS = 0, SCOPE_TREE = 1, SCOPE_SINCE_MARK = 2 };
/* FAILED: the program did not start, and its keeper is still to be reaped. */
enum channel_state { CHANNEL_FREE, CHANNEL_FAILED, CHANNEL_STARTING, CHANNEL_RUNNING, CHANNEL_EXITED };
enum kill_kind { KILL_NONE, KILL_NEWER, KILL_ALL };
#define SPAWN_WITH_CONTROL 1
#define SPAWN_MUTED 2

struct inlet {
  int fd;
  bool close_when_empty;
  uint32_t head, length;
  uint32_t owed; /* credit to give back */
  uint8_t queue[INPUT_QUEUE_BYTES];
};

struct outlet {
  int fd;
  uint32_t credit;
  uint32_t must_send; /* bytes that have to go before the next control message or the exit */
  long long rest_until;
};

struct channel {
  uint32_t id;
  uint32_t generation;
  enum channel_state state;
  pid_t keeper; /* 0 once it ended: then no descendant is left */
  pid_t pid;
  bool muted, gone_sent, release_wanted;
  enum kill_kind kill_wanted;
  struct inlet in[2];    /* stdin, control */
  struct outlet out[3];  /* stdout, stderr, control */
  struct keeper_event exit;
  struct mark mark;
};

static struct channel channels[MAX_CHANNELS];
static struct program programs[MAX_CHANNELS];
static int event_pipe[2];
static int highest_fd = 16; /* at least what is opened before and beside the programs' pipes */
static volatile sig_atomic_t child_ended;
static long long now_ns;

/* The one tree that is being killed: first everything is stopped, so that nothing can fork away from the kill. */
static struct {
  struct channel *channel; /* NULL with `orphans` or when idle */
  bool orphans, orphans_wanted;
  long long started, next;
  uint32_t killed, stopped_count;
  pid_t stopped[MAX_PROCESSES];
} job;

static void update_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  now_ns = now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
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
  channel->state = state;
  channel->generation++;
}

/* ---- starting programs ---- */

static void send_spawn_failed(uint32_t id, int error) {
  uint8_t payload[128];
  uint8_t *at = put_u32(payload, (uint32_t)error);
  size_t length = strlen(strerror(error));
  memcpy(at, strerror(error), length);
  send_frame(FRAME_SPAWN_FAILED, id, payload, 4 + length);
}

/* Takes one NUL-terminated string out of the payload; NULL when there is none. */
static char *take_string(uint8_t **at, const uint8_t *end) {
  uint8_t *terminator = memchr(*at, '\0', (size_t)(end - *at));
  if (terminator == NULL) return NULL;
  char *string = (char *)*at;
  *at = terminator + 1;
  return string;
}

static char **take_strings(uint8_t **at, const uint8_t *end, char **strings, size_t room) {
  if (end - *at < 4) return NULL;
  uint32_t count = get_u32(*at);
  *at += 4;
  if (count >= room) return NULL;
  for (uint32_t i = 0; i < count; i++)
    if ((strings[i] = take_string(at, end)) == NULL) return NULL;
  strings[count] = NULL;
  return strings + count + 1;
}

/* Payload: u8 flags | u32 credit for stdout, stderr, control | cwd NUL | u32 count, arguments | u32 count, environment. */
static bool parse_spawn(struct program *program, const uint8_t *payload, size_t length) {
  if (length < 14 || length > sizeof program->bytes) return false;
  memcpy(program->bytes, payload, length);
  uint8_t *at = program->bytes + 13;
  const uint8_t *end = program->bytes + length;
  program->cwd = take_string(&at, end);
  program->argv = program->strings;
  if (program->cwd == NULL) return false;
  program->environment = take_strings(&at, end, program->strings, MAX_STRINGS);
  if (program->environment == NULL || program->argv[0] == NULL) return false;
  size_t room = MAX_STRINGS - (size_t)(program->environment - program->strings);
  return take_strings(&at, end, program->environment, room) != NULL;
}

static int open_pipes(struct channel *channel, struct program *program, bool control) {
  for (int i = 0; i < 5; i++) program->fds[i] = -1;
  for (int i = 0; i < (control ? 5 : 3); i++) {
    bool input = i == 0 || i == 3;
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) < 0) return errno;
    for (int end = 0; end < 2; end++)
      if (pair[end] > highest_fd) highest_fd = pair[end];
    program->fds[i] = pair[input ? 0 : 1];
    int ours = pair[input ? 1 : 0];
    fcntl(ours, F_SETFL, O_NONBLOCK);
    if (input)
      channel->in[i == 0 ? 0 : 1].fd = ours;
    else
      channel->out[i == 4 ? 2 : i - 1].fd = ours;
  }
  return 0;
}

static void reset_channel(struct channel *channel, uint32_t id, const uint8_t *header) {
  channel->id = id;
  channel->state = CHANNEL_STARTING;
  channel->keeper = channel->pid = 0;
  channel->muted = (header[0] & SPAWN_MUTED) != 0;
  channel->gone_sent = channel->release_wanted = false;
  channel->kill_wanted = KILL_NONE;
  channel->mark.set = false;
  for (int i = 0; i < 2; i++) {
    struct inlet *in = &channel->in[i];
    in->fd = -1;
    in->close_when_empty = false;
    in->head = in->length = in->owed = 0;
  }
  for (int i = 0; i < 3; i++)
    channel->out[i] = (struct outlet){.fd = -1, .credit = get_u32(header + 1 + 4 * i)};
}

/* In turn, so that the memory of one that just ended rests for a while. */
static struct channel *find_free_channel(void) {
  static int next;
  for (int i = 0; i < MAX_CHANNELS; i++) {
    struct channel *channel = &channels[(next + i) % MAX_CHANNELS];
    if (channel->state != CHANNEL_FREE) continue;
    next = (int)(channel - channels) + 1;
    return channel;
  }
  return NULL;
}

static void spawn(uint32_t id, const uint8_t *payload, size_t length) {
  struct channel *channel = find_free_channel();
  if (channel == NULL) return send_spawn_failed(id, EMFILE);
  struct program *program = &programs[channel - channels];
  if (find_channel(id) != NULL || !parse_spawn(program, payload, length)) return send_spawn_failed(id, EINVAL);

  reset_channel(channel, id, payload);
  int error = open_pipes(channel, program, (payload[0] & SPAWN_WITH_CONTROL) != 0);
  int ours[5];
  memcpy(ours, program->fds, sizeof ours); /* the keeper changes the numbers as soon as it runs */
  if (error == 0) {
    program->error = 0;
    program->event_fd = event_pipe[1];
    program->highest_fd = highest_fd;
    program->event = (struct keeper_event){.slot = (uint32_t)(channel - channels), .generation = channel->generation};
    channel->keeper = start_keeper(program);
    if (channel->keeper < 0) error = errno;
  }
  for (int i = 0; i < 5; i++) close_fd(&ours[i]);
  if (error != 0) {
    close_channel(channel, CHANNEL_FREE);
    send_spawn_failed(id, error);
  }
}

/* ---- what keepers say ---- */

/* From here the bytes now in the pipes go out, and nothing that comes later. */
static void begin_exit(struct channel *channel, struct keeper_event event) {
  channel->state = CHANNEL_EXITED;
  channel->exit = event;
  for (int i = 0; i < 3; i++) channel->out[i].must_send = bytes_in_pipe(channel->out[i].fd);
  for (int i = 0; i < 2; i++) close_fd(&channel->in[i].fd);
}

static void handle_keeper_event(struct keeper_event event) {
  if (event.slot >= MAX_CHANNELS) return;
  struct channel *channel = &channels[event.slot];
  if (channel->state <= CHANNEL_FAILED || channel->generation != event.generation) return;
  if (event.kind == KEEPER_SPAWNED) {
    uint8_t payload[4];
    put_u32(payload, (uint32_t)event.pid);
    channel->pid = event.pid;
    channel->state = CHANNEL_RUNNING;
    send_frame(FRAME_SPAWNED, channel->id, payload, sizeof payload);
  } else if (event.kind == KEEPER_SPAWN_FAILED) {
    send_spawn_failed(channel->id, event.error);
    close_channel(channel, CHANNEL_FAILED);
  } else {
    begin_exit(channel, event);
  }
}

static void read_keeper_events(void) {
  struct keeper_event events[8];
  ssize_t got = read(event_pipe[0], events, sizeof events);
  for (ssize_t i = 0; i < got / (ssize_t)sizeof events[0]; i++) handle_keeper_event(events[i]);
}

static void keeper_ended(struct channel *channel) {
  channel->keeper = 0;
  if (channel->state == CHANNEL_FAILED) channel->state = CHANNEL_FREE;
  if (channel->state == CHANNEL_EXITED || channel->state == CHANNEL_FREE) return;
  /* Killed from inside, as by `kill -9 -1`: what it kept now belongs to the supervisor, and is ended. */
  job.orphans_wanted = true;
  if (channel->state == CHANNEL_STARTING) {
    send_spawn_failed(channel->id, EAGAIN);
    close_channel(channel, CHANNEL_FREE);
  } else {
    begin_exit(channel, (struct keeper_event){.exit_signal = SIGKILL});
  }
}

static void reap(void) {
  child_ended = 0;
  read_keeper_events();
  for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;) {
    for (int i = 0; i < MAX_CHANNELS; i++)
      if (channels[i].state != CHANNEL_FREE && channels[i].keeper == pid) {
        read_keeper_events();
        if (channels[i].keeper == pid) keeper_ended(&channels[i]);
      }
  }
}

/* ---- bytes from programs ---- */

static bool discards(const struct channel *channel) {
  return channel->muted || channel->state == CHANNEL_EXITED;
}

static void account_read(struct outlet *out, uint32_t bytes) {
  out->must_send -= bytes < out->must_send ? bytes : out->must_send;
}

static void end_of_stream(struct outlet *out) {
  close_fd(&out->fd);
  out->must_send = 0;
}

static void discard(struct outlet *out, uint32_t bytes) {
  static uint8_t waste[CHUNK_BYTES];
  while (bytes > 0 && out->fd >= 0) {
    ssize_t got = read(out->fd, waste, bytes < sizeof waste ? bytes : sizeof waste);
    if (got == 0) return end_of_stream(out);
    if (got < 0) return;
    account_read(out, (uint32_t)got);
    bytes -= (uint32_t)got;
  }
}

/* One frame at most: the loop comes round, and every stream has its turn. */
static void forward(struct channel *channel, int index, uint32_t at_most) {
  static const uint8_t types[3] = {FRAME_STDOUT, FRAME_STDERR, FRAME_CONTROL_OUT};
  struct outlet *out = &channel->out[index];
  if (at_most > out->credit) at_most = out->credit;
  if (at_most > CHUNK_BYTES) at_most = CHUNK_BYTES;
  if (out->fd < 0 || at_most == 0 || !outgoing_can_take_output()) return;
  uint8_t *at = outgoing_reserve(CHUNK_BYTES);
  ssize_t got = read(out->fd, at, at_most);
  if (got == 0) return end_of_stream(out);
  if (got < 0) {
    if (errno == EAGAIN) out->must_send = 0; /* the program itself took back what it had written */
    return;
  }
  outgoing_commit(types[index], channel->id, (size_t)got);
  out->credit -= (uint32_t)got;
  account_read(out, (uint32_t)got);
  out->rest_until = got < SMALL_READ_BYTES ? now_ns + COALESCE_NS : 0;
}

static bool streams_flushed(const struct channel *channel) {
  return channel->out[0].must_send == 0 && channel->out[1].must_send == 0;
}

/* What was printed before a control message goes before it: the pipes are measured after the message was seen. */
static void pump_control(struct channel *channel, bool readable) {
  struct outlet *control = &channel->out[2];
  if (control->fd < 0) return;
  if (control->must_send == 0 && readable) {
    control->must_send = bytes_in_pipe(control->fd);
    if (control->must_send == 0) return discard(control, 1); /* the end of the pipe */
    for (int i = 0; i < 2; i++) {
      channel->out[i].must_send = bytes_in_pipe(channel->out[i].fd);
      if (channel->muted) discard(&channel->out[i], channel->out[i].must_send);
    }
  }
  if (control->must_send > 0 && streams_flushed(channel)) forward(channel, 2, control->must_send);
}

static void send_exit(struct channel *channel) {
  uint8_t payload[20];
  uint8_t *at = put_u32(payload, (uint32_t)channel->exit.exit_code);
  at = put_u32(at, (uint32_t)channel->exit.exit_signal);
  at = put_u32(at, (uint32_t)(channel->exit.cpu_ms >> 32));
  at = put_u32(at, (uint32_t)channel->exit.cpu_ms);
  put_u32(at, channel->exit.max_rss_kib);
  send_frame(FRAME_EXIT, channel->id, payload, sizeof payload);
  channel->pid = 0;
}

/* ---- bytes to programs ---- */

static void send_input_credit(struct channel *channel, int index) {
  uint8_t payload[5];
  payload[0] = index == 0 ? STREAM_STDIN : STREAM_CONTROL;
  put_u32(payload + 1, channel->in[index].owed);
  channel->in[index].owed = 0;
  send_frame(FRAME_STDIN_CREDIT, channel->id, payload, sizeof payload);
}

static void take_input(struct inlet *in, uint32_t bytes) {
  in->length -= bytes;
  in->head = in->length == 0 ? 0 : in->head + bytes;
  in->owed += bytes;
}

static void pump_input(struct channel *channel, int index) {
  struct inlet *in = &channel->in[index];
  while (in->length > 0 && in->fd >= 0) {
    ssize_t written = write(in->fd, in->queue + in->head, in->length);
    if (written > 0)
      take_input(in, (uint32_t)written);
    else if (errno == EAGAIN || errno == EINTR)
      break;
    else
      close_fd(&in->fd); /* nobody reads any more */
  }
  if (in->fd < 0) take_input(in, in->length);
  if (in->length == 0 && in->close_when_empty) close_fd(&in->fd);
  if (in->owed >= CREDIT_STEP_BYTES || (in->owed > 0 && in->length == 0)) send_input_credit(channel, index);
}

static void queue_input(struct channel *channel, int index, const uint8_t *bytes, size_t length) {
  struct inlet *in = &channel->in[index];
  if (length > sizeof in->queue - in->length) return send_error(channel->id, "input beyond its credit");
  if (in->head + in->length + length > sizeof in->queue) {
    memmove(in->queue, in->queue + in->head, in->length);
    in->head = 0;
  }
  memcpy(in->queue + in->head + in->length, bytes, length);
  in->length += (uint32_t)length;
  pump_input(channel, index);
}

/* ---- signals and kills ---- */

static void signal_channel(struct channel *channel, int number, int scope) {
  scan_processes();
  for (uint32_t i = 0; i < process_count; i++) {
    const struct process *process = &processes[i];
    bool is_main = process->pid == channel->pid && process->parent == channel->keeper;
    bool chosen = is_main || (scope != SCOPE_PROCESS && descends_from(process, channel->keeper) &&
                              (scope == SCOPE_TREE || !existed_at(&channel->mark, process)));
    if (chosen && channel->keeper > 0 && !is_dead(process)) kill(process->pid, number);
  }
}

static bool is_keeper(pid_t pid) {
  for (int i = 0; i < MAX_CHANNELS; i++)
    if (channels[i].state != CHANNEL_FREE && channels[i].keeper == pid) return true;
  return false;
}

/* Of no channel: a child of the supervisor that is no keeper, or below one. */
static bool is_orphan(const struct process *process) {
  pid_t self = getpid();
  for (uint32_t depth = 0; process != NULL && depth < MAX_PROCESSES; depth++) {
    if (process->parent == self) return !is_keeper(process->pid);
    process = find_process(process->parent);
  }
  return false;
}

static bool is_victim(const struct process *process) {
  if (is_dead(process)) return false;
  if (job.orphans) return is_orphan(process);
  struct channel *channel = job.channel;
  if (channel->keeper <= 0 || !descends_from(process, channel->keeper)) return false;
  return channel->kill_wanted == KILL_ALL || !existed_at(&channel->mark, process);
}

static bool was_stopped(pid_t pid) {
  for (uint32_t i = 0; i < job.stopped_count; i++)
    if (job.stopped[i] == pid) return true;
  return false;
}

static void finish_job(bool complete) {
  struct channel *channel = job.channel;
  job.channel = NULL;
  if (job.orphans) {
    job.orphans = false;
    return;
  }
  if (channel->kill_wanted == KILL_ALL) {
    /* With nothing left to keep it ends by itself, unless the guest stopped it. */
    if (channel->keeper > 0) kill(channel->keeper, complete ? SIGCONT : SIGKILL);
  } else {
    uint8_t payload[5];
    put_u32(payload, job.killed);
    payload[4] = complete ? 1 : 0;
    send_frame(FRAME_KILLED, channel->id, payload, sizeof payload);
  }
  channel->kill_wanted = KILL_NONE;
}

static void step_job(void) {
  scan_processes();
  uint32_t victims = 0, running = 0;
  for (uint32_t i = 0; i < process_count; i++) {
    if (!is_victim(&processes[i])) continue;
    victims++;
    if (was_stopped(processes[i].pid)) continue;
    running++;
    kill(processes[i].pid, SIGSTOP);
    if (job.stopped_count < MAX_PROCESSES) job.stopped[job.stopped_count++] = processes[i].pid;
  }
  bool late = now_ns - job.started > KILL_DEADLINE_NS;
  job.next = now_ns + NS_PER_MS;
  if (victims == 0 && !scan_torn) return finish_job(true);
  if (late) return finish_job(false);
  if (running > 0 || victims == 0) {
    job.next = now_ns; /* look again at once: what was not seen may have forked */
    return;
  }
  for (uint32_t i = 0; i < process_count; i++)
    if (is_victim(&processes[i])) kill(processes[i].pid, SIGKILL);
  job.killed += job.stopped_count;
  job.stopped_count = 0;
}

static bool job_active(void) { return job.channel != NULL || job.orphans; }

static void start_job(struct channel *channel) {
  job.channel = channel;
  job.orphans = channel == NULL;
  job.started = job.next = now_ns;
  job.killed = job.stopped_count = 0;
}

/* False when nothing waits to be killed. */
static bool pick_job(void) {
  if (job_active()) return true;
  if (job.orphans_wanted) {
    job.orphans_wanted = false;
    start_job(NULL);
    return true;
  }
  for (int i = 0; i < MAX_CHANNELS; i++) {
    if (channels[i].state < CHANNEL_RUNNING || channels[i].kill_wanted == KILL_NONE) continue;
    start_job(&channels[i]);
    return true;
  }
  return false;
}

static void run_jobs(void) {
  for (int passes = 0; passes < 8 && pick_job() && now_ns >= job.next; passes++) step_job();
}

/* ---- frames from the host ---- */

static void send_ready(void) {
  uint8_t payload[5] = {WIRE_VERSION};
  put_u32(payload + 1, (uint32_t)getpid());
  send_frame(FRAME_READY, 0, payload, sizeof payload);
}

static void unmute(struct channel *channel) {
  if (!channel->muted) return;
  for (int i = 0; i < 2; i++) discard(&channel->out[i], bytes_in_pipe(channel->out[i].fd));
  take_input(&channel->in[0], channel->in[0].length); /* meant for what ran before */
  channel->muted = false;
  pump_input(channel, 0);
}

static void handle_channel_frame(struct channel *channel, uint8_t type, const uint8_t *payload, size_t length) {
  switch (type) {
    case FRAME_STDIN:
      return queue_input(channel, 0, payload, length);
    case FRAME_CONTROL_IN:
      return queue_input(channel, 1, payload, length);
    case FRAME_STDIN_CLOSE:
      channel->in[0].close_when_empty = true;
      return pump_input(channel, 0);
    case FRAME_SIGNAL:
      if (length == 2 && payload[0] > 0 && payload[0] < NSIG) return signal_channel(channel, payload[0], payload[1]);
      break;
    case FRAME_MARK:
      return take_mark(&channel->mark);
    case FRAME_KILL_SINCE_MARK:
      if (channel->kill_wanted == KILL_NONE) channel->kill_wanted = KILL_NEWER;
      return;
    case FRAME_MUTE:
      channel->muted = true;
      return;
    case FRAME_UNMUTE:
      return unmute(channel);
    case FRAME_CREDIT:
      if (length == 5 && payload[0] >= STREAM_STDOUT && payload[0] <= STREAM_CONTROL) {
        struct outlet *out = &channel->out[payload[0] - 1];
        uint32_t granted = get_u32(payload + 1);
        out->credit = granted > UINT32_MAX - out->credit ? UINT32_MAX : out->credit + granted;
        return;
      }
      break;
    case FRAME_RELEASE:
      channel->release_wanted = channel->muted = true;
      channel->kill_wanted = KILL_ALL;
      return;
    default:
      break;
  }
  send_error(channel->id, "unknown or malformed frame");
}

static void handle_frame(uint8_t type, uint32_t id, uint8_t *payload, size_t length) {
  if (type == FRAME_HELLO) return send_ready();
  if (type == FRAME_PING && length <= 64) return send_frame(FRAME_PONG, id, payload, length);
  if (type == FRAME_SPAWN) return spawn(id, payload, length);
  struct channel *channel = find_channel(id);
  /* One of an unknown channel has crossed the end of its channel on the way. */
  if (channel != NULL) handle_channel_frame(channel, type, payload, length);
}

/* False when the stream is not this protocol: where the next frame starts is then unknown. */
static bool handle_incoming(void) {
  while (incoming.tail - incoming.head >= 4 && outgoing_room() >= FRAME_HEADER_BYTES + REPLY_ROOM_BYTES) {
    uint32_t length = get_u32(incoming.bytes + incoming.head);
    if (length < 5 || length > MAX_FRAME_BYTES) {
      send_error(0, "malformed frame length");
      return false;
    }
    if (incoming.tail - incoming.head < 4 + (size_t)length) return true;
    uint8_t *frame = incoming.bytes + incoming.head + 4;
    incoming.head += 4 + length;
    handle_frame(frame[0], get_u32(frame + 1), frame + 5, length - 5);
  }
  return true;
}

/* ---- the loop ---- */

static struct pollfd polled[3 + MAX_CHANNELS * 5];
static struct { uint8_t channel, stream; } polled_as[3 + MAX_CHANNELS * 5];
static nfds_t polled_count;

static void watch(int fd, short events, int channel, int stream) {
  polled_as[polled_count].channel = (uint8_t)channel;
  polled_as[polled_count].stream = (uint8_t)stream;
  polled[polled_count++] = (struct pollfd){.fd = fd, .events = events};
}

static bool wants_output(const struct channel *channel, int index, long long *wake_at) {
  const struct outlet *out = &channel->out[index];
  if (out->fd < 0 || channel->state < CHANNEL_RUNNING) return false;
  if (index == 2 && out->must_send > 0) return false; /* pumped as soon as the other streams are through */
  if (discards(channel) && (out->must_send == 0 || channel->muted)) return true;
  if (index < 2 && out->credit == 0) return false;
  if (!outgoing_can_take_output()) return false;
  if (out->must_send == 0 && index < 2 && out->rest_until > now_ns) {
    if (out->rest_until < *wake_at) *wake_at = out->rest_until;
    return false;
  }
  return true;
}

static void watch_channel(int number, long long *wake_at) {
  struct channel *channel = &channels[number];
  for (int i = 0; i < 3; i++)
    if (wants_output(channel, i, wake_at)) watch(channel->out[i].fd, POLLIN, number, 2 + i);
  for (int i = 0; i < 2; i++)
    if (channel->in[i].fd >= 0 && channel->in[i].length > 0) watch(channel->in[i].fd, POLLOUT, number, i);
}

static void wait_for_events(const sigset_t *mask) {
  long long wake_at = pick_job() ? job.next : INT64_MAX;
  polled_count = 0;
  bool can_answer = outgoing_room() >= 2 * REPLY_ROOM_BYTES;
  watch(STDIN_FILENO, can_answer ? POLLIN : 0, 0, 0);
  watch(STDOUT_FILENO, outgoing.head < outgoing.tail ? POLLOUT : 0, 0, 0);
  watch(event_pipe[0], can_answer ? POLLIN : 0, 0, 0);
  for (int i = 0; i < MAX_CHANNELS; i++)
    if (channels[i].state >= CHANNEL_RUNNING) watch_channel(i, &wake_at);
  struct timespec timeout = {0};
  if (wake_at > now_ns && wake_at != INT64_MAX) {
    timeout.tv_sec = (wake_at - now_ns) / 1000000000LL;
    timeout.tv_nsec = (wake_at - now_ns) % 1000000000LL;
  }
  if (ppoll(polled, polled_count, wake_at == INT64_MAX ? NULL : &timeout, mask) < 0)
    for (nfds_t i = 0; i < polled_count; i++) polled[i].revents = 0;
  update_clock();
}

static void serve_polled(nfds_t index) {
  struct channel *channel = &channels[polled_as[index].channel];
  int stream = polled_as[index].stream;
  if (polled[index].revents == 0 || channel->state < CHANNEL_RUNNING) return;
  if (stream < 2) return pump_input(channel, stream);
  struct outlet *out = &channel->out[stream - 2];
  if (out->fd != polled[index].fd) return;
  if (stream == 4 && channel->state == CHANNEL_RUNNING) return pump_control(channel, true);
  if (discards(channel) && (out->must_send == 0 || channel->muted)) return discard(out, CHUNK_BYTES);
  forward(channel, stream - 2, out->must_send > 0 ? out->must_send : CHUNK_BYTES);
}

static void settle_channel(struct channel *channel) {
  if (channel->state < CHANNEL_RUNNING) return;
  for (int i = 0; i < 2; i++) {
    struct outlet *out = &channel->out[i];
    if (out->must_send > 0 && channel->muted) discard(out, out->must_send);
    if (out->must_send > 0 && bytes_in_pipe(out->fd) == 0) out->must_send = 0;
  }
  if (channel->release_wanted) discard(&channel->out[2], channel->out[2].must_send);
  pump_control(channel, false);
  if (channel->state != CHANNEL_EXITED || channel->gone_sent) return;
  if (channel->pid != 0) {
    if (!streams_flushed(channel) || channel->out[2].must_send > 0) return;
    send_exit(channel);
  }
  if (channel->keeper != 0) return;
  send_frame(FRAME_GONE, channel->id, NULL, 0);
  channel->gone_sent = true;
}

static void settle_channels(void) {
  for (int i = 0; i < MAX_CHANNELS; i++) {
    struct channel *channel = &channels[i];
    if (outgoing_room() < REPLY_ROOM_BYTES) return;
    settle_channel(channel);
    bool busy = job.channel == channel || channel->kill_wanted != KILL_NONE;
    if (channel->state == CHANNEL_EXITED && channel->gone_sent && channel->release_wanted && !busy) {
      send_frame(FRAME_RELEASED, channel->id, NULL, 0);
      close_channel(channel, CHANNEL_FREE);
    }
  }
}

/* The host is gone. As PID 1 the kernel ends the rest with us; as a plain process every tree is killed first. */
static _Noreturn void end_everything(int code) {
  for (int i = 0; i < MAX_CHANNELS && getpid() != 1; i++) {
    if (channels[i].state == CHANNEL_FREE || channels[i].keeper <= 0) continue;
    channels[i].kill_wanted = KILL_ALL;
    update_clock();
    for (start_job(&channels[i]); job_active(); update_clock()) step_job();
  }
  _exit(code);
}

static void on_child(int number) {
  (void)number;
  child_ended = 1;
}

/* Whatever we were started with, programs get none of it. */
static void close_inherited(void) {
  if (syscall(SYS_close_range, 3, ~0U, 0) == 0) return;
  for (int fd = 3; fd < 256; fd++) close(fd);
}

static void set_up(sigset_t *mask_while_polling) {
  /* Programs run as the same user: without this they could open our pipes through /proc. */
  prctl(PR_SET_DUMPABLE, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  close_inherited();
  umask(022);
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGCHLD, &action, NULL);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  sigprocmask(SIG_BLOCK, &blocked, mask_while_polling);
  sigdelset(mask_while_polling, SIGCHLD);
  if (pipe2(event_pipe, O_CLOEXEC | O_NONBLOCK) < 0) _exit(1);
  take_mark(&channels[0].mark); /* opens /proc while its number is a low one */
  fcntl(event_pipe[1], F_SETFL, 0);
  fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
  fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
}

int main(void) {
  sigset_t mask;
  set_up(&mask);
  update_clock();
  send_ready();
  for (;;) {
    outgoing_flush();
    if (outgoing.broken) end_everything(0);
    wait_for_events(&mask);
    if (polled[1].revents & POLLERR) end_everything(0);
    if (child_ended || polled[2].revents != 0) reap();
    if (polled[0].revents != 0 && !incoming_fill()) end_everything(0);
    for (nfds_t i = 3; i < polled_count; i++) serve_polled(i);
    if (!handle_incoming()) {
      outgoing_flush();
      end_everything(2);
    }
    run_jobs();
    settle_channels();
  }
}
