/** Starts a process of clients and waits for what it saw. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type Group, type Plan, ReportSchema, type Seen } from './plan.ts';

const CLIENTS = fileURLToPath(new URL('clients.ts', import.meta.url));

/** One report a group, in their order. */
export async function runClients(plan: Plan): Promise<Seen[]> {
  const running = promisify(execFile)(process.execPath, [CLIENTS]);
  running.child.stdin?.end(JSON.stringify(plan));
  const { stdout } = await running;
  return ReportSchema.parse(JSON.parse(stdout));
}

export async function runGroup(plan: Omit<Plan, 'groups'>, group: Group): Promise<Seen> {
  const [seen] = await runClients({ ...plan, groups: [group] });
  if (seen === undefined) throw new Error('the clients said nothing');
  return seen;
}
