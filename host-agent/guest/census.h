/* How many processes live that the host did not start itself: what keeps a sandbox from being frozen. */
#ifndef SANDGATE_CENSUS_H
#define SANDGATE_CENSUS_H

#include "tree_kill.h"

static bool is_program(pid_t pid) {
  for (int i = 0; i < MAX_CHANNELS; i++)
    if (channels[i].state >= CHANNEL_RUNNING && channels[i].pid == pid) return true;
  return false;
}

/* Reads nothing of what is known: of a session that does nothing, nothing. */
static uint32_t count_others(void) {
  uint32_t others = 0;
  uint32_t listed = list_pids(listed_pids);
  drop_stat_files_but_of(listed_pids, listed);
  for (uint32_t i = 0; i < listed; i++) {
    pid_t pid = listed_pids[i];
    struct process process;
    if (pid == getpid() || is_keeper(pid) || is_program(pid)) continue;
    if (read_process(pid, &process) && !is_dead(&process)) others++;
  }
  return others;
}

static void send_census(void) {
  uint8_t payload[4];
  put_u32(payload, count_others());
  send_frame(FRAME_COUNTED, 0, payload, sizeof payload);
}

#endif
