/*
 * Holds the agent's ends of the sandboxes' streams, so that they see no end of their input while no agent is there; a next agent
 * joins them here, and what it says and hears is passed on. It ends with the last sandbox, or when no agent came in time.
 *
 *   stream-keeper keep SOCKET SECONDS   says "ready" once it can be called; lives on when its parent is gone
 *   stream-keeper give SOCKET NAME      hands the descriptors 3, 4 and 5 over to it
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "caller.h"
#include "messenger.h"

#define BACKLOG 128
/* So long it waits for its first agent, however short the time of the next ones is. */
#define FIRST_AGENT_SECONDS 30
#define PAUSE_MS 100

struct kept {
  char name[NAME_BYTES];
  struct stream streams[STREAMS];
};

static struct kept *keeps;
static size_t keep_count;
static struct caller *callers;
static size_t caller_count;
static bool had_agent;
static bool is_told_to_end;
/* When it ends unless an agent comes; only where none is there. */
static int64_t deadline_ms;

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct kept *find(const char *name) {
  for (size_t index = 0; index < keep_count; index++)
    if (strcmp(keeps[index].name, name) == 0) return &keeps[index];
  return NULL;
}

static bool is_agent_there(void) {
  for (size_t index = 0; index < caller_count; index++)
    if (callers[index].is_agent) return true;
  return false;
}

/* What was kept under the name before goes: whoever gives it again was not told that we have it. */
static struct kept *room_for(const char *name) {
  struct kept *former = find(name);
  if (former != NULL) {
    for (int index = 0; index < STREAMS; index++) end_stream(&former->streams[index]);
    return former;
  }
  struct kept *grown = realloc(keeps, (keep_count + 1) * sizeof *keeps);
  if (grown == NULL) return NULL;
  keeps = grown;
  struct kept *added = &keeps[keep_count++];
  *added = (struct kept){0};
  strcpy(added->name, name);
  return added;
}

static bool keep(struct caller *caller) {
  if (caller->stream_count != STREAMS) return false;
  struct kept *kept = room_for(name_in(caller));
  if (kept == NULL) return false;
  for (int index = 0; index < STREAMS; index++)
    kept->streams[index] = (struct stream){.sandbox = caller->streams[index], .agent = -1, .is_input = index == 0};
  caller->stream_count = 0;
  return true;
}

/* The connection becomes the stream; one that is not there ends at once, as it would with the sandbox. */
static void join(struct caller *caller) {
  struct kept *kept = find(name_in(caller));
  unsigned index = (unsigned char)caller->order[1];
  if (kept != NULL && index < STREAMS && kept->streams[index].sandbox >= 0) {
    leave_agent(&kept->streams[index]);
    kept->streams[index].agent = caller->descriptor;
    caller->descriptor = -1;
  }
  hang_up(caller);
}

static bool say(int descriptor, const char *bytes, size_t length) {
  return send(descriptor, bytes, length, MSG_NOSIGNAL) == (ssize_t)length;
}

static void greet_agent(struct caller *caller) {
  const char none[NAME_BYTES] = {0};
  caller->is_agent = had_agent = true;
  bool is_heard = true;
  for (size_t index = 0; is_heard && index < keep_count; index++)
    is_heard = say(caller->descriptor, keeps[index].name, NAME_BYTES);
  if (!is_heard || !say(caller->descriptor, none, NAME_BYTES)) hang_up(caller);
}

static void obey(struct caller *caller) {
  const char accepted = ACCEPTED;
  caller->order[ORDER_BYTES - 1] = 0;
  switch (caller->order[0]) {
    case ORDER_AGENT:
      greet_agent(caller);
      return;
    case ORDER_JOIN:
      join(caller);
      return;
    case ORDER_KEEP:
      if (keep(caller)) say(caller->descriptor, &accepted, 1);
      hang_up(caller);
      return;
    default:
      hang_up(caller);
  }
}

static void hear(struct caller *caller) {
  char word;
  if (!caller->is_agent) {
    if (has_ordered(caller)) obey(caller);
    return;
  }
  ssize_t got = recv(caller->descriptor, &word, 1, MSG_DONTWAIT);
  if (got > 0) is_told_to_end = true;
  else if (got == 0 || !would_block()) hang_up(caller);
}

