/* What keepers say, and what follows from their end. */
#ifndef SANDGATE_KEEPER_EVENTS_H
#define SANDGATE_KEEPER_EVENTS_H

#include "channel.h"
#include "spawn.h"
#include "tree_kill.h"

/* From here the bytes now in the pipes go out, and nothing that comes later. */
static void begin_exit(struct channel *channel, struct keeper_event event) {
  channel->state = CHANNEL_EXITED;
  channel->exit = event;
  for (int i = 0; i < 3; i++) channel->out[i].must_send = bytes_in_pipe(channel->out[i].fd);
  for (int i = 0; i < 2; i++) close_fd(&channel->in[i].fd);
  close_fd(&channel->input_reader);
  close_fd(&channel->template_fd);
}

static void spawn_failed(struct channel *channel, int error, enum channel_state state) {
  send_spawn_failed(channel->id, error);
  close_channel(channel, state);
}

static void handle_keeper_event(struct keeper_event event) {
  if (event.slot >= MAX_CHANNELS) return;
  struct channel *channel = &channels[event.slot];
  if (channel->state <= CHANNEL_FAILED || channel->generation != event.generation) return;
  if (event.keeper != 0) channel->keeper = event.keeper;
  if (event.kind == KEEPER_SPAWNED) {
    uint8_t payload[4];
    put_u32(payload, (uint32_t)event.pid);
    channel->pid = event.pid;
    channel->state = CHANNEL_RUNNING;
    send_frame(FRAME_SPAWNED, channel->id, payload, sizeof payload);
  } else if (event.kind == KEEPER_SPAWN_FAILED) {
    spawn_failed(channel, event.error, channel->life_fd >= 0 ? CHANNEL_FREE : CHANNEL_FAILED);
  } else if (channel->state == CHANNEL_STARTING) {
    spawn_failed(channel, EPIPE, CHANNEL_FREE); /* a fork that ended before its program began */
  } else {
    begin_exit(channel, event);
  }
}

static void read_keeper_events(void) {
  struct keeper_event event;
  for (ssize_t got; (got = read(event_pair[0], &event, sizeof event)) > 0;)
    if (got == sizeof event) handle_keeper_event(event);
}

static void keeper_ended(struct channel *channel) {
  channel->keeper = 0;
  if (channel->state == CHANNEL_FAILED) channel->state = CHANNEL_FREE;
  if (channel->state == CHANNEL_EXITED || channel->state == CHANNEL_FREE) return;
  /* Killed from inside, as by `kill -9 -1`: what it kept now belongs to the supervisor, and is ended. */
  job.orphans_wanted = true;
  if (channel->state == CHANNEL_STARTING) {
    spawn_failed(channel, channel->life_fd >= 0 ? EPIPE : EAGAIN, CHANNEL_FREE);
  } else {
    begin_exit(channel, (struct keeper_event){.exit_signal = SIGKILL});
  }
}

/* Nobody holds the other end: the keeper of the fork ended, or its template did, with the request. */
static void life_ended(struct channel *channel) {
  uint32_t generation = channel->generation;
  read_keeper_events();
  if (channel->generation != generation || channel->life_fd < 0) return;
  keeper_ended(channel);
  close_fd(&channel->life_fd);
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

#endif
