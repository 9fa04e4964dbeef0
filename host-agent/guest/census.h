/* How many processes live that the host did not start itself: what keeps a sandbox from being frozen. */
#ifndef SANDGATE_CENSUS_H
#define SANDGATE_CENSUS_H

#include "tree_kill.h"

static bool is_program(pid_t pid) {
  for (int i = 0; i < MAX_CHANNELS; i++)
    if (channels[i].state >= CHANNEL_RUNNING && channels[i].pid == pid) return true;
  return false;
}

static void send_census(void) {
  uint32_t others = 0;
  scan_processes();
  for (uint32_t i = 0; i < process_count; i++) {
    const struct process *process = &processes[i];
    if (is_dead(process) || process->pid == getpid() || is_keeper(process->pid) || is_program(process->pid)) continue;
    others++;
  }
  uint8_t payload[4];
  put_u32(payload, others);
  send_frame(FRAME_COUNTED, 0, payload, sizeof payload);
}

#endif