static void answer(int listener) {
  int descriptor = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (descriptor < 0) {
    /* Without descriptors it would be asked again at once, for as long as there are none. */
    if (errno == EMFILE || errno == ENFILE) poll(NULL, 0, PAUSE_MS);
    return;
  }
  struct ucred peer;
  socklen_t length = sizeof peer;
  struct caller *grown = NULL;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid())
    grown = realloc(callers, (caller_count + 1) * sizeof *callers);
  if (grown == NULL) {
    close(descriptor);
    return;
  }
  callers = grown;
  callers[caller_count++] = called_by(descriptor);
}

static void remove_what_is_over(void) {
  for (size_t index = caller_count; index-- > 0;)
    if (callers[index].descriptor < 0) callers[index] = callers[--caller_count];
  for (size_t index = keep_count; index-- > 0;) {
    struct stream *streams = keeps[index].streams;
    if (streams[0].sandbox < 0 && streams[1].sandbox < 0 && streams[2].sandbox < 0) keeps[index] = keeps[--keep_count];
  }
}

/* False where nothing can be waited for any more. */
static bool serve_once(int listener, int timeout_ms) {
  size_t count = 1 + caller_count + keep_count * STREAMS * 2;
  struct pollfd *entries = calloc(count, sizeof *entries);
  if (entries == NULL) return false;
  size_t next = 0;
  entries[next++] = (struct pollfd){.fd = listener, .events = POLLIN};
  const size_t callers_before = caller_count;
  for (size_t index = 0; index < callers_before; index++)
    entries[next++] = (struct pollfd){.fd = callers[index].descriptor, .events = POLLIN};
  const size_t streams_from = next;
  const size_t keeps_before = keep_count;
  for (size_t index = 0; index < keeps_before * STREAMS; index++, next += 2)
    watch_stream(&keeps[index / STREAMS].streams[index % STREAMS], &entries[next]);
  int ready = poll(entries, count, timeout_ms);
  if (ready > 0) {
    /* What joins a stream does so after it was served as it was when it was asked. */
    for (size_t index = 0; index < keeps_before * STREAMS; index++)
      serve_stream(&keeps[index / STREAMS].streams[index % STREAMS], &entries[streams_from + index * 2]);
    for (size_t index = 0; index < callers_before; index++)
      if (entries[1 + index].revents != 0) hear(&callers[index]);
    if (entries[0].revents != 0) answer(listener);
    remove_what_is_over();
  }
  free(entries);
  return ready >= 0 || errno == EINTR;
}

static void serve(int listener, int64_t seconds) {
  deadline_ms = now_ms() + 1000 * (seconds > FIRST_AGENT_SECONDS ? seconds : FIRST_AGENT_SECONDS);
  bool was_there = false;
  while (!is_told_to_end) {
    bool is_there = is_agent_there();
    if (was_there && !is_there) deadline_ms = now_ms() + 1000 * seconds;
    was_there = is_there;
    int64_t left_ms = is_there ? -1 : deadline_ms - now_ms();
    if (!is_there && (left_ms <= 0 || (had_agent && keep_count == 0))) return;
    if (!serve_once(listener, (int)left_ms)) return;
  }
}

static int listen_at(const char *path) {
  struct sockaddr_un address;
  if (!address_of(path, &address)) return -1;
  unlink(path);
  umask(0177);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0) return -1;
  return listen(listener, BACKLOG) == 0 ? listener : -1;
}

static void use_all_descriptors(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static int keep_streams(const char *path, const char *seconds) {
  signal(SIGPIPE, SIG_IGN);
  use_all_descriptors();
  int listener = listen_at(path);
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (listener < 0 || nothing < 0 || write(STDOUT_FILENO, "ready\n", 6) != 6) return 1;
  for (int standard = 0; standard < 3; standard++) dup2(nothing, standard);
  serve(listener, strtoll(seconds, NULL, 10));
  return 0;
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  if (strcmp(arguments[1], "keep") == 0) return keep_streams(arguments[2], arguments[3]);
  if (strcmp(arguments[1], "give") == 0) return hand_over(arguments[2], arguments[3]);
  return 2;
}
