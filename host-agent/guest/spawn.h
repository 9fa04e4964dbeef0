/* Starting programs for the host. */
#ifndef SANDGATE_SPAWN_H
#define SANDGATE_SPAWN_H

#include <sys/socket.h>

#include "channel.h"

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

/*
 * Pipes for the standard streams, which programs open again by name; sockets for the control pair, for no name in /proc
 * opens those: nothing but the program and what inherits from it can speak there.
 */
static bool open_pair(int pair[2], bool control, bool input) {
  if (!control) return pipe2(pair, O_CLOEXEC) == 0;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) return false;
  return shutdown(pair[input ? 1 : 0], input ? SHUT_RD : SHUT_WR) == 0;
}

static int open_streams(struct channel *channel, int *fds, int count) {
  for (int i = 0; i < count; i++) {
    bool input = i == 0 || i == 3;
    int pair[2];
    if (!open_pair(pair, i >= 3, input)) return errno;
    for (int end = 0; end < 2; end++) note_fd(pair[end]);
    fds[i] = pair[input ? 0 : 1];
    int ours = pair[input ? 1 : 0];
    fcntl(ours, F_SETFL, O_NONBLOCK);
    if (input)
      channel->in[i == 0 ? 0 : 1].fd = ours;
    else
      channel->out[i == 4 ? 2 : i - 1].fd = ours;
  }
  return 0;
}

static int open_template_pair(struct channel *channel, struct program *program) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) return errno;
  for (int end = 0; end < 2; end++) note_fd(pair[end]);
  fcntl(pair[0], F_SETFL, O_NONBLOCK);
  channel->template_fd = pair[0];
  program->fds[3] = pair[1];
  program->fds[4] = fcntl(event_pair[1], F_DUPFD_CLOEXEC, 0);
  note_fd(program->fds[4]);
  return program->fds[4] < 0 ? errno : 0;
}

static int open_pipes(struct channel *channel, struct program *program, uint8_t flags) {
  for (int i = 0; i < 5; i++) program->fds[i] = -1;
  bool control = (flags & SPAWN_WITH_CONTROL) != 0;
  channel->is_template = channel->is_held = (flags & SPAWN_TEMPLATE) != 0;
  int error = open_streams(channel, program->fds, control && !channel->is_template ? 5 : 3);
  return error == 0 && channel->is_template ? open_template_pair(channel, program) : error;
}

static void reset_channel(struct channel *channel, uint32_t id, const uint8_t *header) {
  channel->id = id;
  channel->state = CHANNEL_STARTING;
  channel->keeper = channel->pid = 0;
  channel->muted = (header[0] & SPAWN_MUTED) != 0;
  channel->gone_sent = channel->release_wanted = channel->is_held = false;
  channel->kill_wanted = KILL_NONE;
  channel->mark = (struct mark){.pids = marked_pids[channel - channels]};
  channel->input_reader = channel->template_fd = channel->life_fd = -1;
  channel->is_template = false;
  for (int i = 0; i < 2; i++) {
    struct inlet *in = &channel->in[i];
    in->fd = -1;
    in->close_when_empty = false;
    in->head = in->length = in->owed = 0;
    in->queue = input_queues[channel - channels][i];
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
  int error = open_pipes(channel, program, payload[0]);
  int ours[5];
  memcpy(ours, program->fds, sizeof ours); /* the keeper changes the numbers as soon as it runs */
  if (error == 0) {
    program->error = 0;
    program->event_fd = event_pair[1];
    program->highest_fd = highest_fd;
    program->can_be_held = (payload[0] & SPAWN_INPUT_RENEWED) != 0;
    program->event = (struct keeper_event){.slot = (uint32_t)(channel - channels), .generation = channel->generation};
    channel->keeper = start_keeper(program);
    if (channel->keeper < 0) error = errno;
  }
  if (error == 0 && (payload[0] & SPAWN_INPUT_RENEWED) != 0) {
    channel->input_reader = ours[0];
    ours[0] = -1;
  }
  for (int i = 0; i < 5; i++) close_fd(&ours[i]);
  if (error != 0) {
    close_channel(channel, CHANNEL_FREE);
    send_spawn_failed(id, error);
  }
}

#endif
