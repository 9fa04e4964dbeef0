/* Hands streams of the agent's over to its keeper: of a child's descriptors Node says which they are, of its own it does not. */
#ifndef SANDGATE_STREAM_KEEPER_MESSENGER_H
#define SANDGATE_STREAM_KEEPER_MESSENGER_H

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol.h"

static bool address_of(const char *path, struct sockaddr_un *address) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address->sun_path) return false;
  strcpy(address->sun_path, path);
  return true;
}

static int hand_over(const char *path, const char *name) {
  struct sockaddr_un address;
  char order[ORDER_BYTES] = {ORDER_KEEP};
  if (!address_of(path, &address) || strlen(name) >= NAME_BYTES) return 1;
  strcpy(order + NAME_OFFSET, name);
  int keeper = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (keeper < 0 || connect(keeper, (struct sockaddr *)&address, sizeof address) != 0) return 1;

  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(STREAMS * sizeof(int))];
  } control = {0};
  struct iovec text = {.iov_base = order, .iov_len = sizeof order};
  struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(STREAMS * sizeof(int));
  int streams[STREAMS];
  for (int index = 0; index < STREAMS; index++) streams[index] = FIRST_STREAM + index;
  memcpy(CMSG_DATA(rights), streams, sizeof streams);
  if (sendmsg(keeper, &message, MSG_NOSIGNAL) != sizeof order) return 1;
  char answer = 0;
  return read(keeper, &answer, 1) == 1 && answer == ACCEPTED ? 0 : 1;
}

#endif
