/**
 * `npm run bench`: ours against the raw operation, all in one run on one machine. The rows of each part are printed as soon
 * as they are known, and all of them once more as one table; `npm run bench -- calls stream` measures these parts only.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setUp } from '../host-agent/setup/setup.ts';
import { terminalProgress } from '../host-agent/setup/step.ts';
import { startStack } from '../scripts/development/stack.ts';
import { locations } from '../scripts/locations.ts';
import { Api } from './api.ts';
import { measureCalls } from './calls.ts';
import { measureFiles } from './files.ts';
import { measureForks } from './forks.ts';
import { measureGateway } from './gateway.ts';
import { measurePool } from './pool.ts';
import { startRawOperations } from './raw-sandbox.ts';
import { measureSearch } from './search.ts';
import { measureStream } from './stream.ts';
import { measureSuspension } from './suspension.ts';
import { type Measurement, printTable } from './table.ts';
import { measureToolRoads } from './tool-roads.ts';
import { measureWaiting } from './waiting.ts';

const stateDir = await mkdtemp(join(tmpdir(), 'sandgate-bench-'));
const places = { ...locations(process.env), stateDir };
const installation = await setUp(places, process.env, terminalProgress(process.stdout));
const stack = await startStack({ locations: places, installation, port: 0 });
const api = new Api(stack.url, await stack.token());
const raw = await startRawOperations(installation).catch(async (error: unknown) => {
  await stack.stop();
  throw error;
});

/** In this order: what is small and quick is measured before what leaves much behind in the stack. */
const PARTS: Record<string, () => Promise<Measurement>> = {
  calls: () => inSession((id) => measureCalls(api, id, raw)),
  stream: () => inSession((id) => measureStream(api, id, raw, pids())),
  files: () => inSession((id) => measureFiles(api, id, installation, pids())),
  roads: () => inSession((id) => measureToolRoads(api, id)),
  suspension: () => measureSuspension(api, installation, stateDir),
  waiting: () => measureWaiting(api),
  forks: () => measureForks(api),
  gateway: () => measureGateway(places, installation),
  pool: () => measurePool(installation),
  search: () => measureSearch(places.cacheDir),
};

try {
  const measured: Measurement[] = [];
  for (const part of partsOf(process.argv.slice(2))) {
    const { lines, notes } = await measure(part);
    console.log(`\n${part}`);
    printTable(lines);
    for (const note of notes) console.log(note);
    measured.push({ lines, notes });
  }
  console.log('\nall');
  printTable(measured.flatMap(({ lines }) => lines));
  for (const note of measured.flatMap(({ notes }) => notes)) console.log(note);
} finally {
  await api.close();
  await raw.stop();
  await stack.stop();
  await rm(stateDir, { recursive: true, force: true });
}

/** All parts where none is named. */
function partsOf(named: readonly string[]): string[] {
  const unknown = named.filter((part) => !(part in PARTS));
  if (unknown.length > 0) {
    throw new Error(
      `no part of the bench: ${unknown.join(', ')}; expected of ${Object.keys(PARTS).join(', ')}`,
    );
  }
  return named.length > 0 ? [...named] : Object.keys(PARTS);
}

/** A part that fails costs its own rows only, and the run its success. */
async function measure(part: string): Promise<Measurement> {
  try {
    return (await PARTS[part]?.()) ?? { lines: [], notes: [] };
  } catch (error) {
    process.exitCode = 1;
    console.error(error);
    return { lines: [], notes: [`${part}: NOT MEASURED, it failed`] };
  }
}

async function inSession(measured: (sessionId: string) => Promise<Measurement>): Promise<Measurement> {
  const { session_id: id } = await api.createSession();
  const measurement = await measured(id);
  await api.deleteSession(id);
  return measurement;
}

function pids(): { hostAgent: number; workerd: number } {
  const [hostAgent, workerd] = [stack.hostAgentPid(), stack.workerdPid()];
  if (hostAgent === undefined || workerd === undefined) throw new Error('the stack is not whole');
  return { hostAgent, workerd };
}
