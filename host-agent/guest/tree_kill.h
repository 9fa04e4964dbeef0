/* Signals to trees of processes, and their end: everything a channel started, wherever it went. */
#ifndef SANDGATE_TREE_KILL_H
#define SANDGATE_TREE_KILL_H

#include "channel.h"

/* The one tree that is being killed: first everything is stopped, so that nothing can fork away from the kill. */
static struct {
  struct channel *channel; /* NULL with `orphans` or when idle */
  bool orphans, orphans_wanted;
  long long started, next;
  uint32_t stopped_count;
  pid_t stopped[MAX_PROCESSES];
} job;

static void signal_program(const struct channel *channel, int number) {
  struct process program;
  if (channel->keeper <= 0 || channel->pid <= 0 || !read_process(channel->pid, &program)) return;
  if (program.parent == channel->keeper && !is_dead(&program)) kill(program.pid, number);
}

/*
 * The program's own group is signalled as one, as a terminal does it: a child that is being forked meanwhile gets the
 * signal too. What left the group is looked up.
 */
static void signal_channel(const struct channel *channel, int number, int scope) {
  if (scope == SCOPE_PROCESS) return signal_program(channel, number);
  bool whole_group = scope == SCOPE_TREE && channel->pid > 0;
  if (whole_group) kill(-channel->pid, number);
  scan_processes();
  for (uint32_t i = 0; i < process_count; i++) {
    const struct process *process = &processes[i];
    if (channel->keeper <= 0 || is_dead(process) || (whole_group && process->group == channel->pid)) continue;
    bool is_main = process->pid == channel->pid && process->parent == channel->keeper;
    bool below = descends_from(process, channel->keeper) &&
                 (scope == SCOPE_TREE || !existed_at(&channel->mark, process));
    if (is_main || below) kill(process->pid, number);
  }
}

static const struct channel *kept_by(pid_t pid) {
  for (int i = 0; i < MAX_CHANNELS; i++)
    if (channels[i].state != CHANNEL_FREE && channels[i].keeper > 0 && channels[i].keeper == pid) return &channels[i];
  return NULL;
}

static bool is_keeper(pid_t pid) { return kept_by(pid) != NULL; }

/* The channel of the nearest keeper above: the keepers of forks are themselves below that of the template. */
static const struct channel *owner_of(const struct process *process) {
  for (uint32_t depth = 0; process != NULL && depth < MAX_PROCESSES; depth++) {
    const struct channel *owner = kept_by(process->parent);
    if (owner != NULL) return owner;
    if (process->parent <= 1) return NULL;
    process = find_process(process->parent);
  }
  scan_torn = true;
  return NULL;
}

/* Of no call: what a keeper that was killed had below it. */
static bool is_orphan(const struct process *process) {
  if (is_keeper(process->pid)) return false;
  const struct channel *owner = owner_of(process);
  return owner == NULL ? descends_from(process, getpid()) : owner->is_template && process->pid != owner->pid;
}

static bool is_victim(const struct process *process) {
  if (is_dead(process)) return false;
  if (job.orphans) return is_orphan(process);
  const struct channel *channel = job.channel;
  if (owner_of(process) != channel || (channel->is_template && process->pid != channel->pid)) return false;
  return channel->kill_wanted == KILL_ALL || !existed_at(&channel->mark, process);
}

static bool was_stopped(pid_t pid) {
  for (uint32_t i = 0; i < job.stopped_count; i++)
    if (job.stopped[i] == pid) return true;
  return false;
}

static void finish_job(bool complete) {
  struct channel *channel = job.channel;
  job.channel = NULL;
  if (job.orphans) {
    job.orphans = false;
    return;
  }
  if (channel->kill_wanted == KILL_ALL) {
    /* With nothing left to keep it ends by itself, unless the guest stopped it. */
    bool ends_by_itself = complete && !channel->is_template; /* that one has the keepers of its forks below it */
    if (channel->keeper > 0) kill(channel->keeper, ends_by_itself ? SIGCONT : SIGKILL);
  } else {
    uint8_t payload[5];
    put_u32(payload, job.stopped_count);
    payload[4] = complete ? 1 : 0;
    send_frame(FRAME_KILLED, channel->id, payload, sizeof payload);
  }
  channel->kill_wanted = KILL_NONE;
}

/* The keeper of a fork is known only when its program begins, and until then it would look like an orphan. */
static bool fork_is_starting(void) {
  for (int i = 0; i < MAX_CHANNELS; i++)
    if (channels[i].state == CHANNEL_STARTING && channels[i].life_fd >= 0) return true;
  return false;
}

static void step_job(void) {
  if (job.orphans && fork_is_starting()) {
    job.orphans = false;
    job.orphans_wanted = true;
    return;
  }
  /* The keeper ends last: without it there is nothing to look for. */
  if (job.channel != NULL && job.channel->keeper <= 0) return finish_job(true);
  scan_processes();
  uint32_t victims = 0, running = 0;
  for (uint32_t i = 0; i < process_count; i++) {
    if (!is_victim(&processes[i])) continue;
    victims++;
    if (was_stopped(processes[i].pid)) continue;
    running++;
    kill(processes[i].pid, SIGSTOP);
    if (job.stopped_count < MAX_PROCESSES) job.stopped[job.stopped_count++] = processes[i].pid;
  }
  bool late = now_ns - job.started > KILL_DEADLINE_NS;
  job.next = now_ns + NS_PER_MS;
  if (victims == 0 && !scan_torn) return finish_job(true);
  if (late) return finish_job(false);
  if (running > 0 || victims == 0) {
    job.next = now_ns; /* look again at once: what was not seen may have forked */
    return;
  }
  /* The program first: the end of its parent or children could send its stopped group a SIGHUP to die of. */
  const struct process *program = job.channel != NULL ? find_process(job.channel->pid) : NULL;
  if (program != NULL && is_victim(program)) kill(program->pid, SIGKILL);
  for (uint32_t i = 0; i < process_count; i++)
    if (is_victim(&processes[i])) kill(processes[i].pid, SIGKILL);
}

static bool job_active(void) { return job.channel != NULL || job.orphans; }

static void start_job(struct channel *channel) {
  job.channel = channel;
  job.orphans = channel == NULL;
  job.started = job.next = now_ns;
  job.stopped_count = 0;
}

/* False when nothing waits to be killed. */
static bool pick_job(void) {
  if (job_active()) return true;
  if (job.orphans_wanted && !fork_is_starting()) {
    job.orphans_wanted = false;
    start_job(NULL);
    return true;
  }
  for (int i = 0; i < MAX_CHANNELS; i++) {
    if (channels[i].state < CHANNEL_RUNNING || channels[i].kill_wanted == KILL_NONE) continue;
    start_job(&channels[i]);
    return true;
  }
  return false;
}

static void run_jobs(void) {
  for (int passes = 0; passes < 8 && pick_job() && now_ns >= job.next; passes++) step_job();
}

#endif
