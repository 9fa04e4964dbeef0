/*
 * Templates: a program that is started once and forked for each call. It forks a keeper beside itself, and the keeper
 * forks the call: so a call has all that a program has that was started by the supervisor.
 */
#ifndef SANDGATE_TEMPLATE_H
#define SANDGATE_TEMPLATE_H

#include <sys/socket.h>

#include "channel.h"
#include "input.h"
#include "spawn.h"

#define FORK_HEADER_BYTES 17

/* One socket both ways is all the control a fork needs; the supervisor's two ends of it are closed one by one. */
static int open_fork_streams(struct channel *channel, int fds[FORK_FDS]) {
  int error = open_streams(channel, fds, 3);
  if (error != 0) return error;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) return errno;
  for (int end = 0; end < 2; end++) note_fd(pair[end]);
  fcntl(pair[0], F_SETFL, O_NONBLOCK);
  channel->out[2].fd = pair[0];
  fds[3] = pair[1];
  channel->in[1].fd = fcntl(pair[0], F_DUPFD_CLOEXEC, 0);
  note_fd(channel->in[1].fd);
  int life[2];
  if (channel->in[1].fd < 0 || pipe2(life, O_CLOEXEC) < 0) return errno;
  for (int end = 0; end < 2; end++) note_fd(life[end]);
  channel->life_fd = life[0];
  fds[FORK_LIFE] = life[1];
  return 0;
}

static int send_fork_request(int template_fd, struct iovec parts[2], const int fds[FORK_FDS]) {
  union {
    struct cmsghdr header;
    uint8_t bytes[CMSG_SPACE(FORK_FDS * sizeof(int))];
  } control = {0};
  struct msghdr message = {
      .msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(FORK_FDS * sizeof(int));
  memcpy(CMSG_DATA(header), fds, FORK_FDS * sizeof(int));
  return sendmsg(template_fd, &message, MSG_NOSIGNAL) == (ssize_t)(parts[0].iov_len + parts[1].iov_len) ? 0 : EPIPE;
}

static int begin_fork(struct channel *channel, const struct channel *template, const uint8_t *preparation,
                      size_t length) {
  int fds[FORK_FDS] = {-1, -1, -1, -1, -1};
  int error = open_fork_streams(channel, fds);
  struct fork_request request = {.slot = (uint32_t)(channel - channels), .generation = channel->generation};
  struct iovec parts[2] = {{.iov_base = &request, .iov_len = sizeof request},
                           {.iov_base = (void *)preparation, .iov_len = length}};
  if (error == 0) error = send_fork_request(template->template_fd, parts, fds);
  for (int i = 0; i < FORK_FDS; i++) close_fd(&fds[i]);
  return error;
}

/*
 * Payload: u8 flags | u32 credit for stdout, stderr, control | u32 channel of the template | what the fork is to prepare
 * for. Fails with EPIPE where the template is gone or does not listen.
 */
static void fork_template(uint32_t id, const uint8_t *payload, size_t length) {
  if (length < FORK_HEADER_BYTES || length > FORK_HEADER_BYTES + MAX_PREPARATION_BYTES || find_channel(id) != NULL)
    return send_spawn_failed(id, EINVAL);
  const struct channel *template = find_channel(get_u32(payload + 13));
  if (template == NULL || template->template_fd < 0) return send_spawn_failed(id, EPIPE);
  struct channel *channel = find_free_channel();
  if (channel == NULL) return send_spawn_failed(id, EMFILE);
  reset_channel(channel, id, payload);
  channel->is_held = true;
  int error = begin_fork(channel, template, payload + FORK_HEADER_BYTES, length - FORK_HEADER_BYTES);
  if (error == 0) return;
  close_channel(channel, CHANNEL_FREE);
  send_spawn_failed(id, error);
}

#endif
