/* One stream of a sandbox: kept, and passed on between the sandbox and an agent that joined it. */
#ifndef SANDGATE_STREAM_KEEPER_RELAY_H
#define SANDGATE_STREAM_KEEPER_RELAY_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define RELAY_BYTES 65536

struct stream {
  /* Our duplicate of the agent's end; -1 once the sandbox has closed its own. */
  int sandbox;
  /* Of the agent that joined; -1 where none has, be it that the one that has the end itself still lives. */
  int agent;
  bool is_input;
  /* What was read and is not written yet; nothing is read before it is. */
  char *bytes;
  size_t from;
  size_t to;
};

static void shut(int *descriptor) {
  if (*descriptor >= 0) close(*descriptor);
  *descriptor = -1;
}

/* What such an agent had begun to say is void: it is gone. */
static void leave_agent(struct stream *stream) {
  shut(&stream->agent);
  free(stream->bytes);
  stream->bytes = NULL;
  stream->from = stream->to = 0;
}

static void end_stream(struct stream *stream) {
  leave_agent(stream);
  shut(&stream->sandbox);
}

static int *source_of(struct stream *stream) { return stream->is_input ? &stream->agent : &stream->sandbox; }
static int *sink_of(struct stream *stream) { return stream->is_input ? &stream->sandbox : &stream->agent; }

/* Who is gone takes its own end along: without the sandbox the stream is over. */
static void lose(struct stream *stream, const int *descriptor) {
  if (descriptor == &stream->sandbox) end_stream(stream);
  else leave_agent(stream);
}

static bool would_block(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

static void write_on(struct stream *stream) {
  int *sink = sink_of(stream);
  ssize_t sent = send(*sink, stream->bytes + stream->from, stream->to - stream->from, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (!would_block()) lose(stream, sink);
    return;
  }
  stream->from += (size_t)sent;
  if (stream->from == stream->to) stream->from = stream->to = 0;
}

static void read_on(struct stream *stream) {
  int *source = source_of(stream);
  if (stream->bytes == NULL) stream->bytes = malloc(RELAY_BYTES);
  ssize_t got = stream->bytes == NULL ? 0 : recv(*source, stream->bytes, RELAY_BYTES, MSG_DONTWAIT);
  if (got < 0 && would_block()) return;
  if (got <= 0) {
    lose(stream, source);
    return;
  }
  stream->to = (size_t)got;
  write_on(stream);
}

/* Two entries: the source, and the sink. A source that is gone says so again and again, so it is not asked while we write. */
static void watch_stream(struct stream *stream, struct pollfd *entries) {
  bool is_joined = stream->agent >= 0;
  bool is_writing = stream->to > 0;
  /* Nobody but the agent reads what it has not left to us: only the end is told. */
  entries[0] = (struct pollfd){.fd = is_writing ? -1 : *source_of(stream), .events = is_joined ? POLLIN : 0};
  entries[1] = (struct pollfd){.fd = *sink_of(stream), .events = is_writing ? POLLOUT : 0};
}

static void serve_stream(struct stream *stream, const struct pollfd *entries) {
  const short over = POLLHUP | POLLERR | POLLNVAL;
  if ((entries[1].revents & POLLOUT) != 0) write_on(stream);
  else if ((entries[1].revents & over) != 0) lose(stream, sink_of(stream));
  if (stream->to > 0 || stream->sandbox < 0) return;
  if (stream->agent >= 0 && (entries[0].revents & (POLLIN | over)) != 0) read_on(stream);
  else if (entries[0].fd == stream->sandbox && (entries[0].revents & over) != 0) end_stream(stream);
}

#endif
