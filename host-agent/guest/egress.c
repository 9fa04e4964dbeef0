/*
 * The proxy port of a sandbox that has a way out: takes connections on the loopback address and carries their bytes to
 * the host and back, each under credit of its own. It understands nothing of them and decides nothing: what it carries is
 * the host's proxy to judge. So a program that ends it, or takes its port, gains no more than it has by speaking to it.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "egress_wire.h"

#define MAX_CONNECTIONS 64           /* more wait in the backlog, unaccepted */
#define WINDOW_BYTES (64 * 1024)     /* the first credit of both directions of a connection */
#define CREDIT_STEP_BYTES (16 * 1024)

struct connection {
  uint32_t id;
  int fd; /* -1: the slot is free */
  uint32_t credit; /* what the host takes of this connection */
  uint32_t owed;   /* credit to give back to the host */
  bool read_ended, write_ended, end_wanted;
  uint32_t head, length;
  uint8_t queue[WINDOW_BYTES];
};

static struct connection connections[MAX_CONNECTIONS];
static uint32_t next_id = 1;

static struct connection *find(uint32_t id) {
  for (int i = 0; i < MAX_CONNECTIONS; i++)
    if (connections[i].fd >= 0 && connections[i].id == id) return &connections[i];
  return NULL;
}

static void close_connection(struct connection *connection, bool reset) {
  struct linger abortive = {.l_onoff = 1, .l_linger = 0};
  /* Without it a cut answer would look like a whole one to a client that reads until the end. */
  if (reset) setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &abortive, sizeof abortive);
  close(connection->fd);
  connection->fd = -1;
  send_message(EGRESS_CLOSED, connection->id, 0);
}

static void close_when_over(struct connection *connection) {
  if (connection->read_ended && connection->write_ended) close_connection(connection, false);
}

static void give_credit(struct connection *connection) {
  if (connection->owed < CREDIT_STEP_BYTES && connection->length > 0) return;
  if (connection->owed == 0) return;
  put_u32(MESSAGE_BODY, connection->owed);
  connection->owed = 0;
  send_message(EGRESS_CREDIT, connection->id, 4);
}

/* From the queue to the client. */
static void flush(struct connection *connection) {
  while (connection->length > 0) {
    ssize_t written = send(connection->fd, connection->queue + connection->head, connection->length, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) break;
    if (written <= 0) return close_connection(connection, true);
    connection->length -= (uint32_t)written;
    connection->head = connection->length == 0 ? 0 : connection->head + (uint32_t)written;
    connection->owed += (uint32_t)written;
  }
  give_credit(connection);
  if (connection->length > 0 || !connection->end_wanted || connection->write_ended) return;
  shutdown(connection->fd, SHUT_WR);
  connection->write_ended = true;
  close_when_over(connection);
}

/* From the client to the host, as far as the host takes it. */
static void take(struct connection *connection) {
  size_t room = connection->credit < CHUNK_BYTES ? connection->credit : CHUNK_BYTES;
  if (connection->read_ended || room == 0) return;
  ssize_t got = recv(connection->fd, MESSAGE_BODY, room, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return close_connection(connection, true);
  if (got == 0) {
    connection->read_ended = true;
    send_message(EGRESS_END, connection->id, 0);
    return close_when_over(connection);
  }
  connection->credit -= (uint32_t)got;
  send_message(EGRESS_DATA, connection->id, (size_t)got);
}

static void queue_data(struct connection *connection, const uint8_t *bytes, size_t length) {
  if (connection->end_wanted || length > sizeof connection->queue - connection->length)
    return close_connection(connection, true); /* beyond the credit: the host does not do that */
  if (connection->head + connection->length + length > sizeof connection->queue) {
    memmove(connection->queue, connection->queue + connection->head, connection->length);
    connection->head = 0;
  }
  memcpy(connection->queue + connection->head + connection->length, bytes, length);
  connection->length += (uint32_t)length;
  flush(connection);
}

static void handle(uint8_t kind, uint32_t id, const uint8_t *body, size_t length) {
  struct connection *connection = find(id);
  if (connection == NULL) return; /* has crossed the end of its connection on the way */
  switch (kind) {
    case EGRESS_DATA:
      return queue_data(connection, body, length);
    case EGRESS_END:
      connection->end_wanted = true;
      return flush(connection);
    case EGRESS_CLOSED:
      return close_connection(connection, true);
    case EGRESS_CREDIT:
      if (length == 4) connection->credit += get_u32(body);
      return;
    default:
      return;
  }
}

static void accept_connection(int listener) {
  struct connection *free_slot = NULL;
  for (int i = 0; i < MAX_CONNECTIONS && free_slot == NULL; i++)
    if (connections[i].fd < 0) free_slot = &connections[i];
  if (free_slot == NULL) return;
  int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  *free_slot = (struct connection){.id = next_id++, .fd = fd, .credit = WINDOW_BYTES};
  send_message(EGRESS_OPEN, free_slot->id, 0);
}

static int listen_on(uint16_t port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int on = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0) return -errno;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, MAX_CONNECTIONS) < 0) return -errno;
  return fd;
}

static bool has_free_slot(void) {
  for (int i = 0; i < MAX_CONNECTIONS; i++)
    if (connections[i].fd < 0) return true;
  return false;
}

static void serve(int listener) {
  static struct pollfd polled[2 + MAX_CONNECTIONS];
  polled[0] = (struct pollfd){.fd = CONTROL_IN_FD, .events = POLLIN};
  polled[1] = (struct pollfd){.fd = has_free_slot() ? listener : -1, .events = POLLIN};
  for (int i = 0; i < MAX_CONNECTIONS; i++) {
    struct connection *connection = &connections[i];
    short events = 0;
    if (!connection->read_ended && connection->credit > 0) events |= POLLIN;
    if (connection->length > 0) events |= POLLOUT;
    /* A client that is gone is not looked at while the host takes nothing: what it sent before is still to be read. */
    bool rests = events == 0 && !connection->read_ended;
    polled[2 + i] = (struct pollfd){.fd = rests ? -1 : connection->fd, .events = events};
  }
  if (poll(polled, 2 + MAX_CONNECTIONS, -1) < 0) return;
  for (int i = 0; i < MAX_CONNECTIONS; i++) {
    struct connection *connection = &connections[i];
    short happened = polled[2 + i].revents;
    if (connection->fd < 0 || happened == 0) continue;
    if (happened & POLLOUT) flush(connection);
    if (connection->fd >= 0 && (happened & POLLIN)) take(connection);
    /* Reported unasked, and again and again: nothing more can come or go. */
    if (connection->fd >= 0 && (happened & (POLLERR | POLLHUP)) && !(happened & POLLIN)) close_connection(connection, true);
  }
  if (polled[1].revents != 0) accept_connection(listener);
  if (polled[0].revents != 0 && !receive_messages(handle)) _exit(0);
}

/* Arguments: the port. */
int main(int count, char **arguments) {
  if (count != 2) return 2;
  prctl(PR_SET_DUMPABLE, 0);
  signal(SIGPIPE, SIG_IGN);
  fcntl(CONTROL_IN_FD, F_SETFD, FD_CLOEXEC);
  fcntl(CONTROL_OUT_FD, F_SETFD, FD_CLOEXEC);
  for (int i = 0; i < MAX_CONNECTIONS; i++) connections[i].fd = -1;
  int listener = listen_on((uint16_t)atoi(arguments[1]));
  put_u32(MESSAGE_BODY, listener < 0 ? (uint32_t)-listener : 0);
  send_message(EGRESS_READY, 0, 4);
  if (listener < 0) return 1;
  for (;;) serve(listener);
}
