/*
 * PID 1 of a sandbox: starts programs for the host, carries their bytes under credit, and kills whole process trees.
 * One poll loop, fixed memory: a program blocks when the host grants no credit, never the supervisor.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include "census.h"
#include "channel.h"
#include "identity.h"
#include "input.h"
#include "keeper_events.h"
#include "output.h"
#include "spawn.h"
#include "stand_still.h"
#include "template.h"
#include "tree_kill.h"

/* ---- frames from the host ---- */

static void send_ready(void) {
  uint8_t payload[5] = {WIRE_VERSION};
  put_u32(payload + 1, (uint32_t)getpid());
  send_frame(FRAME_READY, 0, payload, sizeof payload);
}

static void unmute(struct channel *channel) {
  if (!channel->muted) return;
  for (int i = 0; i < 2; i++) discard(&channel->out[i], bytes_in_pipe(channel->out[i].fd));
  renew_input(channel);
  channel->muted = channel->is_held = false;
  pump_input(channel, 0);
}

static void handle_channel_frame(struct channel *channel, uint8_t type, const uint8_t *payload, size_t length) {
  switch (type) {
    case FRAME_STDIN:
      return queue_input(channel, 0, payload, length);
    case FRAME_CONTROL_IN:
      channel->out[2].small_reads = 0;
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
  if (type == FRAME_FORK) return fork_template(id, payload, length);
  if (type == FRAME_CENSUS) return send_census();
  if (type == FRAME_STAND_STILL) return stand_still(payload, length);
  if (type == FRAME_GO_ON) return go_on(payload, length);
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

#define LIFE 5 /* beside the numbers of the streams: 0, 1 in, 2 to 4 out */
static struct pollfd polled[3 + MAX_CHANNELS * 6];
static struct { uint8_t channel, stream; } polled_as[3 + MAX_CHANNELS * 6];
static nfds_t polled_count;

static void watch(int fd, short events, int channel, int stream) {
  polled_as[polled_count].channel = (uint8_t)channel;
  polled_as[polled_count].stream = (uint8_t)stream;
  polled[polled_count++] = (struct pollfd){.fd = fd, .events = events};
}

static bool rests(const struct outlet *out, long long *wake_at) {
  if (out->must_send > 0 || out->rest_until <= now_ns) return false;
  if (out->rest_until < *wake_at) *wake_at = out->rest_until;
  return true;
}

static bool wants_output(const struct channel *channel, int index, long long *wake_at) {
  const struct outlet *out = &channel->out[index];
  if (out->fd < 0 || channel->state < CHANNEL_RUNNING) return false;
  if (index < 2 && channel->is_held && channel->state == CHANNEL_RUNNING) return false;
  if (index == 2 && out->must_send > 0) /* goes as soon as the other streams are through */
    return streams_flushed(channel) && out->credit > 0 && outgoing_can_take_output();
  if (index == 2 && channel->state == CHANNEL_RUNNING && rests(out, wake_at)) return false;
  if (discards(channel) && (out->must_send == 0 || channel->muted)) return true;
  if (index < 2 && out->credit == 0) return false;
  if (!outgoing_can_take_output()) return false;
  return index == 2 || !rests(out, wake_at);
}

static void watch_channel(int number, long long *wake_at) {
  struct channel *channel = &channels[number];
  for (int i = 0; i < 3; i++)
    if (wants_output(channel, i, wake_at)) watch(channel->out[i].fd, POLLIN, number, 2 + i);
  for (int i = 0; i < 2; i++)
    if (channel->in[i].fd >= 0 && channel->in[i].length > 0) watch(channel->in[i].fd, POLLOUT, number, i);
}

static void wait_for_events(const sigset_t *mask) {
  long long wake_at = !stands_still && pick_job() ? job.next : INT64_MAX;
  polled_count = 0;
  bool can_answer = outgoing_room() >= 2 * REPLY_ROOM_BYTES;
  watch(STDIN_FILENO, can_answer ? POLLIN : 0, 0, 0);
  watch(STDOUT_FILENO, outgoing.head < outgoing.tail ? POLLOUT : 0, 0, 0);
  watch(event_pair[0], can_answer && !stands_still ? POLLIN : 0, 0, 0);
  for (int i = 0; i < MAX_CHANNELS && !stands_still; i++) {
    if (channels[i].state >= CHANNEL_RUNNING) watch_channel(i, &wake_at);
    if (channels[i].life_fd >= 0 && channels[i].state != CHANNEL_FREE) watch(channels[i].life_fd, POLLIN, i, LIFE);
  }
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
  if (polled[index].revents == 0) return;
  if (stream == LIFE && channel->life_fd == polled[index].fd) return life_ended(channel);
  if (stream == LIFE || channel->state < CHANNEL_RUNNING) return;
  if (stream < 2) return pump_input(channel, stream);
  struct outlet *out = &channel->out[stream - 2];
  if (out->fd != polled[index].fd) return;
  bool running = channel->state == CHANNEL_RUNNING;
  if (stream == 4 && (running || out->must_send > 0)) return pump_control(channel, running);
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
  /*
   * Programs run as the same user: without this they could trace us and write to our memory. It does not hide
   * /proc/1/fd on every gVisor, and what is a pipe there can be opened: so the standard streams of one program are no
   * secret from another of the same sandbox, and everything that is believed comes through sockets, which cannot.
   */
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
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, event_pair) < 0) _exit(1);
  list_pids(listed_pids); /* opens /proc while its number is a low one */
  fcntl(event_pair[1], F_SETFL, 0);
  fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
  fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
}

int main(void) {
  sigset_t mask;
  set_up(&mask);
  update_clock();
  begin_identity();
  send_ready();
  for (;;) {
    outgoing_flush();
    if (outgoing.broken) end_everything(0);
    wait_for_events(&mask);
    if (polled[1].revents & POLLERR) end_everything(0);
    if (!stands_still && (child_ended || polled[2].revents != 0)) reap();
    if (polled[0].revents != 0 && !incoming_fill()) end_everything(0);
    for (nfds_t i = 3; i < polled_count; i++) serve_polled(i);
    if (!handle_incoming()) {
      outgoing_flush();
      end_everything(2);
    }
    if (stands_still) continue;
    run_jobs();
    settle_channels();
  }
}
